//! Opens stores by URL.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use zeroize::{Zeroize, ZeroizeOnDrop};

#[cfg(feature = "http")]
use crate::HttpBackend;
use crate::{Backend, Device, Error, ErrorKind, FileBackend, FileIo, MemoryBackend};
use crate::{PatternBackend, Result};

/// Keys of a cloud, in place of those in the environment. Dropping them overwrites their memory.
#[derive(Clone)]
#[non_exhaustive]
pub enum Credentials {
    /// Keys for S3.
    Amazon {
        /// Access key (`AWS_ACCESS_KEY_ID`).
        access_key_id: String,
        /// Its secret (`AWS_SECRET_ACCESS_KEY`).
        secret_access_key: String,
        /// Token of a temporary session (`AWS_SESSION_TOKEN`).
        session_token: Option<String>,
    },
    /// An account of Azure. Without a key and a token, those of the environment are used.
    Azure {
        /// Its name (`AZURE_STORAGE_ACCOUNT_NAME`).
        account_name: String,
        /// Its key in Base64 (`AZURE_STORAGE_ACCOUNT_KEY`).
        account_key: Option<String>,
        /// A shared access signature (`AZURE_STORAGE_SAS_TOKEN`), for use without the key.
        sas_token: Option<String>,
    },
    /// The key file of a service account of Google, in JSON.
    Google {
        /// Its text (`GOOGLE_SERVICE_ACCOUNT_KEY`).
        service_account_key: String,
    },
}

impl Credentials {
    /// The scheme of URLs that they are for.
    pub const fn scheme(&self) -> &'static str {
        match self {
            Self::Amazon { .. } => "s3",
            Self::Azure { .. } => "az",
            Self::Google { .. } => "gs",
        }
    }
}

impl Drop for Credentials {
    fn drop(&mut self) {
        match self {
            Self::Amazon { access_key_id, secret_access_key, session_token } => {
                access_key_id.zeroize();
                secret_access_key.zeroize();
                session_token.zeroize();
            }
            Self::Azure { account_name: _, account_key, sas_token } => {
                account_key.zeroize();
                sas_token.zeroize();
            }
            Self::Google { service_account_key } => service_account_key.zeroize(),
        }
    }
}

impl ZeroizeOnDrop for Credentials {}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Credentials");
        match self {
            Self::Amazon { access_key_id, .. } => shown.field("access_key_id", access_key_id),
            Self::Azure { account_name, .. } => shown.field("account_name", account_name),
            Self::Google { .. } => &mut shown,
        };
        shown.finish_non_exhaustive()
    }
}

