//! The messages themselves: fixed 64-byte datagrams, little-endian.
//!
//! ```text
//! 0  kind u32    4  a u32    8  id u64    16  b u64    24  c u64    32..64  zero, text or two addresses
//! ```
//!
//! A message names a TCP socket and never carries one: whoever holds a duplicate holds back the
//! connection's end.

use crate::guest::Endpoint;
use yasmin_wire::Medium;

/// Size of every message.
pub const MESSAGE_BYTES: usize = 64;

/// Bytes of a program's name in HELLO, as in /proc/PID/comm.
pub const COMM_BYTES: usize = 16;

/// Which end of the TCP connection a side is. The connector sends on direction 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Role {
    Connector = 0,
    Acceptor = 1,
}

impl Role {
    /// Index of the direction on which this end sends.
    pub const fn sends_on(self) -> usize {
        self as usize
    }

    /// That of the peer.
    pub const fn other(self) -> Self {
        match self {
            Self::Connector => Self::Acceptor,
            Self::Acceptor => Self::Connector,
        }
    }

    const fn decode(raw: u32) -> Result<Self, BadMessage> {
        match raw {
            0 => Ok(Self::Connector),
            1 => Ok(Self::Acceptor),
            value => Err(BadMessage::Role { value }),
        }
    }
}

/// A TCP socket as its process names it. The broker looks it up in that process's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket {
    /// The descriptor's number.
    pub number: u32,
    /// SO_COOKIE.
    pub cookie: u64,
    pub local: Endpoint,
    pub peer: Endpoint,
}

/// What becomes of a connection whose end releases its channel (spec/wire.md 6.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It ends here, or never had one.
    Closes = 0,
    /// It goes on by TCP: it talks too seldom for a channel.
    IsSeldom = 1,
    /// It goes on by TCP for now.
    GoesOn = 2,
}

impl Then {
    /// Of the lowest two bits.
    pub const fn of_bits(bits: u64) -> Self {
        match bits & 3 {
            0 => Self::Closes,
            1 => Self::IsSeldom,
            _ => Self::GoesOn,
        }
    }

    const fn decode(raw: u32) -> Result<Self, BadMessage> {
        match raw {
            0..=2 => Ok(Self::of_bits(raw as u64)),
            value => Err(BadMessage::Then { value }),
        }
    }
}

/// What a process with the library, or the command, tells the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToBroker {
    /// First message of a process. `comm` is for display only; the pid comes from the socket.
    Hello { version: u32, comm: [u8; COMM_BYTES] },
    /// This end proves busy.
    /// `id` is the process's own name for the connection, never used twice. `holders`: by how many numbers this process
    /// names a socket that it got from another one, not knowing who else holds it; 0 where it knows.
    Offer { id: u64, role: Role, holders: u8, socket: Socket },
    /// The end is closed, or its offer withdrawn; or it gave its channel back, and `gone` in its peer's side page
    /// says so.
    Release { id: u64, then: Then },
    /// The receiving direction's ring fills up: may it grow to `class`?
    /// Answered by a higher class limit in the end's side page, or not at all.
    Grow { id: u64, class: u8 },
    /// The command asks for the status; answered by `FromBroker::Status`.
    Status { version: u32 },
    /// A TCP connection to this address, another guest's, is about to be made. First message
    /// on a connection of its own, as `Join` is for an acceptor; answered by
    /// `FromBroker::Prepared` or `Decline`.
    Prepare { version: u32, to: Endpoint },
    /// The TCP connection stands. Answered, within `wait_ms`, by `FromBroker::Joined` or
    /// `Decline`.
    Join { version: u32, role: Role, wait_ms: u32, socket: Socket },
    /// The process passes a TCP socket on over a Unix socket, and wants to leave what it has
    /// unread for whoever gets it. First message on a connection of its own, as `Claim` is;
    /// answered by `FromBroker::Send` or `Decline`.
    Leave { version: u32, socket: Socket },
    /// After `FromBroker::Send`. One descriptor beside it: the residue's memfd. The only message
    /// that brings one. Answered by `FromBroker::Left` or `Decline`.
    Keep,
    /// A busy connection is not offered, for a reason that only its process knows: for the status.
    Stays { role: Role, reason: Decline, socket: Socket },
    /// The process got a TCP socket over a Unix socket. Answered by `FromBroker::Residue` or
    /// `Decline`.
    Claim { version: u32, socket: Socket },
    /// How many references are there to the epoll set that the process has at this number? First
    /// message on a connection of its own; answered by `FromBroker::Counted` or `Decline`.
    Count { version: u32, number: u32 },
}

