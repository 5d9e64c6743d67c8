//! Messages about segments, and a segment's first page (spec/wire.md section 12).
//!
//! They travel on the broker's socket as the others do, on connections of their own: one question,
//! one answer. They are apart from `message` because the library never sends or gets one.

use crate::MESSAGE_BYTES;
use crate::uplink::{DOMAINS_MAX, Life};

/// Longest name.
pub const NAME_BYTES: usize = 32;

/// The header's page, before a segment's own bytes.
pub const HEADER_BYTES: usize = 4096;

/// Version of the header.
pub const HEADER_VERSION: u32 = 1;

/// Pages of a segment that asks for huge ones; also what every segment's address is a multiple of.
pub const HUGE_BYTES: u64 = 2 << 20;

/// Addresses of segments are above this, and below `ADDRESSES_END`: free in ordinary processes.
pub const ADDRESSES_START: u64 = 0x2000_0000_0000;
pub const ADDRESSES_END: u64 = 0x4000_0000_0000;

/// Of these, those of segments that a host gives to its guests. No guest gives them itself.
pub const HOST_ADDRESSES_START: u64 = 0x2e00_0000_0000;
pub const HOST_ADDRESSES_END: u64 = 0x3000_0000_0000;

/// Smallest and largest segment that can be named. What the machine has is less.
pub const MIN_BYTES: u64 = 1;
pub const MAX_BYTES: u64 = ADDRESSES_END - ADDRESSES_START - HUGE_BYTES;

const MAGIC: [u8; 8] = *b"YASMINSG";

/// A segment's name: 1 to 32 letters, digits, dots, hyphens and underscores; the first is a letter
/// or a digit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// Zero behind its end.
    raw: [u8; NAME_BYTES],
}

impl Name {
    /// `None`: not a name.
    pub fn new(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let mut raw = [0; NAME_BYTES];
        raw.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Self::decode(&raw).ok()
    }

    pub(crate) const fn raw(&self) -> &[u8; NAME_BYTES] {
        &self.raw
    }

    pub fn as_str(&self) -> &str {
        let len = self.raw.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES);
        // All of them are ASCII.
        core::str::from_utf8(&self.raw[..len]).unwrap_or_default()
    }

    pub(crate) fn decode(raw: &[u8]) -> Result<Self, BadSegment> {
        let mut name = [0; NAME_BYTES];
        name.copy_from_slice(&raw[..NAME_BYTES]);
        let len = name.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES);
        let (text, rest) = name.split_at(len);
        let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_".contains(byte);
        let is_name = text.first().is_some_and(u8::is_ascii_alphanumeric)
            && text.iter().all(is_inner)
            && rest.iter().all(|&byte| byte == 0);
        if is_name { Ok(Self { raw: name }) } else { Err(BadSegment::Name) }
    }
}

impl core::fmt::Debug for Name {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl core::fmt::Display for Name {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.as_str())
    }
}

/// What somebody may do with a segment's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Rights {
    None = 0,
    Read = 1,
    /// And read.
    Write = 2,
}

impl Rights {
    /// `None`: not one of them.
    pub const fn decode(raw: u32) -> Option<Self> {
        match raw {
            0 => Some(Self::None),
            1 => Some(Self::Read),
            2 => Some(Self::Write),
            _ => None,
        }
    }

    pub const fn describe(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// Who is given rights. Kinds of number 2 and above are for domains that are no users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whom {
    /// Whoever is not named himself.
    Everyone,
    /// By the number that he has where the broker runs.
    User(u32),
}

impl Whom {
    pub(crate) const fn encode(self) -> u64 {
        match self {
            Self::Everyone => 0,
            Self::User(uid) => 1 << 32 | uid as u64,
        }
    }

    pub(crate) const fn decode(raw: u64) -> Result<Self, BadSegment> {
        match raw >> 32 {
            0 if raw == 0 => Ok(Self::Everyone),
            1 => Ok(Self::User(raw as u32)),
            _ => Err(BadSegment::Whom { value: raw }),
        }
    }
}

/// How a segment is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kind {
    /// Of pages of `HUGE_BYTES`, which are set aside at once.
    pub is_huge: bool,
    /// It is removed when the process that made it has ended.
    pub with_creator: bool,
}

