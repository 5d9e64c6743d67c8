//! How much memory there is for channels: when nobody says so, and in the control groups of the
//! processes that fill them.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A quarter of the memory that the machine and this process's control group have left.
pub fn default_limit_bytes() -> u64 {
    let available = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| meminfo_available_bytes(&text))
        .unwrap_or(1 << 30);
    cgroup_headroom_bytes().map_or(available, |headroom| headroom.min(available)) / 4
}

fn meminfo_available_bytes(meminfo: &str) -> Option<u64> {
    line_bytes(meminfo, "MemAvailable:")
}

fn line_bytes(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// What the machine has in all; half of what can be addressed where it does not say.
pub fn total_bytes() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    line_bytes(&meminfo, "MemTotal:").unwrap_or(1 << 46)
}

/// In huge pages that nobody has or has set aside.
pub fn free_huge_bytes() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let pages = |name: &str| -> Option<u64> {
        meminfo.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
    };
    let free = pages("HugePages_Free:").unwrap_or(0);
    let free = free.saturating_sub(pages("HugePages_Rsvd:").unwrap_or(0));
    free * line_bytes(&meminfo, "Hugepagesize:").unwrap_or(0)
}

/// What the machine, and the control groups of that process, have left; `None`: not known.
pub fn left_for(pid: u32) -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.and_then(|text| meminfo_available_bytes(&text));
    let group = group_of(pid).filter(|group| group.ancestors().count() <= DEPTH_MAX);
    let levels = group.map_or_else(Vec::new, |group| levels(&group));
    levels.iter().map(|level| level.left_bytes).chain(machine).min()
}

/// What the tightest control group above this process has left; `None` where none is limited.
fn cgroup_headroom_bytes() -> Option<u64> {
    let group = group_of(std::process::id())?;
    levels(&group).iter().map(|level| level.left_bytes).min()
}

/// The control group that a process's memory is charged to; `None`: not known.
pub fn group_of(pid: u32) -> Option<PathBuf> {
    let memberships = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    memberships.lines().find_map(|line| {
        // "0::/path" for cgroup v2, "N:controllers:/path" for v1.
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let root = if controllers.split(',').any(|c| c == "memory") {
            V1
        } else if controllers.is_empty() && !Path::new(V1).exists() {
            V2
        } else {
            return None;
        };
        Some(Path::new(root).join(path.trim_start_matches('/')))
    })
}

const V1: &str = "/sys/fs/cgroup/memory";
const V2: &str = "/sys/fs/cgroup";

/// A control group with a limit, as it was when looked at.
#[derive(Clone, Debug)]
struct Level {
    path: PathBuf,
    limit_bytes: u64,
    /// Until the limit, without what the kernel can drop at once: the files' pages.
    left_bytes: u64,
}

/// The limited ones among `group` and those above it.
fn levels(group: &Path) -> Vec<Level> {
    let (root, limit, usage) = if group.starts_with(V1) {
        (V1, "memory.limit_in_bytes", "memory.usage_in_bytes")
    } else {
        (V2, "memory.max", "memory.current")
    };
    let read = |path: &Path| fs::read_to_string(path).ok();
    let number = |path: &Path| read(path)?.trim().parse::<u64>().ok();
    group
        .ancestors()
        .take_while(|at| at.starts_with(root))
        .filter_map(|at| {
            // What is not limited says "max", or a number beyond all memory.
            let limit_bytes = number(&at.join(limit)).filter(|limit| limit >> 50 == 0)?;
            let files = read(&at.join("memory.stat")).map_or(0, |stat| file_bytes(&stat));
            let used = number(&at.join(usage))?.saturating_sub(files);
            let left_bytes = limit_bytes.saturating_sub(used);
            Some(Level { path: at.to_owned(), limit_bytes, left_bytes })
        })
        .collect()
}

/// Pages of files in `memory.stat`, those of groups below included.
fn file_bytes(stat: &str) -> u64 {
    let has_totals = stat.contains("\ntotal_");
    let names = if has_totals {
        ["total_inactive_file", "total_active_file"]
    } else {
        ["inactive_file", "active_file"]
    };
    stat.lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, _)| names.contains(name))
        .filter_map(|(_, value)| value.parse::<u64>().ok())
        .sum()
}

