//! What the machine did besides, while a run went on.

use std::fs;

use serde::Serialize;

/// Shares of all CPUs' time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Besides {
    /// What the hypervisor gave to others.
    pub steal_percent: f64,
    /// What programs used that the lab did not start.
    pub others_percent: f64,
}

/// Ticks of all CPUs since the machine started, and those of the lab's own programs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ticks {
    all: u64,
    busy: u64,
    steal: u64,
    own: u64,
}

impl Ticks {
    pub fn read() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let mut ticks = machine(&stat).unwrap_or_default();
        ticks.own = own_ticks(&own).unwrap_or_default();
        ticks
    }

    pub fn until(self, now: Self) -> Besides {
        let all = now.all.saturating_sub(self.all);
        let percent = |ticks: u64| 100.0 * ticks as f64 / all.max(1) as f64;
        let own = now.own.saturating_sub(self.own);
        Besides {
            steal_percent: percent(now.steal.saturating_sub(self.steal)),
            others_percent: percent(now.busy.saturating_sub(self.busy).saturating_sub(own)),
        }
    }
}

/// `cpu user nice system idle iowait irq softirq steal ...`; guests' time is in user's.
fn machine(stat: &str) -> Option<Ticks> {
    let numbers: Option<Vec<u64>> = stat
        .lines()
        .find_map(|line| line.strip_prefix("cpu "))?
        .split_whitespace()
        .take(8)
        .map(|word| word.parse().ok())
        .collect();
    let numbers = numbers.filter(|numbers| numbers.len() == 8)?;
    let all: u64 = numbers.iter().sum();
    let steal = numbers[7];
    Some(Ticks { all, steal, busy: all - steal - numbers[3] - numbers[4], own: 0 })
}

/// Of this process and of those that it waited for, and they, too: fields 14 to 17 of its line,
/// whose second one may have blanks.
fn own_ticks(stat: &str) -> Option<u64> {
    let rest = stat.rsplit_once(')')?.1;
    rest.split_whitespace().skip(11).take(4).map(|word| word.parse::<u64>().ok()).sum()
}

/// How the CPUs' clock is governed; "none" where nobody says.
pub fn governor() -> String {
    let path = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
    fs::read_to_string(path).map_or_else(|_| "none".to_owned(), |text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_all_time() {
        let at = |user: u64, idle: u64, steal: u64| {
            machine(&format!("cpu  {user} 0 0 {idle} 0 0 0 {steal} 0 0\ncpu0 1\n")).unwrap()
        };
        let before = Ticks { own: 10, ..at(100, 100, 0) };
        let now = Ticks { own: 30, ..at(150, 140, 10) };
        let besides = before.until(now);
        assert_eq!((besides.steal_percent, besides.others_percent), (10.0, 30.0));
        assert!(machine("cpu 1 2 3\n").is_none());
    }

    #[test]
    fn a_name_with_blanks_is_no_field() {
        let stat = "7 (a ) b) S 1 1 1 0 -1 0 0 0 0 0 1 2 30 40 20 0";
        assert_eq!(own_ticks(stat), Some(73));
    }
}