impl Kind {
    const HUGE: u64 = 1;
    const WITH_CREATOR: u64 = 2;

    pub const fn encode(self) -> u64 {
        (self.is_huge as u64 * Self::HUGE) | (self.with_creator as u64 * Self::WITH_CREATOR)
    }

    pub(crate) const fn decode(raw: u64) -> Result<Self, BadSegment> {
        if raw & !(Self::HUGE | Self::WITH_CREATOR) != 0 {
            return Err(BadSegment::Flags { value: raw });
        }
        Ok(Self { is_huge: raw & Self::HUGE != 0, with_creator: raw & Self::WITH_CREATOR != 0 })
    }
}

/// Where a segment is and what it holds: decided by the broker, and never read back from its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Of its own bytes; the header is mapped in front of them.
    pub address: u64,
    /// Its own bytes, as asked for.
    pub size_bytes: u64,
    pub kind: Kind,
}

impl Place {
    /// `None`: no such segment can be.
    pub const fn new(address: u64, size_bytes: u64, kind: Kind) -> Option<Self> {
        let place = Self { address, size_bytes, kind };
        if size_bytes < MIN_BYTES || size_bytes > MAX_BYTES {
            return None;
        }
        let Some(start) = address.checked_sub(HEADER_BYTES as u64) else { return None };
        let is_inside = start >= ADDRESSES_START
            && start.is_multiple_of(HUGE_BYTES)
            && start <= ADDRESSES_END - place.mapped_bytes();
        if is_inside { Some(place) } else { None }
    }

    /// Where the mapping starts: at the header.
    pub const fn start(&self) -> u64 {
        self.address - HEADER_BYTES as u64
    }

    /// Length of the memfd, and of the mapping.
    pub const fn mapped_bytes(&self) -> u64 {
        file_bytes(self.size_bytes, self.kind.is_huge)
    }
}

/// Length of the memfd of a segment with so many bytes of its own; at most `MAX_BYTES` of them.
pub const fn file_bytes(size_bytes: u64, is_huge: bool) -> u64 {
    let page = if is_huge { HUGE_BYTES } else { 4096 };
    (size_bytes + HEADER_BYTES as u64).next_multiple_of(page)
}

/// Bells of a segment that several guests share: a sleeper waits at that of its word.
pub const BELLS: usize = 64;

/// `None`: no segment has such a bell.
pub(crate) fn bell(raw: u64) -> Option<u8> {
    u8::try_from(raw).ok().filter(|&bell| usize::from(bell) < BELLS)
}

/// Where in the first page of a segment the bells begin: 8 bytes for each, in which a bit for each
/// guest says that somebody there sleeps at it.
pub const BELLS_AT: usize = 2048;

const _: () = assert!(HEADER_USED <= BELLS_AT && BELLS_AT + 8 * BELLS <= HEADER_BYTES);

/// What is asked of the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Answered by `Answer::Done`. The one who asks is the owner.
    Create { version: u32, name: Name, size_bytes: u64, kind: Kind },
    /// Answered by `Answer::Segment`. `sparse`: whatever the control group has left; whoever fills
    /// more than that is killed by the kernel.
    Open { version: u32, name: Name, rights: Rights, sparse: bool },
    /// Nobody can open it any more; who has it keeps it. Answered by `Answer::Done`.
    Remove { version: u32, name: Name },
    /// For the owner. Answered by `Answer::Done`.
    Allow { version: u32, name: Name, whom: Whom, rights: Rights },
    /// Answered by `Answer::Text`: a `status::Segment`, with who has it.
    About { version: u32, name: Name },
    /// Answered by `Answer::Text`: some `status::Segment`s behind this name, in order; none: that
    /// was all.
    List { version: u32, after: Option<Name> },
    /// Whether the member of a segment of the host lives that has this slot, counted from 1. For
    /// those who may write it. Answered by `Answer::Life`.
    Probe { version: u32, name: Name, slot: u64 },
    /// A word of a segment of the host has changed on which members in these guests may sleep (a bit
    /// for each number), by the bell of that word. For those who may write it. Not answered.
    Ring { version: u32, name: Name, bell: u8, domains: u8 },
}