/// What the broker answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromBroker {
    /// Answer to HELLO. One descriptor beside it: the mailbox, a page whose first 8 bytes are
    /// a counter that the broker raises after every message it sends to this process.
    Welcome { version: u32 },
    /// HELLO or STATUS of a version that this broker does not speak.
    Refused { version: u32 },
    /// Two descriptors beside it: the channel's memory and the end's own side page.
    /// `cookie` is SO_COOKIE of the socket that was offered as `id`.
    Channel { id: u64, cookie: u64, role: Role, max_class: u8, first_class: u8, medium: Medium },
    /// `id` stays on TCP.
    Decline { id: u64, reason: Decline },
    /// One descriptor beside it: a memfd with `len_bytes` of JSON, `status::Status`.
    Status { len_bytes: u64 },
    /// Answer to PREPARE: go on.
    Prepared,
    /// Answer to JOIN. One descriptor beside it: the vsock connection to take the place of the
    /// TCP connection. A connector sends GO on it; an acceptor sends READY with this proof and
    /// waits for GO.
    Joined { proof: u64 },
    /// Answer to LEAVE: KEEP may come.
    Send,
    /// Answer to KEEP: it is kept for some seconds.
    Left,
    /// Answer to CLAIM. One descriptor beside it: the residue's memfd. So many more are `left`
    /// for this socket.
    Residue { left: u64 },
    /// Answer to COUNT: numbers in all processes, and calls under way of programs with threads.
    Counted { references: u64 },
}

/// Why a connection has no channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Decline {
    /// The number is not that of an established TCP connection of this process.
    NotTcp = 1,
    /// Both ends are one socket.
    SelfConnected = 2,
    /// The memory budget, or this user's share of it, is spent.
    Memory = 3,
    /// A policy of the broker.
    Policy = 4,
    /// The proof could not be had (no BPF, and the ends are in different namespaces).
    NoProof = 5,
    /// The same end was already offered, by this or another process.
    Taken = 6,
    /// This process has too many offers open.
    TooMany = 7,
    /// The other end is no program under the library in another guest of this host, or it does
    /// not answer.
    NoGuest = 8,
    /// Nobody has left anything for this socket that this process may have.
    NoResidue = 9,
    /// It was handed over, and is held elsewhere too, so far.
    Shared = 10,
    /// The library's: the program makes system calls on sockets past libc.
    OwnCalls = 11,
    /// The library's: an option of the socket's that only the kernel can serve.
    Option = 12,
    /// The library's: bytes went over it in ways that it did not see.
    Unseen = 13,
    /// Memory with the other guest may come later: it may be offered again.
    Later = 14,
    /// The library's: how the process is run leaves rings no room (ulimit -f, valgrind).
    Confined = 15,
}

impl Decline {
    pub(crate) const fn decode(raw: u32) -> Result<Self, BadMessage> {
        Ok(match raw {
            1 => Self::NotTcp,
            2 => Self::SelfConnected,
            3 => Self::Memory,
            4 => Self::Policy,
            5 => Self::NoProof,
            6 => Self::Taken,
            7 => Self::TooMany,
            8 => Self::NoGuest,
            9 => Self::NoResidue,
            10 => Self::Shared,
            11 => Self::OwnCalls,
            12 => Self::Option,
            13 => Self::Unseen,
            14 => Self::Later,
            15 => Self::Confined,
            value => return Err(BadMessage::Reason { value }),
        })
    }

