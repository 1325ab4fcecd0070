//! Pages of listings: S3's and Google's `ListBucketResult`, Azure's `EnumerationResults`.

use std::ops::Range;
use std::time::SystemTime;

use bowwave_core::network::Validators;

use super::checksum::{Algorithm, Checksum};
use super::{validator, xml};

/// A page of objects.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) objects: Vec<Listed>,
    /// Common prefixes, each with its slash.
    pub(super) prefixes: Vec<String>,
    /// Whether the store announces more entries.
    pub(super) truncated: Option<bool>,
    /// Token of the next page.
    pub(super) next: Option<String>,
}

/// An object of a listing.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub(super) key: String,
    pub(super) version: Validators,
    pub(super) modified: Option<SystemTime>,
}

/// Parses a page of S3 or Google.
///
/// # Errors
/// Why it is invalid.
pub(super) fn s3(document: &[u8]) -> Result<Page, String> {
    let (mut page, mut object, mut prefix) = (Page::default(), Listed::default(), String::new());
    xml::read(document, &["ListBucketResult"], |path, text| {
        match path {
            "Contents/Key" => text.clone_into(&mut object.key),
            "Contents/Size" => object.version.size = Some(size(text)?),
            "Contents/ETag" => object.version.etag = tag(text),
            "Contents/LastModified" => object.modified = validator::rfc3339(text),
            "Contents" => page.objects.push(complete(std::mem::take(&mut object))?),
            "CommonPrefixes/Prefix" => text.clone_into(&mut prefix),
            "CommonPrefixes" => page.prefixes.push(std::mem::take(&mut prefix)),
            "IsTruncated" => page.truncated = Some(truth(text)?),
            "NextContinuationToken" => page.next = Some(text.to_owned()),
            _ => {}
        }
        Ok(())
    })?;
    Ok(page)
}

/// Parses a page of Azure.
///
/// # Errors
/// Why it is invalid.
pub(super) fn azure(document: &[u8]) -> Result<Page, String> {
    let (mut page, mut object, mut prefix) = (Page::default(), Listed::default(), String::new());
    let mut is_directory = false;
    xml::read(document, &["EnumerationResults"], |path, text| {
        match path {
            "Blobs/Blob/Name" => text.clone_into(&mut object.key),
            "Blobs/Blob/Properties/Content-Length" => object.version.size = Some(size(text)?),
            "Blobs/Blob/Properties/Etag" => object.version.etag = tag(text),
            "Blobs/Blob/Properties/Last-Modified" => object.modified = validator::rfc1123(text),
            "Blobs/Blob/Properties/ResourceType" => is_directory = text == "directory",
            "Blobs/Blob" => {
                let object = std::mem::take(&mut object);
                // Hierarchical accounts list their directories as well.
                if !std::mem::take(&mut is_directory) {
                    page.objects.push(complete(object)?);
                }
            }
            "Blobs/BlobPrefix/Name" => text.clone_into(&mut prefix),
            "Blobs/BlobPrefix" => page.prefixes.push(std::mem::take(&mut prefix)),
            "NextMarker" if !text.is_empty() => page.next = Some(text.to_owned()),
            _ => {}
        }
        Ok(())
    })?;
    Ok(page)
}

/// An unfinished upload in a listing.
#[derive(Debug, Default)]
pub(super) struct ListedUpload {
    pub(super) key: String,
    pub(super) id: String,
    pub(super) begun: Option<SystemTime>,
}

/// A page of unfinished uploads.
#[derive(Debug, Default)]
pub(super) struct UploadPage {
    pub(super) uploads: Vec<ListedUpload>,
    pub(super) truncated: Option<bool>,
    /// Key and identifier after which the next page begins.
    pub(super) next: Option<(String, String)>,
}

/// Parses a page of unfinished uploads.
///
/// # Errors
/// Why it is invalid.
pub(super) fn uploads(document: &[u8]) -> Result<UploadPage, String> {
    let (mut page, mut upload) = (UploadPage::default(), ListedUpload::default());
    let (mut key, mut id) = (String::new(), String::new());
    xml::read(document, &["ListMultipartUploadsResult"], |path, text| {
        match path {
            "Upload/Key" => text.clone_into(&mut upload.key),
            "Upload/UploadId" => text.clone_into(&mut upload.id),
            "Upload/Initiated" => upload.begun = validator::rfc3339(text),
            "Upload" => page.uploads.push(std::mem::take(&mut upload)),
            "IsTruncated" => page.truncated = Some(truth(text)?),
            "NextKeyMarker" => text.clone_into(&mut key),
            "NextUploadIdMarker" => text.clone_into(&mut id),
            _ => {}
        }
        Ok(())
    })?;
    page.next = (!key.is_empty()).then_some((key, id));
    Ok(page)
}

/// A part of an unfinished upload.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct ListedPart {
    /// From 1.
    pub(super) number: u64,
    pub(super) etag: String,
    pub(super) size: u64,
    pub(super) crc64nvme: Option<String>,
}

