//! The transport of the object-store library: our client.

use http::StatusCode;
use http::header::{HeaderMap, LOCATION};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};

use super::exchange::Client;
use super::limits::DOCUMENT_BYTES_MAX;
use super::validator::text;
use super::wire::explain;
use super::xml;
use crate::{Error, ErrorKind};

/// Sends the object-store library's requests through our client, within its limits.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    pub(crate) place: String,
    pub(crate) client: Client,
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait::async_trait]
impl HttpService for Connector {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let failed = |error| HttpError::new(HttpErrorKind::Unknown, error);
        // Requests for objects have no query; the library reports little about failures of others.
        let of_upload = request.uri().query().is_some();
        let patience = self.client.limits.timeout;
        let incoming = self.client.upload(&self.place, request, patience).await.map_err(failed)?;
        let (status, headers) = (incoming.status(), incoming.headers().clone());
        if status.is_redirection() {
            return Err(failed(redirected(&self.place, status, &headers)));
        }
        let body = match status.is_success() {
            true => incoming.collect(DOCUMENT_BYTES_MAX).await.map_err(failed)?,
            false => {
                let text = incoming.explanation().await;
                if let Some(error) = damaged(&self.place, &text) {
                    return Err(failed(error));
                }
                let code = xml::find(text.as_bytes(), "Error", "Code").unwrap_or_default();
                let is_explained = match status.as_u16() {
                    404 if of_upload && code != NO_BUCKET => {
                        let message = format!("{}: the upload is gone: aborted, or too old", self.place);
                        return Err(failed(Error::new(ErrorKind::NotFound, message)));
                    }
                    // The library distinguishes a name that exists from a condition that failed.
                    304 | 404 | 409 | 412 => code == NO_BUCKET,
                    429 | 500..=599 => true,
                    401 | 403 if of_upload => true,
                    // Credential servers send no such document; the library handles their statuses.
                    _ => !code.is_empty(),
                };
                if is_explained {
                    return Err(failed(explain(&self.place, status, &headers, &text)));
                }
                text.into()
            }
        };
        let mut response = HttpResponse::new(body.into());
        (*response.status_mut(), *response.headers_mut()) = (status, headers);
        Ok(response)
    }
}

/// The error if a store rejects bytes because they do not match the checksum sent with them.
fn damaged(place: &str, text: &str) -> Option<Error> {
    let code = xml::find(text.as_bytes(), "Error", "Code")?;
    let is_sum =
        matches!(code.trim(), "BadDigest" | "InvalidDigest" | "XAmzContentSHA256Mismatch" | "Md5Mismatch");
    let message = || {
        format!(
            "{place}: the bytes that the store received do not match their checksum: damaged on the way; try again later"
        )
    };
    is_sum.then(|| Error::new(ErrorKind::Corrupt, message()))
}

/// The error for a redirection by an object store: requests may hold credentials, and are signed
/// for one host.
pub(super) fn redirected(place: &str, status: StatusCode, headers: &HeaderMap) -> Error {
    let to = text(headers, LOCATION)
        .and_then(|to| to.parse::<url::Url>().ok())
        .and_then(|to| Some(format!(" to {}", to.host_str()?)));
    let to = to.unwrap_or_default();
    let message = format!(
        "{place}: {status}: the store redirects{to}, and credentials go to no other host; check --endpoint and --region"
    );
    Error::new(ErrorKind::Protocol, message)
}

/// The code of S3 for a bucket that does not exist.
const NO_BUCKET: &str = "NoSuchBucket";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_a_store_refuses_for_their_checksum_are_sent_again() {
        let error =
            damaged("s3://b", "<Error><Code>BadDigest</Code><Message>x</Message></Error>").expect("damaged");
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Corrupt, true));
        assert!(damaged("s3://b", "<Error><Code>NoSuchBucket</Code></Error>").is_none());
        assert!(damaged("s3://b", "").is_none());
    }
}