/// What the broker answers. A version that it does not speak is answered by
/// `FromBroker::Refused`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// One descriptor beside it: the memfd, opened for `rights` and no more. With a domain, which is
    /// this guest's number among those that share it, the segment is the host's and there are two: of
    /// the memory, and of a file of this guest's own for locks (fcntl(2)).
    Segment {
        place: Place,
        rights: Rights,
        domain: Option<u8>,
    },
    Life(Life),
    Done,
    Refused(Refusal),
    /// Followed by so many bytes of JSON.
    Text {
        len_bytes: u64,
    },
}

/// Why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The name is taken by a segment of this user.
    Taken { owner: u32 },
    /// There is none of this name.
    NoSegment,
    /// This user has less rights: these.
    Rights { has: Rights },
    /// Only its owner, and root, may do that.
    NotOwner { owner: u32 },
    /// Larger than what the machine has.
    TooLarge { most_bytes: u64 },
    /// This user has so much left of his share.
    UserShare { left_bytes: u64 },
    /// All users together have so much left.
    AllShares { left_bytes: u64 },
    /// So many segments there may be, or this user may have.
    TooMany { most: u64 },
    /// The control group of the one who asks has so much left.
    Group { left_bytes: u64 },
    /// So much is free in huge pages.
    HugePages { free_bytes: u64 },
    /// So many users can be named for one segment.
    TooManyUsers { most: u64 },
    /// The broker does not see the process that asks (another PID namespace), so it cannot tell
    /// when it ends.
    Unseen,
    /// The kernel said this, as an error number, when the memory was made.
    Kernel { errno: u64 },
    /// No addresses are left.
    NoAddress,
    /// It is the host's: only the host says who may do what with it, and ends it.
    OfHost,
}

impl Refusal {
    const fn encode(self) -> (u32, u64) {
        match self {
            Self::Taken { owner } => (1, owner as u64),
            Self::NoSegment => (2, 0),
            Self::Rights { has } => (3, has as u64),
            Self::NotOwner { owner } => (4, owner as u64),
            Self::TooLarge { most_bytes } => (5, most_bytes),
            Self::UserShare { left_bytes } => (6, left_bytes),
            Self::AllShares { left_bytes } => (7, left_bytes),
            Self::TooMany { most } => (8, most),
            Self::Group { left_bytes } => (9, left_bytes),
            Self::HugePages { free_bytes } => (10, free_bytes),
            Self::TooManyUsers { most } => (11, most),
            Self::Unseen => (12, 0),
            Self::Kernel { errno } => (13, errno),
            Self::NoAddress => (14, 0),
            Self::OfHost => (15, 0),
        }
    }

    fn decode(reason: u32, value: u64) -> Result<Self, BadSegment> {
        let uid = || u32::try_from(value).map_err(|_| BadSegment::User { value });
        Ok(match reason {
            1 => Self::Taken { owner: uid()? },
            2 => Self::NoSegment,
            3 => Self::Rights { has: rights(value)? },
            4 => Self::NotOwner { owner: uid()? },
            5 => Self::TooLarge { most_bytes: value },
            6 => Self::UserShare { left_bytes: value },
            7 => Self::AllShares { left_bytes: value },
            8 => Self::TooMany { most: value },
            9 => Self::Group { left_bytes: value },
            10 => Self::HugePages { free_bytes: value },
            11 => Self::TooManyUsers { most: value },
            12 => Self::Unseen,
            13 => Self::Kernel { errno: value },
            14 => Self::NoAddress,
            15 => Self::OfHost,
            value => return Err(BadSegment::Reason { value }),
        })
    }
}

/// A datagram that no honest sender writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadSegment {
    Length {
        len_bytes: usize,
    },
    Kind {
        value: u32,
    },
    Name,
    Size {
        value: u64,
    },
    Flags {
        value: u64,
    },
    Rights {
        value: u64,
    },
    Whom {
        value: u64,
    },
    Reason {
        value: u32,
    },
    User {
        value: u64,
    },
    /// No such segment can be.
    Place,
    /// More guests than can share a segment.
    Domain,
    Life {
        value: u64,
    },
    Bell {
        value: u64,
    },
}

