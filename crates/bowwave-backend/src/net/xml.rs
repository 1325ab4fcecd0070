//! The little XML that S3 speaks, where the library does not speak it for us.

/// The text of the first element `name`, unescaped.
pub(super) fn text(xml: &str, name: &str) -> Option<String> {
    Some(unescaped(raw(xml, name)?.0))
}

/// The contents of each element `name`, in order; none of them nests.
pub(super) fn each<'a>(mut xml: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    std::iter::from_fn(move || {
        let (inner, rest) = raw(xml, name)?;
        xml = rest;
        Some(inner)
    })
}

/// What stands in the first element `name`, and what follows it. Its tag may have attributes.
fn raw<'a>(xml: &'a str, name: &str) -> Option<(&'a str, &'a str)> {
    let mut from = 0;
    loop {
        let start = from + xml[from..].find(&format!("<{name}"))?;
        let after = &xml[start + 1 + name.len()..];
        if !after.starts_with(['>', ' ', '/', '\t', '\n', '\r']) {
            // A longer name that begins so.
            from = start + 1;
            continue;
        }
        let (tag, rest) = after.split_once('>')?;
        return if tag.ends_with('/') { Some(("", rest)) } else { rest.split_once(&format!("</{name}>")) };
    }
}

/// `text` as it may stand between tags.
pub(super) fn escaped(text: &str) -> String {
    // Quotes stay: Google's servers do not know them escaped, and between tags they need not be.
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, from)) = rest.split_once('&') {
        plain.push_str(before);
        let known = from.split_once(';').and_then(|(name, after)| Some((character(name)?, after)));
        match known {
            Some((character, after)) => {
                plain.push(character);
                rest = after;
            }
            None => {
                plain.push('&');
                rest = from;
            }
        }
    }
    plain.push_str(rest);
    plain
}

fn character(name: &str) -> Option<char> {
    match name {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => {
            let digits = name.strip_prefix('#')?;
            let code = match digits.strip_prefix(['x', 'X']) {
                Some(digits) => u32::from_str_radix(digits, 16),
                None => digits.parse(),
            };
            code.ok().and_then(char::from_u32)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_found_by_their_whole_name_and_unescaped() {
        let xml = "<a xmlns=\"u\"><UploadIdMarker/><Upload><Key>x&amp;y&#10;&quot;&lt;</Key></Upload>\
                   <Upload><Key>z</Key><Initiated>t</Initiated></Upload><UploadId>7</UploadId></a>";
        let uploads: Vec<_> = each(xml, "Upload").map(|upload| text(upload, "Key")).collect();
        assert_eq!(uploads, [Some("x&y\n\"<".to_owned()), Some("z".to_owned())]);
        assert_eq!(text(xml, "UploadId").as_deref(), Some("7"));
        assert_eq!(text(xml, "UploadIdMarker").as_deref(), Some(""));
        assert_eq!(text(xml, "Missing"), None);
        assert_eq!(text("<Key>never closed", "Key"), None);
        assert_eq!(text("<K>a & b &unknown; &#xD800;</K>", "K").as_deref(), Some("a & b &unknown; &#xD800;"));
    }

    #[test]
    fn escaping_is_undone_by_unescaping() {
        let odd = "a<b>&amp;\"'c]]>";
        assert_eq!(text(&format!("<K>{}</K>", escaped(odd)), "K").as_deref(), Some(odd));
    }
}
