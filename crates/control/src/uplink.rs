//! Messages between a guest's broker and its host's, over a virtio-serial port (spec/wire.md
//! section 13.2), or by vsock (14).
//!
//! ```text
//! 0  "YMUP"    4  kind u32    8  session u64    16  id u64    24, 32, 40, 48  four more u64    56  zero
//! ```
//!
//! The port is a stream of bytes that either side may cut: a reader looks for the magic, and leaves
//! what is of another session.

use crate::message::{Decline, Role};
use crate::segment::{Kind, NAME_BYTES, Name, Place, Rights, Whom, bell};
use yasmin_wire::layout::MAX_CLASS;

/// Size of every message.
pub const UPLINK_BYTES: usize = 64;

/// Version of these messages.
pub const UPLINK_VERSION: u64 = 4;

/// The virtio-serial port's name.
pub const PORT_NAME: &str = "org.yasmin.0";

/// On Xen, where dom0's broker listens by vsock. Below 1024: only root can, and only root connects from such
/// a port.
pub const XEN_PORT: u32 = 723;

/// So many guests share one segment at most: each has its part of the members' slots.
pub const DOMAINS_MAX: u8 = 8;

const MAGIC: [u8; 4] = *b"YMUP";

/// Part of a region, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The region's number.
    pub region: u64,
    pub offset: u64,
    pub bytes: u64,
    /// The number by which the host gave it; never used twice for a region.
    pub grant: u64,
}

/// The initial sequence numbers of a connection, which both ends share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Numbers {
    pub connector: u32,
    pub acceptor: u32,
}

/// From a guest's broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToHost {
    /// It is there, and waits for `FromHost::Begin`. The only one without a session.
    Ask { version: u64 },
    /// An end that has no peer in this guest. `id` is the broker's own name for it, never used
    /// twice in a session.
    Offer { id: u64, role: Role, numbers: Numbers },
    /// The end is gone, or has found its peer.
    Withdraw { id: u64 },
    /// A slice of a region that is about to be told of is held in this guest.
    Held(Slice),
    /// The region is here, and what is held of it has been told.
    Region { region: u64 },
    /// Nobody in this guest holds the slice by this grant any more, or ever did.
    Freed(Slice),
    /// The region is not here any more.
    Gone { region: u64 },
    /// Nobody in this guest has the segment, of which the host said by this number that it ends.
    Unused { region: u64, number: u64 },
    /// Whether the member of a segment lives that has this slot; it is of another guest. `id` is the
    /// broker's own.
    Probe { id: u64, region: u64, slot: u64 },
    /// The answer to `FromHost::Probe`.
    Life { id: u64, life: Life },
    /// A segment's bell rings in these guests, a bit for each number.
    Ring { region: u64, bell: u8, domains: u8 },
}

/// What is known of a member of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Life {
    /// It cannot be told now.
    Unknown = 0,
    Alive = 1,
    Dead = 2,
}

impl Life {
    /// `None`: not one of them.
    pub const fn decode(raw: u64) -> Option<Self> {
        match raw {
            0 => Some(Self::Unknown),
            1 => Some(Self::Alive),
            2 => Some(Self::Dead),
            _ => None,
        }
    }
}

/// From the host's broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromHost {
    /// A session begins: all that was said before is void. The guest tells of its regions and its
    /// ends anew.
    Begin { version: u64 },
    /// A region was plugged: look for it.
    Plugged { region: u64 },
    /// A channel for the end `id`, in a region that the guest has told of.
    Channel { id: u64, region: u64, offset: u64, grant: u64, max_class: u8, first_class: u8 },
    /// The end gets none.
    Decline { id: u64, reason: Decline },
    /// The region that will be told of with `Plugged` is a segment of all its guests, of which this
    /// one is number `domain`. The segment begins with the region's second page.
    Segment { region: u64, domain: u8, place: Place },
    /// Its name.
    Name { region: u64, name: Name },
    /// What somebody in this guest may do with it; nobody else may do anything.
    Rights { region: u64, whom: Whom, rights: Rights },
    /// It ends: nobody may open it any more. Answered by `ToHost::Unused`, when nobody has it.
    End { region: u64, number: u64 },
    /// Whether the member lives that has this slot, in this guest. `id` is the host's.
    Probe { id: u64, region: u64, slot: u64 },
    /// The answer to `ToHost::Probe`.
    Life { id: u64, life: Life },
    /// A segment's bell rings: whoever sleeps at it in this guest is to look.
    Ring { region: u64, bell: u8 },
}

