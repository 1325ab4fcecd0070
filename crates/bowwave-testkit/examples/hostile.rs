//! Serves one object `a` of 300,000 bytes, and breaks its protocol on request, until standard input
//! ends: for tests in other languages.
//!
//! `cargo run -p bowwave-testkit --example hostile -- s3|http`
//!
//! The first line of output is the server's endpoint, the second the object's URL. Each line of
//! input is a mode, such as `status-503,every=4`, answered with `ok`; `modes`, answered with the
//! names of all on one line; or `versions`, answered with the SHA-256 of each version of the object
//! on one line.
#![expect(clippy::print_stdout, reason = "talks to the test")]

use std::io::{self, BufRead as _};

use bowwave_testkit::HostileServer;
use bowwave_testkit::hostile::{Dialect, Fault, Mode};
use sha2::{Digest as _, Sha256};

fn main() -> io::Result<()> {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let dialect = Dialect::ALL.into_iter().find(|dialect| dialect.scheme() == wanted);
    let dialect = dialect.ok_or_else(|| io::Error::other("usage: hostile s3|az|gs|http"))?;
    let server = HostileServer::start(dialect)?;
    server.put("a", (0..300_000u32).map(|at| (at * 31 % 251) as u8).collect());
    println!("{}", server.endpoint());
    println!("{}", server.url());
    for line in io::stdin().lock().lines() {
        match line?.as_str() {
            "modes" => println!("{}", Fault::all().map(|(name, _)| name).collect::<Vec<_>>().join(" ")),
            "versions" => {
                let digests = server.versions("a").into_iter().map(|bytes| {
                    let digest = Sha256::digest(&bytes);
                    digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
                });
                println!("{}", digests.collect::<Vec<_>>().join(" "));
            }
            text => match text.parse::<Mode>() {
                Ok(mode) => {
                    server.set_mode(mode);
                    println!("ok");
                }
                Err(error) => println!("{error}"),
            },
        }
    }
    Ok(())
}