/// Options for opening a store; the defaults suit most stores.
#[derive(Debug, Clone)]
pub struct Options {
    /// Object stores: allow endpoints of plain `http`. Default: no, unless `AWS_ALLOW_HTTP` is set.
    pub allow_http: bool,
    /// Object stores: the server's URL, in place of the cloud's own. Default: from the environment.
    pub endpoint: Option<String>,
    /// Object stores: the region. Default: from the environment.
    pub region: Option<String>,
    /// S3: put the bucket in the path of requests, not in the host's name. Default: if an endpoint
    /// is given.
    pub path_style: Option<bool>,
    /// Object stores: the keys. Default: from the environment or, for S3, the shared credentials
    /// file.
    pub credentials: Option<Credentials>,
    /// Object stores: send requests without a signature, for public data. Default: no.
    pub anonymous: bool,
    /// Longest wait for a connection, for a response, and between two bytes of a body; also the
    /// period of [`least_rate`](Self::least_rate). Default: 30 s.
    pub timeout: Duration,
    /// Network stores: longest time of one call (a read, a lookup, a page of a listing), over all
    /// attempts. Default: 1.25 times [`timeout`](Self::timeout). A kernel reads a failed page once
    /// more, so a program has its error within three time-outs.
    pub deadline: Option<Duration>,
    /// Network stores: most retries of a request that changes nothing or may be repeated. Default:
    /// 6.
    pub retries: u32,
    /// Network stores: least bytes a second of a response, over each [`timeout`](Self::timeout); 0
    /// for none. Default: 4096.
    pub least_rate: u64,
    /// Network stores: refuse to open objects without a strong entity tag, whose versions cannot be
    /// distinguished reliably. Default: no.
    pub require_version: bool,
    /// S3: verify reads by the store's checksums of whole objects and of parts. Default: yes.
    pub verify: bool,
    /// Object stores: most entries of one directory. Each takes about 400 bytes of memory during a
    /// listing. Default: 10^6.
    pub list_entries_max: u64,
    /// S3: store modes, owners and times of files in object metadata, and read them from there.
    /// Default: no.
    pub attributes: bool,
    /// Object stores: treat a prefix without objects as an empty directory, not as an error.
    /// Default: no.
    pub new_prefix: bool,
    /// Web servers: list directories by their index pages, and check at the mount that the
    /// directory exists. Default: yes.
    pub web_index: bool,
    /// Web servers: size in bytes of the largest file that is read whole if the server does not
    /// support range requests. Uses memory for at most two such files. Default: 64 MiB.
    pub no_range_bytes_max: u64,
    /// Most requests in flight. Default: the store's own number.
    pub connections: Option<u32>,
    /// Files: read with `O_DIRECT` where the file system supports it. Default: yes.
    pub direct: bool,
    /// Files: how reads are carried out. Default: io_uring if the kernel offers it.
    pub file_io: FileIo,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            allow_http: false,
            endpoint: None,
            region: None,
            path_style: None,
            credentials: None,
            anonymous: false,
            timeout: Duration::from_secs(30),
            deadline: None,
            retries: 6,
            least_rate: 4096,
            require_version: false,
            verify: true,
            list_entries_max: 1_000_000,
            attributes: false,
            new_prefix: false,
            web_index: true,
            no_range_bytes_max: 64 << 20,
            connections: None,
            direct: true,
            file_io: FileIo::Auto,
        }
    }
}

/// Opens the store that `url` names.
///
/// ```text
///   PATH, file:///PATH             a directory with all below it, or one file
///   http(s)://HOST/FILE            one file of a web server; http(s)://HOST/DIRECTORY/ all below
///   s3://BUCKET[/PREFIX], gs://, az://  objects of a cloud
///   memory:                        an empty store in memory
///   pattern:/SIZE                  a generated file; pattern:/ all of them
///   emulate:PROFILE[,KEY=VALUE…]:URL   any store at the speed of a device (hdd, lustre, nvme, s3, ssd)
///   emulate:PROFILE[,KEY=VALUE…]/SIZE  the same over pattern:/SIZE
///   disk:directory=PATH,size=SIZE:URL  any store, with a copy of read bytes on disk
///   throttle:rate=RATE:URL         any store, with at most this many bytes a second
///   limit:requests=N:URL           any store, with at most this many requests in flight
///   fault:KEY=VALUE[,…]:URL        any store, with faults: errors=, short=, truncated=, stalled= (shares
///                                  of reads), write_errors=, no_space=, write_short=, write_stalled=
///                                  (of writes), sync_errors=, finish_errors=, stall= (a time), seed=
/// ```
///
/// ```
/// use bowwave_backend::{Options, open_url};
///
/// let store = open_url("emulate:s3,latency=10ms/64KiB", &Options::default()).unwrap();
/// assert_eq!(store.open("".as_ref()).unwrap().size(), 65536);
/// ```
///
/// # Errors
/// `InvalidUrl` if the URL or an option cannot be parsed; otherwise as the store says, such as
/// `NotFound`. Messages contain the URL [`redacted`].
pub fn open_url(url: &str, options: &Options) -> Result<Arc<dyn Backend>> {
    open(url, options).map_err(|error| {
        let text = error.to_string();
        let hidden = hide(&text, url);
        if hidden == text { error } else { error.with_message(hidden) }
    })
}

