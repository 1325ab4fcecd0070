//! Reads a recording from JSON, one run at a time, so that memory holds one run and not the file.

use std::fmt;
use std::io::{BufReader, Read};

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{Error, Report};
use crate::record::{Recording, Row, Run};

/// Reads a recording from `json` into a page. It may have no runs yet.
pub(super) fn read(json: impl Read) -> Result<Report, Error> {
    const BUFFER: usize = 256 << 10;
    let mut text = serde_json::Deserializer::from_reader(BufReader::with_capacity(BUFFER, json));
    let refused = |error: serde_json::Error| match error.classify() {
        serde_json::error::Category::Io => Error::new(error),
        serde_json::error::Category::Eof => Error::new(format_args!("the recording is cut off: {error}")),
        serde_json::error::Category::Syntax => Error::new(format_args!("not JSON: {error}")),
        serde_json::error::Category::Data => Error::new(format_args!("not a sound recording: {error}")),
    };
    let report = text.deserialize_map(WholeVisitor).map_err(refused)?;
    text.end().map_err(refused)?;
    Ok(report)
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Key {
    Version,
    Title,
    Command,
    Runs,
    Bounds,
    #[serde(other)]
    Other,
}

struct WholeVisitor;

impl<'de> Visitor<'de> for WholeVisitor {
    type Value = Report;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a recording, as `bowwave replay --save` writes it")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Report, A::Error> {
        let mut report = Report::new("", "");
        let (mut version, mut seen_runs) = (None, false);
        while let Some(key) = map.next_key()? {
            match key {
                Key::Version => {
                    let found: u32 = map.next_value()?;
                    if found != Recording::VERSION {
                        return Err(de::Error::custom(Error::version(found)));
                    }
                    version = Some(found);
                }
                Key::Title => report.title = super::units::visible(&map.next_value::<String>()?),
                Key::Command => report.command = super::units::visible(&map.next_value::<String>()?),
                Key::Runs if version.is_none() => {
                    return Err(de::Error::custom("'version' must stand before 'runs'"));
                }
                Key::Runs if seen_runs => return Err(de::Error::duplicate_field("runs")),
                Key::Runs => {
                    map.next_value_seed(Runs(&mut report))?;
                    seen_runs = true;
                }
                Key::Bounds => {
                    for row in map.next_value::<Vec<Row>>()? {
                        report.bound(&row).map_err(de::Error::custom)?;
                    }
                }
                Key::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        match (version, seen_runs) {
            (None, _) => Err(de::Error::missing_field("version")),
            (_, false) => Err(de::Error::missing_field("runs")),
            _ => Ok(report),
        }
    }
}

/// The list of runs; each is added to the page and dropped.
struct Runs<'a>(&'a mut Report);

impl<'de> DeserializeSeed<'de> for Runs<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Runs<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of runs")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(run) = seq.next_element::<Run>()? {
            self.0.add(&run).map_err(de::Error::custom)?;
        }
        Ok(())
    }
}
