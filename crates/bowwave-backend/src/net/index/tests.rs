//! Recorded pages of servers, and pages that no server should send.

use super::*;

const NAMES: [&str; 15] = [
    "#hash.txt",
    "'single'.txt",
    "100%.txt",
    "?C=N.txt",
    "a b&c;d.txt",
    "a-very-long-name-that-is-cut-by-nginx-and-apache-because-it-is-longer-than-fifty-characters.txt",
    "a.txt",
    "big.bin",
    "co:lon.txt",
    "deep",
    "empty",
    "plus+eq=.txt",
    "quo\"te<>.txt",
    "sub dir",
    "ünï.txt",
];

fn entries(kind: &str, page: &[u8], path: &str) -> Result<Vec<(String, EntryKind)>, Refused> {
    let url = Url::parse(&format!("http://user@example.org{path}")).unwrap();
    let entries = read(kind, page, &url, 1000)?;
    Ok(entries.into_iter().map(|entry| (entry.name.into_string().unwrap(), entry.kind)).collect())
}

/// Names of a page that begins as an index does.
fn names(body: &str) -> Vec<String> {
    let page = format!("<title>Index of /d/</title>{body}");
    entries("text/html", page.as_bytes(), "/d/").unwrap().into_iter().map(|(name, _)| name).collect()
}

#[test]
fn recorded_pages_of_servers_have_all_names_and_no_other() {
    let html = "text/html;charset=UTF-8";
    for (server, kind, page) in [
        ("nginx 1.22", html, &include_bytes!("fixtures/nginx.html")[..]),
        ("nginx 1.22, JSON", "application/json", include_bytes!("fixtures/nginx-json.json")),
        ("Apache 2.4", html, include_bytes!("fixtures/apache.html")),
        ("Apache 2.4, FancyIndexing", html, include_bytes!("fixtures/apache-fancy.html")),
        ("Apache 2.4, HTMLTable", html, include_bytes!("fixtures/apache-table.html")),
        ("caddy 2.6", html, include_bytes!("fixtures/caddy.html")),
        ("caddy 2.6, JSON", "application/json", include_bytes!("fixtures/caddy-json.json")),
        ("Python 3", html, include_bytes!("fixtures/python.html")),
    ] {
        let found = entries(kind, page, "/").unwrap_or_else(|error| panic!("{server}: {error:?}"));
        let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, NAMES, "{server}");
        for (name, kind) in &found {
            let is_directory = matches!(name.as_str(), "deep" | "sub dir");
            assert_eq!(*kind == EntryKind::Directory, is_directory, "{server}: {name}");
        }
    }
}

#[test]
fn links_to_the_parent_are_no_entries() {
    for (server, page) in [
        ("nginx", &include_bytes!("fixtures/nginx-sub.html")[..]),
        ("Apache", include_bytes!("fixtures/apache-sub.html")),
        ("Apache, FancyIndexing", include_bytes!("fixtures/apache-fancy-sub.html")),
        ("Apache, HTMLTable", include_bytes!("fixtures/apache-table-sub.html")),
    ] {
        let found = entries("text/html", page, "/deep/").unwrap();
        assert_eq!(found, [("er".to_owned(), EntryKind::Directory)], "{server}");
    }
}

#[test]
fn links_are_entries_only_one_level_down() {
    let links = |hrefs: &[&str]| {
        names(&hrefs.iter().map(|href| format!("<a href=\"{href}\">x</a>")).collect::<String>())
    };
    let entries = ["a", "./b", "/d/c", "http://example.org/d/e/", "http://example.org:80/%64/f", "%67"];
    assert_eq!(links(&entries), ["a", "b", "c", "e", "f", "g"]);
    let others = [
        "",
        ".",
        "./",
        "..",
        "../",
        "/",
        "/d",
        "/d/",
        "/x",
        "../x",
        "a/b",
        "a//",
        "//",
        "/d//x",
        "?C=N;O=D",
        "a?x",
        "#x",
        "a#x",
        "%2e%2e",
        "%2e%2e/",
        "a%2fb",
        "%00",
        "a%00b",
        "..%2f",
        "%2f",
        "\\\\x",
        "mailto:x",
        "javascript:x",
        "data:,x",
        "http://other.org/d/x",
        "https://example.org/d/x",
        "//other.org/d/x",
        "http://example.org:81/d/x",
        "http://[",
        "ftp://example.org/d/x",
        "%2e%2e%2fx",
        "..;/x",
        "a%5Cb/c",
    ];
    assert_eq!(links(&others), [""; 0], "none of them");
}

