//! A segment's life: made, attached at one address, removed, gone with the last who has it.

use yasmin_segment::{At, Broker, Kind, Rights};
use yasmin_tests::process::eventually;
use yasmin_tests::segment::{Host, NOBODY, WRITE, is_root};

const MIB: u64 = 1 << 20;

#[test]
fn two_processes_have_one_segment_at_one_address() {
    let host = Host::new(&[]);
    let (mut a, mut b) = (host.member(), host.member());
    a.tell(&format!("create table {MIB} 0"));
    assert_eq!(a.tell(&format!("open table {WRITE}")), MIB.to_string());
    let address = a.tell("attach 0");
    b.tell(&format!("open table {WRITE}"));
    assert_eq!(b.tell("attach 0"), address, "another address elsewhere");
    // Pointers mean the same, and bytes are the same.
    a.tell("point 512");
    let inside = u64::from_str_radix(&address, 16).unwrap() + 512;
    assert_eq!(b.tell("follow 512"), format!("{inside:x}"));
    assert_eq!(b.tell(&format!("read {}", MIB - 1)), "0");
    a.tell(&format!("write {} 77", MIB - 1));
    assert_eq!(b.tell(&format!("read {}", MIB - 1)), "77");
    // Whoever is forked has it too.
    assert_eq!(b.tell("fork-write 100 9"), "0");
    assert_eq!(a.tell("read 100"), "9");
    // And Rust programs.
    let broker = Broker::at(host.socket());
    let segment = broker.open("table", Rights::Write, false).unwrap();
    let _alone = crate::attach_alone();
    let mapping = segment.attach(At::Same).unwrap();
    assert_eq!(format!("{:x}", mapping.as_ptr() as u64), address);
    let mut byte = [0];
    mapping.copy_out(100, &mut byte).unwrap();
    assert_eq!(byte, [9]);
    assert!(mapping.copy_out(MIB, &mut byte).is_none());
    let about = broker.about("table").unwrap();
    let mut pids: Vec<u32> = about.holders.iter().map(|holder| holder.pid).collect();
    let mut wanted = vec![a.process.pid(), b.process.pid(), std::process::id()];
    pids.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(pids, wanted, "{about:?}");
    assert!(about.used_bytes >= 3 * 4096 && about.used_bytes < MIB, "{about:?}");
}

#[test]
fn removed_it_stays_with_those_who_have_it() {
    let host = Host::new(&[]);
    let broker = Broker::at(host.socket());
    let (mut a, mut b) = (host.member(), host.member());
    a.tell("create table 5000 0");
    a.tell(&format!("open table {WRITE}"));
    let first = a.tell("attach 0");
    b.tell(&format!("open table {WRITE}"));
    b.tell("attach 0");
    a.tell("remove table");
    a.is_refused("remove table", yasmin_tests::sys::libc::ENOENT, &["table"]);
    // Both go on, and a new one of the name is another one.
    a.tell("write 4999 5");
    assert_eq!(b.tell("read 4999"), "5");
    let mut c = host.member();
    c.tell("create table 5000 0");
    c.tell(&format!("open table {WRITE}"));
    assert_ne!(c.tell("attach 0"), first);
    assert_eq!(c.tell("read 4999"), "0");
    // Detached is closed as well, or it counts as held.
    a.tell("detach");
    a.tell("close");
    assert_eq!(b.tell("read 4999"), "5");
    let descriptors = host.broker.process().descriptors();
    drop(b);
    eventually(
        "the memory given back",
        || (host.broker.process().descriptors() < descriptors).then_some(()),
        || format!("{:?}", broker.list()),
    );
}

#[test]
fn one_that_ends_with_its_creator() {
    let host = Host::new(&[]);
    let broker = Broker::at(host.socket());
    let (mut a, mut b) = (host.member(), host.member());
    a.tell("create mine 100000 2");
    a.tell("create others 100000 0");
    b.tell(&format!("open mine {WRITE}"));
    b.tell("attach 0");
    a.process.kill();
    eventually(
        "the creator's segment gone",
        || broker.about("mine").is_err().then_some(()),
        || format!("{:?}", broker.list()),
    );
    assert!(broker.about("others").is_ok());
    // Who has it has it.
    b.tell("write 9 9");
}

#[test]
fn all_of_them_are_listed_to_who_may_read_them() {
    if !is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let host = Host::new(&[]);
    let broker = Broker::at(host.socket());
    for nth in 0..300 {
        broker.create(&format!("s{nth:03}"), 4096, Kind::default()).unwrap();
    }
    let names: Vec<String> =
        broker.list().unwrap().into_iter().map(|segment| segment.name).collect();
    let wanted: Vec<String> = (0..300).map(|nth| format!("s{nth:03}")).collect();
    assert_eq!(names, wanted);
    let mut nobody = host.member_as(NOBODY);
    nobody.tell("create own 1 0");
    nobody.is_refused("remove s000", yasmin_tests::sys::libc::EPERM, &["user 0"]);
}