    /// For people, as `yasmin status` prints it.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::NotTcp => "not an established TCP connection",
            Self::SelfConnected => "connected to itself",
            Self::Memory => "memory budget spent",
            Self::Policy => "broker policy",
            Self::NoProof => "no proof that the two ends belong together",
            Self::Taken => "end already taken",
            Self::TooMany => "too many offers from this process",
            Self::NoGuest => "no program under yasmin in another guest at the other end",
            Self::NoResidue => "nothing was left for this socket",
            Self::Shared => "another process holds the socket too",
            Self::OwnCalls => "the program makes system calls on sockets past libc",
            Self::Option => "a socket option that only the kernel can serve",
            Self::Unseen => "bytes went past libc's calls",
            Self::Confined => "the program runs with a limit on the size of files, or in valgrind",
            Self::Later => "no memory with the other guest now, so it is tried again",
        }
    }
}

/// A datagram that no honest sender writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadMessage {
    Length { len_bytes: usize },
    Kind { value: u32 },
    Then { value: u32 },
    Role { value: u32 },
    Class { value: u64 },
    Reason { value: u32 },
    Port { value: u64 },
    Medium { value: u64 },
}

const HELLO: u32 = 1;
const OFFER: u32 = 2;
const RELEASE: u32 = 3;
const GROW: u32 = 4;
const STATUS: u32 = 5;
const PREPARE: u32 = 6;
const JOIN: u32 = 7;
const LEAVE: u32 = 8;
const CLAIM: u32 = 9;
const KEEP: u32 = 10;
const STAYS: u32 = 11;
/// 11 to 17 and 19 are of segments, too, as 111 to 115 are.
const COUNT: u32 = 18;
const WELCOME: u32 = 101;
const REFUSED: u32 = 102;
const CHANNEL: u32 = 103;
const DECLINE: u32 = 104;
const STATUS_REPLY: u32 = 105;
const PREPARED: u32 = 106;
const JOINED: u32 = 107;
const LEFT: u32 = 108;
const RESIDUE: u32 = 109;
const SEND: u32 = 110;
const COUNTED: u32 = 116;

/// In OFFER: the role stands below.
const HOLDERS_SHIFT: u32 = 24;

/// The fields of a message before they have a meaning.
struct Fields {
    kind: u32,
    a: u32,
    id: u64,
    b: u64,
    c: u64,
}

impl Fields {
    const fn new(kind: u32, a: u32, id: u64) -> Self {
        Self { kind, a, id, b: 0, c: 0 }
    }

    fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let mut out = [0; MESSAGE_BYTES];
        out[0..4].copy_from_slice(&self.kind.to_le_bytes());
        out[4..8].copy_from_slice(&self.a.to_le_bytes());
        out[8..16].copy_from_slice(&self.id.to_le_bytes());
        out[16..24].copy_from_slice(&self.b.to_le_bytes());
        out[24..32].copy_from_slice(&self.c.to_le_bytes());
        out
    }

    fn decode(raw: &[u8; MESSAGE_BYTES]) -> Self {
        let u32_at =
            |at: usize| u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        Self { kind: u32_at(0), a: u32_at(4), id: u64_at(8), b: u64_at(16), c: u64_at(24) }
    }
}

impl Socket {
    /// `rest` is 32 bits for the message itself.
    fn encode(&self, kind: u32, a: u32, id: u64, rest: u32) -> [u8; MESSAGE_BYTES] {
        let ports = u64::from(self.local.port) | u64::from(self.peer.port) << 16;
        let c = ports | u64::from(rest) << 32;
        let mut out = Fields { kind, a, id, b: self.cookie, c }.encode();
        out[32..48].copy_from_slice(&self.local.address);
        out[48..64].copy_from_slice(&self.peer.address);
        out
    }