const CREATE: u32 = 11;
const OPEN: u32 = 12;
const REMOVE: u32 = 13;
const ALLOW: u32 = 14;
const ABOUT: u32 = 15;
const LIST: u32 = 16;
const PROBE: u32 = 17;
/// 18 is COUNT.
const RING: u32 = 19;
const SEGMENT: u32 = 111;
const DONE: u32 = 112;
const REFUSED: u32 = 113;
const TEXT: u32 = 114;
const LIFE: u32 = 115;

/// The text of LIST that stands for the beginning.
const NO_NAME: [u8; NAME_BYTES] = [0; NAME_BYTES];

type Raw = [u8; MESSAGE_BYTES];

fn encode(kind: u32, a: u32, id: u64, [b, c]: [u64; 2], text: &[u8; NAME_BYTES]) -> Raw {
    let mut out = [0; MESSAGE_BYTES];
    out[0..4].copy_from_slice(&kind.to_le_bytes());
    out[4..8].copy_from_slice(&a.to_le_bytes());
    out[8..16].copy_from_slice(&id.to_le_bytes());
    out[16..24].copy_from_slice(&b.to_le_bytes());
    out[24..32].copy_from_slice(&c.to_le_bytes());
    out[32..].copy_from_slice(text);
    out
}

fn u32_at(raw: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]])
}

fn u64_at(raw: &[u8], at: usize) -> u64 {
    u64::from(u32_at(raw, at)) | u64::from(u32_at(raw, at + 4)) << 32
}

fn exact(raw: &[u8]) -> Result<&Raw, BadSegment> {
    raw.try_into().map_err(|_| BadSegment::Length { len_bytes: raw.len() })
}

fn rights(value: u64) -> Result<Rights, BadSegment> {
    u32::try_from(value).ok().and_then(Rights::decode).ok_or(BadSegment::Rights { value })
}

/// Whether a datagram to the broker is about segments, whatever else is wrong with it.
pub fn is_request(raw: &[u8]) -> bool {
    raw.len() >= 4 && matches!(u32_at(raw, 0), CREATE..=PROBE | RING)
}

impl Request {
    pub fn encode(self) -> Raw {
        match self {
            Self::Create { version, name, size_bytes, kind } => {
                encode(CREATE, version, kind.encode(), [size_bytes, 0], &name.raw)
            }
            Self::Open { version, name, rights, sparse } => {
                encode(OPEN, version, rights as u64, [u64::from(sparse), 0], &name.raw)
            }
            Self::Remove { version, name } => encode(REMOVE, version, 0, [0; 2], &name.raw),
            Self::Allow { version, name, whom, rights } => {
                encode(ALLOW, version, whom.encode(), [rights as u64, 0], &name.raw)
            }
            Self::About { version, name } => encode(ABOUT, version, 0, [0; 2], &name.raw),
            Self::List { version, after } => {
                encode(LIST, version, 0, [0; 2], &after.map_or(NO_NAME, |name| name.raw))
            }
            Self::Probe { version, name, slot } => encode(PROBE, version, slot, [0; 2], &name.raw),
            Self::Ring { version, name, bell, domains } => {
                encode(RING, version, bell.into(), [domains.into(), 0], &name.raw)
            }
        }
    }

