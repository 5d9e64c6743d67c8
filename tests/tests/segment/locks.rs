//! Locks and heaps in a real segment, from C: `locks.c` does as it is told, and dies.

use std::path::Path;
use std::process::Command;

use yasmin_segment::{Broker, Kind};
use yasmin_tests::process::Process;
use yasmin_tests::segment::{Host, Member, NOBODY, is_root};
use yasmin_tests::sys::libc::{
    EAGAIN, EBUSY, EDEADLK, EINVAL, ENOMEM, ENOTCONN, ENOTRECOVERABLE, EOWNERDEAD, EPERM, ETIMEDOUT,
};

const BYTES: u64 = 2 << 20;

struct Lab {
    host: Host,
}

impl Lab {
    fn new() -> Self {
        let host = Host::new(&["--no-bpf"]);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/segment/locks.c");
        host.compile(&source, "locks", &[]);
        Broker::at(host.socket()).create("locks", BYTES, Kind::default()).unwrap();
        Self { host }
    }

    fn member(&self) -> Member {
        let program = self.host.folder.path().join("locks");
        let process = self.host.start("locks", &mut Command::new(program));
        let mut member = Member { process };
        member.process.expect("joined ");
        member
    }
}

/// What follows the result, which is 0.
#[track_caller]
fn value(member: &mut Member, line: &str) -> u64 {
    let said = member.tell(line);
    let (result, value) = said.split_once(' ').unwrap();
    assert_eq!(result, "0", "{line}");
    value.parse().unwrap()
}

/// Refused with this number; the sentence is not looked at.
#[track_caller]
fn refused(member: &mut Member, line: &str, errno: i32) {
    let error = member.ask(line).expect_err(line);
    assert_eq!(error.0, errno, "{line}: {}", error.1);
    assert!(!error.1.is_empty(), "{line}");
}

#[test]
fn a_mutex_of_each_kind() {
    let lab = Lab::new();
    let (mut a, mut b) = (lab.member(), lab.member());
    for kind in 0..3 {
        value(&mut a, &format!("mutex init {kind}"));
        let first = value(&mut a, &format!("mutex lock {kind}"));
        refused(&mut b, &format!("mutex trylock {kind}"), EBUSY);
        refused(&mut b, &format!("mutex timedlock {kind}"), ETIMEDOUT);
        refused(&mut b, &format!("mutex unlock {kind}"), EPERM);
        refused(&mut a, &format!("mutex consistent {kind}"), EINVAL);
        value(&mut a, &format!("mutex unlock {kind}"));
        let second = value(&mut b, &format!("mutex timedlock {kind}"));
        assert!(second > first, "{second} after {first}");
        value(&mut b, &format!("mutex unlock {kind}"));
    }
    value(&mut a, "mutex lock 1");
    refused(&mut a, "mutex lock 1", EDEADLK);
    value(&mut a, "mutex lock 2");
    value(&mut a, "mutex lock 2");
    value(&mut a, "mutex unlock 2");
    refused(&mut b, "mutex trylock 2", EBUSY);
    value(&mut a, "mutex unlock 2");
    value(&mut b, "mutex trylock 2");
}

#[test]
fn a_holder_that_is_killed_leaves_its_mutex_to_the_next() {
    let lab = Lab::new();
    let (mut a, mut b) = (lab.member(), lab.member());
    let first = value(&mut a, "mutex lock 0");
    b.process.say("mutex lock 0");
    a.process.kill();
    let (errno, sentence) = b.ask("mutex consistent 0").unwrap_err();
    assert_eq!(errno, EOWNERDEAD, "{sentence}");
    assert!(sentence.contains("owner died"), "{sentence}");
    // Its second answer: that of consistent.
    assert_eq!(b.process.next_line().unwrap(), "ok 0 0");
    value(&mut b, "mutex unlock 0");
    let mut c = lab.member();
    assert!(value(&mut c, "mutex lock 0") > first);
    c.process.kill();
    // Unlocked without being made consistent.
    refused(&mut b, "mutex trylock 0", EOWNERDEAD);
    value(&mut b, "mutex unlock 0");
    refused(&mut b, "mutex lock 0", ENOTRECOVERABLE);
    refused(&mut lab.member(), "mutex trylock 0", ENOTRECOVERABLE);
}

#[test]
fn readers_and_writers() {
    let lab = Lab::new();
    let (mut a, mut b, mut c) = (lab.member(), lab.member(), lab.member());
    value(&mut a, "rwlock rdlock");
    value(&mut b, "rwlock tryrdlock");
    refused(&mut c, "rwlock trywrlock", EBUSY);
    refused(&mut c, "rwlock timedwrlock", ETIMEDOUT);
    // A dead reader leaves nothing to mend.
    a.process.kill();
    value(&mut b, "rwlock unlock");
    value(&mut c, "rwlock wrlock");
    refused(&mut b, "rwlock tryrdlock", EBUSY);
    refused(&mut b, "rwlock timedrdlock", ETIMEDOUT);
    // A dead writer does.
    c.process.kill();
    refused(&mut b, "rwlock wrlock", EOWNERDEAD);
    value(&mut b, "rwlock consistent");
    value(&mut b, "rwlock unlock");
    value(&mut lab.member(), "rwlock rdlock");
}

