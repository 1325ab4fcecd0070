//! Bad input and bad servers: one line with cause and remedy, an exit code, and no long wait.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{bowwave, can_mount, failure};

fn read(arguments: &[&str]) -> Command {
    let mut command = bowwave();
    command.arg("read").args(arguments);
    // Without the machine's settings.
    command.env_clear().env("HOME", "/nonexistent");
    command
}

#[test]
fn bad_input_names_cause_and_remedy() {
    let cases: [(&[&str], i32, &[&str]); 21] = [
        (&["gopher://x"], 2, &["unknown scheme `gopher`", "s3:"]),
        (&[""], 2, &["the URL is empty", "name a file"]),
        (&["/no/such/file"], 1, &["/no/such/file", "No such file", "(try "]),
        (&["/etc/passwd/x"], 1, &["/etc/passwd/x", "Not a directory"]),
        (&["pattern:/1MiB", "--page-size", "0"], 2, &["--page-size", "more than 0"]),
        (&["pattern:/1MiB", "--page-size", "5000"], 2, &["5000", "power of two"]),
        (&["pattern:/1MiB", "--ra-pages", "1048577"], 2, &["--ra-pages", "not in 0.."]),
        (
            &["pattern:/1MiB", "--cache", "64k", "--ra-pages", "32"],
            2,
            &["smaller than one readahead window", "larger cache"],
        ),
        (&["pattern:/1MiB", "--cache", "4k"], 2, &["smaller than one readahead window"]),
        (&["pattern:/1MiB", "--bs", "0"], 2, &["--bs", "more than 0"]),
        (&["pattern:/1MiB", "--bs", "2GiB"], 2, &["--bs", "at most 1GiB"]),
        (&["pattern:/1MiB", "--policy", "lru"], 2, &["'lru'", "ondemand"]),
        (&["pattern:/1MiB", "--compare", "none,lru"], 2, &["'lru'", "ondemand"]),
        (&["pattern:/1MiB", "--pattern", "zigzag"], 2, &["'zigzag'", "clustered"]),
        (&["pattern:/1MiB", "--timeout", "0"], 2, &["--timeout", "more than 0"]),
        (&["pattern:/nonsense"], 1, &["there is no file to read", "(try "]),
        (&["emulate:floppy/1MiB"], 2, &["unknown device profile", "known: hdd"]),
        (&["emulate:s3,latency=soon/1MiB"], 2, &["latency", "10ms"]),
        (&["s3://bucket/key"], 1, &["no S3 credentials", "AWS_ACCESS_KEY_ID", "--anonymous"]),
        (&["gs://bucket/key"], 1, &["no Google credentials", "GOOGLE_APPLICATION_CREDENTIALS"]),
        (&["s3://bucket/key", "--endpoint", "http://127.0.0.1:1", "--anonymous"], 2, &["http", "allow"]),
    ];
    for (arguments, code, parts) in cases {
        let started = Instant::now();
        let (found, line) = failure(&mut read(arguments));
        assert_eq!(found, code, "{arguments:?}: {line}");
        for part in parts {
            assert!(line.contains(part), "{arguments:?} does not say {part:?}: {line}");
        }
        assert!(started.elapsed() < Duration::from_secs(10), "{arguments:?} took {:?}", started.elapsed());
    }
}

#[test]
fn bad_mount_points_name_cause_and_remedy() {
    if !can_mount() {
        return;
    }
    let directory = std::env::temp_dir().join(format!("bowwave-errors-{}", std::process::id()));
    fs::create_dir_all(directory.join("full/of")).expect("the temporary directory is writable");
    fs::write(directory.join("file"), "x").expect("writable");
    for (url, at, parts) in [
        ("pattern:/", "missing", ["does not exist", "mkdir"]),
        ("pattern:/", "full", ["not empty", "empty directory"]),
        ("pattern:/", "file", ["not a directory", "empty directory"]),
        ("/no/such/directory", "full/of", ["/no/such/directory", "(try "]),
    ] {
        let (code, line) = failure(bowwave().args(["mount", url]).arg(directory.join(at)));
        assert!(code == 1 && parts.iter().all(|part| line.contains(part)), "{url} at {at}: {line}");
    }
    fs::remove_dir_all(directory).expect("nothing is mounted there");
}

