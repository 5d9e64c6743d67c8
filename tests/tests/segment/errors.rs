//! What goes wrong is told in one clear sentence, and nothing else is touched.

use std::fs;
use std::path::Path;

use yasmin_segment::{At, Broker, Error, Kind, Refusal, Rights};
use yasmin_tests::segment::{ANYWHERE, Host, NOBODY, READ, SPARSE, WRITE, is_root};
use yasmin_tests::sys::libc::{
    EADDRINUSE, EALREADY, EBADMSG, ECONNREFUSED, EDQUOT, EEXIST, EFBIG, EINVAL, ENOENT, ENOMEM,
    EPERM, EPROTONOSUPPORT,
};

#[test]
fn names_and_sizes_that_cannot_be() {
    let host = Host::new(&[]);
    let mut a = host.member();
    for name in ["a/b", ".a", "012345678901234567890123456789012"] {
        a.is_refused(&format!("create {name} 1 0"), EINVAL, &[name, "is no name"]);
    }
    a.is_refused("create a 0 0", EINVAL, &["0 bytes"]);
    a.is_refused("create a 18446744073709551615 0", EINVAL, &["cannot be"]);
    a.is_refused("create a 10000000000000 0", EFBIG, &["machine has"]);
    a.is_refused("create a 1 4", EINVAL, &["0x4", "flags"]);
    a.tell("create a 4096 0");
    a.is_refused("create a 1 0", EEXIST, &["segment a", "taken"]);
    a.is_refused("open a 0", EINVAL, &["flags"]);
    assert_eq!(Broker::at(host.socket()).list().unwrap().len(), 1);
}

#[test]
fn limits_of_all_and_of_one_user() {
    if !is_root() {
        eprintln!("skipped: other users need root");
        return;
    }
    let limits = ["--segment-limit", "1M", "--segment-user-limit", "512K", "--segments", "8"];
    let host = Host::new(&limits);
    let (mut a, mut b, mut c) = (host.member_as(NOBODY), host.member_as(1), host.member_as(2));
    a.tell("create a 500000 0");
    a.is_refused("create a2 100000 0", EDQUOT, &["your segments", "--segment-user-limit"]);
    b.tell("create b 500000 0");
    c.is_refused("create c 100000 0", EDQUOT, &["all segments", "--segment-limit"]);
    a.tell("remove a");
    c.tell("create c 100000 0");
    // As many as are left for the others.
    for nth in 0..3 {
        a.tell(&format!("create small{nth} 1 0"));
    }
    a.is_refused("create small3 1 0", EDQUOT, &["3 segments", "--segments"]);
    b.tell("create b2 1 0");
}

#[test]
fn an_address_that_is_taken_names_what_is_there() {
    let host = Host::new(&[]);
    let mut a = host.member();
    a.tell("create table 100000 0");
    a.tell(&format!("open table {WRITE}"));
    let address = u64::from_str_radix(&a.tell("attach 0"), 16).unwrap();
    let mut b = host.member();
    b.tell(&format!("occupy {:x}", address + 8192));
    b.tell(&format!("open table {WRITE}"));
    let taken = format!("memory without a name ({:x}-", address + 8192);
    b.is_refused("attach 0", EADDRINUSE, &["table", &taken, "elsewhere"]);
    // What is there stays, and elsewhere there is room.
    let elsewhere = u64::from_str_radix(&b.tell(&format!("attach {ANYWHERE}")), 16).unwrap();
    assert_ne!(elsewhere, address);
    b.tell("write 7 7");
    assert_eq!(a.tell("read 7"), "7");
    a.is_refused("attach 0", EALREADY, &["attached already"]);
    // By another descriptor, too.
    a.tell(&format!("open table {READ}"));
    a.is_refused("attach 0", EALREADY, &["attached already"]);
}

#[test]
fn a_header_that_was_written_over_or_is_of_another_version() {
    let host = Host::new(&[]);
    let broker = Broker::at(host.socket());
    for (at, errno, words) in [
        (0, EBADMSG, "written over"),
        (9, EPROTONOSUPPORT, "version 65"),
        (16, EBADMSG, "written over"),
        (71, EBADMSG, "written over"),
    ] {
        broker.create("table", 5000, Kind::default()).unwrap();
        let mut a = host.member();
        a.tell(&format!("open table {WRITE}"));
        a.tell("attach 0");
        a.tell("write 0 1");
        a.tell(&format!("scribble {at} 255"));
        let mut b = host.member();
        b.tell(&format!("open table {WRITE}"));
        b.is_refused("attach 0", errno, &["table", words]);
        b.is_refused(&format!("attach {ANYWHERE}"), errno, &["table", words]);
        // Whoever has it goes on.
        assert_eq!(a.tell("read 0"), "1");
        broker.remove("table").unwrap();
    }
}

