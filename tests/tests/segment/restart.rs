//! A broker that is killed and comes back: segments stay mapped, and are found again.

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use yasmin_segment::{Broker, Kind, Whom};
use yasmin_tests::process::{Process, eventually};
use yasmin_tests::segment::{Host, Member, NOBODY, READ, WRITE, is_root};
use yasmin_tests::sys::libc::{EACCES, EEXIST};

/// What there is before, and must be there after.
struct Before {
    members: [Member; 2],
    address: String,
}

fn before(host: &Host) -> Before {
    let mut members = [host.member(), host.member()];
    members[0].tell("create table 100000 0");
    members[0].tell("create idle 5000 0");
    members[0].tell("create mine 5000 2");
    members[0].tell(&format!("allow idle {NOBODY} {READ}"));
    members[0].tell("create removed 5000 0");
    members[1].tell(&format!("open removed {WRITE}"));
    members[0].tell("remove removed");
    members[0].tell(&format!("open idle {WRITE}"));
    members[0].tell("attach 0");
    members[0].tell("write 4999 42");
    members[0].tell("close");
    members[0].tell(&format!("open table {WRITE}"));
    let address = members[0].tell("attach 0");
    members[0].tell("write 77 7");
    Before { members, address }
}

fn check_after(host: &Host, before: &mut Before) {
    let a = &mut before.members[0];
    let mut b = host.member();
    a.tell("write 78 8");
    b.tell(&format!("open table {WRITE}"));
    assert_eq!(b.tell("attach 0"), before.address);
    assert_eq!((b.tell("read 77"), b.tell("read 78")), ("7".to_owned(), "8".to_owned()));
    a.is_refused("create table 1 0", EEXIST, &["taken"]);
    let broker = Broker::at(host.socket());
    let names: Vec<String> = broker.list().unwrap().into_iter().map(|one| one.name).collect();
    assert_eq!(names, ["idle", "mine", "table"]);
    let table = broker.about("table").unwrap();
    let mut holders: Vec<u32> = table.holders.iter().map(|holder| holder.pid).collect();
    holders.sort_unstable();
    let mut wanted = [a.process.pid(), b.process.pid()];
    wanted.sort_unstable();
    assert_eq!(holders, wanted, "the kernel knows who has it");
    // One that nobody had is there with its bytes and its rights.
    let mut reader = if is_root() { host.member_as(NOBODY) } else { host.member() };
    reader.tell(&format!("open idle {READ}"));
    reader.tell("attach 0");
    assert_eq!(reader.tell("read 4999"), "42");
    if is_root() {
        reader.is_refused(&format!("open idle {WRITE}"), EACCES, &["read it"]);
    }
    // A new one gets other addresses than any that there are.
    let mut c = host.member();
    c.tell("create new 100000 0");
    c.tell(&format!("open new {WRITE}"));
    assert_ne!(c.tell("attach 0"), before.address);
}

#[test]
fn a_broker_that_is_killed_and_comes_back() {
    let mut host = Host::new(&["--no-bpf"]);
    let mut before = before(&host);
    for _ in 0..3 {
        host.broker.kill();
        host.restart();
        check_after(&host, &mut before);
        Broker::at(host.socket()).remove("new").unwrap();
    }
    // Its creator's end is seen by the one that came back.
    before.members[0].process.kill();
    let broker = Broker::at(host.socket());
    eventually(
        "the creator's segment gone",
        || broker.about("mine").is_err().then_some(()),
        || format!("{:?}", broker.list()),
    );
    // What was given away is used again, and what was removed is gone.
    for name in ["table", "idle"] {
        broker.remove(name).unwrap();
    }
    drop(before);
    eventually(
        "the keeper gone with the last",
        || {
            host.broker.kill();
            let is_gone = std::os::unix::net::UnixStream::connect(keeper(&host)).is_err();
            host.restart();
            is_gone.then_some(())
        },
        || "it listens".to_owned(),
    );
}

fn keeper(host: &Host) -> std::path::PathBuf {
    host.folder.path().join("broker.sock.segments")
}