    fn decode(number: u32, fields: &Fields, raw: &[u8; MESSAGE_BYTES]) -> Self {
        let end = |at: usize, port: u64| {
            let mut address = [0; 16];
            address.copy_from_slice(&raw[at..at + 16]);
            Endpoint { address, port: port as u16 }
        };
        let (local, peer) = (end(32, fields.c), end(48, fields.c >> 16));
        Self { number, cookie: fields.b, local, peer }
    }
}

fn exact(raw: &[u8]) -> Result<&[u8; MESSAGE_BYTES], BadMessage> {
    raw.try_into().map_err(|_| BadMessage::Length { len_bytes: raw.len() })
}

fn class(value: u64) -> Result<u8, BadMessage> {
    match u8::try_from(value) {
        Ok(class) if class <= yasmin_wire::layout::MAX_CLASS => Ok(class),
        _ => Err(BadMessage::Class { value }),
    }
}

impl ToBroker {
    pub fn encode(self) -> [u8; MESSAGE_BYTES] {
        match self {
            Self::Hello { version, comm } => {
                let mut out = Fields::new(HELLO, version, 0).encode();
                out[32..32 + COMM_BYTES].copy_from_slice(&comm);
                out
            }
            Self::Offer { id, role, holders, socket } => {
                let rest = role as u32 | u32::from(holders) << HOLDERS_SHIFT;
                socket.encode(OFFER, socket.number, id, rest)
            }
            Self::Stays { role, reason, socket } => {
                socket.encode(STAYS, socket.number, reason as u64, role as u32)
            }
            Self::Release { id, then } => Fields::new(RELEASE, then as u32, id).encode(),
            Self::Grow { id, class } => Fields::new(GROW, u32::from(class), id).encode(),
            Self::Status { version } => Fields::new(STATUS, version, 0).encode(),
            Self::Prepare { version, to } => {
                let fields = Fields { b: u64::from(to.port), ..Fields::new(PREPARE, version, 0) };
                let mut out = fields.encode();
                out[32..48].copy_from_slice(&to.address);
                out
            }
            Self::Join { version, role, wait_ms, socket } => {
                let id = u64::from(socket.number) | (role as u64) << 32;
                socket.encode(JOIN, version, id, wait_ms)
            }
            Self::Leave { version, socket } => {
                socket.encode(LEAVE, version, u64::from(socket.number), 0)
            }
            Self::Keep => Fields::new(KEEP, 0, 0).encode(),
            Self::Claim { version, socket } => {
                socket.encode(CLAIM, version, u64::from(socket.number), 0)
            }
            Self::Count { version, number } => {
                Fields::new(COUNT, version, u64::from(number)).encode()
            }
        }
    }

    /// # Errors
    /// `BadMessage` names the field that no honest sender writes; the broker then drops the
    /// sender.
    pub fn decode(raw: &[u8]) -> Result<Self, BadMessage> {
        let raw = exact(raw)?;
        let fields = Fields::decode(raw);
        Ok(match fields.kind {
            HELLO => {
                let mut comm = [0; COMM_BYTES];
                comm.copy_from_slice(&raw[32..32 + COMM_BYTES]);
                Self::Hello { version: fields.a, comm }
            }
            OFFER => Self::Offer {
                id: fields.id,
                role: Role::decode((fields.c >> 32) as u32 & ((1 << HOLDERS_SHIFT) - 1))?,
                holders: (fields.c >> (32 + HOLDERS_SHIFT)) as u8,
                socket: Socket::decode(fields.a, &fields, raw),
            },
            STAYS => Self::Stays {
                role: Role::decode((fields.c >> 32) as u32)?,
                reason: Decline::decode(u32::try_from(fields.id).unwrap_or(u32::MAX))?,
                socket: Socket::decode(fields.a, &fields, raw),
            },
            RELEASE => Self::Release { id: fields.id, then: Then::decode(fields.a)? },
            GROW => Self::Grow { id: fields.id, class: class(u64::from(fields.a))? },
            STATUS => Self::Status { version: fields.a },
            PREPARE => {
                let mut address = [0; 16];
                address.copy_from_slice(&raw[32..48]);
                let port =
                    u16::try_from(fields.b).map_err(|_| BadMessage::Port { value: fields.b })?;
                Self::Prepare { version: fields.a, to: Endpoint { address, port } }
            }
            JOIN => Self::Join {
                version: fields.a,
                role: Role::decode((fields.id >> 32) as u32)?,
                wait_ms: (fields.c >> 32) as u32,
                socket: Socket::decode(fields.id as u32, &fields, raw),
            },
            LEAVE => Self::Leave {
                version: fields.a,
                socket: Socket::decode(fields.id as u32, &fields, raw),
            },
            KEEP => Self::Keep,
            CLAIM => Self::Claim {
                version: fields.a,
                socket: Socket::decode(fields.id as u32, &fields, raw),
            },
            COUNT => Self::Count { version: fields.a, number: fields.id as u32 },
            value => return Err(BadMessage::Kind { value }),
        })
    }
}

