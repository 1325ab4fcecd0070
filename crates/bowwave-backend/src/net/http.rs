//! Files of a web server, by range requests.
//!
//! A server tells size and version at `open`; every read then asks for one range of that version and checks that the
//! answer is it: status, Content-Range, ETag or Last-Modified, and the body's length.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use reqwest::header::{ACCEPT_ENCODING, CONTENT_LENGTH, RANGE};
use reqwest::{Client, Method, Response, StatusCode, Url};

use super::client::{self, status_error, transport_error};
use super::intake::Intake;
use super::runtime::{self, AsyncWork, Gate};
use super::validator::{ContentRange, Validator, text};
use crate::{Backend, Entry, EntryKind, Error, ErrorKind, Identity, Object, Options, Profile};
use crate::{ReadBuf, ReadSink, Result, generate, path};

/// One object of a web server, or all below a folder (a URL that ends in `/`); folders cannot be listed.
#[derive(Debug)]
pub struct HttpBackend {
    /// For messages: without password and query.
    url: String,
    base: Url,
    client: Client,
    gate: Gate,
    slots: u32,
}

impl HttpBackend {
    /// Makes ready to read at and below `url`; asks the server nothing yet.
    ///
    /// # Errors
    /// `InvalidUrl` if it is no `http:` or `https:` URL.
    pub fn new(url: &str, options: &Options) -> Result<Self> {
        let invalid = |why: &str| Error::new(ErrorKind::InvalidUrl, format!("{}: {why}", redacted(url)));
        let base = Url::parse(url).map_err(|error| invalid(&error.to_string()))?;
        if !matches!(base.scheme(), "http" | "https") || base.host_str().is_none() {
            return Err(invalid("wants a host, such as https://example.org/file"));
        }
        let slots = options.connections.unwrap_or(SLOTS).max(1);
        let client = client::new(options.timeout, slots)?;
        Ok(Self { url: redacted(url), base, client, gate: Gate::new(slots), slots })
    }

    /// The URL of `path` and its name for messages.
    fn place(&self, path: &Path) -> Result<(Url, String)> {
        path::check(path)?;
        let mut url = self.base.clone();
        if !path.as_os_str().is_empty() {
            if !url.path().ends_with('/') {
                return Err(path::not_a_directory(&self.url, Path::new("")));
            }
            let full = format!("{}{}", url.path(), encoded(path));
            url.set_path(&full);
        }
        Ok((url, path::place(&self.url, path)))
    }

    fn look(&self, path: &Path) -> Result<Seen> {
        let (url, place) = self.place(path)?;
        if is_folder(&url) {
            return Ok(Seen::Folder);
        }
        let client = self.client.clone();
        runtime::wait(async move { look(&client, url, &place).await })
    }
}

impl Backend for HttpBackend {
    fn url(&self) -> &str {
        &self.url
    }

    fn profile(&self) -> Profile {
        Profile {
            request_bytes_best: 8 << 20,
            slots: self.slots,
            latency: Duration::from_millis(20),
            ..Profile::read_only("http")
        }
    }