/// A page of the parts of an upload.
#[derive(Debug, Default)]
pub(super) struct PartPage {
    pub(super) parts: Vec<ListedPart>,
    /// Part number after which the next page begins, if there is one.
    pub(super) next: Option<u64>,
}

/// Parses a page of the parts of an upload.
///
/// # Errors
/// Why it is invalid.
pub(super) fn parts(document: &[u8]) -> Result<PartPage, String> {
    let (mut page, mut part) = (PartPage::default(), ListedPart::default());
    let (mut truncated, mut next) = (false, None);
    xml::read(document, &["ListPartsResult"], |path, text| {
        match path {
            "Part/PartNumber" => part.number = size(text)?,
            "Part/ETag" => text.trim().clone_into(&mut part.etag),
            "Part/Size" => part.size = size(text)?,
            "Part/ChecksumCRC64NVME" => part.crc64nvme = Some(text.trim().to_owned()),
            "Part" => page.parts.push(std::mem::take(&mut part)),
            "IsTruncated" => truncated = truth(text)?,
            "NextPartNumberMarker" => next = Some(size(text)?),
            _ => {}
        }
        Ok(())
    })?;
    match (truncated, next) {
        (true, None) => Err("more parts follow, but not where".to_owned()),
        (true, next) => Ok(PartPage { next, ..page }),
        (false, _) => Ok(page),
    }
}

/// The ranges and checksums of parts in a document of an object's attributes, if it describes the
/// version `tag` of `size` bytes.
pub(super) fn part_checksums(document: &[u8], tag: &str, size: u64) -> Option<Vec<(Range<u64>, Checksum)>> {
    let (mut found, mut bytes, mut sum, mut end, mut is_version) = (Vec::new(), None, None, 0u64, false);
    let read =
        xml::read(document, &["GetObjectAttributesResponse", "GetObjectAttributesOutput"], |path, text| {
            match path {
                "ETag" => is_version = text.trim().trim_matches('"') == tag,
                "ObjectParts/Part/Size" => bytes = text.trim().parse::<u64>().ok(),
                "ObjectParts/Part" => {
                    let bytes = bytes.take().filter(|bytes| *bytes > 0).ok_or("a part has no size")?;
                    let start = end;
                    end = start.checked_add(bytes).ok_or("parts are larger than any object")?;
                    found.extend(sum.take().map(|sum| (start..end, sum)));
                }
                _ => {
                    let name = path.strip_prefix("ObjectParts/Part/");
                    let algorithm =
                        Algorithm::ALL.into_iter().find(|algorithm| Some(algorithm.names().1) == name);
                    sum = algorithm
                        .and_then(|algorithm| Checksum::parse(algorithm, text))
                        .or_else(|| sum.take());
                }
            }
            Ok(())
        });
    // A table with gaps, or of another version, would reject correct bytes.
    (read.is_ok() && is_version && end == size).then_some(found)
}

/// Whether a key (of a directory with its slash) is a path of valid names. Stores allow keys such
/// as `a//b` and `../c`, which no file can have: they are omitted.
pub(super) fn is_path(key: &str) -> bool {
    let bare = key.strip_suffix('/').unwrap_or(key);
    bare.split('/').all(|part| !matches!(part, "" | "." | ".."))
        && !bare.contains(|c: char| c.is_ascii_control())
}

fn complete(object: Listed) -> Result<Listed, String> {
    if object.version.size.is_none() {
        return Err(format!(
            "the entry `{}` has no size",
            object.key.escape_debug().take(100).collect::<String>()
        ));
    }
    Ok(object)
}

fn size(text: &str) -> Result<u64, String> {
    let size = text.trim().parse().ok().filter(|size| i64::try_from(*size).is_ok());
    size.ok_or_else(|| format!("`{}` is no size", text.escape_debug().take(40).collect::<String>()))
}

fn truth(text: &str) -> Result<bool, String> {
    match text.trim() {
        "true" => Ok(true),
        "false" => Ok(false),
        text => {
            Err(format!("`{}` is neither true nor false", text.escape_debug().take(40).collect::<String>()))
        }
    }
}

