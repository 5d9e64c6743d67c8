//! Where bytes went, by those who carried them: interfaces, TCP and the broker.

use anyhow::Context;
use serde::Serialize;

use super::site::Site;
use crate::demo::broker::Totals;

/// Of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Carried {
    /// Sent on all interfaces of all machines of the placement, loopbacks too, with headers. A
    /// byte from one machine to another is sent once.
    pub interface_bytes: u64,
    pub tcp_segments: u64,
    pub tcp_retransmissions: u64,
    /// By the broker: through rings, and by TCP on connections that had rings. `None`: no broker
    /// answered.
    pub ring_bytes: Option<u64>,
    pub beside_ring_bytes: Option<u64>,
    /// By the BPF program, which only the workers of its path come under.
    pub redirected_bytes: u64,
}

/// The kernel's counters of all machines of a placement, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    interface_bytes: u64,
    tcp_segments: u64,
    tcp_retransmissions: u64,
}

impl Counters {
    pub fn read(site: &Site) -> anyhow::Result<Self> {
        let mut sum = Self::default();
        for machine in 0..site.len() {
            let interfaces = site.ask(machine, &["cat", "/proc/net/dev"])?;
            let snmp = site.ask(machine, &["cat", "/proc/net/snmp"])?;
            sum.interface_bytes += sent_bytes(&interfaces).context("/proc/net/dev")?;
            sum.tcp_segments += tcp_counter(&snmp, "OutSegs").context("/proc/net/snmp")?;
            sum.tcp_retransmissions +=
                tcp_counter(&snmp, "RetransSegs").context("/proc/net/snmp")?;
        }
        Ok(sum)
    }

    /// What was carried from `self` to `now`. `rings`: what the broker counted meanwhile.
    pub fn until(self, now: Self, rings: Option<Totals>) -> Carried {
        Carried {
            interface_bytes: now.interface_bytes.saturating_sub(self.interface_bytes),
            tcp_segments: now.tcp_segments.saturating_sub(self.tcp_segments),
            tcp_retransmissions: now.tcp_retransmissions.saturating_sub(self.tcp_retransmissions),
            ring_bytes: rings.map(|totals| totals.ring_bytes),
            beside_ring_bytes: rings.map(|totals| totals.tcp_bytes),
            redirected_bytes: 0,
        }
    }
}

/// The sum of all interfaces: `name: eight numbers of receiving, sent bytes ...`.
fn sent_bytes(dev: &str) -> Option<u64> {
    let mut lines = dev.lines().skip(2).peekable();
    lines.peek()?;
    lines.map(|line| line.split_once(':')?.1.split_whitespace().nth(8)?.parse::<u64>().ok()).sum()
}

/// `Tcp: names`, and then `Tcp: numbers`.
fn tcp_counter(snmp: &str, name: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Tcp:"));
    let at = lines.next()?.split_whitespace().position(|word| word == name)?;
    lines.next()?.split_whitespace().nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        let dev = "Inter-|   Receive  |  Transmit\n face |bytes packets |bytes\n    \
                   lo: 100 2 0 0 0 0 0 0 100 2 0 0 0 0 0 0\n  eth0:7 1 0 0 0 0 0 0 23 1 0 0 0 0 0 0\n";
        assert_eq!(sent_bytes(dev), Some(123));
        assert_eq!(sent_bytes("nothing"), None);
        assert_eq!(sent_bytes(&dev.replace("23", "x")), None);
        let snmp = "Ip: A B\nIp: 1 2\nTcp: InSegs OutSegs RetransSegs\nTcp: 5 6 7\n";
        assert_eq!(tcp_counter(snmp, "OutSegs"), Some(6));
        assert_eq!(tcp_counter(snmp, "Other"), None);
        let own = std::fs::read_to_string("/proc/self/net/snmp").unwrap();
        assert!(tcp_counter(&own, "OutSegs").is_some());
    }
}