    fn stat(&self, path: &Path) -> Result<Entry> {
        let name = path.file_name().unwrap_or_default().to_owned();
        match self.look(path)? {
            Seen::Folder => Ok(Entry::directory(&name)),
            Seen::File { size, modified, validator } => {
                let identity = Some(validator.identity(size));
                Ok(Entry { size, modified, identity, ..Entry::new(name, EntryKind::File) })
            }
        }
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        let (_, place) = self.place(path)?;
        let message = format!("{place}: a web server cannot list its files; open them by name");
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Object>> {
        match self.look(path)? {
            Seen::Folder => Err(path::is_a_directory(&self.url, path)),
            Seen::File { size, validator, .. } => {
                // The URL asked for, not the one that it led to: those may be signed, and expire.
                let url = self.place(path)?.0;
                let place: Arc<str> = path::place(&self.url, path).into();
                let identity = validator.identity(size);
                let target = Target { url, place, size, validator, client: self.client.clone() };
                Ok(Arc::new(HttpObject { identity, target: Arc::new(target), gate: self.gate.clone() }))
            }
        }
    }
}

/// What stands at a URL.
enum Seen {
    Folder,
    File { size: u64, modified: Option<SystemTime>, validator: Validator },
}

async fn look(client: &Client, url: Url, place: &str) -> Result<Seen> {
    let head = ask(client, Method::HEAD, &url, None, place).await?;
    // Servers send those who ask for a folder to the same name with a slash, whether they show it or not.
    if is_folder(head.url()) {
        return Ok(Seen::Folder);
    }
    let size = text(head.headers(), CONTENT_LENGTH).and_then(|size| size.parse().ok());
    match (head.status().is_success(), size) {
        (true, Some(size)) => Ok(seen(&head, size)),
        // Only these say that the object is not there, or not for us; others may mean that HEAD is not known.
        (false, _) if matches!(head.status().as_u16(), 401 | 404 | 410 | 429 | 500 | 502..=504) => {
            Err(status_error(place, head.status(), head.headers())
                .unwrap_or_else(|| path::not_found(place, Path::new(""))))
        }
        _ => look_by_range(client, url, place).await,
    }
}

/// Learns the size from the answer to a request for one byte.
async fn look_by_range(client: &Client, url: Url, place: &str) -> Result<Seen> {
    let answer = ask(client, Method::GET, &url, Some((0, 1)), place).await?;
    let total = ContentRange::of(answer.headers()).and_then(|range| range.total);
    match (answer.status(), total) {
        (StatusCode::PARTIAL_CONTENT, Some(size)) => Ok(seen(&answer, size)),
        // There is no first byte.
        (StatusCode::RANGE_NOT_SATISFIABLE, Some(0)) => Ok(seen(&answer, 0)),
        (StatusCode::OK, _) => {
            match text(answer.headers(), CONTENT_LENGTH).and_then(|size| size.parse().ok()) {
                Some(size) => Ok(seen(&answer, size)),
                None => Err(no_size(place)),
            }
        }
        (status, _) => Err(status_error(place, status, answer.headers()).unwrap_or_else(|| no_size(place))),
    }
}

fn no_size(place: &str) -> Error {
    let message =
        format!("{place}: the server does not tell the size; use a server that sends Content-Length");
    Error::new(ErrorKind::Protocol, message)
}

/// With a query, a slash at the end may be anything.
fn is_folder(url: &Url) -> bool {
    url.path().ends_with('/') && url.query().is_none()
}

fn seen(answer: &Response, size: u64) -> Seen {
    if is_folder(answer.url()) {
        return Seen::Folder;
    }
    let validator = Validator::of(answer.headers());
    Seen::File { size, modified: validator.modified(), validator }
}

async fn ask(
    client: &Client,
    method: Method,
    url: &Url,
    range: Option<(u64, u64)>,
    place: &str,
) -> Result<Response> {
    // A compressed body has other offsets.
    let mut request = client.request(method, url.clone()).header(ACCEPT_ENCODING, "identity");
    if let Some((from, to)) = range {
        request = request.header(RANGE, format!("bytes={from}-{}", to - 1));
    }
    request.send().await.map_err(|error| transport_error(place, &error))
}

#[derive(Debug)]
struct HttpObject {
    identity: Identity,
    target: Arc<Target>,
    gate: Gate,
}

impl Object for HttpObject {
    fn size(&self) -> u64 {
        self.identity.size
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn read(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        let len = generate::within(self.size(), offset, buf.len());
        let intake = Intake::new(buf, len, sink);
        if len == 0 {
            return intake.end(Ok(()));
        }
        let fetch = Fetch { target: Arc::clone(&self.target), offset, intake };
        if let Err((fetch, error)) = self.gate.spawn(fetch) {
            fetch.intake.end(Err(error));
        }
    }
}

/// The version of an object that reads must be of.
#[derive(Debug)]
struct Target {
    url: Url,
    place: Arc<str>,
    size: u64,
    validator: Validator,
    client: Client,
}

struct Fetch {
    target: Arc<Target>,
    offset: u64,
    intake: Intake,
}

impl AsyncWork for Fetch {
    async fn run(mut self) {
        let unwanted = self.intake.unwanted();
        // Dropped half-way, it closes its connection, and its sink hears no more of it.
        if let Some(result) = runtime::unless(unwanted, self.fetch()).await {
            self.intake.end(result);
        }
    }
}

impl Fetch {
    async fn fetch(&mut self) -> Result<()> {
        let Target { url, place, client, validator, .. } = &*self.target;
        let end = self.offset + self.intake.len() as u64;
        let range = format!("bytes={}-{}", self.offset, end - 1);
        let request = client.get(url.clone()).header(ACCEPT_ENCODING, "identity").header(RANGE, range);
        let answer = validator.guard(request).send().await.map_err(|error| transport_error(place, &error))?;
        self.check(&answer, end)?;
        let place = Arc::clone(place);
        self.intake.take(&place, answer.bytes_stream(), |error| transport_error(&place, &error)).await
    }

