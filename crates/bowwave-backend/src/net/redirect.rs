//! Which redirections of a web server are followed.

use http::header::LOCATION;
use reqwest::Url;

use super::exchange::Incoming;
use super::validator::text;
use crate::{Error, ErrorKind, Result};

/// Most redirections in a row; more are a loop.
pub(super) const REDIRECTS_MAX: u32 = 5;

/// Where the response to a request for `from` redirects to; `None` if it does not redirect.
///
/// User and password of `from` go along to the same origin only, and never from `https` to `http`. The query of `from` may be
/// a signature, and is never sent on: no `Referer` is sent at all.
///
/// # Errors
/// `Protocol` if the redirection is not followed.
pub(super) fn target(place: &str, from: &Url, response: &Incoming) -> Result<Option<Url>> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let location = text(response.headers(), LOCATION);
    let refused =
        |why: &str| Err(Error::new(ErrorKind::Protocol, format!("{place}: {}: {why}", response.status())));
    let Some(location) = location else { return refused("a redirection without a Location") };
    let Ok(to) = from.join(&location) else { return refused("a redirection to something that is no URL") };
    match follow(from, to) {
        Ok(to) => Ok(Some(to)),
        Err(why) => refused(why),
    }
}

/// Where a redirection leads, with the credentials that are sent there.
///
/// # Errors
/// Why it is not followed.
pub(super) fn follow(from: &Url, mut to: Url) -> std::result::Result<Url, &'static str> {
    match (from.scheme(), to.scheme()) {
        (_, "https") | ("http", "http") => {}
        ("https", "http") => return Err("a redirection from https to http is not followed"),
        _ => return Err("a redirection to another scheme is not followed"),
    }
    if to.host_str().is_none() {
        return Err("a redirection without a host");
    }
    // Credentials in the server's `Location` are ignored. Neither call fails for a URL with a host.
    let (user, password) = if from.origin() == to.origin() {
        (from.username().to_owned(), from.password().map(str::to_owned))
    } else {
        (String::new(), None)
    };
    to.set_username(&user).map_err(|()| "a redirection without a host")?;
    to.set_password(password.as_deref()).map_err(|()| "a redirection without a host")?;
    to.set_fragment(None);
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(from: &str, location: &str) -> std::result::Result<String, &'static str> {
        let from: Url = from.parse().unwrap();
        follow(&from, from.join(location).unwrap()).map(Into::into)
    }

    #[test]
    fn credentials_stay_with_their_origin() {
        let from = "http://user:secret@a.example:81/dir/file?signature=1";
        assert_eq!(to(from, "other").unwrap(), "http://user:secret@a.example:81/dir/other");
        assert_eq!(to(from, "//a.example:81/x#part").unwrap(), "http://user:secret@a.example:81/x");
        for elsewhere in
            ["http://b.example/x", "http://a.example/x", "https://a.example:81/x", "http://x:y@b.example/x"]
        {
            let target = to(from, elsewhere).unwrap();
            assert!(!target.contains('@') && !target.contains("signature"), "{target}");
        }
    }

    #[test]
    fn a_redirection_keeps_or_betters_the_scheme() {
        assert!(to("http://a.example/", "https://b.example/").is_ok());
        assert!(to("https://a.example/", "http://a.example/").is_err());
        for other in ["file:///etc/passwd", "ftp://b.example/x", "data:text/plain,x"] {
            assert!(to("http://a.example/", other).is_err(), "{other}");
        }
    }
}
