//! Files of a web server, by range requests.
//!
//! A server returns size and version at `open`. Every read requests one range of that version and
//! checks the response: status, Content-Range, ETag or Last-Modified, and the body's length.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bowwave_core::network::Validators;
use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, RANGE,
};
use http::{HeaderName, HeaderValue, Method, Request, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use tokio::sync::OnceCell;
use url::Url;

use super::checksum::Checksums;
use super::connect::RequestBody;
use super::errors::status_error;
use super::exchange::{Client, Incoming};
use super::first::First;
use super::index::{self, Refused};
use super::limits::LIST_PAGE_BYTES_MAX;
use super::ranged::{Remote, Source, Version};
use super::runtime::{self, Gate};
use super::validator::{ContentRange, identity, rfc1123, text, validators};
use super::whole::{Unranged, WholeFiles};
use crate::{
    Backend, Entry, EntryKind, Error, ErrorKind, Namespace, NetworkStats, Object, Options, Profile, Result,
    path,
};

/// One object of a web server, or all objects below a directory (a URL that ends in `/`).
#[derive(Debug)]
pub struct HttpBackend {
    /// For messages: without password and query.
    url: String,
    base: Url,
    client: Client,
    gate: Gate,
    slots: u32,
    require_version: bool,
    /// Whether directories are listed by the server's index pages.
    index: bool,
    list_entries_max: u64,
    wholes: WholeFiles,
}

impl HttpBackend {
    /// Prepares reads at and below `url`; sends no request yet.
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
        let client = Client::new(options, slots);
        let (require_version, index) = (options.require_version, options.web_index);
        let (url, gate, list_entries_max) = (redacted(url), Gate::new(slots), options.list_entries_max);
        let wholes = WholeFiles::new(options.no_range_bytes_max);
        Ok(Self { url, base, client, gate, slots, require_version, index, list_entries_max, wholes })
    }

    /// The URL of `path` and its name for messages.
    fn place(&self, path: &Path) -> Result<(Url, String)> {
        path::check(path)?;
        let mut url = self.base.clone();
        if !path.as_os_str().is_empty() {
            if !url.path().ends_with('/') {
                return Err(path::not_a_directory(&self.url, Path::new("")));
            }
            let full = format!("{}{}", url.path(), percent_encode(path.as_os_str().as_encoded_bytes(), PATH));
            url.set_path(&full);
        }
        Ok((url, path::place(&self.url, path)))
    }

    /// A note for users of a server without range requests, if the first conclusive file of `files`
    /// shows that it is one.
    fn lack_of_ranges<'a>(&self, files: impl IntoIterator<Item = &'a Path>) -> Result<Option<String>> {
        for file in files {
            let (url, place) = self.place(file)?;
            let client = self.client.clone();
            let lacks = runtime::wait(async move {
                client.persist(&place, || lacks_ranges(&client, &url, &place)).await
            })?;
            let most = crate::size_text(self.wholes.file_bytes_max);
            match lacks {
                None => {}
                Some(false) => break,
                Some(true) => {
                    return Ok(Some(format!(
                        "{}: the server does not support range requests: files of up to {most} (--no-range-max) are \
                         read whole",
                        self.url
                    )));
                }
            }
        }
        Ok(None)
    }

    fn look(&self, path: &Path) -> Result<Seen> {
        let (url, place) = self.place(path)?;
        if is_directory(&url) {
            return Ok(Seen::Directory);
        }
        let client = self.client.clone();
        runtime::wait(async move { client.persist(&place, || look(&client, url.clone(), &place)).await })
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
            deadline: Some(self.client.limits.deadline),
            lists_sizes: false,
            ..Profile::read_only("http")
        }
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Object>> {
        match self.look(path)? {
            Seen::Directory => Err(path::is_a_directory(&self.url, path)),
            Seen::File { version: validators, coding } => {
                // The requested URL, not the redirection's target, which may be signed and expire.
                let url = self.place(path)?.0;
                let place: Arc<str> = path::place(&self.url, path).into();
                let identity = identity(&validators, validators.modified.as_deref().and_then(rfc1123));
                let (source, checksums) = (
                    Source::Web(self.client.clone(), url, Box::new(Unranged::new(self.wholes.clone()))),
                    Checksums::default(),
                );
                let coding = OnceCell::new_with(Some(coding));
                let (is_confirmed, first) = (true, First::default());
                let version =
                    Version { place, identity, validators, coding, source, checksums, is_confirmed, first };
                version.require(self.require_version)?;
                Ok(Arc::new(Remote { version: Arc::new(version), gate: self.gate.clone() }))
            }
        }
    }

    fn namespace(&self) -> Option<&dyn Namespace> {
        Some(self)
    }

    fn probe(&self) -> Result<Option<String>> {
        let (url, place) = self.place(Path::new(""))?;
        if !is_directory(&url) {
            return match self.look(Path::new(""))? {
                Seen::File { .. } => self.lack_of_ranges([Path::new("")]),
                Seen::Directory => Err(lacks_slash(&place)),
            };
        }
        if !self.index {
            let client = self.client.clone();
            return runtime::wait(async move {
                client.persist(&place, || reach(&client, &url, &place)).await.map(|()| None)
            });
        }
        match self.list(Path::new("")) {
            Ok(entries) => {
                let files = entries.iter().filter(|entry| entry.kind == EntryKind::File);
                self.lack_of_ranges(files.map(|file| Path::new(&file.name)).take(PROBED_FILES))
            }
            Err(error) => match error.kind() {
                ErrorKind::NotFound => {
                    let message = format!("{error}; check the URL, or open files by name with --no-index");
                    Err(error.with_message(message))
                }
                // Its files may still be served.
                ErrorKind::PermissionDenied | ErrorKind::Unsupported | ErrorKind::TooLarge => {
                    Ok(Some(error.to_string()))
                }
                _ => Err(error),
            },
        }
    }

    fn network(&self) -> Option<NetworkStats> {
        Some(self.client.traffic.stats())
    }
}

