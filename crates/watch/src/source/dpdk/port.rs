//! A DPDK port and what it is joined to, as far as its process tells.

use std::collections::HashMap;

/// The socket and the number by which two processes share a memory interface.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Memif {
    pub socket: String,
    pub id: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Joined {
    Memif(Memif),
    /// A PCI address.
    Card(String),
    /// A kernel interface, a ring in its own memory, a file: no edge to another function that
    /// telemetry could tell.
    Nothing,
}

/// DPDK's own default (doc/guides/nics/memif.rst).
const DEFAULT_SOCKET: &str = "/run/memif.sock";

/// What the port of this name is joined to, by the EAL parameters that its process was given.
pub fn joined(name: &str, parameters: &[String]) -> Joined {
    if is_pci(name) {
        return Joined::Card(name.to_owned());
    }
    if !name.starts_with("net_memif") {
        return Joined::Nothing;
    }
    for device in devices(parameters) {
        let mut parts = device.split(',');
        if parts.next() != Some(name) {
            continue;
        }
        let options: HashMap<&str, &str> = parts.filter_map(|part| part.split_once('=')).collect();
        let socket = (*options.get("socket").unwrap_or(&DEFAULT_SOCKET)).to_owned();
        let id = options.get("id").and_then(|id| id.parse().ok()).unwrap_or(0);
        return Joined::Memif(Memif { socket, id });
    }
    // Plugged in later: nobody tells by which socket.
    Joined::Nothing
}

/// `--vdev=DEVICE` and `--vdev DEVICE`.
fn devices(parameters: &[String]) -> Vec<&str> {
    let mut found = Vec::new();
    let mut iterator = parameters.iter();
    while let Some(parameter) = iterator.next() {
        if let Some(device) = parameter.strip_prefix("--vdev=") {
            found.push(device);
        } else if parameter == "--vdev" {
            found.extend(iterator.next().map(String::as_str));
        }
    }
    found
}

/// `0000:01:00.0`
fn is_pci(name: &str) -> bool {
    let hex = |text: &str| text.chars().all(|letter| letter.is_ascii_hexdigit());
    let parts: Vec<&str> = name.split([':', '.']).collect();
    matches!(parts.as_slice(), [domain, bus, slot, function]
        if domain.len() >= 4 && bus.len() == 2 && slot.len() == 2 && function.len() == 1
            && [domain, bus, slot, function].iter().all(|part| hex(part)))
}

/// A worker's thread by the names that DPDK has given it over the years.
pub fn is_worker(thread: &str) -> bool {
    ["rte-worker", "lcore-worker", "dpdk-worker", "lcore-slave"]
        .iter()
        .any(|prefix| thread.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memifs_are_found_by_socket_and_number() {
        let given = ["testpmd", "--vdev=net_memif0,role=server,socket=/a,id=7", "--vdev"];
        let mut given: Vec<String> = given.map(String::from).into();
        given.push("net_memif1,role=client".into());
        let memif = |socket: &str, id| Joined::Memif(Memif { socket: socket.into(), id });
        assert_eq!(joined("net_memif0", &given), memif("/a", 7));
        assert_eq!(joined("net_memif1", &given), memif(DEFAULT_SOCKET, 0));
        assert_eq!(joined("net_memif2", &given), Joined::Nothing);
        assert_eq!(joined("net_ring0", &given), Joined::Nothing);
        assert_eq!(joined("0000:3b:00.1", &given), Joined::Card("0000:3b:00.1".into()));
    }
}
