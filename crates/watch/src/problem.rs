//! From functions, chains and a machine to what the planner takes, and back.

use std::collections::{BTreeMap, BTreeSet};

use yasmin_placement::{Chain, ChainEnd, Error, FunctionId, Host, Plan, Seat, Traffic};
use yasmin_topology::{CpuId, Machine, NodeId};

use crate::discover::Found;
use crate::function::{Function, Target};

pub struct Problem {
    pub host: Host,
    pub chains: Vec<Chain>,
    /// By number.
    pub names: Vec<String>,
    /// Functions that have a CPU of their own by now.
    pub current: Plan,
}

impl Problem {
    /// `pinned`: the functions that have one CPU, and which. The machine counts as pinned to only
    /// what others are pinned to.
    pub fn new(
        machine: &Machine,
        functions: &[Function],
        found: &[Found],
        pinned: &BTreeMap<String, CpuId>,
        nic: Option<NodeId>,
        smt: bool,
    ) -> Result<Self, Error> {
        let movable: BTreeSet<&str> = functions
            .iter()
            .filter(|one| one.target != Target::Fixed)
            .map(|one| one.name.as_str())
            .collect();
        let names: Vec<String> = movable.iter().map(|name| (*name).to_owned()).collect();
        let ids: BTreeMap<&str, FunctionId> = names
            .iter()
            .enumerate()
            .map(|(at, name)| (name.as_str(), FunctionId(at as u32)))
            .collect();
        let nic = nic.or_else(|| busiest_card(machine, found));
        let first = machine.nodes.iter().find(|node| !node.cpus.is_empty());
        let nic = nic.or(first.map(|node| node.id)).ok_or(Error::NoCpu)?;
        let mut current = Plan::default();
        for (name, cpu) in pinned {
            let (Some(id), Some(place)) = (ids.get(name.as_str()), machine.cpu(*cpu)) else {
                continue;
            };
            let node = place.node;
            current.seats.insert(*id, Seat { cpu: *cpu, node });
        }
        let mut host = Host::of(machine, nic, smt)?;
        for seat in current.seats.values() {
            if machine.allowed.contains(&seat.cpu) {
                host.release(seat.node, seat.cpu)?;
            }
        }
        let chains = found.iter().enumerate().filter_map(|(at, one)| {
            let functions: Vec<FunctionId> =
                one.functions.iter().filter_map(|name| ids.get(name.as_str()).copied()).collect();
            let end = |card: &Option<String>| match card {
                Some(name) => card_node(machine, name)
                    .filter(|node| host.place(*node).is_some())
                    .map_or(ChainEnd::Nic, ChainEnd::Node),
                None => ChainEnd::Function,
            };
            (!functions.is_empty()).then(|| Chain {
                name: format!("{}", at + 1),
                functions,
                traffic: Traffic::bytes_s(one.rate),
                entry: end(&one.entry),
                exit: end(&one.exit),
            })
        });
        let chains = chains.collect();
        Ok(Self { host, chains, names, current })
    }

    pub fn id(&self, name: &str) -> Option<FunctionId> {
        let at = self.names.binary_search_by(|known| known.as_str().cmp(name)).ok()?;
        Some(FunctionId(at as u32))
    }

    pub fn name(&self, id: FunctionId) -> &str {
        self.names.get(id.0 as usize).map_or("?", String::as_str)
    }

    /// Where functions are, pinned or not, as a plan: what the cost of the present is.
    pub fn plan_of(&self, cpus: &BTreeMap<String, CpuId>, machine: &Machine) -> Plan {
        let mut plan = Plan::default();
        for (name, cpu) in cpus {
            if let (Some(id), Some(place)) = (self.id(name), machine.cpu(*cpu)) {
                plan.seats.insert(id, Seat { cpu: *cpu, node: place.node });
            }
        }
        plan
    }
}

fn card_node(machine: &Machine, name: &str) -> Option<NodeId> {
    let card = machine.nics.iter().find(|nic| nic.name == name || nic.pci.as_deref() == Some(name));
    card.and_then(|nic| nic.node)
}

fn busiest_card(machine: &Machine, found: &[Found]) -> Option<NodeId> {
    let mut rates: BTreeMap<NodeId, f64> = BTreeMap::new();
    for chain in found {
        for card in [&chain.entry, &chain.exit].into_iter().flatten() {
            if let Some(node) = card_node(machine, card) {
                *rates.entry(node).or_default() += chain.rate;
            }
        }
    }
    let busiest = rates.into_iter().max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
    busiest.map(|(node, _)| node).or_else(|| machine.nics.iter().find_map(|nic| nic.node))
}
