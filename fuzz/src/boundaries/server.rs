//! Responses of a web server over loopback, from the connection to the bytes of a read.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use bowwave_backend::{Backend as _, HttpBackend, Options, read_exact};
use libfuzzer_sys::arbitrary::{self, Arbitrary};

use super::response::http_date;
use super::steps::Steps;

/// Reads of one object, and the server's response to each request.
#[derive(Arbitrary, Debug)]
pub struct Input {
    /// Its `HEAD` response comes first.
    opening: Response,
    reads: Vec<(u16, u16)>,
    responses: Steps<Response>,
}

/// A response with the body and version its head claims, apart from flaws.
#[derive(Arbitrary, Debug)]
struct Response {
    /// 200 or 206 as requested, unless the last flaw applies.
    status: Status,
    version: Version,
    /// The flaws that apply: one in four each, so most responses have few.
    flaws: u16,
    /// Start of the range relative to the requested one.
    shift: i8,
    /// Length of the range relative to the requested one.
    longer: i8,
    framing: Framing,
    /// Length of the body relative to the announced one.
    body: i8,
    extra: Vec<u8>,
    garbage: Vec<u8>,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Status {
    Right,
    Whole,
    Redirect(bool),
    Other(u16),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
struct Version {
    /// Whether it is the object's second version.
    second: bool,
    tag: Option<bool>,
    dated: bool,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Framing {
    Length,
    Close,
    Chunks { bytes: u8, end: bool },
    BadChunks(u8),
}

/// Size of both versions of the object.
const SIZE: u64 = 5000;

struct Server {
    backend: HttpBackend,
    script: &'static Mutex<VecDeque<Response>>,
}

static SERVER: LazyLock<Server> = LazyLock::new(|| {
    static SCRIPT: Mutex<VecDeque<Response>> = Mutex::new(VecDeque::new());
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port of loopback");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            // One thread per connection: the client may open some that it does not use.
            thread::spawn(|| {
                // A client may close early.
                let _closed = respond(connection, &SCRIPT);
            });
        }
    });
    let options = Options { timeout: Duration::from_secs(2), retries: 0, ..Options::default() };
    let backend = HttpBackend::new(&format!("http://{address}/"), &options).expect("a URL");
    Server { backend, script: &SCRIPT }
});

/// Opens and reads. Returns whether a read succeeded.
pub fn run(input: Input) -> bool {
    let Input { opening, reads, responses } = input;
    let server = &*SERVER;
    let lock = || server.script.lock().unwrap_or_else(PoisonError::into_inner);
    *lock() = [opening].into_iter().chain(responses.0).collect();
    let Ok(object) = server.backend.open(Path::new("file")) else { return false };
    let identity = object.identity().clone();
    let tag = identity.etag.as_deref().filter(|tag| !tag.starts_with("W/"));
    let mut accepted = false;
    for (offset, len) in reads.into_iter().take(4) {
        let (offset, len) = (u64::from(offset) % (SIZE + 10), usize::from(len) % 2000);
        let Ok(bytes) = read_exact(&*object, offset, len, Duration::from_secs(10)) else { continue };
        let end = (offset + len as u64).min(object.size().max(offset));
        assert_eq!(bytes.len() as u64, end - offset, "a read is short at the end of the object only");
        accepted |= !bytes.is_empty();
        let second = match (tag, identity.modified_ns) {
            (Some(tag), _) => tag == "\"2\"",
            (None, Some(time)) => time == i128::from(modified(true)) * 1_000_000_000,
            // Indistinguishable versions may mix.
            (None, None) => continue,
        };
        let right = bytes.iter().zip(offset..).all(|(&byte, at)| byte == content(second, at));
        assert!(right, "{} bytes at {offset} of {identity:?} are of another range or version", bytes.len());
    }
    accepted
}

/// Reads one request, and sends the next response of the script.
fn respond(mut connection: TcpStream, script: &Mutex<VecDeque<Response>>) -> std::io::Result<()> {
    connection.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = connection.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        request.extend_from_slice(&buffer[..count]);
    }
    let request = String::from_utf8_lossy(&request);
    let next = script.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let Some(response) = next else { return Ok(()) };
    connection.write_all(&response.bytes(&request))
}

impl Response {
    /// Whether the flaw of this number applies.
    fn has(&self, flaw: u32) -> bool {
        self.flaws >> (2 * flaw) & 3 == 3
    }

    /// A number, if the flaw that it stands for applies.
    fn by(&self, flaw: u32, bytes: i8) -> i64 {
        if self.has(flaw) { bytes.into() } else { 0 }
    }

