//! How much memory there is for channels when nobody says so.

use std::fs;
use std::path::Path;

/// A quarter of the memory that the machine and this process's control group have left.
pub fn default_limit_bytes() -> u64 {
    let available = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| meminfo_available_bytes(&text))
        .unwrap_or(1 << 30);
    cgroup_headroom_bytes().map_or(available, |headroom| headroom.min(available)) / 4
}

fn meminfo_available_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Limit less usage of the tightest control group above this process; `None` where none is set.
fn cgroup_headroom_bytes() -> Option<u64> {
    let memberships = fs::read_to_string("/proc/self/cgroup").ok()?;
    memberships
        .lines()
        .filter_map(|line| {
            // "0::/path" for cgroup v2, "N:controllers:/path" for v1.
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            let path = path.trim_start_matches('/');
            if controllers.is_empty() {
                headroom(Path::new("/sys/fs/cgroup"), path, "memory.max", "memory.current")
            } else if controllers.split(',').any(|c| c == "memory") {
                headroom(
                    Path::new("/sys/fs/cgroup/memory"),
                    path,
                    "memory.limit_in_bytes",
                    "memory.usage_in_bytes",
                )
            } else {
                None
            }
        })
        .min()
}

fn headroom(root: &Path, path: &str, limit: &str, usage: &str) -> Option<u64> {
    let read = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    root.join(path)
        .ancestors()
        .take_while(|group| group.starts_with(root))
        .filter_map(|group| {
            let limit = read(&group.join(limit))?;
            Some(limit.saturating_sub(read(&group.join(usage))?))
        })
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo() {
        let text = "MemTotal: 100 kB\nMemAvailable:    2048 kB\nBuffers: 1 kB\n";
        assert_eq!(meminfo_available_bytes(text), Some(2 << 20));
        assert_eq!(meminfo_available_bytes("MemTotal: 100 kB\n"), None);
    }
}