/// The path if `url` is a path or a `file:` URL with a path; `None` for all other stores.
///
/// ```
/// assert_eq!(bowwave_backend::local_path("file:///a%20b"), Some("/a b".into()));
/// assert_eq!(bowwave_backend::local_path("s3://bucket"), None);
/// ```
pub fn local_path(url: &str) -> Option<PathBuf> {
    match scheme(url) {
        None => Some(PathBuf::from(url)),
        Some(("file", rest)) => file_path(url, rest).ok(),
        Some(_) => None,
    }
}

/// The URL without possible secrets: `***` in place of user and password, and of the query, which
/// may be a signature.
pub fn redacted(url: &str) -> String {
    hide(url, url)
}

/// A text without a URL's secrets.
fn hide(text: &str, url: &str) -> String {
    let Some((_, rest)) = url.split_once("://") else { return text.to_owned() };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    let query = rest.split_once('?').map_or("", |(_, query)| query);
    let mut text = text.to_owned();
    for (secret, shown) in [(format!("{user}@"), "***@"), (format!("?{query}"), "?***")] {
        if secret.len() > 1 {
            text = text.replace(&secret, shown);
        }
    }
    text
}

fn open(url: &str, options: &Options) -> Result<Arc<dyn Backend>> {
    if is_host_and_port(url) && !Path::new(url).exists() {
        return Err(invalid(format!("{url}: no such path; for a web server write http://{url}")));
    }
    let Some((scheme, rest)) = scheme(url) else {
        return file(PathBuf::from(url), options);
    };
    match scheme {
        "file" => file(file_path(url, rest)?, options),
        "memory" if rest.is_empty() => Ok(Arc::new(MemoryBackend::new())),
        "memory" => Err(invalid(format!("{url}: a memory store begins empty; use `memory:`"))),
        "pattern" => {
            let base = rest.trim_matches('/');
            Ok(Arc::new(PatternBackend::new(base)?))
        }
        "emulate" => emulate(url, rest, options),
        "disk" | "throttle" | "limit" | "fault" => crate::wrap::open(url, scheme, rest, options),
        #[cfg(feature = "http")]
        "http" | "https" => Ok(Arc::new(HttpBackend::new(url, options)?)),
        #[cfg(feature = "s3")]
        "s3" | "gs" | "az" => Ok(Arc::new(crate::net::open::open(url, scheme, rest, options)?)),
        #[cfg(not(feature = "s3"))]
        _ if matches!(scheme, "http" | "https" | "s3" | "gs" | "az") => Err(Error::new(
            ErrorKind::Unsupported,
            format!("{url}: built without support for `{scheme}`; enable the feature `http` or `s3`"),
        )),
        _ => {
            Err(invalid(format!("{url}: unknown scheme `{scheme}`; known: {SCHEMES} (begin a path with ./)")))
        }
    }
}

/// Whether `url` is a web server without a scheme: `localhost:8000`, `127.0.0.1:80/dir`.
fn is_host_and_port(url: &str) -> bool {
    let Some((host, rest)) = url.split_once(':') else { return false };
    let port = rest.split('/').next().unwrap_or_default();
    !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok()
}

/// Splits `scheme:rest`. A path may have a colon, but not before its first slash, unless it begins
/// with `./`.
fn scheme(url: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = url.split_once(':')?;
    let mut letters = scheme.chars();
    let first = letters.next().is_some_and(|c| c.is_ascii_alphabetic());
    let plain = letters.all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    (first && plain).then_some((scheme, rest))
}

fn file(path: PathBuf, options: &Options) -> Result<Arc<dyn Backend>> {
    if path.as_os_str().is_empty() {
        return Err(invalid(format!("the URL is empty; name a file, a directory or a store ({SCHEMES})")));
    }
    Ok(Arc::new(FileBackend::open(path, options.file_io, options.direct, options.connections)?))
}

