//! Requests to one bucket, signed with the credentials of the library `object_store`: reads,
//! listings, and calls that the library lacks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName};
use http::{HeaderValue, Method, StatusCode};
use object_store::CredentialProvider;
use object_store::aws::{AwsAuthorizer, AwsCredentialProvider};
use object_store::azure::{AzureAuthorizer, AzureCredential};
use object_store::client::{HttpRequest, HttpRequestBody};
use object_store::gcp::GcpCredentialProvider;
use percent_encoding::utf8_percent_encode;
use url::Url;

use super::connect::RequestBody;
use super::connector::redirected;
use super::errors::{one_line, status_error, transport_error};
use super::exchange::{Client, Incoming};
use super::http::{PATH, QUERY};
use super::limits::{DOCUMENT_BYTES_MAX, LIST_PAGE_BYTES_MAX};
use super::validator::text;
use super::xml;
use crate::{Error, ErrorKind, Result};

/// Connection to one bucket.
#[derive(Debug)]
pub(super) struct Wire {
    /// Name of the bucket in messages.
    pub(super) place: String,
    /// URL of the bucket, without a slash at its end.
    pub(super) base: String,
    pub(super) client: Client,
    pub(super) signer: Signer,
    /// Headers of every request, such as the payer.
    pub(super) always: Vec<(HeaderName, HeaderValue)>,
    /// Headers of reads of objects, such as the customer's key.
    pub(super) reading: Vec<(HeaderName, HeaderValue)>,
    /// Headers of new uploads, such as the encryption; the library adds them to its own.
    pub(super) writing: Vec<(HeaderName, String)>,
}

/// Signer of requests.
pub(super) enum Signer {
    Nobody,
    Amazon { credentials: AwsCredentialProvider, region: String },
    Google(GcpCredentialProvider),
    Azure { credentials: Arc<dyn CredentialProvider<Credential = AzureCredential>>, account: String },
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Does not print secrets.
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
pub(super) struct Outgoing<'a> {
    pub(super) method: Method,
    /// Any key, also one that the library would reject; empty for the bucket.
    pub(super) key: &'a str,
    pub(super) query: &'a [(&'a str, &'a str)],
    pub(super) headers: &'a [(HeaderName, String)],
    pub(super) body: String,
}

impl<'a> Outgoing<'a> {
    /// A request without query, headers and body.
    pub(super) fn new(method: Method, key: &'a str) -> Self {
        Self { method, key, query: &[], headers: &[], body: String::new() }
    }
}

impl Wire {
    /// Sends a request and returns its response as soon as its head arrives, whatever the status. A
    /// request other than GET and HEAD fails if it makes no progress for `patience`.
    ///
    /// # Errors
    /// `Protocol` for redirections, which are not followed; connection errors.
    pub(super) async fn send(&self, request: Outgoing<'_>, patience: Duration) -> Result<Incoming> {
        let place = self.place_of(request.key);
        let reads = request.query.is_empty() && matches!(request.method, Method::GET | Method::HEAD);
        let mut signed = self.request(&place, request)?;
        let standing = self.always.iter().chain(if reads { &*self.reading } else { &[] });
        for (name, value) in standing {
            signed.headers_mut().insert(name.clone(), value.clone());
        }
        self.sign(&place, &mut signed).await?;
        let incoming = if matches!(*signed.method(), Method::GET | Method::HEAD) {
            self.client.send(&place, signed.map(|_| RequestBody::Nothing)).await?
        } else {
            self.client.upload(&place, signed, patience).await?
        };
        match incoming.status() {
            status if status.is_redirection() && status != StatusCode::NOT_MODIFIED => {
                Err(redirected(&place, status, incoming.headers()))
            }
            _ => Ok(incoming),
        }
    }

    /// Sends a request once, and returns headers and body of a success.
    ///
    /// # Errors
    /// By status; `Exists` for a failed condition; also errors in the body of a success.
    pub(super) async fn document(
        &self,
        request: Outgoing<'_>,
        patience: Duration,
    ) -> Result<(HeaderMap, Bytes)> {
        let place = self.place_of(request.key);
        let bytes_max = if request.key.is_empty() { LIST_PAGE_BYTES_MAX } else { DOCUMENT_BYTES_MAX };
        let incoming = self.send(request, patience).await?;
        let (status, headers) = (incoming.status(), incoming.headers().clone());
        if !status.is_success() {
            let text = incoming.explanation().await;
            return Err(explain(&place, status, &headers, &text));
        }
        let body = incoming.collect(bytes_max).await?;
        // Copies and completions may respond 200 first and fail later.
        if xml::find(&body, "Error", "Error").is_some() {
            let text = String::from_utf8_lossy(&body).into_owned();
            return Err(explain(&place, StatusCode::INTERNAL_SERVER_ERROR, &headers, &text));
        }
        Ok((headers, body))
    }

    /// As [`document`](Self::document), for XML.
    ///
    /// # Errors
    /// Also `Protocol` for a success of another content type, such as the page of a proxy or a
    /// login.
    pub(super) async fn xml(&self, request: Outgoing<'_>, patience: Duration) -> Result<Bytes> {
        let place = self.place_of(request.key);
        let (headers, body) = self.document(request, patience).await?;
        match text(&headers, CONTENT_TYPE) {
            Some(kind) if !kind.to_ascii_lowercase().contains("xml") => {
                Err(foreign(&place, &format!("it is {kind}")))
            }
            _ => Ok(body),
        }
    }

    fn place_of(&self, key: &str) -> String {
        if key.is_empty() { self.place.clone() } else { format!("{}/{key}", self.place) }
    }

