//! The log of a measurement: a line of JSON for the settings, then one for each outcome.
//!
//! Lines are appended and never changed. A last line without its end, after a crash, is cut off.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Cost, Outcome, Point, Settings};

/// Version of the lines.
const VERSION: u32 = 1;

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    version: u32,
    /// The program and its commit: outcomes of different programs are not mixed.
    program: String,
    settings: Settings,
}

/// An open log.
#[derive(Debug)]
pub struct Log {
    file: File,
    outcomes: BTreeMap<Point, Outcome>,
}

/// Why a log cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum LogError {
    /// It cannot be read or written.
    Io(PathBuf, io::Error),
    /// A line is not of this version.
    Line(PathBuf, usize, String),
    /// It was written by another program or with other settings.
    Other(PathBuf, String),
}

impl Log {
    /// Opens or creates the log at `path`, to be continued by the same program with the same
    /// settings.
    ///
    /// # Errors
    ///
    /// A file that cannot be read or written, is no log, or is of another program or of other
    /// settings.
    pub fn open(path: &Path, program: &str, settings: &Settings) -> Result<Self, LogError> {
        let failed = |error| LogError::Io(path.to_owned(), error);
        let mut options = OpenOptions::new();
        let mut file =
            options.read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
        let head = Head { version: VERSION, program: program.to_owned(), settings: settings.clone() };
        let Some((found, outcomes, end)) = read(path, &mut file)? else {
            file.set_len(0).map_err(failed)?;
            file.seek(SeekFrom::Start(0)).map_err(failed)?;
            write_line(&mut file, &head).map_err(failed)?;
            return Ok(Self { file, outcomes: BTreeMap::new() });
        };
        if found.program != head.program {
            return Err(LogError::Other(path.to_owned(), format!("it is of {}", found.program)));
        }
        if found.settings != head.settings {
            return Err(LogError::Other(path.to_owned(), "it has other settings".to_owned()));
        }
        file.set_len(end).map_err(failed)?;
        file.seek(SeekFrom::Start(end)).map_err(failed)?;
        Ok(Self { file, outcomes })
    }

    /// The outcome at a point, if the log has it.
    pub fn outcome(&self, point: &Point) -> Option<&Outcome> {
        self.outcomes.get(point)
    }

    /// Appends an outcome.
    ///
    /// # Errors
    ///
    /// A full disk, for example.
    pub fn append(&mut self, outcome: Outcome) -> io::Result<()> {
        write_line(&mut self.file, &outcome)?;
        self.outcomes.insert(outcome.point.clone(), outcome);
        Ok(())
    }

    /// The runs of the other policies in the log at `path`, of any program with these windows.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, is no log, or has other windows.
    pub fn others(path: &Path, settings: &Settings) -> Result<BTreeMap<Point, Vec<Cost>>, LogError> {
        let mut file = File::open(path).map_err(|error| LogError::Io(path.to_owned(), error))?;
        let Some((head, outcomes, _)) = read(path, &mut file)? else {
            return Err(LogError::Other(path.to_owned(), "it is empty".to_owned()));
        };
        if head.settings.windows != settings.windows {
            return Err(LogError::Other(path.to_owned(), "it has other windows".to_owned()));
        }
        Ok(outcomes.into_iter().map(|(point, outcome)| (point, outcome.others)).collect())
    }
}

/// The complete lines of a log, and where they end.
type Lines = (Head, BTreeMap<Point, Outcome>, u64);

/// Reads all complete lines; returns their end. `None` if there is no complete first line.
fn read(path: &Path, file: &mut File) -> Result<Option<Lines>, LogError> {
    let mut lines = BufReader::new(file);
    let (mut head, mut outcomes, mut end) = (None, BTreeMap::new(), 0);
    let mut line = String::new();
    for number in 1.. {
        line.clear();
        let bytes = lines.read_line(&mut line).map_err(|error| LogError::Io(path.to_owned(), error))?;
        if !line.ends_with('\n') {
            break;
        }
        let invalid = |error: serde_json::Error| LogError::Line(path.to_owned(), number, error.to_string());
        if number == 1 {
            let found: Head = serde_json::from_str(&line).map_err(invalid)?;
            if found.version != VERSION {
                let error = format!("version {}, not {VERSION}", found.version);
                return Err(LogError::Line(path.to_owned(), number, error));
            }
            head = Some(found);
        } else {
            let outcome: Outcome = serde_json::from_str(&line).map_err(invalid)?;
            outcomes.insert(outcome.point.clone(), outcome);
        }
        end += bytes as u64;
    }
    if head.is_none() && !line.is_empty() && !line.starts_with('{') {
        let error = "no log of bowwave regret".to_owned();
        return Err(LogError::Line(path.to_owned(), 1, error));
    }
    Ok(head.map(|head| (head, outcomes, end)))
}

fn write_line(file: &mut File, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_string(value)?;
    line.push('\n');
    // One call: a line is in the file or is cut off, never mixed with another.
    file.write_all(line.as_bytes())
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Line(path, line, error) => write!(f, "{} line {line}: {error}", path.display()),
            Self::Other(path, why) => write!(f, "cannot continue {}: {why}", path.display()),
        }
    }
}

impl std::error::Error for LogError {}
