//! Parsed parameters of a device: names, values, and the place of each.

use std::collections::BTreeMap;
use std::fmt;

use toml::de::{DeTable, DeValue};

/// An invalid device description: one line with place, key, value and bound. A missing key has no
/// place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceError(pub(super) String);

/// Parameters by name; later ones replace earlier ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Parameters {
    entries: BTreeMap<String, Entry>,
    /// Every requested key, for the message about unknown ones.
    known: Vec<String>,
}

#[derive(Clone, Debug)]
struct Entry {
    value: Value,
    /// `my.toml:12`, or the override itself.
    place: String,
}

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Number(f64),
    Text(String),
}

impl Parameters {
    /// Adds the parameters of a TOML text named `name`.
    pub(super) fn add_file(&mut self, name: &str, text: &str) -> Result<(), DeviceError> {
        let line = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
        let table = DeTable::parse(text).map_err(|error| {
            let place = line(error.span().map_or(0, |span| span.start));
            DeviceError(format!("{name}:{place}: {}", error.message().lines().next().unwrap_or("not TOML")))
        })?;
        for (key, value) in table.get_ref() {
            let place = format!("{name}:{}", line(key.span().start));
            let wrong = |what: &str| {
                DeviceError(format!("{place}: {} is {what}, not a number or a text", key.get_ref()))
            };
            let value = match value.get_ref() {
                DeValue::String(text) => Value::Text(text.to_string()),
                DeValue::Integer(integer) => {
                    let number = i64::from_str_radix(integer.as_str(), integer.radix());
                    Value::Number(number.map_err(|_| wrong("an integer past 2^63"))? as f64)
                }
                DeValue::Float(float) => {
                    Value::Number(float.as_str().parse().map_err(|_| wrong("not a known float"))?)
                }
                DeValue::Boolean(_) => return Err(wrong("a boolean")),
                DeValue::Datetime(_) => return Err(wrong("a date")),
                DeValue::Array(_) => return Err(wrong("a list")),
                DeValue::Table(_) => return Err(wrong("a table")),
            };
            self.entries.insert(key.get_ref().to_string(), Entry { value, place });
        }
        Ok(())
    }

    /// Adds overrides such as `rpm=5400,depth=4`, given in `place`.
    pub(super) fn add_overrides(&mut self, place: &str, overrides: &str) -> Result<(), DeviceError> {
        for text in overrides.split(',') {
            let (key, value) = text
                .split_once('=')
                .map(|(key, value)| (key.trim(), value.trim()))
                .filter(|(key, value)| !key.is_empty() && !value.is_empty())
                .ok_or_else(|| {
                    DeviceError(format!("device `{place}`: `{text}` is not of the form key=value"))
                })?;
            let value = value.parse().map_or_else(|_| Value::Text(value.to_owned()), Value::Number);
            let place = format!("device `{place}`");
            self.entries.insert(key.to_owned(), Entry { value, place });
        }
        Ok(())
    }

    /// Whether a key is present.
    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Removes and returns a text, if present.
    pub(super) fn take_text(&mut self, key: &str) -> Result<Option<String>, DeviceError> {
        self.known.push(key.to_owned());
        match self.entries.remove(key) {
            None => Ok(None),
            Some(Entry { value: Value::Text(text), .. }) => Ok(Some(text)),
            Some(Entry { value: Value::Number(number), place }) => {
                Err(DeviceError(format!("{place}: {key} = {number}: must be a text")))
            }
        }
    }

    /// A number from `low` to `high`.
    pub(super) fn number(&mut self, key: &str, low: f64, high: f64) -> Result<f64, DeviceError> {
        self.known.push(key.to_owned());
        match self.entries.get(key) {
            None => Err(DeviceError(format!("{key} is missing: must be a number from {low} to {high}"))),
            Some(Entry { value: Value::Number(number), .. }) if (low..=high).contains(number) => Ok(*number),
            Some(_) => Err(self.wrong(key, &format!("must be a number from {low} to {high}"))),
        }
    }

    /// A number from `low` to `high`, or `default` if absent; an integer if `whole`.
    pub(super) fn optional(
        &mut self,
        key: &str,
        default: f64,
        (low, high): (f64, f64),
        whole: bool,
    ) -> Result<f64, DeviceError> {
        if !self.has(key) {
            self.known.push(key.to_owned());
            return Ok(default);
        }
        if whole { Ok(self.count(key, low as u64, high as u64)? as f64) } else { self.number(key, low, high) }
    }

    /// The numbers of the keys `low` and `high`, each from 0 to `high_max`, times `unit`. The
    /// second is at least the first.
    pub(super) fn span(
        &mut self,
        low: &str,
        high: &str,
        high_max: f64,
        unit: f64,
    ) -> Result<(f64, f64), DeviceError> {
        let from = self.number(low, 0.0, high_max)?;
        let to = self.number(high, 0.0, high_max)?;
        if to < from {
            return Err(self.wrong(high, &format!("must be at least {low}, {from}")));
        }
        Ok((from * unit, to * unit))
    }

    /// An integer from `low` to `high`, which are below 2^53.
    pub(super) fn count(&mut self, key: &str, low: u64, high: u64) -> Result<u64, DeviceError> {
        let number = self.number(key, low as f64, high as f64)?;
        if number.fract() != 0.0 {
            return Err(self.wrong(key, &format!("must be a whole number from {low} to {high}")));
        }
        Ok(number as u64)
    }

    /// A text that `parse` accepts; otherwise the reason.
    pub(super) fn choice<T>(
        &mut self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, DeviceError> {
        self.known.push(key.to_owned());
        match self.entries.get(key) {
            Some(Entry { value: Value::Text(text), place }) => {
                parse(text).map_err(|why| DeviceError(format!("{place}: {key} = \"{text}\": {why}")))
            }
            _ => Err(self.wrong(key, "must be a text")),
        }
    }

    /// The message for a parameter that breaks a rule.
    pub(super) fn wrong(&self, key: &str, rule: &str) -> DeviceError {
        DeviceError(match self.entries.get(key) {
            None => format!("{key} is missing: {rule}"),
            Some(Entry { value: Value::Number(number), place }) => {
                format!("{place}: {key} = {number}: {rule}")
            }
            Some(Entry { value: Value::Text(text), place }) => format!("{place}: {key} = \"{text}\": {rule}"),
        })
    }

    /// Fails if a parameter was never requested.
    pub(super) fn finish(mut self) -> Result<(), DeviceError> {
        self.known.sort_unstable();
        let unknown = self.entries.iter().find(|(key, _)| !self.known.contains(key));
        match unknown {
            None => Ok(()),
            Some((key, Entry { place, .. })) => {
                Err(DeviceError(format!("{place}: unknown key `{key}`; known: {}", self.known.join(", "))))
            }
        }
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DeviceError {}
