//! An S3 server.

use std::fs;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use hyper::body::Incoming;
use hyper::service::Service;
use hyper::{Request, StatusCode};
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpError, HttpResponse};
use s3s_fs::FileSystem;

use crate::serve::{self, Serving};

/// Serves a folder over S3: its folders are the buckets, the files below them the objects. Requests must be signed.
///
/// Entity tags are MD5 sums, taken anew for each request: large objects are slow.
#[derive(Debug)]
pub struct S3Server {
    serving: Serving,
}

impl S3Server {
    /// Access key that the server knows.
    pub const ACCESS_KEY_ID: &str = "TESTKITACCESSKEY";
    /// Its secret.
    pub const SECRET_ACCESS_KEY: &str = "testkit-secret-key";

    /// Starts to serve `folder`, with the folders `buckets` in it (made if they are not there).
    ///
    /// # Errors
    /// If the folder cannot be used, or no port or thread is to be had.
    pub fn start(folder: &Path, buckets: &[&str]) -> io::Result<Self> {
        for bucket in buckets {
            fs::create_dir_all(folder.join(bucket))?;
        }
        let files = FileSystem::new(folder).map_err(|error| io::Error::other(format!("{error:?}")))?;
        let mut builder = S3ServiceBuilder::new(files);
        builder.set_auth(SimpleAuth::from_single(Self::ACCESS_KEY_ID, Self::SECRET_ACCESS_KEY));
        let service = Keys { inner: builder.build(), root: folder.to_owned() };
        Ok(Self { serving: serve::start(service)? })
    }

    /// The endpoint's URL, for path-style requests.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.serving.address)
    }
}

/// Answers for keys that are folders of the file system as S3 does, where they are no objects.
#[derive(Clone)]
struct Keys {
    inner: S3Service,
    root: PathBuf,
}

impl Service<Request<Incoming>> for Keys {
    type Response = HttpResponse;
    type Error = HttpError;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let path = request.uri().path().trim_start_matches('/');
        let key = path.split_once('/').map_or("", |(_, key)| key);
        if request.uri().query().is_none() && !key.is_empty() && self.root.join(path).is_dir() {
            let mut answer = HttpResponse::new(Body::empty());
            *answer.status_mut() = StatusCode::NOT_FOUND;
            return Box::pin(std::future::ready(Ok(answer)));
        }
        Service::call(&self.inner, request)
    }
}
