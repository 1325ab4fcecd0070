//! A response before it is sent.

use std::fmt::Write as _;

/// Status, headers and body. `Content-Length` is not among the headers.
#[derive(Clone, Debug, Default)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Answer {
    pub(super) fn new(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    /// A success response with an XML body.
    pub(super) fn xml(body: String) -> Self {
        Self::new(200).header("Content-Type", "application/xml").body(body.into_bytes())
    }

    /// An error in the format of object stores.
    pub(super) fn error(status: u16, code: &str) -> Self {
        let mut answer = Self::xml(format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code>\
             <Message>The hostile server answers {status}.</Message></Error>"
        ));
        answer.status = status;
        answer
    }

    pub(super) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub(super) fn body(mut self, body: Vec<u8>) -> Self {
        self.body = body;
        self
    }

    /// Replaces or removes a header.
    pub(super) fn set(&mut self, name: &str, value: Option<String>) {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        if let Some(value) = value {
            self.headers.push((name.to_owned(), value));
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The head with these framing headers.
    pub(super) fn head_with(&self, version: &str, framing: &str) -> String {
        let mut head = format!("{version} {} {}\r\n", self.status, reason(self.status));
        for (name, value) in &self.headers {
            // Writing to a string cannot fail.
            let _ = write!(head, "{name}: {value}\r\n");
        }
        head + framing + "\r\n"
    }

    /// The head with a correct `Content-Length`.
    pub(super) fn head(&self) -> String {
        // These statuses have no body and must not have a length.
        let framing = match self.status {
            204 | 304 => String::new(),
            _ => format!("Content-Length: {}\r\n", self.body.len()),
        };
        self.head_with("HTTP/1.1", &framing)
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        204 => "No Content",
        206 => "Partial Content",
        301..=308 => "Redirect",
        404 => "Not Found",
        412 => "Precondition Failed",
        416 => "Range Not Satisfiable",
        500..=599 => "Server Error",
        _ => "Status",
    }
}
