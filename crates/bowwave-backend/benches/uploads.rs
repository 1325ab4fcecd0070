//! How much of a link an upload fills: `cargo bench -p bowwave-backend --bench uploads`.
//!
//! An S3 server on loopback, behind a link with a rate for all connections, a rate for each, and a
//! delay of responses. Each case prints the bound of the link, the rate from the first write to the
//! end of the last, the time of `finish` (in which this server, unlike clouds, copies all parts
//! into one file), and the processor time of client, link and server together.

#![expect(clippy::print_stdout, reason = "a benchmark's output is its purpose")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bowwave_backend::{
    Backend, Credentials, OpenWrite, Options, Result, Write as _, WriteBuf, WriteSink, open_url,
};
use bowwave_testkit::S3Server;

fn main() {
    println!(
        "{:44} {:>10} {:>10} {:>7} {:>9} {:>6}",
        "case", "bound MB/s", "reached", "share", "finish s", "cpu s"
    );
    let link = Link { rate: 100e6, rate_each: 25e6, latency: Duration::from_millis(30) };
    for connections in [1, 4, 16, 64] {
        upload(link, connections, 256 << 20);
    }
    // As fast as client, link and server are on these cores.
    upload(Link { rate: 1e12, rate_each: 1e12, latency: Duration::ZERO }, 16, 512 << 20);
    // The same without a network: 60 ms to an answer, 90 MB/s a connection, and a cap.
    for cap in [100, 300] {
        let store = open_url(&format!("emulate:s3,write_total={cap}MB/s:memory:"), &Options::default());
        let name = format!("emulate:s3, {} MiB, 64 requests", 256);
        fill(&name, &*store.expect("the URL is right"), 64, 256 << 20, f64::from(cap) * 1e6);
    }
}

/// What lies between client and server.
#[derive(Clone, Copy)]
struct Link {
    /// Bytes a second towards the server, of all connections.
    rate: f64,
    /// Of each.
    rate_each: f64,
    /// Until an answer is heard.
    latency: Duration,
}

fn upload(link: Link, connections: u32, total: usize) {
    let directory = std::env::current_exe().expect("a program knows its file").with_extension("bench-bucket");
    let server = S3Server::start(&directory, &["bucket"]).expect("loopback is there");
    let endpoint = between(server.endpoint().trim_start_matches("http://").to_owned(), link);
    let credentials = Credentials::Amazon {
        access_key_id: S3Server::ACCESS_KEY_ID.to_owned(),
        secret_access_key: S3Server::SECRET_ACCESS_KEY.to_owned(),
        session_token: None,
    };
    let options = Options {
        endpoint: Some(endpoint),
        allow_http: true,
        credentials: Some(credentials),
        connections: Some(connections),
        ..Options::default()
    };
    let store = open_url("s3://bucket", &options).expect("the URL is right");
    let name = format!("{} MiB in parts of 8 MiB, {connections} connections", total >> 20);
    fill(&name, &*store, connections, total, link.rate.min(link.rate_each * f64::from(connections)));
    drop((store, server));
    fs::remove_dir_all(&directory).expect("was made above");
}

/// Writes `total` bytes to one object, `depth` parts in flight.
fn fill(name: &str, store: &dyn Backend, depth: u32, total: usize, bound: f64) {
    let object = store
        .open_write("object".as_ref(), &OpenWrite { create: true, ..OpenWrite::default() })
        .expect("can be written");
    let part = usize::try_from(store.profile().write_part_bytes).expect("fits");
    let (sender, ended) = sync_channel(depth as usize);
    let mut free: Vec<_> = (0..depth).map(|lane| WriteBuf::from_vec(vec![lane as u8; part])).collect();
    let (begun, cpu) = (Instant::now(), cpu_seconds());
    for offset in (0..total).step_by(part) {
        let buf = free.pop().unwrap_or_else(|| ended.recv().expect("each write ends"));
        object.write(offset as u64, buf, Box::new(Lane(sender.clone())));
    }
    for _ in free.len()..depth as usize {
        ended.recv().expect("each write ends");
    }
    let rate = total as f64 / begun.elapsed().as_secs_f64();
    let written = Instant::now();
    object.finish().expect("can be published");
    let finish = written.elapsed().as_secs_f64();
    let (bound_text, share) = match bound > 1e10 {
        true => ("-".to_owned(), "-".to_owned()),
        false => (format!("{:.0}", bound / 1e6), format!("{:.1}%", rate / bound * 100.0)),
    };
    let cpu = cpu_seconds() - cpu;
    println!("{name:44} {bound_text:>10} {:>10.0} {share:>7} {finish:>9.2} {cpu:>6.2}", rate / 1e6);
}

struct Lane(std::sync::mpsc::SyncSender<WriteBuf>);

impl WriteSink for Lane {
    fn done(self: Box<Self>, buf: WriteBuf, result: Result<usize>) {
        result.expect("can be written");
        self.0.send(buf).expect("main waits");
    }
}

/// Starts a link to `server` and returns its URL. It ends with the program.
fn between(server: String, link: Link) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback is there");
    let url = format!("http://{}", listener.local_addr().expect("is bound"));
    let all = Arc::new(Mutex::new(Instant::now()));
    thread::spawn(move || {
        for client in listener.incoming().map_while(std::result::Result::ok) {
            let server = TcpStream::connect(&server).expect("the server is there");
            client.set_nodelay(true).expect("is open");
            server.set_nodelay(true).expect("is open");
            let up = (client.try_clone().expect("is open"), server.try_clone().expect("is open"));
            let all = Arc::clone(&all);
            thread::spawn(move || {
                let each = Mutex::new(Instant::now());
                pass(up.0, up.1, |count| {
                    wait_turn(&each, count, link.rate_each);
                    wait_turn(&all, count, link.rate);
                });
            });
            thread::spawn(move || pass(server, client, |_| thread::sleep(link.latency)));
        }
    });
    url
}

/// Passes bytes on until one side hangs up.
fn pass(mut from: TcpStream, mut to: TcpStream, wait: impl Fn(usize)) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        wait(count);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    // Ends the other side, unless it has ended already.
    to.shutdown(Shutdown::Both).ok();
}

/// Waits until `count` bytes have had their time at `rate`.
fn wait_turn(next: &Mutex<Instant>, count: usize, rate: f64) {
    let until = {
        let mut next = next.lock().expect("nobody panics");
        // Small delays are made up for: otherwise each delay of a thread would slow the link.
        *next = (*next).max(Instant::now() - Duration::from_millis(20))
            + Duration::from_secs_f64(count as f64 / rate);
        *next
    };
    thread::sleep(until.saturating_duration_since(Instant::now()));
}

/// Processor time of this process so far.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<f64> = stat.rsplit(')').next().unwrap_or("").split(' ').flat_map(str::parse).collect();
    // Fields 14 and 15 in ticks of 10 ms: the 11th and 12th number after the name and the state.
    fields.get(10..12).map_or(0.0, |ticks| ticks.iter().sum::<f64>() / 100.0)
}
