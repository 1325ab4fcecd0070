//! `bowwave report`: recorded runs as one HTML file of pictures.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use bowwave_sim::report::Report;

use crate::Failure;
use crate::output::{self, Output};

/// Arguments of `bowwave report`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The page has a verdict, the time of each run compared with the oracle, a table, and pictures: reads, windows and marks by \
offset and time, latency, request sizes, the load of the device, and the use of pages read ahead. It loads nothing.

Examples:
  bowwave report run.json -o report.html
  zcat run.json.gz | bowwave report - -o report.html")]
pub(crate) struct Args {
    /// The recorded runs, as `bowwave replay --save` writes them; - reads standard input
    #[arg(value_name = "RUN")]
    recording: PathBuf,

    /// The HTML file; - writes standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// Reads the recording and writes the page.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let report = read(&args.recording)?;
    if args.output == Path::new("-") {
        let mut output = Output::stdout();
        let outcome = output::written(report.write(&mut output));
        return output.finish(outcome);
    }
    save(report, &args.output)
}

/// Writes the page to the file `path`.
pub(crate) fn save(report: Report, path: &Path) -> Result<(), Failure> {
    let name = path.display();
    let refused = |error: io::Error| {
        failed!("cannot write {name}: {error}").try_this("a file in a directory that you may write")
    };
    let mut file = BufWriter::with_capacity(1 << 18, File::create(path).map_err(refused)?);
    report.write(&mut file).and_then(|()| file.flush()).map_err(refused)
}

fn read(path: &Path) -> Result<Report, Failure> {
    if path == Path::new("-") {
        return parse("standard input", io::stdin().lock());
    }
    let name = path.display().to_string();
    let refused = |error: io::Error| {
        failed!("cannot read {name}: {error}")
            .try_this("a file that `bowwave replay --save` wrote, or - for standard input")
    };
    let file = File::open(path).map_err(refused)?;
    if file.metadata().map_err(refused)?.is_dir() {
        return Err(refused(io::ErrorKind::IsADirectory.into()));
    }
    parse(&name, file)
}

fn parse(name: &str, json: impl Read) -> Result<Report, Failure> {
    Report::read(json)
        .map_err(|error| failed!("{name}: {error}").try_this("a file that `bowwave replay --save` wrote"))
}
