//! The directory behind the S3 server: `s3s-fs` with changes.
//!
//! Drops the CRC-64/NVME of a `PutObject`: `s3s-fs` would keep it when the object is replaced. Adds
//! the list of unfinished uploads, and keys that end with `/`. `s3s-fs` would store such a key as a
//! directory that no listing shows. Here it is a file called [`MARKER`] in its directory. An empty
//! delimiter is none.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use futures_util::StreamExt as _;
use hyper::http::Extensions;
use hyper::{HeaderMap, Method, Uri};
use s3s::auth::Credentials;
use s3s::dto::*;
use s3s::{S3, S3ErrorCode, S3Request, S3Response, S3Result, s3_error};
use s3s_fs::FileSystem;

/// Unfinished uploads by key and id, the order of their listing.
pub(super) type Uploads = Arc<Mutex<BTreeMap<(String, String), Upload>>>;

/// An unfinished upload.
#[derive(Debug, Clone)]
pub(super) struct Upload {
    pub(super) bucket: String,
    pub(super) begun: SystemTime,
}

pub(super) struct Files {
    pub(super) inner: FileSystem,
    pub(super) root: PathBuf,
    pub(super) uploads: Uploads,
}

type Answer<T> = S3Result<S3Response<T>>;

#[async_trait::async_trait]
impl S3 for Files {
    async fn head_bucket(&self, request: S3Request<HeadBucketInput>) -> Answer<HeadBucketOutput> {
        self.inner.head_bucket(request).await
    }

    async fn head_object(&self, mut request: S3Request<HeadObjectInput>) -> Answer<HeadObjectOutput> {
        to_file(&mut request.input.key);
        self.inner.head_object(request).await
    }

    async fn get_object(&self, mut request: S3Request<GetObjectInput>) -> Answer<GetObjectOutput> {
        to_file(&mut request.input.key);
        self.inner.get_object(request).await
    }

    async fn put_object(&self, mut request: S3Request<PutObjectInput>) -> Answer<PutObjectOutput> {
        to_file(&mut request.input.key);
        // `s3s-fs` would keep it with the object, even when an upload or a test replaces the
        // object.
        request.input.checksum_crc64nvme = None;
        self.inner.put_object(request).await
    }

    async fn copy_object(&self, mut request: S3Request<CopyObjectInput>) -> Answer<CopyObjectOutput> {
        to_file(&mut request.input.key);
        if let CopySource::Bucket { key, .. } = &mut request.input.copy_source
            && key.ends_with('/')
        {
            *key = format!("{key}{MARKER}").into();
        }
        self.inner.copy_object(request).await
    }

    async fn delete_object(&self, mut request: S3Request<DeleteObjectInput>) -> Answer<DeleteObjectOutput> {
        to_file(&mut request.input.key);
        self.inner.delete_object(request).await
    }

    async fn delete_objects(
        &self,
        mut request: S3Request<DeleteObjectsInput>,
    ) -> Answer<DeleteObjectsOutput> {
        for object in &mut request.input.delete.objects {
            to_file(&mut object.key);
        }
        self.inner.delete_objects(request).await
    }

