//! A guest's broker against a host that is played here, at the other end of a socket.

use super::*;
use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use yasmin_control::uplink::UPLINK_BYTES;

struct Lab {
    uplink: Uplink,
    host: UnixStream,
}

impl Lab {
    fn new() -> Self {
        let (port, host) = UnixStream::pair().unwrap();
        port.set_nonblocking(true).unwrap();
        host.set_nonblocking(true).unwrap();
        let mut uplink = Uplink::on(Port::on(port.into())).unwrap();
        uplink.port_came(Instant::now());
        let mut lab = Self { uplink, host };
        assert_eq!(lab.heard(), [(0, ToHost::Ask { version: UPLINK_VERSION })]);
        lab
    }

    /// What the guest has said, and in which session.
    fn heard(&mut self) -> Vec<(u64, ToHost)> {
        let mut raw = [0; UPLINK_BYTES];
        let mut heard = Vec::new();
        loop {
            match self.host.read_exact(&mut raw) {
                Ok(()) => heard.push((session_of(&raw), ToHost::decode(&raw).unwrap())),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return heard,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The host says this, all in one piece.
    fn say(&mut self, messages: &[(u64, FromHost)]) -> Vec<Said> {
        let bytes: Vec<u8> =
            messages.iter().flat_map(|(session, message)| message.encode(*session)).collect();
        self.host.write_all(&bytes).unwrap();
        self.uplink.turn(Instant::now())
    }
}

const BEGIN: FromHost = FromHost::Begin { version: UPLINK_VERSION };
/// What answers it.
const HERE: ToHost = ToHost::Region { region: 0 };
const NUMBERS: Numbers = Numbers { connector: 1, acceptor: 2 };

fn offer(id: u64) -> ToHost {
    ToHost::Offer { id, role: Role::Connector, numbers: NUMBERS }
}

#[test]
fn the_last_of_two_sessions_that_begin_at_once_counts() {
    let mut lab = Lab::new();
    // A host's broker begins when it comes, and again when it is asked to.
    let said = lab.say(&[(5, BEGIN), (6, BEGIN)]);
    assert!(matches!(said[..], [Said::Begun]));
    lab.uplink.offer(7, Role::Connector, NUMBERS);
    assert_eq!(lab.heard(), [(5, HERE), (6, HERE), (6, offer(7))]);
}

#[test]
fn what_follows_a_sessions_beginning_is_heard() {
    let mut lab = Lab::new();
    let reason = Decline::NoProof;
    let said = lab.say(&[
        (5, BEGIN),
        (5, FromHost::Decline { id: 1, reason }),
        (6, BEGIN),
        (5, FromHost::Decline { id: 2, reason }),
        (6, FromHost::Decline { id: 3, reason }),
    ]);
    assert!(matches!(said[..], [Said::Begun, Said::Declined { serial: 3, .. }]));
}

#[test]
fn a_message_in_pieces_is_one() {
    let mut lab = Lab::new();
    for byte in BEGIN.encode(9) {
        lab.host.write_all(&[byte]).unwrap();
        lab.uplink.turn(Instant::now());
    }
    lab.uplink.offer(7, Role::Connector, NUMBERS);
    assert_eq!(lab.heard(), [(9, HERE), (9, offer(7))]);
}

#[test]
fn what_the_host_says_of_segments_is_passed_on() {
    let mut lab = Lab::new();
    let name = Name::new("table").unwrap();
    let place = Place::new((1 << 45) + 4096, 4096, Default::default()).unwrap();
    // Without its memory a segment is not there.
    let said = lab.say(&[
        (5, BEGIN),
        (5, FromHost::Segment { region: 9, domain: 1, place }),
        (5, FromHost::Name { region: 9, name }),
        (5, FromHost::Plugged { region: 9 }),
        (5, FromHost::End { region: 9, number: 2 }),
        (5, FromHost::Probe { id: 1, region: 9, slot: 2 }),
        (4, FromHost::Life { id: 1, life: Life::Dead }),
        (5, FromHost::Life { id: 3, life: Life::Alive }),
        (5, FromHost::Ring { region: 9, bell: 63 }),
    ]);
    assert!(matches!(
        said[..],
        [
            Said::Begun,
            Said::Probe { id: 1, region: 9, slot: 2 },
            Said::Life { id: 3, life: Life::Alive },
            Said::Ring { region: 9, bell: 63 },
            Said::End { region: 9, number: 2 },
        ]
    ));
    assert!(lab.uplink.probe(7, 9, 3));
    lab.uplink.answer_probe(1, Life::Unknown);
    lab.uplink.ring(9, 7, 5);
    lab.uplink.unused(9, 2);
    let wanted = [
        HERE,
        ToHost::Probe { id: 7, region: 9, slot: 3 },
        ToHost::Life { id: 1, life: Life::Unknown },
        ToHost::Ring { region: 9, bell: 7, domains: 5 },
        ToHost::Unused { region: 9, number: 2 },
    ];
    assert_eq!(lab.heard(), wanted.map(|message| (5, message)));
    // Behind what waits to be written nothing rings.
    lab.uplink.outbox.push(0);
    lab.uplink.ring(9, 7, 5);
    assert_eq!(lab.uplink.outbox.len(), 1);
}

/// A terminal's end that stands for the host, and the other one's path.
fn terminal() -> (File, PathBuf) {
    let host = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    unlockpt(&host).unwrap();
    let name = ptsname(&host, Vec::new()).unwrap();
    (File::from(host), OsStr::from_bytes(name.as_bytes()).into())
}

/// A terminal stands for a port: it is there when its symbolic link is.
#[test]
fn the_port_may_come_later_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("port");
    let mut uplink = Uplink::start(Some(path.clone())).unwrap();
    for _ in 0..2 {
        assert!(uplink.port.fd().is_none() && !uplink.is_up());
        assert!(uplink.turn(Instant::now()).is_empty());
        let (host, name) = terminal();
        std::fs::write(folder.path().join("other"), b"").unwrap();
        assert!(uplink.turn(Instant::now()).is_empty() && uplink.port.fd().is_none());
        symlink(&name, &path).unwrap();
        uplink.turn(Instant::now());
        let mut raw = [0; UPLINK_BYTES];
        (&host).read_exact(&mut raw).unwrap();
        assert_eq!(ToHost::decode(&raw), Ok(ToHost::Ask { version: UPLINK_VERSION }));
        std::fs::remove_file(&path).unwrap();
        uplink.port_gone(Instant::now());
    } // One that is there before the last one was seen to be gone.
    let (_host, name) = terminal();
    symlink(&name, &path).unwrap();
    uplink.turn(Instant::now());
    uplink.port_gone(Instant::now());
    uplink.expire(Instant::now());
    assert!(uplink.port.fd().is_some());
}
