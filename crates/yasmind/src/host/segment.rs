//! A segment that guests share: a file in memory, what each guest may do with it, and where it is.
//!
//! ```text
//!  segment-NUMBER        page 0 the region's identity, then the segment: its header, its bytes
//!  segment-NUMBER.json   what a broker that starts again has to know of it
//! ```
//!
//! A guest may write the file if it may write the segment, so nothing is read from it. A guest keeps its
//! number among the segment's guests as long as the segment is there: the slots of the members are
//! divided by it.

use super::plugging::{Part, Plug};
use super::region;
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use yasmin_control::segment::{HEADER_BYTES, Kind, Name, Place, Rights, Whom, header};
use yasmin_control::uplink::DOMAINS_MAX;
use yasmin_wire::layout::PAGE_BYTES;

const VERSION: u32 = 1;

/// The smallest memory that is plugged.
const FILE_BYTES_MIN: u64 = 1 << 20;

/// Memory that is provided at a time.
const FILL_BYTES: u64 = 64 << 20;

/// Users that one guest names for one segment.
pub const USERS_MAX: usize = 64;

/// What one guest may do, and has.
pub struct Seat {
    /// The guest's, even if nobody knows it now.
    pub name: String,
    /// By user of the guest.
    pub users: Vec<(Whom, Rights)>,
    pub plug: Plug,
    /// As it was plugged.
    pub is_read_only: bool,
    /// The guest's broker heard that it ends.
    pub is_ending: bool,
    /// How often it was told that it ends, or does not.
    pub ends: u64,
    /// Nobody there has it any more, and nobody can get it.
    pub is_unused: bool,
    /// Its broker has told of it since it was plugged: somebody may have it.
    pub was_told: bool,
    /// How often a bell was rung there, for a member elsewhere.
    pub rings: u64,
    /// Why it is not there, as QEMU said last.
    pub trouble: Option<String>,
}

impl Seat {
    fn new(name: String, guest: usize, part: Part) -> Self {
        // One that an earlier broker plugged may be in use.
        let was_told = matches!(part, Part::Unknown);
        Self {
            name,
            users: Vec::new(),
            plug: Plug::new(guest, part),
            is_read_only: false,
            is_ending: false,
            ends: 0,
            is_unused: false,
            was_told,
            rings: 0,
            trouble: None,
        }
    }

    /// The most that anybody in the guest may do: what its memory allows.
    pub fn rights(&self) -> Rights {
        self.users.iter().map(|&(_, rights)| rights).max().unwrap_or(Rights::None)
    }

    /// In place of what this user had; everyone with no rights is as if not named.
    pub fn allow(&mut self, whom: Whom, rights: Rights) {
        self.users.retain(|(other, _)| *other != whom);
        if whom != Whom::Everyone || rights > Rights::None {
            self.users.push((whom, rights));
        }
        self.users.sort_unstable();
    }

    /// The memory has gone from the guest.
    pub fn lost(&mut self) {
        self.plug.is_told = false;
        (self.is_ending, self.is_unused, self.was_told) = (false, false, false);
    }
}

pub struct Segment {
    pub number: u64,
    pub name: Name,
    pub place: Place,
    pub path: PathBuf,
    /// By the numbers that guests have among its guests.
    pub seats: Vec<Seat>,
    /// It was removed, and goes when nobody has it any more.
    pub is_removed: bool,
    /// So many bytes of the file are there for certain, or why no more are to be had.
    filled: Result<u64, String>,
}

#[derive(Serialize, Deserialize)]
struct Record {
    version: u32,
    name: String,
    address: u64,
    size_bytes: u64,
    is_removed: bool,
    guests: Vec<GuestRecord>,
}

#[derive(Serialize, Deserialize)]
struct GuestRecord {
    name: String,
    /// User, or none for everyone; rights.
    users: Vec<(Option<u32>, u32)>,
}

/// Bytes of the memory that is plugged for a segment: a power of two, as a PCI device's has to be.
pub const fn file_bytes(place: &Place) -> u64 {
    let bytes = (PAGE_BYTES as u64 + place.mapped_bytes()).next_power_of_two();
    if bytes > FILE_BYTES_MIN { bytes } else { FILE_BYTES_MIN }
}

fn bad(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.to_owned())
}

impl Segment {
    /// Makes it in `folder`, all zero, of no guest.
    ///
    /// # Errors
    /// The file system's; then nothing is left.
    pub fn create(folder: &Path, number: u64, name: Name, place: Place) -> io::Result<Self> {
        region::check_room(folder, PAGE_BYTES as u64 + place.mapped_bytes())?;
        let path = folder.join(format!("segment-{number:016x}"));
        let (seats, is_removed, filled) = (Vec::new(), false, Ok(0));
        let segment = Self { number, name, place, path, seats, is_removed, filled };
        segment.begin().and_then(|()| segment.keep()).inspect_err(|_| segment.erase())?;
        Ok(segment)
    }