/// What no honest sender writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadUplink;

const ASK: u32 = 1;
const OFFER: u32 = 2;
const WITHDRAW: u32 = 3;
const HELD: u32 = 4;
const REGION: u32 = 5;
const FREED: u32 = 6;
const GONE: u32 = 7;
const UNUSED: u32 = 8;
const PROBE: u32 = 9;
const LIFE: u32 = 10;
const RING: u32 = 11;
const BEGIN: u32 = 101;
const PLUGGED: u32 = 102;
const CHANNEL: u32 = 103;
const DECLINE: u32 = 104;
const SEGMENT: u32 = 105;
const NAME: u32 = 106;
const RIGHTS: u32 = 107;
const END: u32 = 108;
const HOST_PROBE: u32 = 109;
const HOST_LIFE: u32 = 110;
const HOST_RING: u32 = 111;

type Raw = [u8; UPLINK_BYTES];

fn encode(kind: u32, session: u64, fields: [u64; 5]) -> Raw {
    let mut out = [0; UPLINK_BYTES];
    out[0..4].copy_from_slice(&MAGIC);
    out[4..8].copy_from_slice(&kind.to_le_bytes());
    out[8..16].copy_from_slice(&session.to_le_bytes());
    for (at, field) in out[16..56].chunks_exact_mut(8).zip(fields) {
        at.copy_from_slice(&field.to_le_bytes());
    }
    out
}

fn u64_at(raw: &Raw, at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&raw[at..at + 8]);
    u64::from_le_bytes(bytes)
}

fn fields(raw: &Raw) -> (u32, [u64; 5]) {
    ((u64_at(raw, 0) >> 32) as u32, [16, 24, 32, 40, 48].map(|at| u64_at(raw, at)))
}

fn words(name: &[u8; NAME_BYTES]) -> [u64; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(name.chunks_exact(8)) {
        *word = bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
    }
    words
}

/// The session that a message is of.
pub fn session_of(raw: &Raw) -> u64 {
    u64_at(raw, 8)
}

fn slice([region, offset, bytes, grant, _]: [u64; 5]) -> Slice {
    Slice { region, offset, bytes, grant }
}

fn slice_fields(Slice { region, offset, bytes, grant }: Slice) -> [u64; 5] {
    [region, offset, bytes, grant, 0]
}

impl ToHost {
    pub fn encode(self, session: u64) -> Raw {
        let (kind, fields) = match self {
            Self::Ask { version } => (ASK, [version, 0, 0, 0, 0]),
            Self::Offer { id, role, numbers } => {
                let numbers = u64::from(numbers.connector) | u64::from(numbers.acceptor) << 32;
                (OFFER, [id, role as u64, numbers, 0, 0])
            }
            Self::Withdraw { id } => (WITHDRAW, [id, 0, 0, 0, 0]),
            Self::Held(slice) => (HELD, slice_fields(slice)),
            Self::Region { region } => (REGION, [region, 0, 0, 0, 0]),
            Self::Freed(slice) => (FREED, slice_fields(slice)),
            Self::Gone { region } => (GONE, [region, 0, 0, 0, 0]),
            Self::Unused { region, number } => (UNUSED, [region, number, 0, 0, 0]),
            Self::Probe { id, region, slot } => (PROBE, [id, region, slot, 0, 0]),
            Self::Life { id, life } => (LIFE, [id, life as u64, 0, 0, 0]),
            Self::Ring { region, bell, domains } => {
                (RING, [region, bell.into(), domains.into(), 0, 0])
            }
        };
        encode(kind, session, fields)
    }

