//! Serves a directory over HTTP and, as a bucket of the same name, over S3, until standard input
//! ends: for manual tests.
//!
//! `cargo run --release -p bowwave-testkit --example serve -- DIRECTORY`
#![expect(clippy::print_stdout, reason = "tells where it listens")]

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bowwave_testkit::{HttpServer, S3Server};

fn main() -> io::Result<()> {
    let directory = std::env::args_os()
        .nth(1)
        .map(PathBuf::from)
        .ok_or_else(|| io::Error::other("usage: serve DIRECTORY"))?;
    let directory = directory.canonicalize()?;
    let (Some(parent), Some(bucket)) =
        (directory.parent(), directory.file_name().and_then(|name| name.to_str()))
    else {
        return Err(io::Error::other("the directory needs a name that can be a bucket's"));
    };
    let http = HttpServer::start(&directory)?;
    let s3 = S3Server::start(parent, &[bucket])?;
    tag(&s3, bucket, &directory, &directory)?;
    println!("http:     {}", http.url());
    println!("s3:       s3://{bucket}/ at {}", s3.endpoint());
    println!("export AWS_ENDPOINT_URL={} AWS_ALLOW_HTTP=true", s3.endpoint());
    println!(
        "export AWS_ACCESS_KEY_ID={} AWS_SECRET_ACCESS_KEY={}",
        S3Server::ACCESS_KEY_ID,
        S3Server::SECRET_ACCESS_KEY
    );
    io::stdin().read_to_end(&mut Vec::new()).map(drop)
}

/// Gives each object an entity tag, so that the server does not compute its MD5 sum per request.
fn tag(s3: &S3Server, bucket: &str, root: &Path, directory: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            tag(s3, bucket, root, &path)?;
        } else if let Some(key) = path.strip_prefix(root).ok().and_then(Path::to_str) {
            s3.tag(bucket, key, &format!("\"{:032x}\"", key.len()))?;
        }
    }
    Ok(())
}
