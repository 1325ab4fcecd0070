//! The checksums that S3 stores for the parts of an object.

use std::ops::Range;

use http::Method;
use http::header::HeaderName;

use super::checksum::{Algorithm, Checksum};
use super::cloud::Cloud;
use super::ranged::Version;
use super::wire::Outgoing;
use super::xml;
use crate::Error;

/// Requests the checksums of a version's parts; none if the store does not have them.
///
/// # Errors
/// If another request may return them.
pub(super) async fn table(
    cloud: &Cloud,
    key: &str,
    version: &Version,
) -> Result<Vec<(Range<u64>, Checksum)>, Error> {
    let Some(tag) = version.validators.strong() else { return Ok(Vec::new()) };
    let headers = [(ATTRIBUTES, "ETag,ObjectParts".to_owned()), (PARTS_MAX, "10000".to_owned())];
    let query = [("attributes", "")];
    let request = || Outgoing { query: &query, headers: &headers, ..Outgoing::new(Method::GET, key) };
    let patience = cloud.wire.client.limits.timeout;
    match cloud.persist(|| cloud.wire.xml(request(), patience)).await {
        Ok(document) => Ok(parts(&document, tag.trim_matches('"'), version.size()).unwrap_or_default()),
        Err(error) if error.is_retryable() => Err(error),
        Err(_) => Ok(Vec::new()),
    }
}

/// The parts in a document of attributes, if they are those of the version.
pub(super) fn parts(document: &[u8], tag: &str, size: u64) -> Option<Vec<(Range<u64>, Checksum)>> {
    let (mut found, mut bytes, mut sum, mut end, mut is_version) = (Vec::new(), None, None, 0u64, false);
    let read =
        xml::read(document, &["GetObjectAttributesResponse", "GetObjectAttributesOutput"], |path, text| {
            let names: [&str; 3] = [1, 2, 3].map(|depth| path.get(depth).map_or("", String::as_str));
            match names {
                ["ETag", "", ""] => is_version = text.trim().trim_matches('"') == tag,
                ["ObjectParts", "Part", "Size"] => bytes = text.trim().parse::<u64>().ok(),
                ["ObjectParts", "Part", ""] => {
                    let bytes = bytes.take().filter(|bytes| *bytes > 0).ok_or("a part has no size")?;
                    let start = end;
                    end = start.checked_add(bytes).ok_or("parts are larger than any object")?;
                    found.extend(sum.take().map(|sum| (start..end, sum)));
                }
                ["ObjectParts", "Part", name] => {
                    let algorithm = Algorithm::ALL.into_iter().find(|algorithm| algorithm.names().1 == name);
                    sum = algorithm
                        .and_then(|algorithm| Checksum::parse(algorithm, text))
                        .or_else(|| sum.take());
                }
                _ => {}
            }
            Ok(())
        });
    // A table with gaps, or of another version, would reject correct bytes.
    (read.is_ok() && is_version && end == size).then_some(found)
}

/// Requested attributes of an object.
const ATTRIBUTES: HeaderName = HeaderName::from_static("x-amz-object-attributes");
/// Most parts.
const PARTS_MAX: HeaderName = HeaderName::from_static("x-amz-max-parts");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_parts_counts_only_if_it_is_of_the_version_and_whole() {
        let part = |n: u32, size: u64| {
            format!(
                "<Part><PartNumber>{n}</PartNumber><ChecksumCRC32C>4waSgw==</ChecksumCRC32C><Size>{size}</Size></Part>"
            )
        };
        let document = |parts: &str| {
            format!(
                "<GetObjectAttributesResponse><ETag>tag-2</ETag><ObjectParts>{parts}</ObjectParts></GetObjectAttributesResponse>"
            )
        };
        let both = document(&(part(1, 9) + &part(2, 4)));
        let found = parts(both.as_bytes(), "tag-2", 13).expect("a table");
        assert_eq!(found.iter().map(|(range, _)| range.clone()).collect::<Vec<_>>(), [0..9, 9..13]);
        assert!(parts(both.as_bytes(), "other-2", 13).is_none());
        assert!(parts(both.as_bytes(), "tag-2", 14).is_none());
        assert!(parts(document(&part(1, u64::MAX)).as_bytes(), "tag-2", 13).is_none());
        assert!(parts(b"<html></html>", "tag-2", 13).is_none());
    }
}
