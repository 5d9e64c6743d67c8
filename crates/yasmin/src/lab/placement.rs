//! Where workers run: machines, real or not, and how a program is started on each.
//!
//! Placements are data: `lab/placements.toml`, and a file of the user's.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

pub const BUILT_IN: &str = include_str!("../../../../lab/placements.toml");

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placement {
    pub name: String,
    /// For readers of the report.
    pub about: String,
    pub network: Network,
    /// Whether a launcher of MPI on one machine can start others by the words of theirs.
    #[serde(default = "yes")]
    pub launches: bool,
    /// Whether programs there stay in the control group that they are started in.
    #[serde(default = "yes")]
    pub keeps_group: bool,
    /// Programs that it needs here, and the Debian packages that have them.
    #[serde(default)]
    pub needs: BTreeMap<String, String>,
    /// Copies {file}, an absolute path here, to a machine under the same name. Without them
    /// kernels and the lab's temporary folder must be there already. As the two below, only where
    /// the network is given; in them {name}, {address} and {folder} stand for the machine's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<Vec<String>>,
    /// What stands before a program whose connections get rings. Without them no path leads
    /// through rings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rings: Option<Vec<String>>,
    /// A program there that prints how many bytes rings or shared pages have carried from its
    /// machine, once no connection is left: each byte is counted where it is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<Vec<String>>,
    /// The segment in which OpenSHMEM's PEs meet: one that all machines have, with 120 MiB for small
    /// problems. Only where the network is given, and each machine has this command and a broker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segment: Option<String>,
    #[serde(rename = "machine")]
    pub machines: Vec<Machine>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// The lab makes a network namespace for each machine, and gives them their addresses.
    Namespaces,
    /// The machines are there and have addresses.
    Given,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    pub name: String,
    /// IPv4. Only where the network is given.
    pub address: Option<String>,
    /// The words that start a program there, before the program and its arguments. In them
    /// {name}, {address} and {namespace} stand for the machine's, and {folder} for an empty folder
    /// of its own.
    pub enter: Vec<String>,
    /// The words that run a shell command there from another machine of the placement, before the
    /// command, which is one word. Only where the network is given.
    pub reach: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "placement")]
    placements: Vec<Placement>,
}

/// The lab can join so many namespaces.
const MOST_NAMESPACES: usize = 2;

/// The built-in placements, and those of `more`, a file's text.
///
/// # Errors
/// Names the placement that makes no sense, and why.
pub fn read(more: Option<&str>) -> anyhow::Result<BTreeMap<String, Placement>> {
    let mut all = BTreeMap::new();
    for text in [Some(BUILT_IN), more].into_iter().flatten() {
        let file: File = serde_path_to_error::deserialize(toml::Deserializer::parse(text)?)?;
        for placement in file.placements {
            placement.check().with_context(|| format!("placement {}", placement.name))?;
            all.insert(placement.name.clone(), placement);
        }
    }
    Ok(all)
}

fn yes() -> bool {
    true
}

impl Placement {
    /// Whether its programs can be put into a control group from here.
    pub fn is_in_reach(&self) -> bool {
        self.network == Network::Namespaces && self.keeps_group
    }

    /// Whether rings can be had there, and counted.
    pub fn has_rings(&self) -> bool {
        self.network == Network::Namespaces || self.rings.is_some()
    }

    /// Whether OpenSHMEM's PEs have memory there that they share.
    pub fn has_segments(&self) -> bool {
        self.network == Network::Namespaces || self.segment.is_some()
    }

    fn check(&self) -> anyhow::Result<()> {
        if !is_word(&self.name) {
            bail!("its name may have letters, digits and - only");
        }
        self.check_given()?;
        if self.machines.is_empty() {
            bail!("it has no machine");
        }
        if self.network == Network::Namespaces && self.machines.len() > MOST_NAMESPACES {
            let count = self.machines.len();
            bail!(
                "it has {count} machines, but at most {MOST_NAMESPACES} namespaces can be joined"
            );
        }
        for (nth, machine) in self.machines.iter().enumerate() {
            if !is_word(&machine.name) {
                bail!("the machine's name {:?} may have letters, digits and - only", machine.name);
            }
            if self.machines[..nth].iter().any(|other| other.name == machine.name) {
                bail!("two machines are called {}", machine.name);
            }
            match (self.network, &machine.address) {
                (Network::Namespaces, Some(_)) => {
                    bail!("machine {} gets its address from the lab", machine.name)
                }
                (Network::Given, None) => bail!("machine {} needs an address", machine.name),
                (_, Some(address)) if address.parse::<std::net::Ipv4Addr>().is_err() => {
                    bail!("machine {}: {address:?} is no IPv4 address", machine.name)
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn check_given(&self) -> anyhow::Result<()> {
        let Self { copy, rings, counts, .. } = self;
        let words = [("copy", copy), ("rings", rings), ("counts", counts)];
        for (name, words) in words {
            match words {
                Some(_) if self.network == Network::Namespaces => {
                    bail!("{name} is for machines whose network is given")
                }
                Some(words) if words.is_empty() => bail!("{name} has no words"),
                _ => {}
            }
        }
        let is_own = self.network == Network::Namespaces;
        if is_own && self.segment.is_some() {
            bail!("segment is for machines whose network is given");
        }
        if let Some(machine) = self.machines.iter().find(|one| is_own && one.reach.is_some()) {
            bail!("machine {}: reach is for machines whose network is given", machine.name);
        }
        if rings.is_some() != counts.is_some() {
            bail!("rings and counts come together: bytes that nobody counts prove nothing");
        }
        Ok(())
    }
}

/// A part of a measurement's name.
pub fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_ones_make_sense() {
        let all = read(None).unwrap();
        assert_eq!(all["native"].machines.len(), 1);
        assert_eq!(all["containers"].machines.len(), 2);
        assert!(all["podman"].needs.contains_key("runc"));
    }

    #[test]
    fn guests_are_data() {
        let text = r#"
            [[placement]]
            name = "guests"
            about = "two guests"
            network = "given"
            machine = [
                { name = "a", address = "192.0.2.1", enter = ["ssh", "root@{address}"] },
                { name = "b", address = "192.0.2.2", enter = ["ssh", "root@{address}"] },
            ]
        "#;
        assert_eq!(read(Some(text)).unwrap()["guests"].machines.len(), 2);
        for (from, to, says) in [
            ("\"given\"", "\"namespaces\"", "address from the lab"),
            ("192.0.2.2", "guest-b", "no IPv4 address"),
            ("name = \"b\"", "name = \"a\"", "two machines are called a"),
            ("about", "abuot", "abuot"),
            ("network", "rings = [\"run\"]\nnetwork", "come together"),
            ("network", "copy = []\nnetwork", "copy has no words"),
        ] {
            let error = read(Some(&text.replace(from, to))).unwrap_err();
            assert!(format!("{error:#}").contains(says), "{error:#}");
        }
    }
}