#[test]
fn a_sequence_lock_and_its_readers() {
    let lab = Lab::new();
    let (mut a, mut b) = (lab.member(), lab.member());
    assert_eq!(value(&mut b, "sequence read"), 0);
    value(&mut a, "sequence write");
    value(&mut a, "sequence half");
    refused(&mut b, "sequence read", EBUSY);
    assert_eq!(value(&mut b, "sequence abandoned"), 0);
    value(&mut a, "sequence other-half");
    value(&mut a, "sequence finish");
    assert_eq!(value(&mut b, "sequence read"), 1);
    value(&mut a, "sequence write");
    value(&mut a, "sequence half");
    a.process.kill();
    refused(&mut b, "sequence read", EBUSY);
    assert_eq!(value(&mut b, "sequence abandoned"), 1);
    refused(&mut b, "sequence write", EOWNERDEAD);
    value(&mut b, "sequence other-half");
    value(&mut b, "sequence finish");
    assert_eq!(value(&mut b, "sequence read"), 2);
}

#[test]
fn once_semaphore_condition_and_barrier() {
    let lab = Lab::new();
    let (mut a, mut b) = (lab.member(), lab.member());
    assert_eq!(a.tell("once begin"), "-1 0");
    a.process.kill();
    refused(&mut b, "once begin", EOWNERDEAD);
    value(&mut b, "once finish");
    let mut a = lab.member();
    value(&mut a, "once begin");
    refused(&mut a, "once finish", EPERM);

    refused(&mut a, "semaphore trywait", EBUSY);
    value(&mut a, "semaphore init");
    value(&mut a, "semaphore wait");
    value(&mut b, "semaphore trywait");
    refused(&mut b, "semaphore timedwait", ETIMEDOUT);
    b.process.say("semaphore wait");
    value(&mut a, "semaphore post");
    assert_eq!(b.process.next_line().unwrap(), "ok 0 0");
    assert_eq!(value(&mut a, "semaphore value"), 0);

    b.process.say("condition wait");
    // What the other waits for changes under the mutex that it waits with, or it may miss it.
    value(&mut a, "mutex lock 0");
    assert_eq!(value(&mut a, "count 7"), 7);
    value(&mut a, "mutex unlock 0");
    value(&mut a, "condition broadcast");
    assert_eq!(b.process.next_line().unwrap(), "ok 0 7");
    refused(&mut b, "condition timedwait", EPERM);
    value(&mut b, "mutex lock 0");
    refused(&mut b, "condition timedwait", ETIMEDOUT);
    value(&mut b, "mutex unlock 0");
    value(&mut a, "condition signal");

    refused(&mut a, "barrier wait", EINVAL);
    value(&mut a, "barrier init");
    for _ in 0..3 {
        a.process.say("barrier wait");
        let mut passed = [b.tell("barrier wait"), a.process.next_line().unwrap()];
        passed[1] = passed[1].strip_prefix("ok ").unwrap().to_owned();
        passed.sort_unstable();
        assert_eq!(passed, ["-1 0", "0 0"]);
    }
    a.process.say("barrier wait");
    b.process.kill();
    assert_eq!(a.process.next_line().unwrap().split(' ').nth(1), Some(&*EOWNERDEAD.to_string()));
}

/// Nothing is lost that was done under the lock, and no two are in it at once.
#[test]
fn a_counter_under_a_lock_while_members_are_killed() {
    let lab = Lab::new();
    let mut watcher = lab.member();
    let mut last = 0;
    for round in 0..10 {
        let mut members: Vec<Member> = (0..3).map(|_| lab.member()).collect();
        for member in &mut members {
            member.process.say("count 1000000000");
        }
        // As long as it takes until they have counted.
        let counted = loop {
            let counted = value(&mut watcher, "count 1");
            if counted > last + 100 {
                break counted;
            }
        };
        members.drain(..).for_each(|mut member| member.process.kill());
        last = value(&mut watcher, "count 1");
        assert!(last > counted, "round {round}");
        assert_eq!(value(&mut watcher, "count 1000"), last + 1000);
        last += 1000;
    }
}

#[test]
fn a_fork_is_no_member_before_it_says_so() {
    let lab = Lab::new();
    let mut a = lab.member();
    value(&mut a, "mutex lock 0");
    assert_eq!(value(&mut a, "fork"), 0);
    value(&mut a, "mutex unlock 0");
    assert_eq!(value(&mut a, "count 1"), 101);
    refused(&mut a, "leave", ENOTCONN);
}

#[test]
fn more_members_than_slots() {
    let lab = Lab::new();
    let members: Vec<Member> = (0..32).map(|_| lab.member()).collect();
    let program = lab.host.folder.path().join("locks");
    let mut one_more = lab.host.start("locks", &mut Command::new(program));
    let said = one_more.next_line().unwrap();
    let wanted = format!("error {EAGAIN} ");
    assert!(said.starts_with(&wanted) && said.contains("too many"), "{said}");
    drop(members);
    let mut again = lab.member();
    value(&mut again, "mutex lock 0");
}

