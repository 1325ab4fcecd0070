//! Listings without the keys that no file can have.
//!
//! Object stores allow keys such as `a//b` or `../c`. The library fails a whole listing for one of them, so they are
//! taken out of the server's answer before it is parsed.

/// The listing without entries whose key cannot be a path; `None` if there are none.
pub(super) fn without_odd_keys(xml: &str) -> Option<String> {
    let mut kept = String::new();
    let mut odd = false;
    let mut rest = xml;
    while let Some((entry, name)) = next_entry(rest) {
        let (before, from) = rest.split_at(entry.start);
        kept.push_str(before);
        let (element, after) = from.split_at(entry.end - entry.start);
        if is_path(name) {
            kept.push_str(element);
        } else {
            odd = true;
        }
        rest = after;
    }
    kept.push_str(rest);
    odd.then_some(kept)
}

/// Where the next entry stands, and its key.
fn next_entry(xml: &str) -> Option<(std::ops::Range<usize>, &str)> {
    let found = ENTRIES.iter().filter_map(|(entry, key)| {
        let start = xml.find(&format!("<{entry}>"))?;
        let close = format!("</{entry}>");
        let end = start + xml[start..].find(&close)? + close.len();
        Some((start..end, *key))
    });
    let (range, key) = found.min_by_key(|(range, _)| range.start)?;
    let element = &xml[range.clone()];
    let name = element
        .split_once(&format!("<{key}>"))
        .and_then(|(_, rest)| rest.split_once(&format!("</{key}>")))
        .map_or("", |(name, _)| name);
    Some((range, name))
}

/// Whether a key (of a folder with its slash), as it stands in XML, is a path of proper names.
fn is_path(key: &str) -> bool {
    let bare = key.strip_suffix('/').unwrap_or(key);
    bare.split('/').all(|part| !matches!(part, "" | "." | "..")) && !has_control(bare)
}

fn has_control(text: &str) -> bool {
    let escaped = |rest: &str| {
        let (digits, _) = rest.split_once(';')?;
        let code = match digits.strip_prefix(['x', 'X']) {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => digits.parse(),
        };
        code.ok().and_then(char::from_u32)
    };
    text.contains(|c: char| c.is_ascii_control())
        || text.split("&#").skip(1).filter_map(escaped).any(|c| c.is_ascii_control())
}

/// Elements of listings (S3 and Google, Azure) and where their key stands.
const ENTRIES: [(&str, &str); 4] =
    [("Contents", "Key"), ("CommonPrefixes", "Prefix"), ("Blob", "Name"), ("BlobPrefix", "Name")];

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(keys: &[&str], folders: &[&str]) -> String {
        let keys = keys.iter().map(|key| format!("<Contents><Key>{key}</Key><Size>1</Size></Contents>"));
        let folders =
            folders.iter().map(|key| format!("<CommonPrefixes><Prefix>{key}</Prefix></CommonPrefixes>"));
        let entries: String = keys.chain(folders).collect();
        format!(
            "<ListBucketResult><Prefix></Prefix>{entries}<IsTruncated>false</IsTruncated></ListBucketResult>"
        )
    }

    #[test]
    fn keys_that_are_no_paths_are_left_out_and_others_stay() {
        let odd = ["a//b", "/a", "../c", "a/./b", "x&#10;y", "x&#xA;y", ""];
        let plain = ["a", "a/b.c", "&amp;", "it&#39;s", "folder/", "..a", "..."];
        let mixed: Vec<_> = odd.iter().chain(&plain).copied().collect();
        let wanted = listing(&plain, &["f/"]);
        assert_eq!(without_odd_keys(&listing(&mixed, &["/", "f/", "f//"])), Some(wanted.clone()));
        assert_eq!(without_odd_keys(&wanted), None);
        assert_eq!(without_odd_keys("<Contents><Key>never closed"), None);
    }
}