    fn begin(&self) -> io::Result<()> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.path)?;
        file.set_len(self.file_bytes())?;
        file.write_all_at(&region::identity(self.number, self.file_bytes()), 0)?;
        file.write_all_at(&header(&self.name, &self.place), PAGE_BYTES as u64)
    }

    /// Has the kernel provide more of its memory, if not all is there: so much that it takes some
    /// hundredths of a second. A QEMU whose guest touches memory that is not to be had dies of SIGBUS.
    pub fn fill(&mut self) {
        let Ok(filled) = self.filled else { return };
        let left = (PAGE_BYTES as u64 + self.place.mapped_bytes()).saturating_sub(filled);
        if left == 0 {
            return;
        }
        let (bytes, flags) = (left.min(FILL_BYTES), rustix::fs::FallocateFlags::empty());
        let fill = || {
            let file = OpenOptions::new().write(true).open(&self.path)?;
            Ok::<_, io::Error>(rustix::fs::fallocate(&file, flags, filled, bytes)?)
        };
        self.filled = match fill() {
            Ok(()) => Ok(filled + bytes),
            Err(error) => {
                tracing::warn!("segment {} does not get its memory: {error}", self.name);
                Err(format!("the host has not so much memory for it: {error}"))
            }
        };
    }

    pub fn is_filled(&self) -> bool {
        self.filled
            .as_ref()
            .is_ok_and(|&filled| filled >= PAGE_BYTES as u64 + self.place.mapped_bytes())
    }

    /// Why it has not all of its memory, and will not.
    pub fn want(&self) -> Option<&str> {
        self.filled.as_ref().err().map(String::as_str)
    }

    /// One that an earlier broker made, by its record's file name. `None`: that is no record.
    /// `guest_of`: the number of a guest of this name.
    ///
    /// # Errors
    /// The record is damaged or of another version, or its memory is not there.
    pub fn adopt(
        folder: &Path,
        file_name: &str,
        guest_of: impl Fn(&str) -> Option<usize>,
    ) -> Option<io::Result<Self>> {
        let stem = file_name.strip_suffix(".json")?;
        let number = u64::from_str_radix(stem.strip_prefix("segment-")?, 16).ok()?;
        Some(Self::read(folder.join(stem), number, guest_of))
    }

    fn read(
        path: PathBuf,
        number: u64,
        guest_of: impl Fn(&str) -> Option<usize>,
    ) -> io::Result<Self> {
        let record: Record = serde_json::from_slice(&std::fs::read(path.with_extension("json"))?)?;
        if record.version != VERSION || record.guests.len() > usize::from(DOMAINS_MAX) {
            return Err(bad("it is of another version"));
        }
        let place = Place::new(record.address, record.size_bytes, Kind::default());
        let place = place.ok_or_else(|| bad("its address or its size cannot be"))?;
        let name = Name::new(&record.name).ok_or_else(|| bad("its name is none"))?;
        if std::fs::metadata(&path)?.len() != file_bytes(&place) {
            return Err(bad("its memory is another's"));
        }
        let seat = |GuestRecord { name, users }: GuestRecord| {
            let mut seat = match guest_of(&name) {
                Some(guest) => Seat::new(name, guest, Part::Unknown),
                // Of no guest that there is.
                None => Seat::new(name, usize::MAX, Part::Absent),
            };
            for (user, rights) in users {
                let rights = Rights::decode(rights).ok_or_else(|| bad("its rights are none"))?;
                seat.users.push((user.map_or(Whom::Everyone, Whom::User), rights));
            }
            Ok(seat)
        };
        let seats = record.guests.into_iter().map(seat).collect::<io::Result<_>>()?;
        let (is_removed, filled) = (record.is_removed, Ok(0));
        let mut segment = Self { number, name, place, path, seats, is_removed, filled };
        // A guest may have it: then it had all of it.
        let used = segment.used_bytes();
        if used >= PAGE_BYTES as u64 + place.mapped_bytes() {
            segment.filled = Ok(used);
        }
        Ok(segment)
    }

    /// Writes down what is known of it.
    ///
    /// # Errors
    /// The file system's; what was written before stays then.
    pub fn keep(&self) -> io::Result<()> {
        let guest = |seat: &Seat| GuestRecord {
            name: seat.name.clone(),
            users: seat
                .users
                .iter()
                .map(|&(whom, rights)| match whom {
                    Whom::Everyone => (None, rights as u32),
                    Whom::User(uid) => (Some(uid), rights as u32),
                })
                .collect(),
        };
        let record = Record {
            version: VERSION,
            name: self.name.as_str().to_owned(),
            address: self.place.address,
            size_bytes: self.place.size_bytes,
            is_removed: self.is_removed,
            guests: self.seats.iter().map(guest).collect(),
        };
        let next = self.path.with_extension("next");
        let _ = std::fs::remove_file(&next);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&next)?;
        file.write_all(&serde_json::to_vec(&record)?)?;
        std::fs::rename(next, self.path.with_extension("json"))
    }

    /// Its files go. Where guests still map the memory it stays theirs.
    pub fn erase(&self) {
        for path in [self.path.with_extension("json"), self.path.clone()] {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    tracing::warn!("cannot remove {}: {error}", path.display());
                }
                _ => {}
            }
        }
    }

    pub const fn file_bytes(&self) -> u64 {
        file_bytes(&self.place)
    }

    /// Memory that it takes now.
    pub fn used_bytes(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(&self.path).map_or(0, |meta| meta.blocks() * 512)
    }

    pub fn plugs(&self) -> impl Iterator<Item = &Plug> {
        self.seats.iter().map(|seat| &seat.plug)
    }

    /// A guest's number among its guests.
    pub fn domain_of(&self, guest: usize) -> Option<usize> {
        self.seats.iter().position(|seat| seat.plug.guest == guest)
    }

    /// The seat of a guest that gets its first rights, or has some. `None`: there are as many guests
    /// as one segment can have.
    pub fn seat(&mut self, name: &str, guest: usize) -> Option<&mut Seat> {
        let at = match self.domain_of(guest) {
            Some(at) => at,
            None if self.seats.len() < usize::from(DOMAINS_MAX) => {
                self.seats.push(Seat::new(name.to_owned(), guest, Part::Absent));
                self.seats.len() - 1
            }
            None => return None,
        };
        self.seats.get_mut(at)
    }
}

