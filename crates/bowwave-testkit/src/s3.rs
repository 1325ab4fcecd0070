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
/// Entity tags are MD5 sums, taken anew for each request: large objects are slow unless they are given a tag
/// ([`S3Server::tag`]).
#[derive(Debug)]
pub struct S3Server {
    serving: Serving,
    root: PathBuf,
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
        Ok(Self { serving: serve::start(service)?, root: folder.to_owned() })
    }

    /// Gives an object the entity tag `tag` (without quotes), as an upload does; whoever changes the object then must
    /// change its tag.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn tag(&self, bucket: &str, key: &str, tag: &str) -> io::Result<()> {
        let (bucket, key) = (base64(bucket.as_bytes()), base64(key.as_bytes()));
        let place = self.root.join(format!(".bucket-{bucket}.object-{key}.internal.json"));
        fs::write(place, format!("{{\"e_tag\":\"{}\"}}", tag.escape_default()))
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

/// Base64 for URLs, without padding: how the server names the files with what it knows of objects.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let word =
            three.iter().fold(0u32, |word, &byte| word << 8 | u32::from(byte)) << (8 * (3 - three.len()));
        for digit in 0..=three.len() {
            let index = word >> (18 - 6 * digit) & 63;
            text.push(char::from(DIGITS[index as usize]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn base64_has_its_published_vectors() {
        for (bytes, text) in
            [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg"), ("~~?", "fn4_")]
        {
            assert_eq!(super::base64(bytes.as_bytes()), text);
        }
    }
}
