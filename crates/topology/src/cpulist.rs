//! Lists of CPUs as the kernel writes them: `0-3,8`.

use std::collections::BTreeSet;

use crate::CpuId;

/// More CPUs than any kernel is built for.
const MOST: u32 = 1 << 16;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("'{part}' in the CPU list '{list}' is no CPU and no range such as 4-7")]
pub struct CpuListError {
    part: String,
    list: String,
}

/// Reads a list such as `0-3,8`. An empty one has no CPUs.
pub fn parse_cpus(list: &str) -> Result<BTreeSet<CpuId>, CpuListError> {
    let mut cpus = BTreeSet::new();
    let list = list.trim();
    for part in list.split(',').map(str::trim).filter(|_| !list.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.trim().parse::<u32>(), last.trim().parse::<u32>()) {
            (Ok(first), Ok(last)) if first <= last && last < MOST => {
                cpus.extend((first..=last).map(CpuId));
            }
            _ => return Err(CpuListError { part: part.to_owned(), list: list.to_owned() }),
        }
    }
    Ok(cpus)
}

/// Writes a list such as `0-3,8`.
pub fn format_cpus<'a>(cpus: impl IntoIterator<Item = &'a CpuId>) -> String {
    let sorted: BTreeSet<u32> = cpus.into_iter().map(|cpu| cpu.0).collect();
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cpu in sorted {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let texts: Vec<String> = ranges
        .iter()
        .map(|(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        })
        .collect();
    texts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for list in ["", "0", "0-3,8", "1,3,5-7"] {
            assert_eq!(format_cpus(&parse_cpus(list).unwrap()), list);
        }
        assert_eq!(parse_cpus(" 2 , 0-1\n").unwrap().len(), 3);
    }

    #[test]
    fn nonsense_is_named() {
        for list in ["x", "3-1", "1,,2", "0-4294967295", "-1"] {
            let error = parse_cpus(list).unwrap_err().to_string();
            assert!(error.contains(list), "{error}");
        }
    }
}