/// An entity tag with its quotes, which Azure's listings omit.
fn tag(text: &str) -> Option<String> {
    let text = text.trim();
    match text {
        "" => None,
        text if text.ends_with('"') => Some(text.to_owned()),
        text => Some(format!("\"{text}\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(inside: &str) -> Result<Page, String> {
        s3(format!(
            "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{inside}</ListBucketResult>"
        )
        .as_bytes())
    }

    #[test]
    fn a_page_of_s3_has_objects_prefixes_and_the_next_token() {
        let found = page(
            "<Name>b</Name><Prefix>p/</Prefix><Contents><Key>p/a&amp;b</Key><Size>7</Size><ETag>&quot;1&quot;</ETag>\
             <LastModified>2024-02-29T12:00:00.000Z</LastModified><Owner><ID>x</ID></Owner></Contents>\
             <CommonPrefixes><Prefix>p/d/</Prefix></CommonPrefixes>\
             <IsTruncated>true</IsTruncated><NextContinuationToken>t==</NextContinuationToken>",
        )
        .unwrap();
        assert_eq!((found.objects.len(), found.prefixes), (1, vec!["p/d/".to_owned()]));
        let object = &found.objects[0];
        assert_eq!((object.key.as_str(), object.version.size), ("p/a&b", Some(7)));
        assert_eq!(object.version.etag.as_deref(), Some("\"1\""));
        assert!(object.modified.is_some());
        assert_eq!((found.truncated, found.next.as_deref()), (Some(true), Some("t==")));
    }

    #[test]
    fn sizes_and_flags_that_are_none_are_errors() {
        for size in ["-1", "1e3", "", "99999999999999999999", "9223372036854775808"] {
            let page = page(&format!("<Contents><Key>a</Key><Size>{size}</Size></Contents>"));
            assert!(page.is_err(), "{size}");
        }
        assert!(page("<Contents><Key>a</Key></Contents>").is_err());
        assert!(page("<IsTruncated>perhaps</IsTruncated>").is_err());
        assert!(s3(b"<html><body>Please log in</body></html>").is_err());
        assert!(s3(b"").is_err());
    }

    #[test]
    fn a_page_of_azure_has_blobs_prefixes_and_the_next_marker() {
        let blob = |name: &str, kind: &str| {
            format!(
                "<Blob><Name>{name}</Name><Properties><Content-Length>5</Content-Length><Etag>0x8D</Etag>\
                 <Last-Modified>Sun, 06 Nov 1994 08:49:37 GMT</Last-Modified>{kind}</Properties></Blob>"
            )
        };
        let document = format!(
            "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults><Blobs>{}{}\
             <BlobPrefix><Name>d/</Name></BlobPrefix></Blobs><NextMarker>m</NextMarker></EnumerationResults>",
            blob("a", ""),
            blob("d", "<ResourceType>directory</ResourceType>")
        );
        let found = azure(document.as_bytes()).unwrap();
        assert_eq!(
            (found.objects.len(), found.prefixes, found.next.as_deref()),
            (1, vec!["d/".to_owned()], Some("m"))
        );
        assert_eq!(found.objects[0].version.etag.as_deref(), Some("\"0x8D\""));
    }

    #[test]
    fn a_page_of_parts_has_numbers_sizes_tags_and_checksums() {
        let document = |end: &str| {
            format!(
                "<ListPartsResult><Part><PartNumber>2</PartNumber><ETag>&quot;a&quot;</ETag><Size>5</Size>\
                 <ChecksumCRC64NVME>x=</ChecksumCRC64NVME></Part>{end}</ListPartsResult>"
            )
        };
        let page = parts(document("").as_bytes()).unwrap();
        let part =
            ListedPart { number: 2, etag: "\"a\"".to_owned(), size: 5, crc64nvme: Some("x=".to_owned()) };
        assert_eq!((page.parts, page.next), (vec![part], None));
        let more = "<IsTruncated>true</IsTruncated><NextPartNumberMarker>2</NextPartNumberMarker>";
        assert_eq!(parts(document(more).as_bytes()).unwrap().next, Some(2));
        assert!(parts(document("<IsTruncated>true</IsTruncated>").as_bytes()).is_err());
        assert!(parts(b"<html></html>").is_err());
    }

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
        let found = part_checksums(both.as_bytes(), "tag-2", 13).expect("a table");
        assert_eq!(found.iter().map(|(range, _)| range.clone()).collect::<Vec<_>>(), [0..9, 9..13]);
        assert!(part_checksums(both.as_bytes(), "other-2", 13).is_none());
        assert!(part_checksums(both.as_bytes(), "tag-2", 14).is_none());
        assert!(part_checksums(document(&part(1, u64::MAX)).as_bytes(), "tag-2", 13).is_none());
        assert!(part_checksums(b"<html></html>", "tag-2", 13).is_none());
    }

    /// Quadratic reading would take half an hour here.
    #[test]
    fn a_hundred_thousand_entries_are_read_in_one_pass() {
        let entry = |n: usize| {
            format!(
                "<Contents><Key>dir/file-{n:06}</Key><Size>{n}</Size><ETag>&quot;{n}&quot;</ETag>\
                 <LastModified>2024-02-29T12:00:00.000Z</LastModified></Contents>"
            )
        };
        let entries: String = (0..100_000).map(entry).collect();
        assert_eq!(page(&entries).unwrap().objects.len(), 100_000);
    }

    #[test]
    fn keys_that_are_no_paths_are_told_from_those_that_are() {
        for odd in ["a//b", "/a", "../c", "a/./b", "x\ny", "", "/"] {
            assert!(!is_path(odd), "{odd:?}");
        }
        for plain in ["a", "a/b.c", "it's", "directory/", "..a", "..."] {
            assert!(is_path(plain), "{plain:?}");
        }
    }
}
