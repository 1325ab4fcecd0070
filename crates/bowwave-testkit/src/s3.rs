//! An S3 server.

mod fault;
mod files;

use std::fs;
use std::future::{Future, ready};
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::AUTHORIZATION;
use hyper::service::Service;
use hyper::{Method, Request, StatusCode};
use percent_encoding::percent_decode_str;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpError, HttpResponse};
use s3s_fs::FileSystem;

pub use self::fault::{S3Fault, S3Trouble};

use self::fault::Script;
use self::files::{Files, MARKER, Uploads};
use crate::serve::{self, Serving};

/// Serves a directory over S3: its subdirectories are buckets, the files in them objects. Requests
/// must be signed.
///
/// Entity tags are MD5 sums, computed per request: large objects are slow unless they have a tag
/// ([`S3Server::tag`]).
#[derive(Debug)]
pub struct S3Server {
    serving: Serving,
    root: PathBuf,
    script: Script,
    uploads: Uploads,
    /// Cloned by each request in progress.
    busy: Arc<()>,
}

impl S3Server {
    /// The server's access key.
    pub const ACCESS_KEY_ID: &str = "TESTKITACCESSKEY";
    /// Its secret.
    pub const SECRET_ACCESS_KEY: &str = "testkit-secret-key";

    /// Starts a server for `directory` with these `buckets`, created if missing.
    ///
    /// # Errors
    ///
    /// If the directory cannot be used, or no port or thread is available.
    pub fn start(directory: &Path, buckets: &[&str]) -> io::Result<Self> {
        Self::serve(directory, buckets, true)
    }

    /// As [`Self::start`], but requests may be unsigned or have another cloud's signature: Google's
    /// XML API is close to S3.
    ///
    /// # Errors
    ///
    /// As [`Self::start`].
    pub fn start_open(directory: &Path, buckets: &[&str]) -> io::Result<Self> {
        Self::serve(directory, buckets, false)
    }

    fn serve(directory: &Path, buckets: &[&str], signed: bool) -> io::Result<Self> {
        for bucket in buckets {
            fs::create_dir_all(directory.join(bucket))?;
        }
        let inner = FileSystem::new(directory).map_err(|error| io::Error::other(format!("{error:?}")))?;
        let (script, uploads) = (Script::default(), Uploads::default());
        let mut builder =
            S3ServiceBuilder::new(Files { inner, root: directory.to_owned(), uploads: Arc::clone(&uploads) });
        if signed {
            builder.set_auth(SimpleAuth::from_single(Self::ACCESS_KEY_ID, Self::SECRET_ACCESS_KEY));
        }
        let busy = Arc::new(());
        let held = Arc::downgrade(&busy);
        let service = Keys {
            busy: held,
            inner: builder.build(),
            root: directory.to_owned(),
            script: script.clone(),
            signed,
        };
        Ok(Self { serving: serve::start(service)?, root: directory.to_owned(), script, uploads, busy })
    }

    /// Makes future requests fail. Faults are tried in the order of addition.
    pub fn inject(&self, fault: S3Fault) {
        self.script.add(fault);
    }

    /// The requests so far, each as `METHOD PATH?QUERY`.
    pub fn requests(&self) -> Vec<String> {
        self.script.requests()
    }

    /// Requests in progress, whether or not a client waits for the response.
    pub fn in_flight(&self) -> usize {
        Arc::strong_count(&self.busy) - 1
    }

    /// Keys and ids of unfinished uploads.
    pub fn uploads(&self) -> Vec<(String, String)> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// Makes all unfinished uploads older by `age`.
    pub fn age_uploads(&self, age: Duration) {
        for upload in self.uploads.lock().unwrap_or_else(PoisonError::into_inner).values_mut() {
            upload.begun -= age;
        }
    }

    /// Number of files with parts of uploads.
    ///
    /// # Errors
    ///
    /// If the directory cannot be read.
    pub fn part_files(&self) -> io::Result<usize> {
        let mut count = 0;
        for entry in fs::read_dir(&self.root)? {
            count += usize::from(entry?.file_name().to_string_lossy().contains(".part-"));
        }
        Ok(count)
    }

