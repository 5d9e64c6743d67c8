//! hwloc's XML, good and bad.

use yasmin_topology::{CpuId, Machine, NodeId};

const TWO_NODES: &str = include_str!("data/two-nodes.xml");

#[test]
fn distances_and_a_card() {
    let machine = Machine::from_hwloc_xml(TWO_NODES).unwrap();
    assert_eq!((machine.cpus.len(), machine.nodes.len()), (4, 2));
    assert!(machine.distances.known);
    assert_eq!(machine.distance(NodeId(0), NodeId(1)), Some(21));
    let card = machine.nic("enp129s0f0").unwrap();
    assert_eq!((card.node, card.pci.as_deref()), (Some(NodeId(1)), Some("0000:81:00.0")));
    assert_eq!(machine.free_by_node(false)[1], (NodeId(1), vec![CpuId(2), CpuId(3)]));
}

#[track_caller]
fn complains(xml: &str, of: &[&str]) {
    let error = Machine::from_hwloc_xml(xml).unwrap_err().to_string();
    assert!(of.iter().all(|part| error.contains(part)), "{error}");
    assert!(!error.contains('\n'), "{error}");
}

#[test]
fn line_and_field_are_named() {
    let line = |text: &str| {
        let at = TWO_NODES.find(text).unwrap();
        format!("line {}", TWO_NODES[..at].lines().count())
    };
    let core = r#"<object type="Core" os_index="1""#;
    let number = TWO_NODES.replace(core, r#"<object type="Core" os_index="one""#);
    complains(&number, &[&line(core), "os_index", "one"]);
    let kind = TWO_NODES.replace(core, r#"<object os_index="1""#);
    complains(&kind, &[&line(core), "type"]);
    let set = TWO_NODES.replacen(r#"cpuset="0x00000003""#, r#"cpuset="3 and 4""#, 1);
    complains(&set, &["cpuset", "3 and 4"]);
    let cut = &TWO_NODES[..TWO_NODES.find("<distances2").unwrap()];
    complains(cut, &["line "]);
    complains("<machine/>", &["line 1", "<machine>"]);
    complains("<topology/>", &["PU"]);
    complains("", &["line 1"]);
}

#[test]
fn any_cut_is_an_error_and_no_crash() {
    for at in (0..TWO_NODES.len() - 20).step_by(97).filter(|at| TWO_NODES.is_char_boundary(*at)) {
        assert!(Machine::from_hwloc_xml(&TWO_NODES[..at]).is_err());
    }
}