    /// # Errors
    /// `BadSegment` names the field that no honest sender writes; the broker then drops the
    /// sender.
    pub fn decode(raw: &[u8]) -> Result<Self, BadSegment> {
        let raw = exact(raw)?;
        let (version, id, b) = (u32_at(raw, 4), u64_at(raw, 8), u64_at(raw, 16));
        let name = || Name::decode(&raw[32..]);
        Ok(match u32_at(raw, 0) {
            CREATE => {
                if !(MIN_BYTES..=MAX_BYTES).contains(&b) {
                    return Err(BadSegment::Size { value: b });
                }
                let kind = Kind::decode(id)?;
                Self::Create { version, name: name()?, size_bytes: b, kind }
            }
            OPEN => {
                let rights = rights(id)?;
                if rights == Rights::None {
                    return Err(BadSegment::Rights { value: id });
                }
                if b > 1 {
                    return Err(BadSegment::Flags { value: b });
                }
                Self::Open { version, name: name()?, rights, sparse: b == 1 }
            }
            REMOVE => Self::Remove { version, name: name()? },
            ALLOW => {
                let (whom, rights) = (Whom::decode(id)?, rights(b)?);
                Self::Allow { version, name: name()?, whom, rights }
            }
            ABOUT => Self::About { version, name: name()? },
            LIST if raw[32..] == NO_NAME => Self::List { version, after: None },
            LIST => Self::List { version, after: Some(name()?) },
            PROBE => Self::Probe { version, name: name()?, slot: id },
            RING => {
                let bell = bell(id).ok_or(BadSegment::Bell { value: id })?;
                let domains = u8::try_from(b).map_err(|_| BadSegment::Domain)?;
                Self::Ring { version, name: name()?, bell, domains }
            }
            value => return Err(BadSegment::Kind { value }),
        })
    }

    pub const fn version(&self) -> u32 {
        match *self {
            Self::Create { version, .. }
            | Self::Open { version, .. }
            | Self::Remove { version, .. }
            | Self::Allow { version, .. }
            | Self::About { version, .. }
            | Self::List { version, .. }
            | Self::Probe { version, .. }
            | Self::Ring { version, .. } => version,
        }
    }
}

impl Answer {
    pub fn encode(self) -> Raw {
        match self {
            Self::Segment { place, rights, domain } => {
                let sizes = [place.address, place.size_bytes];
                let mut text = NO_NAME;
                text[0] = domain.map_or(0, |domain| domain + 1);
                encode(SEGMENT, rights as u32, place.kind.encode(), sizes, &text)
            }
            Self::Life(life) => encode(LIFE, life as u32, 0, [0; 2], &NO_NAME),
            Self::Done => encode(DONE, 0, 0, [0; 2], &NO_NAME),
            Self::Refused(refusal) => {
                let (reason, value) = refusal.encode();
                encode(REFUSED, reason, 0, [value, 0], &NO_NAME)
            }
            Self::Text { len_bytes } => encode(TEXT, 0, 0, [len_bytes, 0], &NO_NAME),
        }
    }

    /// # Errors
    /// `BadSegment` names the field that no honest broker writes.
    pub fn decode(raw: &[u8]) -> Result<Self, BadSegment> {
        let raw = exact(raw)?;
        let (a, b) = (u32_at(raw, 4), u64_at(raw, 16));
        Ok(match u32_at(raw, 0) {
            SEGMENT => {
                let kind = Kind::decode(u64_at(raw, 8))?;
                let place = Place::new(b, u64_at(raw, 24), kind).ok_or(BadSegment::Place)?;
                let domain = raw[32].checked_sub(1);
                if domain.is_some_and(|domain| domain >= DOMAINS_MAX) {
                    return Err(BadSegment::Domain);
                }
                Self::Segment { place, rights: rights(u64::from(a))?, domain }
            }
            LIFE => {
                let value = u64::from(a);
                Self::Life(Life::decode(value).ok_or(BadSegment::Life { value })?)
            }
            DONE => Self::Done,
            REFUSED => Self::Refused(Refusal::decode(a, b)?),
            TEXT => Self::Text { len_bytes: b },
            value => return Err(BadSegment::Kind { value }),
        })
    }
}

/// What is wrong with a segment's first page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHeader {
    /// There is less than a header.
    Truncated {
        len_bytes: usize,
    },
    Magic,
    /// Somebody made it who speaks another version.
    Version {
        value: u32,
    },
    /// It is another segment's, or was written over.
    Place,
    Name,
}

/// Bytes of the header that have a meaning; those behind them are zero, but for the bells.
pub const HEADER_USED: usize = 72;