fn file_path(url: &str, rest: &str) -> Result<PathBuf> {
    let path = match rest.strip_prefix("//") {
        Some(with_host) => with_host.strip_prefix("localhost").unwrap_or(with_host),
        None => rest,
    };
    if !path.starts_with('/') {
        return Err(invalid(format!(
            "{url}: a file URL has an absolute path and no host, such as file:///data"
        )));
    }
    Ok(PathBuf::from(OsString::from_vec(percent_decode_str(path).collect())))
}

fn emulate(url: &str, rest: &str, options: &Options) -> Result<Arc<dyn Backend>> {
    let within = |error: Error| Error::new(error.kind(), format!("{url}: {error}"));
    let end = rest.find([',', ':', '/']).unwrap_or(rest.len());
    let (profile, rest) = rest.split_at(end);
    let mut device = Device::named(profile).map_err(within)?;
    let (pairs, rest) = pairs(url, rest)?;
    for (key, value) in pairs {
        device.set(key, value).map_err(within)?;
    }
    if let Some(slots) = options.connections {
        device.slots = slots.max(1);
    }
    let inner = match rest.strip_prefix(':') {
        Some("") => return Err(invalid(format!("{url}: no store follows; such as emulate:s3:file:///data"))),
        // The emulated device sets the limit; the store below should be as fast as possible.
        Some(inner) => open_url(inner, &Options { connections: None, ..options.clone() })?,
        None => Arc::new(PatternBackend::new(rest.trim_matches('/'))?),
    };
    crate::emulate(inner, device)
}

/// The `,key=value` pairs at the start of `rest`, and the text after them.
pub(crate) fn pairs<'a>(url: &str, mut rest: &'a str) -> Result<(Vec<(&'a str, &'a str)>, &'a str)> {
    let mut pairs = Vec::new();
    while let Some(option) = rest.strip_prefix(',') {
        let (pair, after) = option.split_at(option_end(option));
        pairs
            .push(pair.split_once('=').ok_or_else(|| invalid(format!("{url}: `{pair}` wants `key=value`")))?);
        rest = after;
    }
    Ok((pairs, rest))
}

/// End of `key=value`: a comma, a colon or a slash, except the slash of `90MB/s` and slashes in a
/// path.
fn option_end(option: &str) -> usize {
    if option.split_once('=').is_some_and(|(_, value)| value.starts_with('/')) {
        return option.find([',', ':']).unwrap_or(option.len());
    }
    let mut from = 0;
    loop {
        let Some(found) = option[from..].find([',', ':', '/']) else { return option.len() };
        let end = from + found;
        let after = &option[end..];
        let per_second =
            after.strip_prefix("/s").is_some_and(|rest| rest.is_empty() || rest.starts_with([',', ':', '/']));
        if !per_second {
            return end;
        }
        from = end + 2;
    }
}

pub(crate) fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidUrl, message)
}

const SCHEMES: &str = "a path, file:, http:, https:, s3:, gs:, az:, memory:, pattern:, \
                       emulate:, disk:, throttle:, limit:, fault:";

#[cfg(test)]
mod tests {
    use super::*;

    fn kind_and_message(url: &str) -> (ErrorKind, String) {
        let error = open_url(url, &Options::default()).expect_err(url);
        (error.kind(), error.to_string())
    }

    #[test]
    fn errors_of_opening_show_no_secret_of_the_url() {
        for url in [
            "s3://id:secret@bucket/key?X-Signature=secret",
            "s3://?X-Signature=secret",
            "gopher://id:secret@host/path?token=secret",
            "fault:errors=1:gopher://id:secret@host/path?token=secret",
            "fault:errors=many:http://id:secret@host/path?token=secret",
            "emulate:nothing:http://id:secret@host/path?token=secret",
            "az://secret@container:x/path",
        ] {
            let error = open_url(url, &Options::default()).expect_err("wrong in one way or another");
            let text = format!("{error} {error:?}");
            assert!(!text.contains("secret"), "{url}: {text}");
            assert!(!redacted(url).contains("secret"), "{url}");
        }
        assert_eq!(redacted("http://id:secret@host/a?b"), "http://***@host/a?***");
        assert_eq!(redacted("http://host/a@b"), "http://host/a@b");
        assert_eq!(redacted("./file?with@both"), "./file?with@both");
    }

