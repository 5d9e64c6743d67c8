//! Machines that are not at hand.

use yasmin_topology::{CpuId, Machine, NodeId};

#[test]
fn two_nodes_with_hyperthreads() {
    let machine = Machine::from_synthetic("node:2 l3:1 core:4 l2:1 l1d:1 pu:2").unwrap();
    assert_eq!((machine.cpus.len(), machine.nodes.len()), (16, 2));
    let cpu = machine.cpu(CpuId(9)).unwrap();
    assert_eq!((cpu.node, &cpu.siblings[..]), (NodeId(1), &[CpuId(8), CpuId(9)][..]));
    let levels: Vec<u8> = cpu.caches.iter().map(|at| machine.caches[*at].level).collect();
    assert_eq!(levels, [1, 2, 3]);
    assert_eq!(machine.caches[cpu.caches[2]].cpus.len(), 8);
    assert_eq!(machine.distance(NodeId(0), NodeId(1)), Some(20));
    assert!(!machine.distances.known);
}

#[test]
fn siblings_only_when_asked() {
    let mut machine = Machine::from_synthetic("node:2 core:2 pu:2").unwrap();
    let ids = |ids: &[u32]| ids.iter().copied().map(CpuId).collect::<Vec<_>>();
    assert_eq!(machine.free_by_node(false)[0], (NodeId(0), ids(&[0, 2])));
    assert_eq!(machine.free_by_node(true)[0], (NodeId(0), ids(&[0, 2, 1, 3])));

    // Somebody is pinned to CPU 1: its core is not free, unless siblings may be used.
    machine.pinned = [CpuId(1)].into();
    assert_eq!(machine.free_by_node(false)[0], (NodeId(0), ids(&[2])));
    assert_eq!(machine.free_by_node(true)[0], (NodeId(0), ids(&[0, 2, 3])));

    // CPU 0 may not be used: its sibling stands in.
    machine.pinned.clear();
    machine.allowed.remove(&CpuId(0));
    assert_eq!(machine.free_by_node(false)[0], (NodeId(0), ids(&[1, 2])));

    machine.isolated = ids(&[4, 5, 6, 7]).into_iter().collect();
    assert_eq!(machine.free_by_node(false)[0].1, []);
    assert_eq!(machine.free_by_node(false)[1].1, ids(&[4, 6]));
}

#[test]
fn a_bad_description_is_named() {
    let error = Machine::from_synthetic("node:2 teapot:3").unwrap_err().to_string();
    assert!(error.contains("teapot"), "{error}");
}
