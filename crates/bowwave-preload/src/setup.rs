//! Configuration from the environment, which children inherit.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use bowwave_engine::Settings;
use bowwave_interpose::say;

/// Configuration from `bowwave run`.
#[derive(Debug, Default)]
pub(crate) struct Setup {
    pub(crate) maps: Vec<Map>,
    pub(crate) settings: Settings,
    /// File for decisions, as [`DecisionLog::text`](bowwave_engine::DecisionLog::text).
    pub(crate) journal: Option<OsString>,
    /// File for counters.
    pub(crate) report: Option<PathBuf>,
    /// Start of `bowwave run`, since 1970.
    pub(crate) started: Duration,
}

/// A store and its paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Map {
    pub(crate) url: String,
    /// Prefix of its paths: an absolute path, or the URL itself.
    pub(crate) prefix: Vec<u8>,
}

/// A file or directory of a store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    /// Index of the map.
    pub(crate) map: usize,
    /// Path in the store.
    pub(crate) path: PathBuf,
}

/// Environment variables.
pub(crate) const MAPS: &str = "BOWWAVE_RUN_MAPS";
pub(crate) const OPTIONS: &str = "BOWWAVE_RUN_OPTIONS";
pub(crate) const JOURNAL: &str = "BOWWAVE_RUN_JOURNAL";
pub(crate) const REPORT: &str = "BOWWAVE_RUN_REPORT";
pub(crate) const STARTED: &str = "BOWWAVE_RUN_STARTED";

/// Read once; later changes of the environment affect only children.
pub(crate) fn setup() -> &'static Setup {
    static SETUP: OnceLock<Setup> = OnceLock::new();
    SETUP.get_or_init(|| {
        let text = |name| env::var(name).unwrap_or_default();
        let settings = text(OPTIONS).parse().unwrap_or_else(|error| {
            say(&format_args!("{OPTIONS}: {error}; all options are ignored"));
            Settings::default()
        });
        // An unrepresentable time counts as missing.
        let started = text(STARTED).parse().map_or(0, |seconds: u32| seconds.into());
        Setup {
            maps: parse(&text(MAPS)),
            settings,
            journal: env::var_os(JOURNAL),
            report: env::var_os(REPORT).map(PathBuf::from),
            started: Duration::from_secs(started),
        }
    })
}

/// One map per line: URL, tab, prefix.
fn parse(text: &str) -> Vec<Map> {
    let pairs = text.lines().filter_map(|line| line.split_once('\t'));
    pairs.map(|(url, prefix)| Map { url: url.to_owned(), prefix: prefix.as_bytes().to_vec() }).collect()
}

impl Setup {
    /// The place of a served path. `directory` is the start of a relative path, evaluated only if
    /// needed.
    pub(crate) fn place(&self, path: &[u8], directory: impl FnOnce() -> Option<PathBuf>) -> Option<Place> {
        if self.maps.is_empty() || path.is_empty() {
            return None;
        }
        if let Some(place) = self.longest(path) {
            return Some(place);
        }
        let whole = if path[0] == b'/' { PathBuf::new() } else { directory()? };
        let whole = whole.join(OsStr::from_bytes(path));
        let whole = whole.as_os_str().as_bytes();
        let found = self.longest(whole).or_else(|| self.longest(&plain(whole)));
        // The parent of a store's root is the root itself, as for `/`: the mount point may not
        // exist.
        found.or_else(|| self.longest(&plain(whole.strip_suffix(b"/..")?)))
    }

    /// The map with the longest prefix of this path.
    fn longest(&self, path: &[u8]) -> Option<Place> {
        let below = |map: &Map| {
            let rest = path.strip_prefix(map.prefix.as_slice())?;
            let is_below = rest.is_empty() || rest.starts_with(b"/") || map.prefix.ends_with(b"/");
            is_below.then(|| inner(rest)).flatten()
        };
        let found =
            self.maps.iter().enumerate().filter_map(|(map, one)| Some((map, one.prefix.len(), below(one)?)));
        found.max_by_key(|(_, len, _)| *len).map(|(map, _, path)| Place { map, path })
    }

    /// The path by which the program knows a place.
    pub(crate) fn visible_path(&self, place: &Place) -> PathBuf {
        let prefix = Path::new(OsStr::from_bytes(&self.maps[place.map].prefix));
        if place.path.as_os_str().is_empty() { prefix.to_owned() } else { prefix.join(&place.path) }
    }
}

/// A path below a root, without double slashes and dots; `None` if it leaves the root.
fn inner(path: &[u8]) -> Option<PathBuf> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    Some(PathBuf::from(OsStr::from_bytes(&parts.join(&b'/'))))
}

/// An absolute path without double slashes and dots.
fn plain(path: &[u8]) -> Vec<u8> {
    let mut whole = PathBuf::from("/");
    for part in Path::new(OsStr::from_bytes(path)).components() {
        match part {
            Component::ParentDir => {
                whole.pop();
            }
            Component::Normal(name) => whole.push(name),
            _ => {}
        }
    }
    whole.into_os_string().into_encoded_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(maps: &str) -> Setup {
        Setup { maps: parse(maps), ..Setup::default() }
    }

    fn found(setup: &Setup, path: &str) -> Option<(usize, String)> {
        let place = setup.place(path.as_bytes(), || Some(PathBuf::from("/data/sub")))?;
        Some((place.map, place.path.to_string_lossy().into_owned()))
    }

    #[test]
    fn paths_below_a_prefix_belong_to_the_longest() {
        let setup = setup("s3://bucket/a\t/data\npattern:/\t/data/sub/more\nhttps://host/\thttps://host/");
        let yes = |map: usize, path: &str| Some((map, path.to_owned()));
        for (path, want) in [
            ("/data", yes(0, "")),
            ("/data/", yes(0, "")),
            ("/data/x/y", yes(0, "x/y")),
            ("//data//x/", yes(0, "x")),
            ("/data/x/../y/./z", yes(0, "y/z")),
            ("/database", None),
            ("/data/../etc/passwd", None),
            ("/data/..", yes(0, "")),
            ("/data/x/..", yes(0, "")),
            ("/other/../data/x", yes(0, "x")),
            ("/data/sub/more/1KiB", yes(1, "1KiB")),
            ("more/1KiB", yes(1, "1KiB")),
            ("./x", yes(0, "sub/x")),
            ("../../x", None),
            ("https://host/a/b", yes(2, "a/b")),
            ("https://host//a/./c/../b", yes(2, "a/b")),
            ("https://other/a", yes(0, "sub/https:/other/a")),
            ("", None),
            ("/", None),
        ] {
            assert_eq!(found(&setup, path), want, "{path}");
        }
        assert_eq!(setup.visible_path(&Place { map: 0, path: "x".into() }), Path::new("/data/x"));
        assert_eq!(setup.visible_path(&Place { map: 1, path: "".into() }), Path::new("/data/sub/more"));
    }
}
