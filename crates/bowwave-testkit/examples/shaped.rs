//! Serves generated objects over slow S3 until standard input ends; `tools/bench_compare.py`
//! measures mounts with it.
//!
//! `cargo run --release -p bowwave-testkit --example shaped -- FIRST_BYTE_MS CONNECTION_MB_S
//! TOTAL_MB_S KEY=BYTES…`
//!
//! A rate of 0 is unlimited. The first line of output is the server's URL; its bucket is `data`,
//! and signatures are not checked.
#![expect(clippy::print_stdout, reason = "tells where it listens")]

use std::io::{self, Read};
use std::time::Duration;

use bowwave_testkit::{Shape, ShapedS3};

fn main() -> io::Result<()> {
    let usage = || io::Error::other("usage: shaped FIRST_BYTE_MS CONNECTION_MB_S TOTAL_MB_S KEY=BYTES...");
    let mut arguments = std::env::args().skip(1);
    let mut number = || arguments.next().and_then(|text| text.parse::<u64>().ok()).ok_or_else(usage);
    let shape = Shape {
        first_byte: Duration::from_millis(number()?),
        connection_rate: number()? * 1_000_000,
        total_rate: number()? * 1_000_000,
    };
    let object = |text: String| {
        let (key, bytes) = text.split_once('=')?;
        Some((key.to_owned(), bytes.parse().ok()?))
    };
    let objects = arguments.map(|text| object(text).ok_or_else(usage)).collect::<io::Result<Vec<_>>>()?;
    let server = ShapedS3::start(shape, objects)?;
    println!("{}", server.endpoint());
    io::stdin().read_to_end(&mut Vec::new()).map(drop)
}