#[test]
fn no_broker_says_how_to_start_one() {
    let mut host = Host::new(&[]);
    let mut a = host.member();
    // No segment: the keeper, which starts with the first, has the broker's socket for a moment.
    a.is_refused("open table 1", ENOENT, &["table"]);
    host.broker.kill();
    let socket = host.socket().display().to_string();
    a.is_refused("create b 1 0", ECONNREFUSED, &["no broker", &socket, "start one with 'yasmind'"]);
    fs::remove_file(host.socket()).unwrap();
    a.is_refused("open table 1", ECONNREFUSED, &["no broker", &socket]);
}

/// Only root's broker, or the user's own, is believed.
#[test]
fn a_broker_of_another_user_is_not_believed() {
    if !is_root() {
        eprintln!("skipped: other users need root");
        return;
    }
    let host = Host::new(&[]);
    let folder = host.folder.path().join("theirs");
    fs::create_dir(&folder).unwrap();
    std::os::unix::fs::chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
    let socket = folder.join("broker.sock");
    let mut command = std::process::Command::new("setpriv");
    command
        .args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")])
        .arg("--clear-groups")
        .arg(yasmin_tests::lab::artefact("yasmind"))
        .args(["--system", "--no-bpf", "--socket"])
        .arg(&socket);
    let _broker = yasmin_tests::process::Process::start("theirs", &mut command, &host.registry);
    let error = yasmin_tests::process::eventually(
        "somebody who listens",
        || match Broker::at(&socket).create("a", 1, Kind::default()) {
            Err(Error::NoBroker(_)) => None,
            other => Some(other),
        },
        || "nobody".to_owned(),
    );
    let error = error.unwrap_err();
    assert_eq!(error.errno(), EPERM, "{error}");
    assert!(error.to_string().contains("user 65534 listens"), "{error}");
}

#[test]
fn huge_pages_are_there_or_are_not() {
    let free = fs::read_to_string("/proc/meminfo").unwrap();
    let host = Host::new(&[]);
    let broker = Broker::at(host.socket());
    let huge = Kind { is_huge: true, ..Kind::default() };
    if free.lines().any(|line| line.starts_with("HugePages_Total:") && line.ends_with(" 0")) {
        let error = broker.create("huge", 1 << 20, huge).unwrap_err();
        assert_eq!(error.errno(), ENOMEM, "{error}");
        assert!(error.to_string().contains("vm.nr_hugepages"), "{error}");
    }
    if !is_root() || fs::write("/proc/sys/vm/nr_hugepages", "4").is_err() {
        eprintln!("skipped: no huge pages without root");
        return;
    }
    let set_aside = || -> Result<(), Error> {
        broker.create("huge", 3 << 20, huge)?;
        let segment = broker.open("huge", Rights::Write, false)?;
        let _alone = crate::attach_alone();
        let mapping = segment.attach(At::Same)?;
        mapping.copy_in((3 << 20) - 1, &[7]).unwrap();
        // The two that are left are too few.
        let more = broker.create("more", 5 << 20, huge).unwrap_err();
        assert!(matches!(more, Error::Refused { why: Refusal::HugePages { .. }, .. }), "{more}");
        broker.remove("huge")
    };
    let result = set_aside();
    fs::write("/proc/sys/vm/nr_hugepages", "0").unwrap();
    result.unwrap();
}

/// A group that could not hold a segment is not let into it to be killed, unless it wants to.
#[test]
fn a_full_control_group() {
    let (v1, v2) = (Path::new("/sys/fs/cgroup/memory"), Path::new("/sys/fs/cgroup"));
    let (root, limit) =
        if v1.exists() { (v1, "memory.limit_in_bytes") } else { (v2, "memory.max") };
    let group = root.join(format!("yasmin-segment-{}", std::process::id()));
    if fs::create_dir(&group).is_err() || fs::write(group.join(limit), "33554432").is_err() {
        let _ = fs::remove_dir(&group);
        eprintln!("skipped: no control groups");
        return;
    }
    let host = Host::new(&[]);
    let mut a = host.member();
    fs::write(group.join("cgroup.procs"), a.process.pid().to_string()).unwrap();
    a.tell("create large 100000000 0");
    a.tell("create small 1000000 0");
    let words = ["large", "control group", "bytes left"];
    a.is_refused(&format!("open large {WRITE}"), ENOMEM, &words);
    a.tell(&format!("open large {READ}"));
    a.tell(&format!("open large {}", WRITE | SPARSE));
    a.tell("attach 0");
    a.tell("write 99999999 1");
    a.tell(&format!("open small {WRITE}"));
    a.tell("attach 0");
    // Somebody else may.
    host.member().tell(&format!("open large {WRITE}"));
    a.process.kill();
    yasmin_tests::process::eventually(
        "an empty group",
        || fs::remove_dir(&group).is_ok().then_some(()),
        || group.display().to_string(),
    );
}
