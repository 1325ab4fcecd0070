//! Capabilities of the running kernel, by version.

use std::fs;
use std::sync::LazyLock;

/// Whether the kernel also invalidates its page cache after a direct write. Otherwise a page read
/// during the write keeps the old bytes. Linux 6.19 does, and 6.12 and 6.18 since January 2026
/// ("fuse: Invalidate the page cache after FOPEN_DIRECT_IO write").
pub(crate) fn drops_pages_after_direct_writes() -> bool {
    static DROPS: LazyLock<bool> = LazyLock::new(|| {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        version(&release).is_some_and(|version| {
            let [line @ .., patch] = version;
            version >= [6, 19, 0] || LINES.iter().any(|(fixed, first)| line == *fixed && patch >= *first)
        })
    });
    *DROPS
}

/// Stable kernel lines with the fix, and the first patch release that surely has it.
const LINES: [([u32; 2], u32); 2] = [([6, 12], 65), ([6, 18], 5)];

/// The first three numbers of a release such as `6.18.44-cloud`; a missing third number is 0.
fn version(release: &str) -> Option<[u32; 3]> {
    let numbers = release.trim().split(['-', '+', '_', '~']).next()?;
    let mut parts = numbers.split('.').map(|part| part.parse().ok());
    let (major, minor) = (parts.next()??, parts.next()??);
    Some([major, minor, parts.next().flatten().unwrap_or(0)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_strings_are_parsed() {
        assert_eq!(version("6.18.44-fc-v657\n"), Some([6, 18, 44]));
        assert_eq!(version("6.1.0-18-amd64"), Some([6, 1, 0]));
        assert_eq!(version("6.19-rc3"), Some([6, 19, 0]));
        assert_eq!(version("5.10.0+"), Some([5, 10, 0]));
        assert_eq!(version("linux"), None);
        assert_eq!(version(""), None);
    }
}