    /// # Errors
    /// What no honest guest writes; the host then begins anew.
    pub fn decode(raw: &Raw) -> Result<Self, BadUplink> {
        let (kind, fields) = fields(raw);
        let [id, b, c, ..] = fields;
        Ok(match kind {
            ASK => Self::Ask { version: id },
            OFFER => Self::Offer {
                id,
                role: match b {
                    0 => Role::Connector,
                    1 => Role::Acceptor,
                    _ => return Err(BadUplink),
                },
                numbers: Numbers { connector: c as u32, acceptor: (c >> 32) as u32 },
            },
            WITHDRAW => Self::Withdraw { id },
            HELD => Self::Held(slice(fields)),
            REGION => Self::Region { region: id },
            FREED => Self::Freed(slice(fields)),
            GONE => Self::Gone { region: id },
            UNUSED => Self::Unused { region: id, number: b },
            PROBE => Self::Probe { id, region: b, slot: c },
            LIFE => Self::Life { id, life: Life::decode(b).ok_or(BadUplink)? },
            RING => Self::Ring {
                region: id,
                bell: bell(b).ok_or(BadUplink)?,
                domains: u8::try_from(c).map_err(|_| BadUplink)?,
            },
            _ => return Err(BadUplink),
        })
    }
}

impl FromHost {
    pub fn encode(self, session: u64) -> Raw {
        let (kind, fields) = match self {
            Self::Begin { version } => (BEGIN, [version, 0, 0, 0, 0]),
            Self::Plugged { region } => (PLUGGED, [region, 0, 0, 0, 0]),
            Self::Channel { id, region, offset, grant, max_class, first_class } => {
                let classes = u64::from(max_class) | u64::from(first_class) << 8;
                (CHANNEL, [id, region, offset, classes, grant])
            }
            Self::Decline { id, reason } => (DECLINE, [id, reason as u64, 0, 0, 0]),
            Self::Segment { region, domain, place } => {
                let Place { address, size_bytes, kind } = place;
                (SEGMENT, [region, domain.into(), address, size_bytes, kind.encode()])
            }
            Self::Name { region, name } => {
                let [a, b, c, d] = words(name.raw());
                (NAME, [region, a, b, c, d])
            }
            Self::Rights { region, whom, rights } => {
                (RIGHTS, [region, whom.encode(), rights as u64, 0, 0])
            }
            Self::End { region, number } => (END, [region, number, 0, 0, 0]),
            Self::Probe { id, region, slot } => (HOST_PROBE, [id, region, slot, 0, 0]),
            Self::Life { id, life } => (HOST_LIFE, [id, life as u64, 0, 0, 0]),
            Self::Ring { region, bell } => (HOST_RING, [region, bell.into(), 0, 0, 0]),
        };
        encode(kind, session, fields)
    }

    /// # Errors
    /// What no honest host writes; the guest then leaves it.
    pub fn decode(raw_message: &Raw) -> Result<Self, BadUplink> {
        let (kind, [id, b, c, d, e]) = fields(raw_message);
        Ok(match kind {
            BEGIN => Self::Begin { version: id },
            PLUGGED => Self::Plugged { region: id },
            CHANNEL => {
                let (max_class, first_class) = (d as u8, (d >> 8) as u8);
                if max_class > MAX_CLASS || first_class > max_class || d >> 16 != 0 {
                    return Err(BadUplink);
                }
                Self::Channel { id, region: b, offset: c, grant: e, max_class, first_class }
            }
            DECLINE => {
                let reason = u32::try_from(b).ok().and_then(|b| Decline::decode(b).ok());
                Self::Decline { id, reason: reason.ok_or(BadUplink)? }
            }
            SEGMENT => {
                let kind = Kind::decode(e).map_err(|_| BadUplink)?;
                let domain = u8::try_from(b).ok().filter(|&domain| domain < DOMAINS_MAX);
                Self::Segment {
                    region: id,
                    domain: domain.ok_or(BadUplink)?,
                    place: Place::new(c, d, kind).ok_or(BadUplink)?,
                }
            }
            NAME => {
                let mut raw = [0; NAME_BYTES];
                raw.copy_from_slice(&raw_message[24..56]);
                Self::Name { region: id, name: Name::decode(&raw).map_err(|_| BadUplink)? }
            }
            RIGHTS => Self::Rights {
                region: id,
                whom: Whom::decode(b).map_err(|_| BadUplink)?,
                rights: u32::try_from(c).ok().and_then(Rights::decode).ok_or(BadUplink)?,
            },
            END => Self::End { region: id, number: b },
            HOST_PROBE => Self::Probe { id, region: b, slot: c },
            HOST_LIFE => Self::Life { id, life: Life::decode(b).ok_or(BadUplink)? },
            HOST_RING => Self::Ring { region: id, bell: bell(b).ok_or(BadUplink)? },
            _ => return Err(BadUplink),
        })
    }
}

