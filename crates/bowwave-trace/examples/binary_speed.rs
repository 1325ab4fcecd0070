//! Measures writing, opening, streaming and verifying the compact form:
//! `cargo run --release -p bowwave-trace --example binary_speed -- [ROWS] [FILE]`, in a temporary
//! file by default.
#![expect(clippy::print_stdout, reason = "a program whose result is a few lines of text")]

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Instant;

use bowwave_trace::Op;
use bowwave_trace::binary::{Row, Trace, Writer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let rows: u64 = args.next().map_or(Ok(20_000_000), |rows| rows.parse())?;
    let path =
        args.next().map_or_else(|| std::env::temp_dir().join("bowwave-binary-speed.bwt"), PathBuf::from);

    let start = Instant::now();
    let mut writer = Writer::new(File::create(&path)?)?;
    let mut streams = Vec::new();
    for file in 0..64 {
        let file = writer.file(&format!("data/part-{file:04}.parquet"))?;
        streams.push(writer.stream(1, file)?);
    }
    for row in 0..rows {
        let stream = streams[row as usize % 64];
        writer.row(Row {
            time_ns: row * 1500,
            op: Op::Read,
            stream,
            offset: row / 64 * 4096,
            length: 4096,
        })?;
    }
    writer.finish()?;
    report("written", rows, start);

    let start = Instant::now();
    let trace = Trace::open(&path)?;
    println!("opened in {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    for _ in 0..3 {
        let start = Instant::now();
        let sum = trace
            .rows()
            .try_fold(0u64, |sum, row| row.map(|row| sum.wrapping_add(row.offset ^ row.time_ns)))?;
        report(&format!("streamed (sum {sum:x})"), rows, start);
    }
    let start = Instant::now();
    let sum = trace.rows().rev().try_fold(0u64, |sum, row| row.map(|row| sum.wrapping_add(row.length)))?;
    report(&format!("streamed backwards (sum {sum:x})"), rows, start);
    let start = Instant::now();
    trace.verify()?;
    report("verified", rows, start);
    fs::remove_file(&path)?;
    Ok(())
}

fn report(what: &str, rows: u64, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    println!("{what}: {:.0} million rows/s ({seconds:.2} s)", rows as f64 / seconds / 1e6);
}