    fn bytes(&self, request: &str) -> Vec<u8> {
        let is_head = request.starts_with("HEAD");
        let range = request
            .lines()
            .find_map(|line| line.to_ascii_lowercase().strip_prefix("range: bytes=").map(str::to_owned));
        let range = range.and_then(|range| {
            let (first, last) = range.split_once('-')?;
            Some((first.trim().parse::<u64>().ok()?, last.trim().parse::<u64>().ok()? + 1))
        });
        let chosen = if self.has(6) { self.status } else { Status::Right };
        let other = match chosen {
            Status::Other(status) => Some(status % 500 + 100),
            _ => None,
        };
        let partial =
            range.is_some() && other.map_or(matches!(chosen, Status::Right), |status| status != 200);
        let (start, end) = match range.filter(|_| partial) {
            Some((start, end)) => {
                let start = start.saturating_add_signed(self.by(0, self.shift));
                (
                    start,
                    end.saturating_add_signed(self.by(0, self.shift))
                        .saturating_add_signed(self.by(1, self.longer))
                        .max(start + 1),
                )
            }
            None => (0, SIZE),
        };
        let status = match chosen {
            Status::Right if partial => 206,
            Status::Right | Status::Whole => 200,
            Status::Redirect(_) => 302,
            Status::Other(_) => other.unwrap_or(200),
        };
        let mut head = String::new();
        if self.has(3) {
            head.push_str("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n");
        }
        head.push_str(&format!("HTTP/1.1 {status} Text\r\n"));
        let Version { second, tag, dated } = self.version;
        match tag {
            Some(true) => head.push_str(&format!("ETag: \"{}\"\r\n", 1 + u8::from(second))),
            Some(false) => head.push_str(&format!("ETag: W/\"{}\"\r\n", 1 + u8::from(second))),
            None => {}
        }
        if dated {
            head.push_str(&format!("Last-Modified: {}\r\n", http_date(modified(second))));
        }
        if partial {
            let total = if self.has(4) { "*".to_owned() } else { SIZE.to_string() };
            head.push_str(&format!("Content-Range: bytes {start}-{}/{total}\r\n", end - 1));
        }
        if let Status::Redirect(same) = chosen {
            head.push_str(&format!("Location: {}\r\n", if same { "file" } else { "/other" }));
        }
        for value in self.extra.chunks(16) {
            let value: String =
                value.iter().filter(|byte| byte.is_ascii_graphic()).map(|&byte| char::from(byte)).collect();
            head.push_str(&format!("X-Extra: {value}\r\n"));
        }
        let announced = end - start;
        let sent = announced.saturating_add_signed(self.by(2, self.body));
        let body: Vec<u8> = (start..start + sent).map(|at| content(second, at)).collect();
        let mut bytes = head.into_bytes();
        if self.has(5) {
            // A line of any bytes but line feeds, which would end the head early. It has a name of
            // its own: a second, wrong tag would be an undetectable lie.
            bytes.push(b'X');
            bytes.extend(self.garbage.iter().filter(|byte| !matches!(byte, b'\r' | b'\n')));
            bytes.extend(b"\r\n");
        }
        self.framing.append(&mut bytes, announced, if is_head { &[] } else { &body });
        bytes
    }
}

impl Framing {
    fn append(self, bytes: &mut Vec<u8>, announced: u64, body: &[u8]) {
        match self {
            Self::Length => {
                bytes.extend(format!("Content-Length: {announced}\r\n\r\n").into_bytes());
                bytes.extend(body);
            }
            Self::Close => {
                bytes.extend(b"Connection: close\r\n\r\n");
                bytes.extend(body);
            }
            Self::Chunks { bytes: size, end } => {
                bytes.extend(b"Transfer-Encoding: chunked\r\n\r\n");
                for chunk in body.chunks(usize::from(size) * 16 + 1) {
                    bytes.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
                    bytes.extend(chunk);
                    bytes.extend(b"\r\n");
                }
                if end {
                    bytes.extend(b"0\r\n\r\n");
                }
            }
            Self::BadChunks(size) => {
                bytes.extend(b"Transfer-Encoding: chunked\r\n\r\n");
                bytes.extend(format!("{size:x};x=y\r\n").into_bytes());
                bytes.extend(body);
            }
        }
    }
}

/// A byte of a version.
fn content(second: bool, at: u64) -> u8 {
    let mixed = (at + u64::from(second) * 1_000_003).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 56) as u8
}

/// When a version was modified, in seconds since 1970.
fn modified(second: bool) -> u64 {
    784_111_777 + u64::from(second)
}