/// The next message in a stream of bytes, and how many bytes were used up; `None`: not all of one
/// is there.
pub fn next(bytes: &[u8]) -> (usize, Option<&Raw>) {
    // What is no message is skipped, but for what may be the beginning of one.
    let start = (0..bytes.len()).find(|&at| {
        let rest = &bytes[at..];
        MAGIC.starts_with(&rest[..rest.len().min(MAGIC.len())])
    });
    let Some(start) = start else { return (bytes.len(), None) };
    let raw = bytes.get(start..start + UPLINK_BYTES).and_then(|raw| raw.try_into().ok());
    match raw {
        Some(raw) => (start + UPLINK_BYTES, Some(raw)),
        None => (start, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_come_back() {
        let slice = Slice { region: 1, offset: 4096, bytes: 8192, grant: 77 };
        let numbers = Numbers { connector: 1, acceptor: u32::MAX };
        for message in [
            ToHost::Ask { version: 1 },
            ToHost::Offer { id: 7, role: Role::Acceptor, numbers },
            ToHost::Withdraw { id: 7 },
            ToHost::Held(slice),
            ToHost::Region { region: u64::MAX },
            ToHost::Freed(slice),
            ToHost::Gone { region: 3 },
            ToHost::Unused { region: 3, number: 4 },
            ToHost::Probe { id: 1, region: 2, slot: 3 },
            ToHost::Life { id: 1, life: Life::Dead },
            ToHost::Ring { region: 2, bell: 63, domains: u8::MAX },
        ] {
            assert_eq!(ToHost::decode(&message.encode(5)), Ok(message));
            assert_eq!(session_of(&message.encode(5)), 5);
        }
        let name = Name::new("abcdefghijklmnopqrstuvwxyz012345").unwrap();
        let place = Place::new((1 << 45) + 4096, 5000, Kind::default()).unwrap();
        let channel = |max_class, first_class| FromHost::Channel {
            id: 7,
            region: 9,
            offset: 4096,
            grant: u64::MAX,
            max_class,
            first_class,
        };
        for message in [
            FromHost::Begin { version: 1 },
            FromHost::Plugged { region: 9 },
            channel(2, 2),
            FromHost::Decline { id: 7, reason: Decline::Memory },
            FromHost::Segment { region: 9, domain: DOMAINS_MAX - 1, place },
            FromHost::Name { region: 9, name },
            FromHost::Rights { region: 9, whom: Whom::User(1000), rights: Rights::Read },
            FromHost::End { region: 9, number: 4 },
            FromHost::Probe { id: 1, region: 2, slot: 3 },
            FromHost::Life { id: u64::MAX, life: Life::Alive },
            FromHost::Ring { region: 2, bell: 63 },
        ] {
            assert_eq!(FromHost::decode(&message.encode(5)), Ok(message));
        }
        let bad = [
            channel(2, 3),
            FromHost::Segment { region: 9, domain: DOMAINS_MAX, place },
            FromHost::Ring { region: 2, bell: 64 },
        ];
        for bad in bad {
            assert_eq!(FromHost::decode(&bad.encode(5)), Err(BadUplink));
        }
        let bad = ToHost::Ring { region: 2, bell: 64, domains: 1 };
        assert_eq!(ToHost::decode(&bad.encode(5)), Err(BadUplink));
    }

    #[test]
    fn a_stream_that_was_cut_is_found_again() {
        let message = ToHost::Withdraw { id: 7 }.encode(1);
        let mut stream = b"\0YM".to_vec();
        stream.extend(&message[..]);
        stream.extend(&message[..20]);
        let (used, found) = next(&stream);
        assert_eq!((used, found), (3 + UPLINK_BYTES, Some(&message)));
        assert_eq!(next(&stream[used..]), (0, None));
        assert_eq!(next(b"xyz"), (3, None));
        assert_eq!(next(b"xyzYM"), (3, None));
    }

    proptest! {
        #[test]
        fn any_stream_is_used_up(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut at = 0;
            while let (used, Some(raw)) = next(&bytes[at..]) {
                prop_assert!(used >= UPLINK_BYTES);
                let _ = ToHost::decode(raw);
                let _ = FromHost::decode(raw);
                at += used;
            }
        }
    }
}