impl Namespace for HttpBackend {
    fn backend(&self) -> &dyn Backend {
        self
    }

    fn stat(&self, path: &Path) -> Result<Entry> {
        let name = path.file_name().unwrap_or_default().to_owned();
        match self.look(path)? {
            Seen::Directory => Ok(Entry::directory(&name)),
            Seen::File { version, .. } => {
                let modified = version.modified.as_deref().and_then(rfc1123);
                let identity = identity(&version, modified);
                let size = identity.size;
                Ok(Entry { size, modified, identity: Some(identity), ..Entry::new(name, EntryKind::File) })
            }
        }
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        let (mut url, place) = self.place(path)?;
        let unlisted = |why: &str| {
            let message = format!("{place}: the server lists no files here ({why}); open them by name");
            Error::new(ErrorKind::Unsupported, message)
        };
        if !self.index {
            return Err(unlisted("--no-index"));
        }
        if !is_directory(&url) {
            // The root is one file; below it, a directory's page has a slash.
            if path.as_os_str().is_empty() {
                return Err(match self.look(path)? {
                    Seen::Directory => lacks_slash(&place),
                    Seen::File { .. } => path::not_a_directory(&self.url, path),
                });
            }
            url.set_path(&format!("{}/", url.path()));
        }
        let client = self.client.clone();
        let page = runtime::wait({
            let place = place.clone();
            async move { client.persist(&place, || index_page(&client, &url, &place)).await }
        })?;
        let Some(page) = page else { return Err(path::not_a_directory(&self.url, path)) };
        match index::read(&page.kind, &page.body, &page.url, self.list_entries_max) {
            Ok(entries) => Ok(entries),
            Err(Refused::NoIndex(why)) => Err(unlisted(&format!("the page is no index: {why}"))),
            Err(Refused::TooMany) => {
                let most = self.list_entries_max;
                let message = format!("{place}: more than {most} entries in one directory (--list-max)");
                Err(Error::new(ErrorKind::TooLarge, message))
            }
        }
    }
}

/// The entry at a URL.
enum Seen {
    Directory,
    File { version: Validators, coding: Option<String> },
}

