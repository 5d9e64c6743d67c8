//! From hwloc's objects to a [`Machine`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use hwlocality::Topology;
use hwlocality::object::TopologyObject;
use hwlocality::object::attributes::ObjectAttributes;
use hwlocality::object::distance::DistancesKind;
use hwlocality::object::types::{CacheType, OSDeviceType, ObjectType};
use hwlocality::topology::builder::{BuildFlags, TopologyBuilder, TypeFilter};

use crate::machine::{Cache, CacheKind, Cpu, CpuId, Distances, Machine, Nic, Node, NodeId, Origin};
use crate::{parse_cpus, pinned_threads};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("hwloc does not understand the description '{description}': {why}")]
    Synthetic { description: String, why: String },
    #[error("{why}")]
    Xml { why: String },
    #[error("hwloc cannot read this machine: {0}")]
    Discovery(String),
    #[error("the machine has no {0}")]
    Lacks(&'static str),
}

impl Machine {
    /// This machine, with what is allowed, isolated and pinned now.
    pub fn discover() -> Result<Self, Error> {
        let failed = |error: &dyn std::fmt::Display| Error::Discovery(error.to_string());
        let topology = prepared(Topology::builder())
            .and_then(|builder| builder.build().map_err(|error| error.to_string()))
            .map_err(|error| failed(&error))?;
        let mut machine = convert(&topology, Origin::ThisMachine)?;
        let isolated = fs::read_to_string("/sys/devices/system/cpu/isolated").unwrap_or_default();
        machine.isolated = parse_cpus(&isolated).unwrap_or_default();
        let online: BTreeSet<CpuId> = machine.cpus.iter().map(|cpu| cpu.id).collect();
        let threads = machine.cpus.iter().map(|cpu| cpu.siblings.len()).max().unwrap_or(1);
        let others = pinned_threads(&online, threads).into_iter();
        let others = others.filter(|one| one.pid != std::process::id());
        machine.pinned = others.flat_map(|one| one.cpus).collect();
        Ok(machine)
    }

    /// A machine described in hwloc's XML, as `lstopo machine.xml` writes it. All its CPUs that
    /// the file does not disallow are free.
    pub fn from_hwloc_xml(xml: &str) -> Result<Self, Error> {
        let xml = crate::xml::plain(xml).map_err(|why| Error::Xml { why })?;
        let failed = |why: String| Error::Xml { why: format!("hwloc does not take it: {why}") };
        let builder =
            Topology::builder().from_xml(&xml).map_err(|error| failed(error.to_string()))?;
        let topology = prepared(builder)
            .and_then(|builder| builder.build().map_err(|error| error.to_string()))
            .map_err(failed)?;
        convert(&topology, Origin::Xml)
    }

    /// A machine described as hwloc's `lstopo -i` takes it: `node:2 core:8 pu:2`. It has no
    /// network card and no distances of its own.
    pub fn from_synthetic(description: &str) -> Result<Self, Error> {
        let failed = |why: String| Error::Synthetic { description: description.to_owned(), why };
        let builder = Topology::builder()
            .from_synthetic(description)
            .map_err(|error| failed(error.to_string()))?;
        let topology = prepared(builder)
            .and_then(|builder| builder.build().map_err(|error| error.to_string()))
            .map_err(failed)?;
        convert(&topology, Origin::Synthetic(description.to_owned()))
    }
}

/// Everything is kept that is read below, disallowed CPUs too.
fn prepared(builder: TopologyBuilder) -> Result<TopologyBuilder, String> {
    builder
        .with_flags(BuildFlags::INCLUDE_DISALLOWED)
        .map_err(|error| error.to_string())?
        .with_cpu_cache_type_filter(TypeFilter::KeepAll)
        .map_err(|error| error.to_string())?
        .with_io_type_filter(TypeFilter::KeepImportant)
        .map_err(|error| error.to_string())
}

fn convert(topology: &Topology, origin: Origin) -> Result<Machine, Error> {
    let mut nodes: Vec<Node> = topology
        .objects_with_type(ObjectType::NUMANode)
        .map(|node| Node {
            id: NodeId(os_index(node)),
            memory_bytes: node.total_memory(),
            cpus: Vec::new(),
        })
        .collect();
    nodes.sort_by_key(|node| node.id);
    let (caches, cpus) = cpus(topology, &mut nodes);
    if cpus.is_empty() {
        return Err(Error::Lacks("CPU"));
    }
    if nodes.is_empty() {
        return Err(Error::Lacks("NUMA node"));
    }
    let allowed = topology.allowed_cpuset();
    let allowed = cpus
        .iter()
        .map(|cpu| cpu.id)
        .filter(|id| hwlocality::cpu::cpuset::CpuSet::is_set(&allowed, id.0 as usize));
    Ok(Machine {
        origin,
        allowed: allowed.collect(),
        isolated: BTreeSet::new(),
        pinned: BTreeSet::new(),
        distances: distances(topology, &nodes),
        nics: nics(topology, &nodes),
        cpus,
        nodes,
        caches,
    })
}

