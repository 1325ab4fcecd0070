//! Measures the reader in rows per second:
//! `cargo run --release -p bowwave-trace --example read_speed`.
#![expect(clippy::print_stdout, reason = "a program whose result is one line of text")]

use std::time::Instant;

use bowwave_trace::{Op, Reader, Record, Writer};

const ROWS: u64 = 2_000_000;
const RUNS: u32 = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut writer = Writer::new(Vec::new())?;
    for row in 0..ROWS {
        let file = format!("data/part-{:04}.parquet", row % 64);
        writer.write(&Record {
            time_ns: row * 1500,
            pid: row % 7,
            op: Op::Read,
            file,
            offset: row * 4096,
            length: 4096,
        })?;
    }
    let bytes = writer.finish()?;
    for _ in 0..RUNS {
        let start = Instant::now();
        let (mut reader, mut record, mut rows) = (Reader::new(&bytes[..], "memory"), Record::default(), 0u32);
        while reader.read(&mut record)? {
            rows += 1;
        }
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{:.1} million rows/s, {:.0} MB/s",
            f64::from(rows) / seconds / 1e6,
            bytes.len() as f64 / seconds / 1e6
        );
    }
    Ok(())
}