/// The header of a segment.
///
/// ```text
/// 0  magic "YASMINSG"    8  version u32   12 header's bytes u32
/// 16 address u64         24 size in bytes u64   32 kind u64   40 name, 32 bytes
/// ```
pub fn header(name: &Name, place: &Place) -> [u8; HEADER_USED] {
    let mut out = [0; HEADER_USED];
    out[0..8].copy_from_slice(&MAGIC);
    out[8..12].copy_from_slice(&HEADER_VERSION.to_le_bytes());
    out[12..16].copy_from_slice(&(HEADER_BYTES as u32).to_le_bytes());
    out[16..24].copy_from_slice(&place.address.to_le_bytes());
    out[24..32].copy_from_slice(&place.size_bytes.to_le_bytes());
    out[32..40].copy_from_slice(&place.kind.encode().to_le_bytes());
    out[40..72].copy_from_slice(&name.raw);
    out
}

/// Compares a copy of a first page with what the broker says of the segment. Nothing in it is
/// believed: whoever may write the segment may write it too.
///
/// # Errors
/// What differs first.
pub fn check_header(found: &[u8], name: &Name, place: &Place) -> Result<(), BadHeader> {
    let Some(found) = found.get(..HEADER_USED) else {
        return Err(BadHeader::Truncated { len_bytes: found.len() });
    };
    if found[..8] != MAGIC {
        return Err(BadHeader::Magic);
    }
    let version = u32_at(found, 8);
    if version != HEADER_VERSION {
        return Err(BadHeader::Version { value: version });
    }
    let wanted = header(name, place);
    if found[12..40] != wanted[12..40] {
        return Err(BadHeader::Place);
    }
    if found[40..] != wanted[40..] {
        return Err(BadHeader::Name);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["a", "table", "my.table-2_b", "0", "abcdefghijklmnopqrstuvwxyz012345"] {
            assert_eq!(Name::new(good).unwrap().as_str(), good);
        }
        let long = "abcdefghijklmnopqrstuvwxyz0123456";
        for bad in ["", ".", "..", "-a", "_a", "a/b", "a b", "\u{e4}", "a\0b", long] {
            assert_eq!(Name::new(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn places() {
        let kind = Kind::default();
        let first = ADDRESSES_START + HEADER_BYTES as u64;
        let place = Place::new(first, 1, kind).unwrap();
        assert_eq!((place.start(), place.mapped_bytes()), (ADDRESSES_START, 8192));
        assert_eq!(Place::new(first, 4096, kind).unwrap().mapped_bytes(), 8192);
        assert_eq!(Place::new(first, 4097, kind).unwrap().mapped_bytes(), 12288);
        let huge = Kind { is_huge: true, ..kind };
        assert_eq!(Place::new(first, 1, huge).unwrap().mapped_bytes(), HUGE_BYTES);
        assert!(Place::new(first, MAX_BYTES, kind).is_some());
        for (address, size_bytes) in [
            (first, 0),
            (first, MAX_BYTES + 1),
            (first, u64::MAX),
            (first - HUGE_BYTES, 1),
            (first + 4096, 1),
            (first + HUGE_BYTES, MAX_BYTES),
            (0, 1),
            (u64::MAX, 1),
            (ADDRESSES_END + HEADER_BYTES as u64, 1),
        ] {
            assert_eq!(Place::new(address, size_bytes, kind), None, "{address:x} {size_bytes}");
        }
    }

    #[test]
    fn a_header_that_differs_anywhere_is_told() {
        let name = Name::new("table").unwrap();
        let place =
            Place::new(ADDRESSES_START + HEADER_BYTES as u64, 1 << 20, Kind::default()).unwrap();
        let good = header(&name, &place);
        assert_eq!(check_header(&good, &name, &place), Ok(()));
        for at in 0..HEADER_USED {
            let mut bad = good;
            bad[at] ^= 1;
            let error = check_header(&bad, &name, &place).unwrap_err();
            match at {
                0..8 => assert_eq!(error, BadHeader::Magic),
                8..12 => assert!(matches!(error, BadHeader::Version { .. })),
                12..40 => assert_eq!(error, BadHeader::Place),
                _ => assert_eq!(error, BadHeader::Name),
            }
            let short = check_header(&good[..at], &name, &place);
            assert_eq!(short, Err(BadHeader::Truncated { len_bytes: at }));
        }
    }
}