/// A server's reaction to a request, by its request line.
type Answer = fn(&mut TcpStream, &str);

/// A server with this reaction to each request, until the test program ends.
fn server(answer: Answer) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            thread::spawn(move || serve(connection, answer));
        }
    });
    address
}

/// A client may break its connection.
fn serve(mut connection: TcpStream, answer: Answer) -> Option<()> {
    let mut reader = BufReader::new(connection.try_clone().ok()?);
    loop {
        let mut first = String::new();
        reader.read_line(&mut first).ok()?;
        let mut line = String::from("x");
        while !line.trim().is_empty() {
            line.clear();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
        }
        answer(&mut connection, &first);
    }
}

fn say(connection: &mut TcpStream, text: &str) {
    // The client may have disconnected; the test checks its output.
    let _may_be_gone = connection.write_all(text.as_bytes());
}

/// A correct head, for `HEAD`; the tests concern later responses.
fn head(connection: &mut TcpStream) {
    say(
        connection,
        "HTTP/1.1 200 OK\r\nContent-Length: 65536\r\nAccept-Ranges: bytes\r\nETag: \"1\"\r\n\r\n",
    );
}

/// As `head` for `HEAD`; otherwise a 206 that announces 64 KiB, with this body.
fn partial(connection: &mut TcpStream, first: &str, body: &str) {
    if first.starts_with("HEAD") {
        return head(connection);
    }
    let text = "HTTP/1.1 206 Partial Content\r\nContent-Length: 65536\r\nContent-Range: bytes 0-65535/65536\r\nETag: \"1\"\r\n\r\n";
    say(connection, text);
    say(connection, body);
}

#[test]
fn servers_that_misbehave_give_one_line_within_the_timeout() {
    let cases: [(&str, Answer, &[&str]); 8] = [
        (
            "404",
            |connection, _| say(connection, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
            &["(try "],
        ),
        (
            "403",
            |connection, _| say(connection, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"),
            &["403"],
        ),
        ("500", |connection, _| say(connection, "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"), &["500"]),
        ("503", |connection, _| say(connection, "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"), &["503"]),
        ("no HTTP", |connection, _| say(connection, "220 mail.example.org ESMTP\r\n\r\n"), &[]),
        (
            "truncates",
            |connection, first| {
                partial(connection, first, "too short");
                let _may_be_gone = connection.shutdown(std::net::Shutdown::Both);
            },
            &[],
        ),
        (
            "lies about the range",
            |connection, first| {
                if first.starts_with("HEAD") {
                    return head(connection);
                }
                let text = "HTTP/1.1 206 Partial Content\r\nContent-Length: 4\r\nContent-Range: bytes 9-12/65536\r\nETag: \"1\"\r\n\r\nabcd";
                say(connection, text);
            },
            &[],
        ),
        ("hangs", |connection, first| partial(connection, first, "and then nothing"), &[]),
    ];
    for (name, answer, parts) in cases {
        let address = server(answer);
        let url = format!("http://{address}/file");
        let started = Instant::now();
        let (code, line) = failure(&mut read(&[&url, "--timeout", "300ms", "--retries", "1"]));
        assert_eq!(code, 1, "{name}: {line}");
        assert!(line.contains(&format!("127.0.0.1:{}", address.port())), "{name} does not say where: {line}");
        assert!(parts.iter().all(|part| line.contains(part)), "{name}: {line}");
        assert!(started.elapsed() < Duration::from_secs(20), "{name} took {:?}", started.elapsed());
    }
}

#[test]
fn reset_and_refused_connections_are_reported() {
    // Closes connections at once.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
    let resets = listener.local_addr().expect("it is bound");
    thread::spawn(move || listener.incoming().for_each(drop));
    let gone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
    let refuses = gone.local_addr().expect("it is bound");
    drop(gone);
    for address in [resets, refuses] {
        let (code, line) =
            failure(&mut read(&[&format!("http://{address}/file"), "--timeout", "300ms", "--retries", "1"]));
        assert!(code == 1 && line.contains(&address.to_string()), "{line}");
    }
}