    /// Checks that `answer` is the wanted range of the wanted version.
    fn check(&self, answer: &Response, end: u64) -> Result<()> {
        let Target { place, size, validator, .. } = &*self.target;
        let (status, headers) = (answer.status(), answer.headers());
        let protocol = |what: String| Error::new(ErrorKind::Protocol, format!("{place}: {what}"));
        let found = ContentRange::of(headers);
        match status {
            StatusCode::PARTIAL_CONTENT => validator.check(place, headers)?,
            StatusCode::OK => {
                validator.check(place, headers)?;
                if (self.offset, end) == (0, *size) {
                    return Ok(());
                }
                let remedy = "copy the file here first, or use another server";
                return Err(protocol(format!("the server does not support range requests; {remedy}")));
            }
            // Gone, or too short for what was there: not the object that was opened.
            StatusCode::NOT_FOUND | StatusCode::GONE => return Err(path::changed(place)),
            StatusCode::RANGE_NOT_SATISFIABLE if found.is_none_or(|found| found.total != Some(*size)) => {
                return Err(path::changed(place));
            }
            _ => {
                let unexpected = || protocol(format!("{status}: not an answer to a range request"));
                return Err(status_error(place, status, headers).unwrap_or_else(unexpected));
            }
        }
        let found = found.ok_or_else(|| protocol("206 without a Content-Range".to_owned()))?;
        if found.total.is_some_and(|total| total != *size) {
            return Err(path::changed(place));
        }
        if found.range != Some((self.offset, end)) {
            let (from, last) = (self.offset, end - 1);
            let sent = match found.range {
                Some((first, end)) => format!("bytes {first}-{}", end.saturating_sub(1)),
                None => "no range".to_owned(),
            };
            return Err(protocol(format!("asked for bytes {from}-{last}, the server sends {sent}")));
        }
        Ok(())
    }
}

/// A path as it stands in a URL: all but letters, digits and `-._~` escaped, bytes that are no UTF-8 too.
fn encoded(path: &Path) -> String {
    let mut text = String::new();
    for &byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                text.push(char::from(byte))
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// A URL without user, password, query and fragment: these may hold secrets.
fn redacted(url: &str) -> String {
    match Url::parse(url) {
        Ok(mut parsed) => {
            // Fail for URLs that cannot have them, which then have none to hide.
            parsed.set_username("").ok();
            parsed.set_password(None).ok();
            parsed.set_query(None);
            parsed.set_fragment(None);
            parsed.into()
        }
        Err(_) => url.split(['?', '#']).next().unwrap_or_default().to_owned(),
    }
}

/// Connections to one server: enough to fill a fast link over a long way, few enough to be let in.
const SLOTS: u32 = 32;
