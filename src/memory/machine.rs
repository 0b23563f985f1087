//! The memory that is available to the process: that of the machine, or less if its control groups
//! limit it, and the addresses that it may map.

use std::fs;
use std::path::Path;

/// Available memory in bytes, if the system reports it.
pub(crate) fn all() -> Option<u64> {
    below(Path::new("/"))
}

/// Available memory of a system whose files are below `root`.
fn below(root: &Path) -> Option<u64> {
    let read = |path: &Path| fs::read_to_string(path).ok();
    let meminfo = read(&root.join("proc/meminfo"))?;
    let mut lines = meminfo.lines();
    let total = lines.find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = total.trim().strip_suffix(" kB")?.parse().ok()?;
    // One line per hierarchy: `0::/app` in version 2 or `4:memory:/app` in version 1. The limits of
    // all parent groups apply.
    let groups = read(&root.join("proc/self/cgroup")).unwrap_or_default();
    let limits = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (number, controllers) = (parts.next(), parts.next().unwrap_or_default());
        let (mount, file) = if controllers.split(',').any(|name| name == "memory") {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else if number == Some("0") {
            ("sys/fs/cgroup", "memory.max")
        } else {
            return Vec::new();
        };
        let group = Path::new(parts.next().unwrap_or_default());
        let of_parents = group.ancestors().map(|group| {
            let group = group.strip_prefix("/").unwrap_or(group);
            read(&root.join(mount).join(group).join(file))
        });
        of_parents.flatten().collect()
    });
    // An unlimited group reports `max`, or a number larger than any memory.
    let limits = limits.filter_map(|limit| limit.trim().parse().ok());
    Some(limits.fold(kilobytes << 10, u64::min))
}

/// Whether the process may map `bytes` more bytes of addresses. A limit of the system, such as
/// `ulimit -v`, can forbid it when there is enough memory.
pub(crate) fn has_address_space(bytes: usize) -> bool {
    #[cfg(unix)]
    {
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address that the system chooses. Nothing touches it.
        unsafe {
            let first = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, kind, -1, 0);
            first != libc::MAP_FAILED && libc::munmap(first, bytes) == 0
        }
    }
    #[cfg(not(unix))]
    {
        bytes <= isize::MAX as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_space_is_bounded() {
        assert!(has_address_space(1 << 20));
        assert!(!has_address_space(usize::MAX / 2));
    }

    #[track_caller]
    fn check(groups: &str, limits: &[(&str, &str)], bytes: u64) {
        let root = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        };
        write("proc/meminfo", "MemTotal:  4096 kB\nMemFree: 1 kB\n");
        write("proc/self/cgroup", groups);
        for (path, text) in limits {
            write(&format!("sys/fs/cgroup/{path}"), text);
        }
        assert_eq!(below(root.path()), Some(bytes));
    }

    #[test]
    fn the_smallest_limit_of_machine_and_groups_applies() {
        let machine = 4096 << 10;
        check("", &[], machine);
        check("0::/\n", &[("memory.max", "max\n")], machine);
        check("0::/\n", &[("memory.max", "1000000\n")], 1_000_000);
        let nested = [("a/memory.max", "70000"), ("a/b/memory.max", "max")];
        check("0::/a/b\n", &nested, 70_000);
        let old = [
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/a/memory.limit_in_bytes", "50000\n"),
        ];
        check("5:cpu:/a\n4:memory:/a\n0::/\n", &old, 50_000);
        check("5:cpu:/a\n4:cpuset,memory:/\n0::/\n", &old, machine);
        assert_eq!(below(Path::new("/nowhere")), None);
    }
}
