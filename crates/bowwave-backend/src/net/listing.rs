//! Pages of listings: S3's and Google's `ListBucketResult`, Azure's `EnumerationResults`.

use super::{checksum, validator, xml};
use bowwave_core::network::Validators;
use std::time::SystemTime;

/// One page.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) objects: Vec<Listed>,
    /// Common prefixes, each with the slash at its end.
    pub(super) prefixes: Vec<String>,
    /// Whether the store says that more follows.
    pub(super) truncated: Option<bool>,
    /// Where the next page begins.
    pub(super) next: Option<String>,
}

/// An object of a listing.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub(super) key: String,
    pub(super) version: Validators,
    pub(super) modified: Option<SystemTime>,
}

/// Reads a page of S3 or Google.
///
/// # Errors
/// What is wrong with it.
pub(super) fn s3(document: &[u8]) -> Result<Page, String> {
    let (mut page, mut object, mut prefix) = (Page::default(), Listed::default(), String::new());
    xml::read(document, &["ListBucketResult"], |path, text| {
        let names: [&str; 3] = [1, 2, 3].map(|depth| path.get(depth).map_or("", String::as_str));
        match names {
            ["Contents", "Key", ""] => text.clone_into(&mut object.key),
            ["Contents", "Size", ""] => object.version.size = Some(size(text)?),
            ["Contents", "ETag", ""] => object.version.etag = tag(text),
            ["Contents", "LastModified", ""] => object.modified = validator::rfc3339(text),
            ["Contents", "", ""] => page.objects.push(complete(std::mem::take(&mut object))?),
            ["CommonPrefixes", "Prefix", ""] => text.clone_into(&mut prefix),
            ["CommonPrefixes", "", ""] => page.prefixes.push(std::mem::take(&mut prefix)),
            ["IsTruncated", "", ""] => page.truncated = Some(truth(text)?),
            ["NextContinuationToken", "", ""] => page.next = Some(text.to_owned()),
            _ => {}
        }
        Ok(())
    })?;
    Ok(page)
}

/// Reads a page of Azure.
///
/// # Errors
/// What is wrong with it.
pub(super) fn azure(document: &[u8]) -> Result<Page, String> {
    let (mut page, mut object, mut prefix) = (Page::default(), Listed::default(), String::new());
    let mut is_directory = false;
    xml::read(document, &["EnumerationResults"], |path, text| {
        let names: [&str; 4] = [1, 2, 3, 4].map(|depth| path.get(depth).map_or("", String::as_str));
        match names {
            ["Blobs", "Blob", "Name", ""] => text.clone_into(&mut object.key),
            ["Blobs", "Blob", "Properties", "Content-Length"] => object.version.size = Some(size(text)?),
            ["Blobs", "Blob", "Properties", "Etag"] => object.version.etag = tag(text),
            ["Blobs", "Blob", "Properties", "Last-Modified"] => object.modified = validator::rfc1123(text),
            ["Blobs", "Blob", "Properties", "ResourceType"] => is_directory = text == "directory",
            ["Blobs", "Blob", "", ""] => {
                let object = std::mem::take(&mut object);
                // Hierarchical accounts list their directories besides.
                if !std::mem::take(&mut is_directory) {
                    page.objects.push(complete(object)?);
                }
            }
            ["Blobs", "BlobPrefix", "Name", ""] => text.clone_into(&mut prefix),
            ["Blobs", "BlobPrefix", "", ""] => page.prefixes.push(std::mem::take(&mut prefix)),
            ["NextMarker", "", "", ""] if !text.is_empty() => page.next = Some(text.to_owned()),
            _ => {}
        }
        Ok(())
    })?;
    Ok(page)
}

/// An unfinished upload, as a bucket lists it.
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
    /// Key and id that the next page begins behind.
    pub(super) next: Option<(String, String)>,
}

/// Reads a page of unfinished uploads.
///
/// # Errors
/// What is wrong with it.
pub(super) fn uploads(document: &[u8]) -> Result<UploadPage, String> {
    let (mut page, mut upload) = (UploadPage::default(), ListedUpload::default());
    let (mut key, mut id) = (String::new(), String::new());
    xml::read(document, &["ListMultipartUploadsResult"], |path, text| {
        let names: [&str; 3] = [1, 2, 3].map(|depth| path.get(depth).map_or("", String::as_str));
        match names {
            ["Upload", "Key", ""] => text.clone_into(&mut upload.key),
            ["Upload", "UploadId", ""] => text.clone_into(&mut upload.id),
            ["Upload", "Initiated", ""] => upload.begun = validator::rfc3339(text),
            ["Upload", "", ""] => page.uploads.push(std::mem::take(&mut upload)),
            ["IsTruncated", "", ""] => page.truncated = Some(truth(text)?),
            ["NextKeyMarker", "", ""] => text.clone_into(&mut key),
            ["NextUploadIdMarker", "", ""] => text.clone_into(&mut id),
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
    /// The number that the next page begins behind, if more follows.
    pub(super) next: Option<u64>,
}

/// Reads a page of the parts of an upload.
///
/// # Errors
/// What is wrong with it.
pub(super) fn parts(document: &[u8]) -> Result<PartPage, String> {
    let (mut page, mut part) = (PartPage::default(), ListedPart::default());
    let (mut truncated, mut next) = (false, None);
    xml::read(document, &["ListPartsResult"], |path, text| {
        let names: [&str; 3] = [1, 2, 3].map(|depth| path.get(depth).map_or("", String::as_str));
        match names {
            ["Part", "PartNumber", ""] => part.number = size(text)?,
            ["Part", "ETag", ""] => text.trim().clone_into(&mut part.etag),
            ["Part", "Size", ""] => part.size = size(text)?,
            ["Part", checksum::CRC64NVME, ""] => part.crc64nvme = Some(text.trim().to_owned()),
            ["Part", "", ""] => page.parts.push(std::mem::take(&mut part)),
            ["IsTruncated", "", ""] => truncated = truth(text)?,
            ["NextPartNumberMarker", "", ""] => next = Some(size(text)?),
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

/// Whether a key (of a directory with its slash) is a path of proper names. Stores allow keys such as `a//b` and `../c`, which
/// no file can have: they are left out.
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

/// An entity tag with its quotes: Azure's lists leave them out.
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