/// Where a segment of so many bytes lies, at a start that is free.
pub fn place_at(start: u64, size_bytes: u64) -> Option<Place> {
    Place::new(start + HEADER_BYTES as u64, size_bytes, Kind::default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use yasmin_control::segment::HOST_ADDRESSES_START;

    #[test]
    fn a_segment_is_found_again() {
        let folder = std::env::temp_dir().join(format!("yasmin-segment-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let name = Name::new("table").unwrap();
        let place = place_at(HOST_ADDRESSES_START, 5_000_000).unwrap();
        let mut segment = Segment::create(&folder, 7, name, place).unwrap();
        assert_eq!(segment.file_bytes(), 8 << 20);
        assert!(!segment.is_filled() && segment.used_bytes() < 1 << 20);
        segment.fill();
        assert!(segment.is_filled() && segment.used_bytes() >= 5_000_000);
        let seat = segment.seat("web", 3).unwrap();
        assert_eq!(seat.rights(), Rights::None);
        seat.allow(Whom::Everyone, Rights::Read);
        seat.allow(Whom::User(1000), Rights::Write);
        seat.allow(Whom::User(1000), Rights::Read);
        assert_eq!((seat.rights(), seat.users.len()), (Rights::Read, 2));
        segment.seat("gone", 4).unwrap().allow(Whom::User(0), Rights::Write);
        segment.keep().unwrap();
        let guest_of = |name: &str| (name == "web").then_some(9);
        let again = Segment::adopt(&folder, "segment-0000000000000007.json", guest_of);
        let mut again = again.unwrap().unwrap();
        assert_eq!((again.name, again.place), (name, place));
        assert!(again.is_filled());
        assert_eq!(again.domain_of(9), Some(0));
        assert_eq!(again.seats[0].users, segment.seats[0].users);
        assert!(again.seats[0].was_told && again.seats[1].plug.part.is_absent());
        for more in 0..u16::from(DOMAINS_MAX) {
            let seat = again.seat("more", 100 + usize::from(more));
            assert_eq!(seat.is_some(), more + 2 < u16::from(DOMAINS_MAX));
        }
        assert!(Segment::adopt(&folder, "segment-0000000000000007", guest_of).is_none());
        std::fs::write(segment.path.with_extension("json"), b"{}").unwrap();
        let bad = Segment::adopt(&folder, "segment-0000000000000007.json", guest_of);
        assert!(bad.unwrap().is_err());
        segment.erase();
        std::fs::remove_dir(&folder).unwrap();
    }
}
