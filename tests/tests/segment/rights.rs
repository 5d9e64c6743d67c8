//! Who may do what to whose segments: by user, and enforced by the mapping.

use yasmin_tests::segment::{Host, NOBODY, READ, WRITE, is_root};
use yasmin_tests::sys::libc::{EACCES, EEXIST, ENOENT, EPERM, SIGSEGV};

/// A third user.
const DAEMON: u32 = 1;

/// `true`: skipped.
fn needs_root() -> bool {
    let root = is_root();
    if !root {
        eprintln!("skipped: other users need root");
    }
    !root
}

#[test]
fn rights_are_a_users_own() {
    if needs_root() {
        return;
    }
    let host = Host::new(&[]);
    let (mut owner, mut other) = (host.member_as(DAEMON), host.member_as(NOBODY));
    owner.tell("create table 100000 0");
    other.is_refused(&format!("open table {READ}"), EACCES, &["no rights", "allow"]);
    other.is_refused("create table 1 0", EEXIST, &["taken", "user 1"]);
    other.is_refused("remove table", EPERM, &["owner"]);
    other.is_refused(&format!("allow table {NOBODY} {WRITE}"), EPERM, &["owner"]);
    other.is_refused(&format!("open other {READ}"), ENOENT, &["none of this name"]);

    owner.tell(&format!("allow table {NOBODY} {READ}"));
    other.is_refused(&format!("open table {WRITE}"), EACCES, &["read it"]);
    other.tell(&format!("open table {READ}"));
    other.tell("attach 0");
    owner.tell(&format!("open table {WRITE}"));
    owner.tell("attach 0");
    owner.tell("write 9 99");
    assert_eq!(other.tell("read 9"), "99");
    assert_eq!(other.tell("fork-write 9 1"), SIGSEGV.to_string());
    assert_eq!(owner.tell("read 9"), "99");

    // Taken away, they hold for what is opened from then on.
    owner.tell(&format!("allow table {NOBODY} 0"));
    assert_eq!(other.tell("read 9"), "99");
    other.tell("close");
    other.is_refused(&format!("open table {READ}"), EACCES, &["no rights"]);
    owner.tell(&format!("allow table -1 {WRITE}"));
    other.is_refused(&format!("open table {READ}"), EACCES, &["no rights"]);
    let mut root = host.member();
    root.tell(&format!("open table {WRITE}"));
    root.tell("attach 0");
    let mut third = host.member_as(2);
    third.tell(&format!("open table {WRITE}"));
    third.tell("attach 0");
    third.tell("write 10 10");
    assert_eq!(root.tell("read 10"), "10");
    root.tell("remove table");
}

#[test]
fn who_may_only_read_cannot_get_more() {
    if needs_root() {
        return;
    }
    let host = Host::new(&[]);
    let mut owner = host.member();
    owner.tell("create table 100000 0");
    owner.tell(&format!("allow table {NOBODY} {READ}"));
    let mut other = host.member_as(NOBODY);
    other.tell(&format!("open table {READ}"));
    other.tell("attach 0");
    assert_eq!(other.tell("regain"), "nothing 1");
    // The same attempts succeed where they may: so they are what they are meant to be.
    owner.tell(&format!("open table {WRITE}"));
    owner.tell("attach 0");
    assert_eq!(owner.tell("regain"), "mprotect");
}

/// A user who is root in a user namespace of his own is not root.
#[test]
fn root_of_a_user_namespace_is_who_made_it() {
    if needs_root() {
        return;
    }
    let host = Host::new(&[]);
    let mut owner = host.member();
    owner.tell("create table 100000 0");
    owner.tell(&format!("allow table {NOBODY} {READ}"));
    let mut command = std::process::Command::new("setpriv");
    let user = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")];
    command
        .args(user)
        .args(["--clear-groups", "unshare", "--user", "--map-root-user"])
        .arg(host.folder.path().join("member"));
    let mut mapped = yasmin_tests::segment::Member { process: host.start("mapped", &mut command) };
    mapped.is_refused(&format!("open table {WRITE}"), EACCES, &["read it"]);
    mapped.tell(&format!("open table {READ}"));
    mapped.tell("attach 0");
    assert_eq!(mapped.tell("regain"), "nothing 1");
    mapped.tell("create own 1 0");
    let about = yasmin_segment::Broker::at(host.socket()).about("own").unwrap();
    assert_eq!(about.owner, NOBODY);
}