    /// Sets an object's entity tag to `tag` (without quotes), as an upload does. If you change the
    /// object, set its tag again.
    ///
    /// # Errors
    ///
    /// If the directory cannot be written.
    pub fn tag(&self, bucket: &str, key: &str, tag: &str) -> io::Result<()> {
        // The server's names of its files with metadata.
        let [bucket, key] = [bucket, key].map(|name| URL_SAFE_NO_PAD.encode(name));
        let place = self.root.join(format!(".bucket-{bucket}.object-{key}.internal.json"));
        fs::write(place, format!("{{\"e_tag\":\"{}\"}}", tag.escape_default()))
    }

    /// The endpoint's URL, for path-style requests.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.serving.address)
    }
}

/// Handles keys that are directories of the file system, but no objects, as S3 does; and applies
/// the scripted faults.
#[derive(Clone)]
struct Keys {
    inner: S3Service,
    root: PathBuf,
    script: Script,
    signed: bool,
    busy: Weak<()>,
}

impl Keys {
    /// Whether `path` (of a request, with escapes) is a directory and no key.
    fn is_directory(&self, path: &str) -> bool {
        let path = percent_decode_str(path).decode_utf8_lossy();
        let path = path.trim_start_matches('/');
        let key = path.split_once('/').map_or("", |(_, key)| key);
        let place = self.root.join(path);
        !key.is_empty() && place.is_dir() && !(key.ends_with('/') && place.join(MARKER).exists())
    }
}

impl Service<Request<Incoming>> for Keys {
    type Response = HttpResponse;
    type Error = HttpError;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        if !self.signed {
            request.headers_mut().remove(AUTHORIZATION);
        }
        let uri = request.uri();
        let target = uri.path_and_query().map_or_else(|| uri.path(), |target| target.as_str());
        let trouble = self.script.meet(request.method().as_str(), target);
        let refusal = match trouble {
            Some(S3Trouble::Refused(status)) => StatusCode::from_u16(status).ok(),
            Some(S3Trouble::ErrorInBody) => Some(StatusCode::OK),
            _ => None,
        };
        if let Some(status) = refusal {
            return Box::pin(async move {
                // Read the body first: otherwise the client may see only a broken connection.
                drop(request.into_body().collect().await);
                Ok(plain(status, TROUBLE))
            });
        }
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        let answer: Self::Future = if reads && uri.query().is_none() && self.is_directory(uri.path()) {
            Box::pin(ready(Ok(plain(StatusCode::NOT_FOUND, ""))))
        } else if matches!(trouble, None | Some(S3Trouble::AnswerLost | S3Trouble::Late(_))) {
            // Completed even if the client disconnects: a request is done fully or not at all.
            let (call, busy) = (Service::call(&self.inner, request), self.busy.upgrade());
            let task = tokio::spawn(async move {
                if let Some(S3Trouble::Late(time)) = trouble {
                    tokio::time::sleep(time).await;
                }
                let answer = call.await;
                drop(busy);
                answer
            });
            Box::pin(async move { task.await.unwrap_or_else(|error| Err(HttpError::new(error.into()))) })
        } else {
            Box::pin(ready(Err(HttpError::new("the connection breaks".into()))))
        };
        match trouble {
            Some(S3Trouble::AnswerLost) => Box::pin(async move {
                // Done or not: the client gets no response.
                answer.await.ok();
                Err(HttpError::new("the connection breaks".into()))
            }),
            _ => answer,
        }
    }
}

fn plain(status: StatusCode, body: &'static str) -> HttpResponse {
    let mut answer = HttpResponse::new(Body::from(body.to_owned()));
    *answer.status_mut() = status;
    answer
}

/// S3's body of an internal error.
const TROUBLE: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>InternalError</Code>\
                       <Message>We encountered an internal error. Please try again.</Message></Error>";
