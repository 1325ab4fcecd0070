//! Requests that the library has no call for, signed with the library's credentials: lists of uploads, copies of parts,
//! keys that end in `/`, conditions.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderName};
use http::{HeaderValue, Method, StatusCode};
use object_store::CredentialProvider;
use object_store::aws::{AwsAuthorizer, AwsCredentialProvider};
use object_store::azure::{AzureAuthorizer, AzureCredential};
use object_store::client::{HttpRequest, HttpRequestBody};
use object_store::gcp::GcpCredentialProvider;

use super::client::{status_error, transport_error};
use super::{upstream, xml};
use crate::{Error, ErrorKind, Result};

/// The way to one bucket.
#[derive(Debug)]
pub(super) struct Wire {
    /// For messages.
    pub(super) place: String,
    /// URL of the bucket, without a slash at its end.
    pub(super) base: String,
    pub(super) client: reqwest::Client,
    /// How long nothing may move.
    pub(super) patience: Duration,
    pub(super) signer: Signer,
}

/// Who signs.
pub(super) enum Signer {
    Nobody,
    Amazon { credentials: AwsCredentialProvider, region: String },
    Google(GcpCredentialProvider),
    Azure { credentials: Arc<dyn CredentialProvider<Credential = AzureCredential>>, account: String },
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without what could be a secret.
        f.write_str(match self {
            Self::Nobody => "Nobody",
            Self::Amazon { .. } => "Amazon",
            Self::Google(_) => "Google",
            Self::Azure { .. } => "Azure",
        })
    }
}

/// A request.
#[derive(Debug)]
pub(super) struct Ask<'a> {
    pub(super) method: Method,
    /// Any key, also one that the library would not take; empty for the bucket.
    pub(super) key: &'a str,
    pub(super) query: &'a [(&'a str, &'a str)],
    pub(super) headers: &'a [(&'static str, String)],
    pub(super) body: String,
}

impl Wire {
    /// Asks once, and returns the body of a success.
    ///
    /// # Errors
    /// As the status says, `Exists` for a condition that does not hold; also for errors in the body of a success.
    pub(super) async fn ask(&self, ask: Ask<'_>) -> Result<String> {
        self.ask_patiently(ask, self.patience).await
    }

    /// As [`Self::ask`], for what takes the server long: nothing may move for `patience`.
    pub(super) async fn ask_patiently(&self, ask: Ask<'_>, patience: Duration) -> Result<String> {
        let place =
            if ask.key.is_empty() { self.place.clone() } else { format!("{}/{}", self.place, ask.key) };
        let mut request = self.request(&place, ask)?;
        self.sign(&place, &mut request).await?;
        let failed = |error| transport_error(&place, &error);
        let answer = upstream::send(&self.client, &place, request, patience).await.map_err(failed)?;
        let (parts, body) = answer.into_parts();
        let body = body.bytes().await.map_err(failed)?;
        let body = String::from_utf8_lossy(&body).into_owned();
        // Copies and completions say 200 first and fail later.
        let late = parts.status.is_success() && xml::text(&body, "Error").is_some();
        let status = if late { StatusCode::INTERNAL_SERVER_ERROR } else { parts.status };
        match status_error(&place, status, &parts.headers) {
            None => Ok(body),
            Some(error) => Err(explained(&place, status, error, &body)),
        }
    }

    fn request(&self, place: &str, ask: Ask<'_>) -> Result<HttpRequest> {
        let odd =
            |what: &str| Error::new(ErrorKind::Invalid, format!("{place}: cannot be asked for: {what}"));
        let mut url = format!("{}/{}", self.base, encoded(ask.key, true));
        for (index, (name, value)) in ask.query.iter().enumerate() {
            let mark = if index == 0 { '?' } else { '&' };
            url.push_str(&format!("{mark}{}={}", encoded(name, false), encoded(value, false)));
        }
        let len = ask.body.len();
        let mut request = HttpRequest::new(HttpRequestBody::from(Bytes::from(ask.body)));
        *request.method_mut() = ask.method;
        *request.uri_mut() = url.parse().map_err(|_| odd("no URL"))?;
        for (name, value) in ask.headers {
            let value = HeaderValue::from_str(value).map_err(|_| odd("no header"))?;
            request.headers_mut().insert(HeaderName::from_static(name), value);
        }
        request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(len));
        Ok(request)
    }

    async fn sign(&self, place: &str, request: &mut HttpRequest) -> Result<()> {
        let failed = |error: object_store::Error| transport_error(place, &error);
        match &self.signer {
            Signer::Nobody => Ok(()),
            Signer::Amazon { credentials, region } => {
                let credential = credentials.get_credential().await.map_err(failed)?;
                AwsAuthorizer::new(&credential, "s3", region).try_authorize(request, None).map_err(failed)
            }
            Signer::Google(credentials) => {
                let credential = credentials.get_credential().await.map_err(failed)?;
                let mut value =
                    HeaderValue::from_str(&format!("Bearer {}", credential.bearer)).map_err(|_| {
                        Error::new(ErrorKind::Unauthenticated, format!("{place}: the token is no text"))
                    })?;
                value.set_sensitive(true);
                request.headers_mut().insert(http::header::AUTHORIZATION, value);
                Ok(())
            }
            Signer::Azure { credentials, account } => {
                let credential = credentials.get_credential().await.map_err(failed)?;
                AzureAuthorizer::new(&credential, account).try_authorize(request).map_err(failed)
            }
        }
    }
}

/// The error with what the server says about it, and of the kind that its code means.
fn explained(place: &str, status: StatusCode, error: Error, body: &str) -> Error {
    let code = xml::text(body, "Code").unwrap_or_default();
    let said = xml::text(body, "Message").filter(|said| !said.is_empty());
    let said = said.map_or_else(String::new, |said| format!(" ({})", super::client::one_line(&said)));
    match (status.as_u16(), code.as_str()) {
        (412, _) => Error::new(ErrorKind::Exists, format!("{place}: the condition does not hold{said}")),
        (409, _) => Error::new(ErrorKind::Busy, format!("{place}: somebody else writes it, too{said}"))
            .retryable(true),
        (_, "SlowDown") => {
            Error::new(ErrorKind::Throttled, format!("{place}: the server asks to slow down{said}"))
        }
        (_, "EntityTooLarge") => {
            Error::new(ErrorKind::TooLarge, format!("{place}: too large for this store{said}"))
        }
        (_, "KeyTooLongError") => {
            Error::new(ErrorKind::NameTooLong, format!("{place}: the key is too long{said}"))
        }
        _ => {
            let told = Error::new(error.kind(), format!("{error}{said}")).retryable(error.is_retryable());
            match error.retry_after() {
                Some(pause) => told.after(pause),
                None => told,
            }
        }
    }
}

/// `text` with all but the letters, digits and marks that every server takes as `%XX`; slashes stay in keys.
pub(super) fn encoded(text: &str, key: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            b'/' if key => out.push('/'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
