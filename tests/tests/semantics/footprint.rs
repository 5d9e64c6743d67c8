//! Programs whose memory is limited or locked: the library takes little of it, and where it gets
//! none the connections stay with TCP. In C, for the limits.
//!
//! Holds: getrlimit(2), mlockall(2), spec/wire.md 6.4.

use std::path::{Path, PathBuf};

use yasmin_tests::lab::{Folder, Knobs, Lab};
use yasmin_tests::netns::Net;

use crate::c::{check_all_there, check_as_by_tcp, compile};

#[track_caller]
fn check(words: &[&str], has_memory: bool) {
    let folder = Folder::new();
    let program = compile(&folder, "footprint", &["footprint.c"], &[]);
    let knobs = Knobs { promote_wait_ms: Some(50), ..Knobs::at_once() };
    let lab = Lab::new(Net::Loopback, knobs);
    let mut process = lab.start(
        "footprint",
        &lab.a,
        &program,
        &words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>(),
    );
    let line = process.next_line();
    process.finish();
    let line = line.unwrap_or_default();
    assert!(line == "added little" || line.starts_with("skipped"), "{words:?}: {line}");
    if has_memory && !line.starts_with("skipped") {
        lab.assert_some_by_ring(lab.bytes_in_all().ring);
    }
}

#[test]
fn limits_that_leave_little_memory() {
    check(&["limits"], false);
}

#[test]
fn memory_that_is_locked() {
    check(&["locked"], true);
}

#[test]
fn threads_with_the_smallest_stack() {
    let at_once = Knobs::at_once;
    let moods = [Knobs::default(), at_once(), at_once().spin(0), at_once().chaos(50, 3)];
    check_all_there("small_stacks", &[], &moods);
}

/// A channel may be handed out while its connection cannot have it. Its descriptors lie where no
/// program looks for free numbers, and go with the connection.
#[test]
fn channels_that_come_while_a_connection_is_shared() {
    check(&["descriptors"], false);
}

/// A control group, gone when dropped.
struct Group(PathBuf);

impl Group {
    fn of(limit_bytes: u64) -> Option<Self> {
        let name = format!("yasmin-test-{}", std::process::id());
        [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
            .into_iter()
            .find_map(|(root, limit)| {
                let group = Self(Path::new(root).join(&name));
                std::fs::create_dir(&group.0).ok()?;
                std::fs::write(group.0.join(limit), limit_bytes.to_string()).ok()?;
                Some(group)
            })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// The pages of rings are charged to the group that fills them: it must not be killed for them.
#[test]
fn a_control_group_that_has_little_memory() {
    let Some(group) = Group::of(64 << 20) else {
        eprintln!("skipped: no control group can be made");
        return;
    };
    check(&["group", &group.0.display().to_string()], true);
}

/// Of an address space with a limit channels take an eighth.
#[test]
fn a_limited_address_space_stays_the_programs() {
    check_as_by_tcp("address_space", &[Knobs::default()]);
}