    #[test]
    fn bad_urls_name_cause_and_remedy_in_one_line() {
        for (url, kind, part) in [
            ("gopher://x", ErrorKind::InvalidUrl, "known: a path, file:"),
            ("", ErrorKind::InvalidUrl, "empty"),
            ("/no/such/file", ErrorKind::NotFound, "/no/such/file"),
            ("file://host/x", ErrorKind::InvalidUrl, "file:///"),
            ("localhost:8000/dir", ErrorKind::InvalidUrl, "write http://localhost:8000/dir"),
            ("127.0.0.1:80", ErrorKind::InvalidUrl, "write http://127.0.0.1:80"),
            ("emulate:floppy/1KiB", ErrorKind::InvalidUrl, "known: hdd, lustre, nvme, s3, ssd"),
            ("emulate:s3,speed=9/1KiB", ErrorKind::InvalidUrl, "known: bandwidth"),
            ("emulate:hdd,latency=9ms/1KiB", ErrorKind::InvalidUrl, "known: deadline"),
            ("emulate:s3,latency/1KiB", ErrorKind::InvalidUrl, "key=value"),
            ("emulate:s3,latency=soon/1KiB", ErrorKind::InvalidUrl, "10ms"),
            ("emulate:s3:", ErrorKind::InvalidUrl, "no store"),
            ("throttle:rate=9MB/s", ErrorKind::InvalidUrl, "no store follows"),
            ("throttle:rate=fast:pattern:/1KiB", ErrorKind::InvalidUrl, "90MB/s"),
            ("throttle:pattern:/1KiB", ErrorKind::InvalidUrl, "key=value"),
            ("limit:requests=0:pattern:/1KiB", ErrorKind::InvalidUrl, "at least 1"),
            ("fault:errors=2:pattern:/1KiB", ErrorKind::InvalidUrl, "from 0 to 1"),
            ("fault:luck=0.1:pattern:/1KiB", ErrorKind::InvalidUrl, "known: errors"),
            ("fault:errors=0.1:/no/such", ErrorKind::NotFound, "/no/such"),
            ("pattern:/../x", ErrorKind::InvalidUrl, "`..`"),
        ] {
            let (found, message) = kind_and_message(url);
            assert_eq!(found, kind, "{url}: {message}");
            assert!(message.contains(part) && !message.contains('\n'), "{url}: {message}");
        }
    }

    #[test]
    fn rates_with_a_slash_do_not_end_the_options() {
        for url in
            ["emulate:s3,bandwidth=9MB/s,slots=3/1KiB", "emulate:s3,slots=3,bandwidth=9MB/s:pattern:/1KiB"]
        {
            let store = open_url(url, &Options::default()).expect(url);
            assert_eq!(store.profile().slots, 3);
            assert_eq!(store.open("".as_ref()).expect(url).size(), 1024, "{url}");
        }
    }

    #[test]
    fn wrappers_stand_before_any_store_and_before_each_other() {
        let url = "limit:requests=3:throttle:rate=1GB/s:fault:errors=0.5,seed=9:pattern:/1KiB";
        let store = open_url(url, &Options::default()).expect(url);
        assert_eq!(store.profile().slots, 3);
        let object = store.open("".as_ref()).expect(url);
        let failed =
            (0..200).filter(|_| crate::read_once(&*object, 0, 10, Duration::from_secs(10)).is_err()).count();
        assert!((50..150).contains(&failed), "{failed} of 200 failed");
    }
}
