//! What this process has mapped, to name what is in the way.

use std::fs;

/// The first mapping that touches these addresses, as /proc/self/maps has it.
pub fn in_the_way(start: u64, end: u64) -> Option<String> {
    find(&fs::read_to_string("/proc/self/maps").ok()?, start, end)
}

fn find(maps: &str, start: u64, end: u64) -> Option<String> {
    maps.lines().find_map(|line| {
        let mut words = line.splitn(6, ' ');
        let (from, to) = words.next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        if number(from)? >= end || number(to)? <= start {
            return None;
        }
        let name = words.nth(4).unwrap_or_default().trim();
        let name = if name.is_empty() { "memory without a name" } else { name };
        Some(format!("{name} ({from}-{to})"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_overlaps_is_named() {
        let maps = "10000-20000 r--p 00000000 00:00 0 \n\
                    20000-30000 rw-s 00000000 00:01 77                         /memfd:a b (deleted)\n";
        assert_eq!(find(maps, 0x30000, 0x40000), None);
        assert_eq!(find(maps, 0, 0x10000), None);
        let second = find(maps, 0x2ffff, 0x40000).unwrap();
        assert_eq!(second, "/memfd:a b (deleted) (20000-30000)");
        assert_eq!(find(maps, 0, 0x20001).unwrap(), "memory without a name (10000-20000)");
        assert!(in_the_way(0, u64::MAX).is_some());
    }
}
