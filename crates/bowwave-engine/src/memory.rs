//! Memory available to this process.

use std::fs;
use std::path::Path;

/// Bytes of memory available to this process: the machine's, or less if a control group (v1 or v2)
/// limits it.
///
/// 1 GiB if `/proc` is not available.
pub fn available_memory() -> u64 {
    let machine =
        fs::read_to_string("/proc/meminfo").ok().and_then(|text| parse_meminfo(&text)).unwrap_or(1 << 30);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    limit_files(&groups)
        .into_iter()
        .filter_map(|file| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok())
        .fold(machine, u64::min)
}

fn parse_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Limit files of the groups in `/proc/self/cgroup` and their parents. A file that contains `max`
/// does not parse and so sets no limit.
fn limit_files(groups: &str) -> Vec<String> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (root, name) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        for ancestor in Path::new(path).ancestors() {
            files.push(format!("{root}{}/{name}", ancestor.display()).replace("//", "/"));
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_in_kib() {
        assert_eq!(parse_meminfo("MemTotal:       24000000 kB\nMemFree: 1 kB\n"), Some(24_576_000_000));
        assert_eq!(parse_meminfo("nonsense"), None);
    }

    #[test]
    fn limits_of_parent_groups_apply() {
        assert_eq!(
            limit_files("0::/a/b\n5:cpu:/x\n7:memory,hugetlb:/m\n"),
            [
                "/sys/fs/cgroup/a/b/memory.max",
                "/sys/fs/cgroup/a/memory.max",
                "/sys/fs/cgroup/memory.max",
                "/sys/fs/cgroup/memory/m/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            ]
        );
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(available_memory() > 16 << 20);
    }
}
