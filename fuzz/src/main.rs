//! Fuzz targets of all readers of traces, plans and devices, in one program. The environment
//! variable `BOWWAVE_FUZZ` names the target. Run them with `tools/fuzz.sh`.
//!
//! A target is a format's name, or `detect`, which detects format and compression from the bytes.
//! [`check`] holds what each target checks: no panic, and what the reader promises for any bytes.
//! `plan` and `device` read the bytes as a plan's or device's text.

#![no_main]

mod fields;
mod tally;

use std::io::Cursor;
use std::path::Path;
use std::sync::LazyLock;

use bowwave_core::schedule::Algorithm;
use bowwave_sim::device::DeviceSpec;
use bowwave_sim::experiment::Experiment;
use bowwave_trace::binary::Trace;
use bowwave_trace::import::{self, BlockAction, Format, Objects, Options, TracefsEvents};
use bowwave_trace::{Reader, Record, Writer};
use libfuzzer_sys::{Corpus, fuzz_mutator, fuzz_target, fuzzer_mutate};

/// What the bytes are parsed as.
enum Target {
    /// A trace in a format; `None` to detect it.
    Trace(Option<Format>),
    Plan,
    Device,
}

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("BOWWAVE_FUZZ").unwrap_or_else(|_| "detect".to_owned());
    match &*name {
        "detect" => Target::Trace(None),
        "plan" => Target::Plan,
        "device" => Target::Device,
        name => match Format::ALL.into_iter().find(|format| format.name() == name) {
            Some(format) => Target::Trace(Some(format)),
            None => {
                let formats = Format::ALL.map(Format::name).join(", ");
                panic!("BOWWAVE_FUZZ: '{name}' is none of {formats}, detect, plan, device")
            }
        },
    }
});

fuzz_target!(|bytes: &[u8]| -> Corpus {
    let format = match &*TARGET {
        Target::Trace(format) => *format,
        Target::Plan => return plan(bytes),
        Target::Device => return device(bytes),
    };
    // The last byte selects the options; lines and records are read from the front.
    let choice = bytes.last().copied().unwrap_or(0);
    let options = Options {
        keep_times: choice & 1 != 0,
        objects: if choice & 2 != 0 { Objects::Files } else { Objects::Blocks(512) },
        tracefs_events: if choice & 4 != 0 { TracefsEvents::Fills } else { TracefsEvents::Accesses },
        block_action: match choice & 24 {
            8 => BlockAction::Dispatched,
            16 => BlockAction::Completed,
            _ => BlockAction::Queued,
        },
        ..Options::default()
    };
    if format == Some(Format::Binary) {
        verify(bytes);
    }
    tally::count(check(bytes, format, &options));
    Corpus::Keep
});

// Half of the mutations are field-wise, the others byte-wise.
fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let changed = if seed % 2 == 0 { fields::mutate(data, size, max_size, seed / 2) } else { None };
    changed.unwrap_or_else(|| fuzzer_mutate(data, size, max_size))
});

/// An experiment is rejected in one line with its place, or its machines can be built.
fn plan(bytes: &[u8]) -> Corpus {
    let Ok(text) = std::str::from_utf8(bytes) else { return Corpus::Reject };
    // Local files are no input.
    if text.contains("trace") || text.contains(['/', '\\']) {
        return Corpus::Reject;
    }
    let parsed = Experiment::parse(text, "fuzz", Path::new(""));
    tally::count(parsed.is_ok());
    match parsed {
        Ok(plan) => assert!(!plan.axes.cases().is_empty(), "a plan without runs"),
        Err(error) => {
            let message = error.to_string();
            one_line(&message);
            let line = message["fuzz:".len()..].split(':').next().and_then(|line| line.parse::<usize>().ok());
            assert!(line.is_some_and(|line| line > 0), "no line: {message}");
        }
    }
    Corpus::Keep
}

/// A device file, or overrides of a built-in device: rejected in one line, or a device with limits
/// that can be built.
fn device(bytes: &[u8]) -> Corpus {
    let Ok(text) = std::str::from_utf8(bytes) else { return Corpus::Reject };
    tally::count(DeviceSpec::parse("fuzz", text, &Algorithm::ALL).is_ok());
    let overridden = DeviceSpec::names()
        .into_iter()
        .map(|name| DeviceSpec::open(&format!("{name}:{text}"), &Algorithm::ALL));
    for device in overridden.chain([DeviceSpec::parse("fuzz", text, &Algorithm::ALL)]) {
        match device {
            Ok(device) => {
                let built = device.build(1);
                assert!(built.depth() > 0 && built.request_bytes_max() > 0, "{device:?}");
                if let Some(limits) = device.limits() {
                    assert!(limits.bytes_per_ns > 0.0 && limits.medium_bytes_per_ns > 0.0, "{device:?}");
                }
            }
            Err(error) => assert!(!error.to_string().is_empty(), "{text:?}"),
        }
    }
    Corpus::Keep
}

/// Invariants for any bytes: records are within bounds; times never run back; at most one error, at
/// the end, in one line with the input's name; and our own format preserves records. Returns
/// whether there was a record.
fn check(bytes: &[u8], format: Option<Format>, options: &Options) -> bool {
    let input = Cursor::new(bytes.to_vec());
    let mut import = match import::from_reader(input, "fuzz", format, options) {
        Ok(import) => import,
        Err(error) => {
            one_line(&error.to_string());
            return false;
        }
    };
    let ours = matches!(import.format(), Format::Csv | Format::Binary);
    let mut text = Writer::new(Vec::new()).expect("memory takes it");
    let mut kept = Vec::new();
    let mut time_ns = 0;
    let mut record = Record::default();
    loop {
        match import.read(&mut record) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                one_line(&error.to_string());
                break;
            }
        }
        assert!(record.offset.checked_add(record.length).is_some(), "{record:?}");
        assert!(ours || record.time_ns >= time_ns, "time runs back: {record:?}");
        time_ns = record.time_ns;
        // The writer rejects only rows longer than the format allows.
        if text.write(&record).is_ok() {
            kept.push(record.clone());
        } else {
            assert!(record.file.len() > bowwave_trace::ROW_BYTES_MAX / 2 - 256, "{record:?}");
        }
    }
    assert!(!import.read(&mut record).expect("an error comes once"), "a record after the end");
    let text = text.finish().expect("memory takes it");
    let again: Vec<Record> =
        Reader::new(text.as_slice(), "ours").collect::<Result<_, _>>().expect("our own writer wrote it");
    assert_eq!(again, kept);
    !kept.is_empty()
}

/// The binary reader beyond its rows: names, streams and checksums.
fn verify(bytes: &[u8]) {
    let Ok(trace) = Trace::new(bytes, "fuzz") else { return };
    for file in 0..trace.file_count() {
        let _any = (trace.file_name(file), trace.file_end(file));
    }
    if let Err(error) = trace.verify() {
        one_line(&error.to_string());
    }
}

fn one_line(message: &str) {
    assert!(message.starts_with("fuzz:") && !message.contains('\n'), "{message}");
}
