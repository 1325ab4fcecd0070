//! Reading requests from a connection.

use std::io::{self, BufRead, BufReader, Read as _};
use std::net::TcpStream;

use percent_encoding::percent_decode_str;

/// Kinds of requests in the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// HEAD, and `GetObjectAttributes`.
    Head,
    /// GET of an object.
    Get,
    List,
    Put,
    Post,
    Delete,
}

/// A request. Names of headers are in lower case; path and query are without escapes.
#[derive(Debug, Default)]
pub(super) struct Request {
    pub(super) method: String,
    /// As sent.
    pub(super) target: String,
    pub(super) path: String,
    pub(super) query: Vec<(String, String)>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Request {
    /// Reads the head of the next request; `None` if the client has closed the connection.
    pub(super) fn read_head(reader: &mut BufReader<TcpStream>) -> io::Result<Option<Self>> {
        let Some(first) = line(reader)? else { return Ok(None) };
        let mut words = first.split(' ');
        let method = words.next().unwrap_or_default().to_owned();
        let target = words.next().unwrap_or_default().to_owned();
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let query = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (unescaped(&name.replace('+', " ")), unescaped(&value.replace('+', " ")))
        });
        let (path, query) = (unescaped(path), query.collect());
        let mut request = Self { method, target, path, query, ..Self::default() };
        while let Some(line) = line(reader)?.filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').unwrap_or((&line, ""));
            request.headers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
        Ok(Some(request))
    }

    /// Reads the body, at most `limit` bytes of it.
    pub(super) fn read_body(&mut self, reader: &mut BufReader<TcpStream>, limit: usize) -> io::Result<()> {
        if self.header("transfer-encoding").is_none() {
            let length = self.length().min(limit);
            self.body = vec![0; length];
            return reader.read_exact(&mut self.body);
        }
        while self.body.len() < limit {
            let size = line(reader)?.unwrap_or_default();
            let size = size.split(';').next().unwrap_or_default();
            let size = usize::from_str_radix(size.trim(), 16).map_err(io::Error::other)?;
            let from = self.body.len();
            self.body.resize(from + size, 0);
            reader.read_exact(&mut self.body[from..])?;
            line(reader)?;
            if size == 0 {
                return Ok(());
            }
        }
        Ok(())
    }

    /// `Content-Length`, or 0.
    pub(super) fn length(&self) -> usize {
        self.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0)
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn kind(&self) -> Kind {
        match self.method.as_str() {
            "HEAD" => Kind::Head,
            "GET" if self.query("attributes").is_some() => Kind::Head,
            "GET" if self.query("list-type").is_some() || self.query("comp") == Some("list") => Kind::List,
            "GET" if self.query("uploads").is_some() => Kind::List,
            "GET" => Kind::Get,
            "POST" => Kind::Post,
            "DELETE" => Kind::Delete,
            _ => Kind::Put,
        }
    }

    /// The half-open range of the `Range` header for an object of `size` bytes; `None` for the
    /// whole.
    pub(super) fn range(&self, size: usize) -> Option<Result<(usize, usize), ()>> {
        let (from, last) = self.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
        let (from, end) = match (from, last) {
            ("", suffix) => (size.saturating_sub(suffix.parse().ok()?), size),
            (from, "") => (from.parse().ok()?, size),
            (from, last) => (from.parse().ok()?, (last.parse::<usize>().ok()? + 1).min(size)),
        };
        Some(if from < end { Ok((from, end)) } else { Err(()) })
    }
}

/// A line without its end; `None` at the end of the connection.
fn line(reader: &mut BufReader<TcpStream>) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    if reader.take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes)? == 0 {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&bytes);
    Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
}

/// Decodes `%XX` escapes.
pub(super) fn unescaped(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Longest line of a request; clients here send keys of at most 1 KiB and signatures.
const LINE_BYTES_MAX: u64 = 64 << 10;