async fn look(client: &Client, url: Url, place: &str) -> Result<Seen> {
    let (head, at) = follow(client, place, Method::HEAD, &url, &[]).await?;
    // Servers redirect requests for a directory to the same name with a slash, whether they list it
    // or not.
    if is_directory(&at) {
        return Ok(Seen::Directory);
    }
    let size = text(head.headers(), CONTENT_LENGTH).and_then(|size| size.trim().parse().ok());
    match (head.status().is_success(), size) {
        (true, Some(size)) => Ok(seen(&head, &at, size)),
        // Only these mean that the object is missing or forbidden; others may mean that HEAD is not
        // supported.
        (false, _) if matches!(head.status().as_u16(), 401 | 404 | 410 | 429 | 500 | 502..=504) => {
            Err(status_error(place, head.status(), head.headers())
                .unwrap_or_else(|| path::not_found(place, Path::new(""))))
        }
        _ => look_by_range(client, url, place).await,
    }
}

/// The error for the URL of a directory without its slash: links of its page would lead elsewhere.
fn lacks_slash(place: &str) -> Error {
    Error::new(ErrorKind::NotADirectory, format!("{place}: this is a directory; end the URL with `/`"))
}

/// The page of a directory.
struct IndexPage {
    kind: String,
    body: Bytes,
    /// Target of redirections: links are relative to it.
    url: Url,
}

/// The page at `url`, which ends in a slash; `None` if a file is there.
async fn index_page(client: &Client, url: &Url, place: &str) -> Result<Option<IndexPage>> {
    // caddy sends JSON to clients that accept it; nginx sends its configured format.
    let headers = [(ACCEPT_ENCODING, "identity".to_owned()), (ACCEPT, INDEX_KINDS.to_owned())];
    let (incoming, at) = follow(client, place, Method::GET, url, &headers).await?;
    if !is_directory(&at) {
        return Ok(None);
    }
    if let Some(error) = status_error(place, incoming.status(), incoming.headers()) {
        // Plain servers respond so for each directory that they do not list; a server that needs
        // credentials responds 401.
        return Err(match incoming.status() {
            StatusCode::FORBIDDEN => Error::new(
                ErrorKind::Unsupported,
                format!(
                    "{place}: the server shows no listing of this directory (403 Forbidden); open files by name, with \
                     --no-index to request no listing (`autoindex on` in nginx provides one)"
                ),
            ),
            _ => error,
        });
    }
    let kind = text(incoming.headers(), CONTENT_TYPE).unwrap_or_default();
    let body = incoming.collect(LIST_PAGE_BYTES_MAX).await?;
    Ok(Some(IndexPage { kind, body, url: at }))
}

/// Requests a directory that need not exist, to check that the server responds and accepts us: many
/// servers have no page for a directory whose files they serve.
async fn reach(client: &Client, url: &Url, place: &str) -> Result<()> {
    let incoming = send(client, place, Method::GET, url, &[]).await?;
    match (incoming.status().as_u16(), status_error(place, incoming.status(), incoming.headers())) {
        (401 | 408 | 429 | 500..=599, Some(error)) => Err(error),
        _ => Ok(()),
    }
}

/// Whether the server sends a whole file for its first byte; `None` if this file is not conclusive.
async fn lacks_ranges(client: &Client, url: &Url, place: &str) -> Result<Option<bool>> {
    let headers = [(ACCEPT_ENCODING, "identity".to_owned()), (RANGE, "bytes=0-0".to_owned())];
    let incoming = send(client, place, Method::GET, url, &headers).await?;
    let size = text(incoming.headers(), CONTENT_LENGTH).and_then(|size| size.trim().parse::<u64>().ok());
    Ok(match incoming.status() {
        StatusCode::PARTIAL_CONTENT => Some(false),
        StatusCode::OK => size.filter(|&size| size > 1).map(|_| true),
        _ => None,
    })
}