/// Another user than the broker's cannot open the memory by itself.
#[test]
fn members_of_different_users() {
    if !is_root() {
        eprintln!("skipped: other users need root");
        return;
    }
    let lab = Lab::new();
    let whom = yasmin_segment::Whom::Everyone;
    let broker = Broker::at(lab.host.socket());
    broker.allow("locks", whom, yasmin_segment::Rights::Write).unwrap();
    let mut a = lab.member();
    let user = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")];
    let mut command = Command::new("setpriv");
    command.args(user).arg("--clear-groups").arg(lab.host.folder.path().join("locks"));
    let mut other = Member { process: lab.host.start("other", &mut command) };
    other.process.expect("joined ");
    value(&mut other, "mutex lock 0");
    refused(&mut a, "mutex trylock 0", EBUSY);
    other.process.kill();
    refused(&mut a, "mutex lock 0", EOWNERDEAD);
    // Who is shown to have it has it.
    let holders = broker.about("locks").unwrap().holders;
    assert!(holders.iter().all(|holder| holder.pid == a.process.pid()), "{holders:?}");
}

#[test]
fn a_heap_whose_blocks_all_use_by_the_same_pointers() {
    let lab = Lab::new();
    let (mut a, mut b) = (lab.member(), lab.member());
    assert!(b.ask("heap open").is_err(), "a heap that nobody made");
    value(&mut a, "heap create");
    value(&mut b, "heap open");
    for nth in [1, 3] {
        value(&mut a, &format!("heap push {nth}"));
        value(&mut b, &format!("heap push {}", nth + 1));
    }
    assert_eq!(value(&mut a, "heap sum"), 4321);
    assert_eq!(value(&mut b, "heap sum"), 4321);
    assert_eq!(value(&mut a, "heap check"), 4);
    a.process.kill();
    // What a dead one allocated is there, and may be freed by others.
    assert_eq!(value(&mut b, "heap sum"), 4321);
    value(&mut b, "heap clear");
    value(&mut b, "heap move");
    refused(&mut b, "heap twice", EINVAL);
    refused(&mut b, "heap huge", ENOMEM);
    assert_eq!(value(&mut b, "heap check"), 0);
}

#[test]
fn a_heap_is_whole_after_each_kill() {
    let lab = Lab::new();
    let mut watcher = lab.member();
    value(&mut watcher, "heap create");
    value(&mut watcher, "heap push 7");
    for _ in 0..20 {
        let mut churner = lab.member();
        value(&mut churner, "heap open");
        churner.process.say("heap churn");
        churner.process.expect("ok churning");
        let before = value(&mut watcher, "heap check");
        churner.process.kill();
        value(&mut watcher, "heap check");
        assert!(before >= 1);
        assert_eq!(value(&mut watcher, "heap sum"), 7);
    }
}

#[track_caller]
fn put(writer: &mut Process, key: &str, value: &str) {
    writer.say(&format!("{key} {value}"));
    assert_eq!(writer.next_line().unwrap(), format!("{key} is {value}"));
}

/// The example: a map that C makes and Python reads and changes, by the same pointers, with a lock
/// whose holder is killed.
#[test]
fn a_map_shared_by_programs_of_different_languages() {
    let Some(python) = yasmin_tests::installed::find_or_say("python3") else { return };
    let host = Host::new(&["--no-bpf"]);
    let segment = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/segment");
    let program = host.compile(&segment.join("examples/map.c"), "map", &[]);
    let mut writer = host.start("writer", &mut Command::new(program));
    put(&mut writer, "colour", "red");
    put(&mut writer, "number", "42");
    let library = host.folder.path().join("libyasmin-segment.so.0");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&python);
        command
            .arg(segment.join("examples/map.py"))
            .args(arguments)
            .env("YASMIN_SEGMENT_LIBRARY", &library)
            .env("PYTHONPATH", segment.join("python"));
        host.start("reader", &mut command).run()
    };
    let said = run(&["number", "colour", "shape", "number"]);
    let wanted = "number is 42, read 1 times\ncolour is red, read 1 times\n\
                  shape is not in the map\nnumber is 42, read 2 times\n";
    assert_eq!(said, wanted);
    assert_eq!(
        run(&["colour=a-much-longer-colour-than-red-was", "colour"]).lines().last(),
        Some("colour is a-much-longer-colour-than-red-was, read 2 times")
    );
    put(&mut writer, "shape", "round");
    writer.kill();
    assert_eq!(run(&["shape"]), "shape is round, read 1 times\n");
}

/// Each Python class does what its C calls do.
#[test]
fn the_same_from_python() {
    let Some(python) = yasmin_tests::installed::find_or_say("python3") else { return };
    let host = Host::new(&["--no-bpf"]);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(python);
    command
        .arg(folder.join("tests/segment/sync.py"))
        .env("YASMIN_SEGMENT_LIBRARY", host.folder.path().join("libyasmin-segment.so.0"))
        .env("PYTHONPATH", folder.join("../crates/segment/python"));
    assert_eq!(host.start("sync.py", &mut command).run(), "all is well\n");
}