impl FromBroker {
    pub fn encode(self) -> [u8; MESSAGE_BYTES] {
        match self {
            Self::Welcome { version } => Fields::new(WELCOME, version, 0),
            Self::Refused { version } => Fields::new(REFUSED, version, 0),
            Self::Channel { id, cookie, role, max_class, first_class, medium } => Fields {
                kind: CHANNEL,
                a: role as u32,
                id,
                b: cookie,
                c: u64::from(max_class) | u64::from(first_class) << 8 | (medium as u64) << 16,
            },
            Self::Decline { id, reason } => Fields::new(DECLINE, reason as u32, id),
            Self::Status { len_bytes } => {
                Fields { kind: STATUS_REPLY, a: 0, id: 0, b: len_bytes, c: 0 }
            }
            Self::Prepared => Fields::new(PREPARED, 0, 0),
            Self::Joined { proof } => Fields { b: proof, ..Fields::new(JOINED, 0, 0) },
            Self::Send => Fields::new(SEND, 0, 0),
            Self::Left => Fields::new(LEFT, 0, 0),
            Self::Residue { left } => Fields { b: left, ..Fields::new(RESIDUE, 0, 0) },
            Self::Counted { references } => Fields { b: references, ..Fields::new(COUNTED, 0, 0) },
        }
        .encode()
    }

    /// # Errors
    /// `BadMessage` names the field that no honest broker writes; the library then leaves it.
    pub fn decode(raw: &[u8]) -> Result<Self, BadMessage> {
        let fields = Fields::decode(exact(raw)?);
        Ok(match fields.kind {
            WELCOME => Self::Welcome { version: fields.a },
            REFUSED => Self::Refused { version: fields.a },
            CHANNEL => {
                let (max_class, first_class) =
                    (class(fields.c & 0xff)?, class(fields.c >> 8 & 0xff)?);
                if first_class > max_class {
                    return Err(BadMessage::Class { value: u64::from(first_class) });
                }
                let (role, value) = (Role::decode(fields.a)?, fields.c >> 16);
                let medium = Medium::decode(value).ok_or(BadMessage::Medium { value })?;
                let (id, cookie) = (fields.id, fields.b);
                Self::Channel { id, cookie, role, max_class, first_class, medium }
            }
            DECLINE => Self::Decline { id: fields.id, reason: Decline::decode(fields.a)? },
            STATUS_REPLY => Self::Status { len_bytes: fields.b },
            PREPARED => Self::Prepared,
            JOINED => Self::Joined { proof: fields.b },
            SEND => Self::Send,
            LEFT => Self::Left,
            RESIDUE => Self::Residue { left: fields.b },
            COUNTED => Self::Counted { references: fields.b },
            value => return Err(BadMessage::Kind { value }),
        })
    }
}