/// Finds the size by a request for one byte.
async fn look_by_range(client: &Client, url: Url, place: &str) -> Result<Seen> {
    let headers = [(ACCEPT_ENCODING, "identity".to_owned()), (RANGE, "bytes=0-0".to_owned())];
    let (found, at) = follow(client, place, Method::GET, &url, &headers).await?;
    let total = ContentRange::of(found.headers()).and_then(|range| range.total);
    match (found.status(), total) {
        (StatusCode::PARTIAL_CONTENT, Some(size)) => Ok(seen(&found, &at, size)),
        // There is no first byte.
        (StatusCode::RANGE_NOT_SATISFIABLE, Some(0)) => Ok(seen(&found, &at, 0)),
        (StatusCode::OK, _) => match text(found.headers(), CONTENT_LENGTH).and_then(|size| size.parse().ok())
        {
            Some(size) => Ok(seen(&found, &at, size)),
            None => Err(no_size(place)),
        },
        (status, _) => Err(status_error(place, status, found.headers()).unwrap_or_else(|| no_size(place))),
    }
}

fn no_size(place: &str) -> Error {
    let message =
        format!("{place}: the server does not tell the size; use a server that sends Content-Length");
    Error::new(ErrorKind::Protocol, message)
}

/// With a query, a slash at the end has no meaning.
fn is_directory(url: &Url) -> bool {
    url.path().ends_with('/') && url.query().is_none()
}

fn seen(head: &Incoming, at: &Url, size: u64) -> Seen {
    if is_directory(at) {
        return Seen::Directory;
    }
    let version = Validators { size: Some(size), ..validators(head.headers()) };
    Seen::File { version, coding: text(head.headers(), CONTENT_ENCODING) }
}

/// Sends a request, and follows redirections; all together take no longer than one request may.
pub(super) async fn send(
    client: &Client,
    place: &str,
    method: Method,
    url: &Url,
    headers: &[(HeaderName, String)],
) -> Result<Incoming> {
    follow(client, place, method, url, headers).await.map(|(incoming, _)| incoming)
}

async fn follow(
    client: &Client,
    place: &str,
    method: Method,
    url: &Url,
    headers: &[(HeaderName, String)],
) -> Result<(Incoming, Url)> {
    let hops = async {
        let mut url = url.clone();
        for _ in 0..=REDIRECTS_MAX {
            let incoming = client.send(place, request(place, &method, &url, headers)?).await?;
            match redirection(place, &url, &incoming)? {
                None => return Ok((incoming, url)),
                Some(next) => url = next,
            }
        }
        let message = format!("{place}: more than {REDIRECTS_MAX} redirections in a row; check the URL");
        Err(Error::new(ErrorKind::Protocol, message))
    };
    let late = || Error::new(ErrorKind::TimedOut, format!("{place}: redirections take too long (--timeout)"));
    tokio::time::timeout(client.limits.timeout, hops).await.unwrap_or_else(|_| Err(late()))
}

/// Where the response to a request for `from` redirects to; `None` if it does not redirect.
///
/// User and password of `from` are sent to the same origin only, and never from `https` to `http`.
/// The query of `from` may be a signature, and is never sent: there is no `Referer`.
///
/// # Errors
/// `Protocol` if the redirection is not followed.
fn redirection(place: &str, from: &Url, response: &Incoming) -> Result<Option<Url>> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let location = text(response.headers(), LOCATION);
    let refused = |why: &str| {
        Err(Error::new(ErrorKind::Protocol, format!("{place}: {}: {why}; check the URL", response.status())))
    };
    let Some(location) = location else { return refused("a redirection without a Location") };
    let Ok(to) = from.join(&location) else { return refused("a redirection to something that is no URL") };
    match redirected_url(from, to) {
        Ok(to) => Ok(Some(to)),
        Err(why) => refused(why),
    }
}

/// Where a redirection leads, with the credentials that are sent there.
///
/// # Errors
/// Why it is not followed.
pub(super) fn redirected_url(from: &Url, mut to: Url) -> std::result::Result<Url, &'static str> {
    match (from.scheme(), to.scheme()) {
        (_, "https") | ("http", "http") => {}
        ("https", "http") => return Err("a redirection from https to http is not followed"),
        _ => return Err("a redirection to another scheme is not followed"),
    }
    if to.host_str().is_none() {
        return Err("a redirection without a host");
    }
    // Credentials in the server's `Location` are ignored. Neither call fails for a URL with a host.
    let (user, password) = if from.origin() == to.origin() {
        (from.username().to_owned(), from.password().map(str::to_owned))
    } else {
        (String::new(), None)
    };
    to.set_username(&user).map_err(|()| "a redirection without a host")?;
    to.set_password(password.as_deref()).map_err(|()| "a redirection without a host")?;
    to.set_fragment(None);
    Ok(to)
}