    async fn list_objects_v2(
        &self,
        mut request: S3Request<ListObjectsV2Input>,
    ) -> Answer<ListObjectsV2Output> {
        // s3fs sends an empty one for a listing without directories.
        request.input.delimiter = request.input.delimiter.filter(|delimiter| !delimiter.is_empty());
        let bucket = request.input.bucket.clone();
        let heads = request.credentials.clone();
        let mut answer = self.inner.list_objects_v2(request).await?;
        if let Some(objects) = &mut answer.output.contents {
            for object in objects.iter_mut() {
                self.tag(&bucket, object, heads.clone()).await;
            }
            for key in objects.iter_mut().filter_map(|object| object.key.as_mut()) {
                if key.strip_suffix(MARKER).is_some_and(|directory| directory.ends_with('/')) {
                    key.truncate(key.len() - MARKER.len());
                }
            }
            objects.sort_by(|a, b| a.key.cmp(&b.key));
        }
        Ok(answer)
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> Answer<CreateMultipartUploadOutput> {
        let (bucket, key) = (request.input.bucket.clone(), request.input.key.clone());
        let answer = self.inner.create_multipart_upload(request).await?;
        if let Some(id) = answer.output.upload_id.clone() {
            self.uploads().insert((key, id), Upload { bucket, begun: SystemTime::now() });
        }
        Ok(answer)
    }

    async fn upload_part(&self, mut request: S3Request<UploadPartInput>) -> Answer<UploadPartOutput> {
        let known = self.known(&request.input.key, &request.input.upload_id);
        if known.is_err()
            && let Some(mut body) = request.input.body.take()
        {
            // Read the body first: otherwise the client may see only a broken connection.
            while body.next().await.is_some() {}
        }
        known?;
        self.inner.upload_part(request).await
    }

    async fn upload_part_copy(
        &self,
        request: S3Request<UploadPartCopyInput>,
    ) -> Answer<UploadPartCopyOutput> {
        self.known(&request.input.key, &request.input.upload_id)?;
        self.inner.upload_part_copy(request).await
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> Answer<CompleteMultipartUploadOutput> {
        let place = (request.input.key.clone(), request.input.upload_id.clone());
        self.known(&place.0, &place.1)?;
        let answer = self.inner.complete_multipart_upload(request).await?;
        self.uploads().remove(&place);
        Ok(answer)
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> Answer<AbortMultipartUploadOutput> {
        let place = (request.input.key.clone(), request.input.upload_id.clone());
        self.known(&place.0, &place.1)?;
        let answer = self.inner.abort_multipart_upload(request).await;
        self.uploads().remove(&place);
        // A concurrent completion removed the upload after the check above.
        answer.map_err(|error| match error.code() {
            S3ErrorCode::AccessDenied => s3_error!(NoSuchUpload),
            _ => error,
        })
    }

    async fn list_multipart_uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> Answer<ListMultipartUploadsOutput> {
        if !self.root.join(&request.input.bucket).is_dir() {
            return Err(s3_error!(NoSuchBucket));
        }
        Ok(S3Response::new(list_uploads(&self.uploads(), request.input)))
    }
}

impl Files {
    /// Adds the entity tag, which `s3s-fs` leaves out of listings; not of large objects, whose sum
    /// takes long.
    async fn tag(&self, bucket: &str, object: &mut Object, credentials: Option<Credentials>) {
        let Some(key) = object.key.clone().filter(|_| object.size.is_some_and(|size| size <= TAGGED_BYTES))
        else {
            return;
        };
        let input = HeadObjectInput { bucket: bucket.to_owned(), key, ..Default::default() };
        let request = S3Request {
            input,
            method: Method::HEAD,
            uri: Uri::default(),
            headers: HeaderMap::default(),
            extensions: Extensions::default(),
            credentials,
            region: None,
            service: None,
            trailing_headers: None,
        };
        // Removed since it was listed.
        if let Ok(head) = self.inner.head_object(request).await {
            object.e_tag = head.output.e_tag;
        }
    }

    fn uploads(&self) -> MutexGuard<'_, BTreeMap<(String, String), Upload>> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `s3s-fs` reports unknown uploads as access denied, unlike S3.
    fn known(&self, key: &str, id: &str) -> S3Result<()> {
        let place = (key.to_owned(), id.to_owned());
        if self.uploads().contains_key(&place) { Ok(()) } else { Err(s3_error!(NoSuchUpload)) }
    }
}

fn list_uploads(
    uploads: &BTreeMap<(String, String), Upload>,
    input: ListMultipartUploadsInput,
) -> ListMultipartUploadsOutput {
    let prefix = input.prefix.clone().unwrap_or_default();
    let marker = input.key_marker.filter(|marker| !marker.is_empty()).map(|key| {
        // Without an upload id, the listing continues after all uploads of the key.
        (key, input.upload_id_marker.unwrap_or_else(|| char::MAX.to_string()))
    });
    let most = usize::try_from(input.max_uploads.unwrap_or(PAGE)).unwrap_or(0);
    let mut found = uploads.iter().filter(|(place, upload)| {
        let behind = marker.as_ref().is_none_or(|marker| *place > marker);
        behind && upload.bucket == input.bucket && place.0.starts_with(&prefix)
    });
    let page: Vec<_> = found
        .by_ref()
        .take(most)
        .map(|((key, id), upload)| MultipartUpload {
            key: Some(key.clone()),
            upload_id: Some(id.clone()),
            initiated: Some(upload.begun.into()),
            ..Default::default()
        })
        .collect();
    let more = found.next().is_some();
    let last = page.last().filter(|_| more);
    ListMultipartUploadsOutput {
        is_truncated: Some(more),
        next_key_marker: last.and_then(|upload| upload.key.clone()),
        next_upload_id_marker: last.and_then(|upload| upload.upload_id.clone()),
        bucket: Some(input.bucket),
        prefix: input.prefix,
        uploads: Some(page),
        ..Default::default()
    }
}

/// Maps a key ending with `/` to its marker file.
fn to_file(key: &mut String) {
    if key.ends_with('/') {
        key.push_str(MARKER);
    }
}

/// Largest object that is listed with its tag.
const TAGGED_BYTES: i64 = 4 << 20;
/// Name of the marker file for a key ending with `/`.
pub(super) const MARKER: &str = ".marker-of-this-directory";
/// Uploads per page; S3 has 1000, more than tests create.
const PAGE: i32 = 5;