/// Rings take at most one part in so many of a group's limit, and of what it has left.
const SHARE: u64 = 4;

/// For so long a look at a group is good.
const LOOK: Duration = Duration::from_millis(100);

/// What control groups may be charged for rings.
///
/// The kernel charges a page to the group that touches it first, which is the one that fills the
/// ring, and kills processes of a group that has none left, where TCP's buffers would have been
/// kept small.
#[derive(Debug, Default)]
pub struct Groups {
    /// What rings may take of each limited group; no entry is 0.
    granted: HashMap<PathBuf, u64>,
    looked: HashMap<PathBuf, (Instant, Vec<Level>)>,
}

/// Deeper groups get no rings.
const DEPTH_MAX: usize = 64;

/// So many groups are remembered.
const LOOKED_MAX: usize = 1024;

impl Groups {
    /// Whether the group, and all above it, may be charged `bytes` more. They are then set aside.
    pub fn take(&mut self, group: Option<&Path>, bytes: u64, now: Instant) -> bool {
        let Some(group) = group else { return true };
        // Users may nest groups of their own, and each of them takes files to read.
        if group.ancestors().count() > DEPTH_MAX {
            return false;
        }
        if self.looked.len() > LOOKED_MAX {
            self.looked.clear();
        }
        let (at, levels) =
            self.looked.entry(group.to_owned()).or_insert_with(|| (now, levels(group)));
        if now.saturating_duration_since(*at) > LOOK {
            (*at, *levels) = (now, self::levels(group));
        }
        let fits = |level: &Level| {
            let granted = self.granted.get(&level.path).copied().unwrap_or(0);
            granted + bytes <= level.limit_bytes / SHARE && bytes <= level.left_bytes / SHARE
        };
        if !levels.iter().all(fits) {
            return false;
        }
        for level in levels {
            level.left_bytes -= bytes;
        }
        for at in group.ancestors() {
            *self.granted.entry(at.to_owned()).or_default() += bytes;
        }
        true
    }

    /// The same for two groups, or for none.
    pub fn take_both(&mut self, groups: &[Option<PathBuf>; 2], bytes: u64, now: Instant) -> bool {
        let [first, second] = groups;
        if !self.take(first.as_deref(), bytes, now) {
            return false;
        }
        let both = self.take(second.as_deref(), bytes, now);
        if let (false, Some(first)) = (both, first) {
            self.give_back(first, bytes);
        }
        both
    }

    pub fn give_back(&mut self, group: &Path, bytes: u64) {
        for at in group.ancestors() {
            let Some(granted) = self.granted.get_mut(at) else { continue };
            *granted = granted.saturating_sub(bytes);
            if *granted == 0 {
                self.granted.remove(at);
            }
        }
    }
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

    #[test]
    fn pages_of_files() {
        let v1 = "cache 1\ninactive_file 2\ntotal_inactive_file 30\ntotal_active_file 40\n";
        assert_eq!(file_bytes(v1), 70);
        assert_eq!(file_bytes("anon 5\ninactive_file 2\nactive_file 3\n"), 5);
    }

    #[test]
    fn a_group_is_charged_a_part_of_its_limit() {
        let (now, group) = (Instant::now(), Path::new("/sys/fs/cgroup/none/such"));
        let mut groups = Groups::default();
        let level = |path: &str, limit_bytes, left_bytes| Level {
            path: path.into(),
            limit_bytes,
            left_bytes,
        };
        let above = level("/sys/fs/cgroup/none", 4000, 3000);
        let levels = vec![level("/sys/fs/cgroup/none/such", 8000, 8000), above];
        groups.looked.insert(group.to_owned(), (now, levels));
        assert!(groups.take(Some(group), 600, now));
        assert!(!groups.take(Some(group), 601, now), "more than a part of what is left");
        assert!(!groups.take_both(&[None, Some(group.to_owned())], 601, now));
        assert!(groups.take(Some(group), 400, now));
        assert!(!groups.take(Some(group), 1, now), "more than a part of the limit");
        groups.give_back(group, 400);
        assert!(groups.take(Some(group), 1, now));
        groups.give_back(group, 601);
        assert!(groups.granted.is_empty());
    }
}