/// The request for a URL, whose user and password become a header.
///
/// # Errors
/// `Invalid` for a URL that HTTP cannot carry: one that is too long.
pub(super) fn request(
    place: &str,
    method: &Method,
    url: &Url,
    headers: &[(HeaderName, String)],
) -> Result<Request<RequestBody>> {
    let mut url = url.clone();
    let (user, password) = (url.username().to_owned(), url.password().map(str::to_owned));
    // Neither fails for a URL with a host.
    url.set_username("").ok();
    url.set_password(None).ok();
    let invalid = |why| Error::new(ErrorKind::Invalid, format!("{place}: cannot be requested: {why}"));
    let mut request = Request::new(RequestBody::Nothing);
    *request.method_mut() = method.clone();
    *request.uri_mut() = url.as_str().parse().map_err(invalid)?;
    for (name, value) in headers {
        // Invalid text did not come from a header, and cannot be one.
        if let Ok(value) = HeaderValue::from_str(value) {
            request.headers_mut().insert(name.clone(), value);
        }
    }
    if !user.is_empty() || password.is_some() {
        let plain = |text: &str| percent_decode_str(text).collect::<Vec<u8>>();
        let pair = [plain(&user), b":".to_vec(), plain(password.as_deref().unwrap_or_default())].concat();
        if let Ok(mut value) = HeaderValue::from_str(&format!("Basic {}", BASE64_STANDARD.encode(pair))) {
            value.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, value);
        }
    }
    Ok(request)
}

/// A URL without user, password, query and fragment: these may hold secrets.
fn redacted(url: &str) -> String {
    match Url::parse(url) {
        Ok(mut parsed) => {
            // These calls fail for URLs that cannot have secrets.
            parsed.set_username("").ok();
            parsed.set_password(None).ok();
            parsed.set_query(None);
            parsed.set_fragment(None);
            parsed.into()
        }
        Err(_) => url.split(['?', '#']).next().unwrap_or_default().to_owned(),
    }
}

/// Most redirections in a row; more are a loop.
const REDIRECTS_MAX: u32 = 5;
/// Accepted types of a directory's index.
const INDEX_KINDS: &str = "application/json, text/html;q=0.9";
/// Files of a directory that are probed for range support: empty ones are not conclusive.
const PROBED_FILES: usize = 3;
/// Connections to one server: enough for a fast, distant link, few enough to be accepted.
const SLOTS: u32 = 32;

/// Bytes of a query that are escaped: all except bytes that every server accepts.
pub(super) const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Bytes of a path or key that are escaped.
pub(super) const PATH: &AsciiSet = &QUERY.remove(b'/');

#[cfg(test)]
mod tests {
    use super::*;

    fn to(from: &str, location: &str) -> std::result::Result<String, &'static str> {
        let from: Url = from.parse().unwrap();
        redirected_url(&from, from.join(location).unwrap()).map(Into::into)
    }

    #[test]
    fn credentials_stay_with_their_origin() {
        let from = "http://user:secret@a.example:81/dir/file?signature=1";
        assert_eq!(to(from, "other").unwrap(), "http://user:secret@a.example:81/dir/other");
        assert_eq!(to(from, "//a.example:81/x#part").unwrap(), "http://user:secret@a.example:81/x");
        for elsewhere in
            ["http://b.example/x", "http://a.example/x", "https://a.example:81/x", "http://x:y@b.example/x"]
        {
            let target = to(from, elsewhere).unwrap();
            assert!(!target.contains('@') && !target.contains("signature"), "{target}");
        }
    }

    #[test]
    fn a_redirection_keeps_or_betters_the_scheme() {
        assert!(to("http://a.example/", "https://b.example/").is_ok());
        assert!(to("https://a.example/", "http://a.example/").is_err());
        for other in ["file:///etc/passwd", "ftp://b.example/x", "data:text/plain,x"] {
            assert!(to("http://a.example/", other).is_err(), "{other}");
        }
    }
}
