//! Serves generated objects over slow S3 until standard input ends; `tools/bench_compare.py`
//! measures mounts with it.
//!
//! `cargo run --release -p bowwave-testkit --example shaped -- FIRST_BYTE_MS CONNECTION_MB_S
//! TOTAL_MB_S KEY=BYTES… KEY=@PATH… [--objects=FILE] [--log=FILE]`
//!
//! A path is a file, or a directory whose files are below the key; both are kept in memory.
//! `--objects` has more objects, a line each, as 100,000 are too many for a command line. A rate of
//! 0 is unlimited. The first line of output is the server's URL; its bucket is `data`, and
//! signatures are not checked. `--log` has a line for each request: milliseconds since the start,
//! method, path with query, and range.
#![expect(clippy::print_stdout, reason = "tells where it listens")]

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use bowwave_testkit::{Content, Shape, ShapedS3};

fn main() -> io::Result<()> {
    let usage = || io::Error::other("usage: shaped FIRST_BYTE_MS CONNECTION_MB_S TOTAL_MB_S KEY=BYTES...");
    let mut arguments = std::env::args().skip(1);
    let mut number = || arguments.next().and_then(|text| text.parse::<u64>().ok()).ok_or_else(usage);
    let shape = Shape {
        first_byte: Duration::from_millis(number()?),
        connection_rate: number()? * 1_000_000,
        total_rate: number()? * 1_000_000,
    };
    let (mut objects, mut log) = (Vec::new(), None);
    let mut texts: VecDeque<String> = arguments.collect();
    while let Some(text) = texts.pop_front() {
        if let Some(path) = text.strip_prefix("--objects=") {
            texts.extend(fs::read_to_string(path)?.lines().map(str::to_owned));
            continue;
        }
        if let Some(path) = text.strip_prefix("--log=") {
            log = Some(fs::File::create(path)?);
            continue;
        }
        let (key, value) = text.split_once('=').ok_or_else(usage)?;
        match value.strip_prefix('@') {
            Some(path) => add(key, Path::new(path), &mut objects)?,
            None => objects.push((key.to_owned(), Content::Pattern(value.parse().map_err(|_| usage())?))),
        }
    }
    let server = ShapedS3::serve_logged(shape, objects, log)?;
    println!("{}", server.endpoint());
    io::stdin().read_to_end(&mut Vec::new()).map(drop)
}

/// Adds a file, or the files of a directory.
fn add(key: &str, path: &Path, objects: &mut Vec<(String, Content)>) -> io::Result<()> {
    if !path.is_dir() {
        objects.push((key.to_owned(), Content::Bytes(fs::read(path)?.into())));
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        add(&format!("{key}/{}", entry.file_name().to_string_lossy()), &entry.path(), objects)?;
    }
    Ok(())
}