#[test]
fn tags_are_read_as_browsers_read_them() {
    let body = "<A HREF=a>x</A><a class=y href='b&amp;c' href=no><a\nhref\n=\n\"d\"><!-- <a href=e> --><a name=f>\
                <script>'<a href=g>'</script><style><a href=h></style><a href=&#105;></a><a href=j&nbsp>";
    assert_eq!(names(body), ["a", "b&c", "d", "i", "j\u{a0}"]);
    assert_eq!(names("<a href=x><a href=x/><a href=y/><a href=y>"), ["x", "y"]);
}

#[test]
fn a_page_that_is_no_index_is_refused() {
    for (kind, page) in [
        ("text/html", ""),
        ("text/html", "<title>Welcome</title><a href=a>"),
        ("text/html", "<title>Log in</title><h1>Please log in to see the Index of /d/</h1><a href=a>"),
        ("text/html", "<p>Index of /d/</p><a href=a>"),
        ("text/plain", "<title>Index of /d/</title>"),
        ("", "<title>Index of /d/</title>"),
        ("application/json", "{}"),
        ("application/json", "[{\"name\":\"a\"}]"),
        ("application/json", "[{\"type\":\"file\"}]"),
        ("application/json", "[{\"name\":\"a\",\"type\":\"file\"}"),
        ("application/json", "[{\"name\":\"a\",\"type\":\"file\"}] x"),
        ("application/json", "null"),
    ] {
        assert!(matches!(entries(kind, page.as_bytes(), "/d/"), Err(Refused::NoIndex(_))), "{kind} {page}");
    }
    for empty in ["<title>Index of /d/</title>", "<h1>INDEX OF x</h1>", "<title>/d</title>"] {
        assert_eq!(entries("text/html", empty.as_bytes(), "/d/"), Ok(Vec::new()), "{empty}");
    }
    assert_eq!(entries("application/json", b"[]", "/d/"), Ok(Vec::new()));
}

#[test]
fn names_of_json_are_checked_like_those_of_links() {
    let page =
        br#"[{"name":"../x","type":"file"},{"name":"..","type":"directory"},{"name":"a/b","type":"file"},
        {"name":"","type":"file"},{"name":"\u0000","type":"file"},{"name":"pipe","type":"other"},
        {"name":"d/","is_dir":true},{"name":"f","is_dir":false},{"name":"/","is_dir":true}]"#;
    let found = entries("application/json", page, "/d/").unwrap();
    assert_eq!(found, [("d".to_owned(), EntryKind::Directory), ("f".to_owned(), EntryKind::File)]);
}

#[test]
fn a_page_with_too_many_entries_is_an_error() {
    let html: String = (0..1001).map(|n| format!("<a href={n}>")).collect();
    let html = format!("<title>Index of /d/</title>{html}");
    assert_eq!(entries("text/html", html.as_bytes(), "/d/"), Err(Refused::TooMany));
    let json: Vec<_> = (0..1001).map(|n| format!("{{\"name\":\"{n}\",\"type\":\"file\"}}")).collect();
    let json = format!("[{}]", json.join(","));
    assert_eq!(entries("application/json", json.as_bytes(), "/d/"), Err(Refused::TooMany));
}

/// Recorded pages, cut and with other bytes in them: names stay names.
#[test]
fn damaged_pages_give_names_or_an_error() {
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % below as u64).unwrap()
    };
    let url = Url::parse("http://example.org/deep/").unwrap();
    let marks = [
        &b"<"[..],
        b">",
        b"\"",
        b"&",
        b"%2f",
        b"../",
        b"\0",
        b"\xff",
        b"<a href=",
        b"//",
        b"[",
        b"}",
        b"\\u0000",
    ];
    for round in 0..20_000 {
        let (kind, page) = match round % 4 {
            0 => ("text/html", &include_bytes!("fixtures/nginx-sub.html")[..]),
            1 => ("text/html", &include_bytes!("fixtures/apache-fancy.html")[..]),
            2 => ("application/json", &include_bytes!("fixtures/nginx-json.json")[..]),
            _ => ("text/html", &include_bytes!("fixtures/python.html")[..]),
        };
        let mut page = page[..next(page.len() + 1)].to_vec();
        for _ in 0..next(8) {
            let at = next(page.len() + 1);
            page.splice(at..at, marks[next(marks.len())].iter().copied());
        }
        for entry in read(kind, &page, &url, 10).unwrap_or_default() {
            let name = entry.name.as_encoded_bytes();
            let is_name = !matches!(name, b"" | b"." | b"..") && !name.iter().any(|b| matches!(b, b'/' | 0));
            assert!(is_name, "{:?} of {:?}", entry.name, String::from_utf8_lossy(&page));
        }
    }
}
