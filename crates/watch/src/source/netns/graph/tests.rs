use super::*;
use crate::function::Process;

fn veth(index: u32, name: &str, peer: Place) -> Interface {
    Interface {
        index,
        name: name.into(),
        kind: Kind::Veth,
        peer: Some(peer),
        ..Interface::default()
    }
}

fn namespace(inode: u64, name: &str, interfaces: Vec<Interface>) -> Namespace {
    Namespace { inode, name: Some(name.into()), interfaces, ..Namespace::default() }
}

fn ends(graph: &Graph) -> Vec<String> {
    graph.edges.iter().map(|edge| format!("{} {}", edge.a, edge.b)).collect()
}

#[test]
fn routers_in_a_row_behind_a_card() {
    let card = Interface {
        index: 2,
        name: "eth0".into(),
        kind: Kind::Card,
        has_default_route: true,
        ..Interface::default()
    };
    let host = Namespace {
        inode: 1,
        is_host: true,
        interfaces: vec![card, veth(3, "up", (10, 2))],
        ..Namespace::default()
    };
    let first = namespace(10, "fw", vec![veth(2, "in", (1, 3)), veth(3, "out", (11, 2))]);
    let mut second = namespace(11, "nat", vec![veth(2, "in", (10, 3))]);
    second.processes = vec![Process { pid: 5, started: 1 }];
    let graph = graph(&[host, first, second]);
    assert_eq!(ends(&graph), ["nic:eth0 netns:fw", "netns:fw netns:nat"]);
    assert_eq!(graph.edges[1].counters, [(10, 3), (11, 2)]);
    assert!(matches!(graph.functions[0].target, Target::Kernel { .. }));
    assert!(matches!(graph.functions[1].target, Target::Processes { .. }));
    assert!(graph.notes.is_empty());
}

/// Three namespaces at a bridge of the host, which itself has no address.
fn bridged(gateway: Option<IpAddr>) -> Graph {
    let port = |index: u32, peer: Place| Interface {
        bridge: Some(2),
        ..veth(index, &format!("port{index}"), peer)
    };
    let bridge =
        Interface { index: 2, name: "br0".into(), kind: Kind::Bridge, ..Interface::default() };
    let host = Namespace {
        inode: 1,
        is_host: true,
        interfaces: vec![bridge, port(3, (10, 2)), port(4, (11, 2)), port(5, (12, 2))],
        ..Namespace::default()
    };
    let guest = |inode: u64, name: &str, host_index: u32, last: u8| {
        let mut own = veth(2, "eth0", (1, host_index));
        own.addresses = vec![IpAddr::from([10, 0, 0, last])];
        own.next_hops = gateway.into_iter().filter(|_| last != 1).collect();
        namespace(inode, name, vec![own])
    };
    graph(&[host, guest(10, "a", 3, 1), guest(11, "b", 4, 2), guest(12, "c", 5, 3)])
}

#[test]
fn routes_tell_who_talks_across_a_bridge() {
    let graph = bridged(Some(IpAddr::from([10, 0, 0, 1])));
    assert_eq!(ends(&graph), ["netns:a netns:b", "netns:a netns:c"]);
    // The gateway's own interface counts both; each of the others only itself.
    assert_eq!(graph.edges[0].counters, [(11, 2)]);
    assert_eq!(graph.edges[1].counters, [(12, 2)]);
    assert!(graph.edges[0].origin.starts_with("bridge br0") && graph.notes.is_empty());
}

#[test]
fn without_routes_nobody_knows_and_it_is_said() {
    let graph = bridged(None);
    assert!(graph.edges.is_empty());
    assert!(graph.notes[0].contains("bridge br0"), "{:?}", graph.notes);
}

#[test]
fn a_guest_behind_a_tap_is_its_process() {
    let tap = Interface {
        index: 4,
        name: "vnet0".into(),
        kind: Kind::Tap,
        bridge: Some(2),
        owner: Some(Process { pid: 77, started: 1 }),
        owner_program: Some("qemu".into()),
        ..Interface::default()
    };
    let bridge =
        Interface { index: 2, name: "br0".into(), kind: Kind::Bridge, ..Interface::default() };
    let card = Interface {
        index: 3,
        name: "eth0".into(),
        kind: Kind::Card,
        bridge: Some(2),
        ..Interface::default()
    };
    let host = Namespace {
        inode: 1,
        is_host: true,
        interfaces: vec![bridge, card, tap],
        ..Namespace::default()
    };
    let graph = graph(&[host]);
    assert_eq!(ends(&graph), ["nic:eth0 qemu[77]"]);
}

#[test]
fn a_bridge_with_an_address_is_the_host() {
    let bridge = Interface {
        index: 2,
        name: "br0".into(),
        kind: Kind::Bridge,
        addresses: vec![IpAddr::from([10, 0, 0, 1])],
        ..Interface::default()
    };
    let port = Interface { bridge: Some(2), ..veth(3, "p", (10, 2)) };
    let host = Namespace {
        inode: 1,
        is_host: true,
        interfaces: vec![bridge, port],
        ..Namespace::default()
    };
    let graph = graph(&[host, namespace(10, "a", vec![veth(2, "eth0", (1, 3))])]);
    assert_eq!(ends(&graph), ["nic:host netns:a"]);
}