/// The process that keeps them may die, too: there is another one then, which has them all.
#[test]
fn a_keeper_that_is_killed() {
    let mut host = Host::new(&["--no-bpf"]);
    let mut before = before(&host);
    let parent = host.broker.pid();
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let keepers: Vec<i32> =
        children.unwrap().split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(keepers.len(), 1);
    yasmin_tests::sys::kill(keepers[0], yasmin_tests::sys::libc::SIGKILL).unwrap();
    eventually(
        "another keeper",
        || {
            let children =
                std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
            let another = keepers[0].to_string();
            children.unwrap().split_whitespace().any(|pid| pid != another).then_some(())
        },
        || "none".to_owned(),
    );
    let broker = Broker::at(host.socket());
    broker.create("more", 1, Kind::default()).unwrap();
    broker.allow("more", Whom::Everyone, yasmin_segment::Rights::Read).unwrap();
    broker.remove("more").unwrap();
    host.broker.kill();
    host.restart();
    check_after(&host, &mut before);
}

/// What systemd does with FDSTORE=1, and how it starts a service again.
struct Manager {
    socket: UnixDatagram,
    stored: Vec<(String, OwnedFd)>,
}

impl Manager {
    fn new(host: &Host) -> Self {
        let path = host.folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666))
            .unwrap();
        socket.set_nonblocking(true).unwrap();
        Self { socket, stored: Vec::new() }
    }

    fn hear(&mut self) {
        loop {
            let mut text = [0; 4096];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(&mut text)];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let Ok(message) = recvmsg(&self.socket, &mut parts, &mut control, flags) else {
                return;
            };
            let text = String::from_utf8_lossy(&text[..message.bytes]).into_owned();
            let fields: BTreeMap<&str, &str> =
                text.lines().filter_map(|line| line.split_once('=')).collect();
            let name = fields.get("FDNAME").copied().unwrap_or("stored").to_owned();
            if fields.get("FDSTOREREMOVE") == Some(&"1") {
                self.stored.retain(|(other, _)| *other != name);
            }
            for part in control.drain() {
                if let RecvAncillaryMessage::ScmRights(fds) = part {
                    assert_eq!(fields.get("FDSTORE"), Some(&"1"), "{text}");
                    self.stored.extend(fds.map(|fd| (name.clone(), fd)));
                }
            }
        }
    }

    /// A broker with what is stored from descriptor 3 on, as LISTEN_FDS has it.
    fn start(&mut self, host: &Host) -> Process {
        self.hear();
        let names: Vec<&str> = self.stored.iter().map(|(name, _)| name.as_str()).collect();
        // The shell is the process that the broker becomes: LISTEN_PID is its own.
        let script = "export LISTEN_PID=$$; exec \"$@\"";
        let mut command = Command::new("bash");
        command
            .args(["-c", script, "broker"])
            .arg(yasmin_tests::lab::artefact("yasmind"))
            .args(["--no-bpf", "--socket"])
            .arg(host.socket())
            .env("NOTIFY_SOCKET", host.folder.path().join("notify"));
        if !names.is_empty() {
            command
                .env("LISTEN_FDS", names.len().to_string())
                .env("LISTEN_FDNAMES", names.join(":"));
        }
        let numbers: Vec<i32> = self.stored.iter().map(|(_, fd)| fd.as_raw_fd()).collect();
        yasmin_tests::sys::pass_from_3(&mut command, numbers);
        command.process_group(0);
        let process = Process::start("yasmind", &mut command, &host.registry);
        eventually(
            "a broker that answers",
            || Broker::at(host.socket()).list().ok(),
            || process.output(),
        );
        process
    }
}

/// Without a keeper: the service manager's own store.
#[test]
fn a_service_manager_keeps_them() {
    let mut host = Host::new(&["--no-bpf"]);
    host.broker.kill();
    let mut manager = Manager::new(&host);
    let mut broker = manager.start(&host);
    let mut before = before(&host);
    for _ in 0..2 {
        broker.kill();
        broker = manager.start(&host);
        check_after(&host, &mut before);
        Broker::at(host.socket()).remove("new").unwrap();
    }
    assert!(!keeper(&host).exists());
    // What is removed is not kept any more.
    for name in ["table", "idle", "mine"] {
        Broker::at(host.socket()).remove(name).unwrap();
    }
    drop(before);
    eventually(
        "nothing stored",
        || {
            manager.hear();
            manager.stored.is_empty().then_some(())
        },
        || "something is stored".to_owned(),
    );
}