fn os_index(object: &TopologyObject) -> u32 {
    object.os_index().unwrap_or_else(|| object.logical_index()) as u32
}

fn members(object: &TopologyObject) -> Vec<CpuId> {
    let set = object.cpuset();
    set.iter().flat_map(|set| set.iter_set()).map(|cpu| CpuId(usize::from(cpu) as u32)).collect()
}

fn cpus(topology: &Topology, nodes: &mut [Node]) -> (Vec<Cache>, Vec<Cpu>) {
    let mut caches = Vec::new();
    let mut place_of = BTreeMap::new();
    let mut cpus = Vec::new();
    for unit in topology.objects_with_type(ObjectType::PU) {
        let id = CpuId(os_index(unit));
        let core = unit.ancestors().find(|above| above.object_type() == ObjectType::Core);
        let package = unit.ancestors().find(|above| above.object_type() == ObjectType::Package);
        let mut own = Vec::new();
        for above in unit.ancestors() {
            let Some(ObjectAttributes::Cache(cache)) = above.attributes() else { continue };
            let kind = match cache.cache_type() {
                CacheType::Unified => CacheKind::Unified,
                CacheType::Data => CacheKind::Data,
                _ => continue,
            };
            let place = *place_of.entry(above.global_persistent_index()).or_insert_with(|| {
                caches.push(Cache {
                    level: cache.depth() as u8,
                    kind,
                    size_bytes: cache.size().map_or(0, |size| size.get()),
                    line_bytes: cache.line_size().map_or(0, |size| size.get() as u64),
                    cpus: members(above),
                });
                caches.len() - 1
            });
            own.push(place);
        }
        // A CPU may have several nodes, of different memory; the first is the ordinary one.
        let node = unit.nodeset().and_then(|set| set.iter_set().next()).map(usize::from);
        let node = NodeId(node.unwrap_or(0) as u32);
        if let Some(node) = nodes.iter_mut().find(|one| one.id == node) {
            node.cpus.push(id);
        }
        cpus.push(Cpu {
            id,
            node,
            package: package.map_or(0, os_index),
            core: core.map_or(id.0, |core| core.logical_index() as u32),
            siblings: core.map_or_else(|| vec![id], members),
            caches: own,
        });
    }
    cpus.sort_by_key(|cpu| cpu.id);
    for node in nodes {
        node.cpus.sort_unstable();
    }
    (caches, cpus)
}

/// The firmware's table if there is one, else what is assumed.
fn distances(topology: &Topology, nodes: &[Node]) -> Distances {
    let mut known = Distances::assumed(nodes.len());
    let tables = topology
        .distances_with_type(Some(DistancesKind::MEANS_LATENCY), ObjectType::NUMANode)
        .unwrap_or_default();
    let Some(found) = tables.into_iter().find(|one| one.num_objects() == nodes.len()) else {
        return known;
    };
    let place = |object: Option<&TopologyObject>| {
        let id = NodeId(os_index(object?));
        nodes.iter().position(|node| node.id == id)
    };
    let places: Option<Vec<usize>> = found.objects().map(place).collect();
    let Some(places) = places else { return known };
    for (at, value) in found.distances().iter().enumerate() {
        let (from, to) = (places[at / nodes.len()], places[at % nodes.len()]);
        known.table[from][to] = *value;
    }
    known.known = true;
    known
}

fn nics(topology: &Topology, nodes: &[Node]) -> Vec<Nic> {
    let mut nics = Vec::new();
    for device in topology.objects_with_type(ObjectType::OSDevice) {
        let Some(ObjectAttributes::OSDevice(kind)) = device.attributes() else { continue };
        if kind.device_type() != OSDeviceType::Network {
            continue;
        }
        let pci = device.ancestors().find_map(|above| match above.attributes() {
            Some(ObjectAttributes::PCIDevice(pci)) => Some(format!(
                "{:04x}:{:02x}:{:02x}.{:x}",
                pci.domain(),
                pci.bus_id(),
                pci.bus_device(),
                pci.function()
            )),
            _ => None,
        });
        let near = device.first_non_io_ancestor().and_then(TopologyObject::nodeset);
        let mut near = near.iter().flat_map(|set| set.iter_set()).map(usize::from);
        let node = match (near.next(), near.next()) {
            (Some(only), None) => Some(NodeId(only as u32)),
            _ if nodes.len() == 1 => nodes.first().map(|node| node.id),
            _ => None,
        };
        let name = device.name().map(|name| name.to_string_lossy().into_owned());
        nics.push(Nic { name: name.unwrap_or_default(), node, pci });
    }
    nics.sort_by(|one, other| one.name.cmp(&other.name));
    nics
}