    fn request(&self, place: &str, request: Outgoing<'_>) -> Result<HttpRequest> {
        let mut url = format!("{}/{}", self.base, utf8_percent_encode(request.key, PATH));
        for (index, (name, value)) in request.query.iter().enumerate() {
            let mark = if index == 0 { '?' } else { '&' };
            url.push_str(&format!(
                "{mark}{}={}",
                utf8_percent_encode(name, QUERY),
                utf8_percent_encode(value, QUERY)
            ));
        }
        let len = request.body.len();
        let mut built = HttpRequest::new(HttpRequestBody::from(Bytes::from(request.body)));
        *built.uri_mut() = url.parse().map_err(|_| invalid(place, "the key makes no URL"))?;
        for (name, value) in request.headers {
            let value = HeaderValue::from_str(value)
                .map_err(|_| invalid(place, "a header has control characters"))?;
            built.headers_mut().insert(name.clone(), value);
        }
        if !matches!(request.method, Method::GET | Method::HEAD) {
            built.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(len));
        }
        *built.method_mut() = request.method;
        Ok(built)
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

    /// The URL of an object as the source of a copy; with a shared access signature where Azure
    /// needs one.
    pub(super) async fn source_url(&self, key: &str) -> Result<String> {
        let place = self.place_of(key);
        let mut url: Url = format!("{}/{}", self.base, utf8_percent_encode(key, PATH))
            .parse()
            .map_err(|_| invalid(&place, "the key makes no URL"))?;
        if let Signer::Azure { credentials, .. } = &self.signer {
            let credential =
                credentials.get_credential().await.map_err(|error| transport_error(&place, &error))?;
            if let AzureCredential::SASToken(pairs) = &*credential {
                url.query_pairs_mut().extend_pairs(pairs);
            }
        }
        Ok(url.into())
    }
}

/// The error for a response that is not a store's.
pub(super) fn foreign(place: &str, why: &str) -> Error {
    let message = format!(
        "{place}: the response is not the expected document of an object store: {why}; is there a proxy or a login page \
         in between, or is the endpoint wrong?"
    );
    Error::new(ErrorKind::Protocol, message)
}

/// The error for a response to a read that is not a success, with the server's explanation. The
/// condition of a read is its version, so a failed condition means that the object has changed.
pub(super) async fn explained(place: &str, incoming: Incoming) -> Error {
    let (status, headers) = (incoming.status(), incoming.headers().clone());
    if status == StatusCode::PRECONDITION_FAILED {
        return crate::path::changed(place);
    }
    let text = incoming.explanation().await;
    explain(place, status, &headers, &text)
}

/// The error with the server's explanation, of the kind that its code means.
pub(super) fn explain(place: &str, status: StatusCode, headers: &HeaderMap, body: &str) -> Error {
    let code = xml::find(body.as_bytes(), "Error", "Code").unwrap_or_default();
    let message = xml::find(body.as_bytes(), "Error", "Message").filter(|message| !message.trim().is_empty());
    let message = message.map_or_else(String::new, |message| format!(" ({})", one_line(&message)));
    let kind = |kind, what: &str| Error::new(kind, format!("{place}: {what}{message}"));
    let plain = status_error(place, status, headers);
    let exactly = |kind, what: &str| Error::new(kind, format!("{place}: {what}"));
    let explained = match (status.as_u16(), code.trim()) {
        (412, _) => kind(
            ErrorKind::Exists,
            "the condition does not hold: another program may have written it; open it again",
        ),
        (409, _) => kind(ErrorKind::Busy, "another program is writing it; try again later").retryable(true),
        (_, "SlowDown" | "ServerBusy") => kind(
            ErrorKind::Throttled,
            "the store asks to slow down; try again later, or use fewer --connections",
        ),
        (_, "EntityTooLarge") => kind(ErrorKind::TooLarge, "too large for this store"),
        (_, "KeyTooLongError") => kind(ErrorKind::NameTooLong, "the key is too long"),
        (_, "NoSuchBucket" | "ContainerNotFound") => exactly(ErrorKind::NotFound, "no such bucket"),
        (_, "InvalidBucketName") => exactly(ErrorKind::Invalid, "no bucket can have this name"),
        (_, "NoSuchUpload") => kind(ErrorKind::NotFound, "the upload is gone: aborted, or too old"),
        // The second one is versitygw's, with status 404.
        (_, "InvalidAccessKeyId" | "XAdminUserNotFound") => exactly(
            ErrorKind::Unauthenticated,
            "the store does not know this access key; check it and --endpoint",
        ),
        (_, "SignatureDoesNotMatch" | "AuthenticationFailed") => {
            exactly(ErrorKind::Unauthenticated, "the secret does not fit the access key; check both")
        }
        (_, "AccessDenied") => {
            let what = "access denied: these credentials, or their absence, do not allow it";
            kind(ErrorKind::PermissionDenied, what)
        }
        (_, "AuthorizationHeaderMalformed") => {
            let region = xml::find(body.as_bytes(), "Error", "Region").unwrap_or_default();
            let region = if region.is_empty() { "NAME".to_owned() } else { one_line(&region) };
            let what = format!("the bucket is in another region; use --region {region}");
            kind(ErrorKind::Invalid, &what)
        }
        (_, "ExpiredToken") => exactly(
            ErrorKind::Unauthenticated,
            "the session token has expired; give credentials that are valid",
        ),
        _ => match &plain {
            Some(error) => {
                Error::new(error.kind(), format!("{error}{message}")).retryable(error.is_retryable())
            }
            None => kind(
                ErrorKind::Protocol,
                "the store refuses the request; try again later, or check the settings",
            ),
        },
    };
    match plain.and_then(|error| error.retry_after()) {
        Some(pause) => explained.after(pause),
        None => explained,
    }
}

fn invalid(place: &str, what: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("{place}: cannot be requested: {what}"))
}
