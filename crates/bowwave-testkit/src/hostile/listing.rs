//! Correct listings: S3's and Google's XML, and Azure's.

use super::Dialect;
use super::bucket::Bucket;
use super::request::Request;
use super::time::{rfc1123, rfc3339};

/// An entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Object {
        key: String,
        size: String,
        etag: String,
        modified: u64,
    },
    /// A common prefix, with its slash.
    Prefix(String),
}

impl Entry {
    pub(super) fn object(key: &str, size: impl ToString) -> Self {
        let etag = "\"hostile\"".to_owned();
        Self::Object { key: key.to_owned(), size: size.to_string(), etag, modified: 1_700_000_000 }
    }

    fn name(&self) -> &str {
        match self {
            Self::Object { key, .. } => key,
            Self::Prefix(prefix) => prefix,
        }
    }
}

/// A page of a listing.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    pub(super) prefix: String,
    pub(super) entries: Vec<Entry>,
    pub(super) truncated: bool,
    /// The next page's token, sent whether or not the page is truncated.
    pub(super) token: Option<String>,
}

impl Page {
    /// The page for `request`.
    pub(super) fn of(bucket: &Bucket, request: &Request) -> Self {
        let prefix = request.query("prefix").unwrap_or_default();
        let mut entries: Vec<Entry> = Vec::new();
        for (key, stored) in bucket.objects() {
            let Some(below) = key.strip_prefix(prefix) else { continue };
            let delimiter = request.query("delimiter").filter(|delimiter| !delimiter.is_empty());
            let folded = delimiter.and_then(|delimiter| Some((below.split_once(delimiter)?.0, delimiter)));
            let entry = match folded {
                Some((directory, delimiter)) => Entry::Prefix(format!("{prefix}{directory}{delimiter}")),
                None => Entry::Object {
                    key: key.clone(),
                    size: stored.bytes.len().to_string(),
                    etag: stored.etag.clone(),
                    modified: stored.modified,
                },
            };
            if entries.last() != Some(&entry) {
                entries.push(entry);
            }
        }
        let after =
            ["continuation-token", "marker", "start-after"].iter().find_map(|name| request.query(name));
        if let Some(after) = after {
            entries.retain(|entry| entry.name() > after);
        }
        let limit = ["max-keys", "maxresults"].iter().find_map(|name| request.query(name)?.parse().ok());
        let limit: usize = limit.unwrap_or(1000);
        let truncated = entries.len() > limit;
        entries.truncate(limit);
        let token = entries.last().filter(|_| truncated).map(|entry| entry.name().to_owned());
        Self { prefix: prefix.to_owned(), entries, truncated, token }
    }

    pub(super) fn xml(&self, dialect: Dialect) -> String {
        format!("{}{}{}", self.opening(dialect), self.entries(dialect), self.closing(dialect))
    }

    /// Everything before the entries.
    pub(super) fn opening(&self, dialect: Dialect) -> String {
        let prefix = escaped(&self.prefix);
        match dialect {
            Dialect::Azure => format!(
                "{DECLARATION}<EnumerationResults ServiceEndpoint=\"http://127.0.0.1/\" ContainerName=\"data\">\
                 <Prefix>{prefix}</Prefix><Delimiter>/</Delimiter><Blobs>"
            ),
            _ => format!(
                "{DECLARATION}<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
                 <Name>data</Name><Prefix>{prefix}</Prefix><KeyCount>{}</KeyCount><MaxKeys>1000</MaxKeys>\
                 <IsTruncated>{}</IsTruncated>",
                self.entries.len(),
                self.truncated
            ),
        }
    }

    pub(super) fn entries(&self, dialect: Dialect) -> String {
        self.entries.iter().map(|entry| entry_xml(entry, dialect)).collect()
    }

    /// Everything after the entries.
    pub(super) fn closing(&self, dialect: Dialect) -> String {
        let token = self.token.as_deref().map(escaped);
        match dialect {
            Dialect::Azure => {
                format!("</Blobs><NextMarker>{}</NextMarker></EnumerationResults>", token.unwrap_or_default())
            }
            _ => {
                let token =
                    token.map(|token| format!("<NextContinuationToken>{token}</NextContinuationToken>"));
                format!("{}</ListBucketResult>", token.unwrap_or_default())
            }
        }
    }
}

pub(super) fn entry_xml(entry: &Entry, dialect: Dialect) -> String {
    match (entry, dialect) {
        (Entry::Object { key, size, etag, modified }, Dialect::Azure) => format!(
            "<Blob><Name>{}</Name><Properties><Last-Modified>{}</Last-Modified><Etag>{}</Etag>\
             <Content-Length>{size}</Content-Length><Content-Type>application/octet-stream</Content-Type>\
             <BlobType>BlockBlob</BlobType></Properties></Blob>",
            escaped(key),
            rfc1123(*modified),
            escaped(etag)
        ),
        (Entry::Object { key, size, etag, modified }, _) => format!(
            "<Contents><Key>{}</Key><LastModified>{}</LastModified><ETag>{}</ETag><Size>{size}</Size>\
             <StorageClass>STANDARD</StorageClass></Contents>",
            escaped(key),
            rfc3339(*modified),
            escaped(etag)
        ),
        (Entry::Prefix(prefix), Dialect::Azure) => {
            format!("<BlobPrefix><Name>{}</Name></BlobPrefix>", escaped(prefix))
        }
        (Entry::Prefix(prefix), _) => {
            format!("<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>", escaped(prefix))
        }
    }
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
    text.replace('\0', "&#0;").replace('\n', "&#10;")
}

pub(super) const DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
