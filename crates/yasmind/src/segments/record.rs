//! What the broker knows of a segment, in a memfd of one page, so that its successor finds it. No
//! process but the broker's own has it.

use super::Entry;
use rustix::fd::OwnedFd;
use rustix::io::{pread, pwrite};
use serde::{Deserialize, Serialize};
use std::io;
use yasmin_control::segment::{Kind, Name, Place, Rights, Whom};

/// One page: a write of it is there as a whole or not at all, whenever the broker is killed.
const RECORD_BYTES: usize = 4096;

/// What fits.
pub const RIGHTS_MAX: usize = 64;

const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Record {
    version: u32,
    name: String,
    owner: u32,
    address: u64,
    size_bytes: u64,
    huge: bool,
    /// The process with which it ends: its number, for display.
    creator: Option<u32>,
    created_s: u64,
    is_removed: bool,
    /// User, or none for everyone; rights.
    rights: Vec<(Option<u32>, u32)>,
}

fn bad(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

pub fn make() -> io::Result<OwnedFd> {
    crate::sys::memfd::sealed(c"yasmin-segment-record", RECORD_BYTES)
}

pub fn write(record: &OwnedFd, entry: &Entry) -> io::Result<()> {
    let rights = entry.rights.iter().map(|(whom, &rights)| match *whom {
        Whom::Everyone => (None, rights as u32),
        Whom::User(uid) => (Some(uid), rights as u32),
    });
    let mut text = serde_json::to_vec(&Record {
        version: VERSION,
        name: entry.name.as_str().to_owned(),
        owner: entry.owner,
        address: entry.place.address,
        size_bytes: entry.place.size_bytes,
        huge: entry.place.kind.is_huge,
        creator: entry.creator,
        created_s: entry.created_s,
        is_removed: entry.is_removed,
        rights: rights.collect(),
    })?;
    if text.len() > RECORD_BYTES {
        return Err(bad("the record is longer than a page"));
    }
    text.resize(RECORD_BYTES, b' ');
    match pwrite(record, &text, 0)? {
        RECORD_BYTES => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// # Errors
/// What does not fit: another broker's, or nobody's.
pub fn read(record: &OwnedFd) -> io::Result<Entry> {
    let mut text = [0; RECORD_BYTES];
    if pread(record, &mut text, 0)? != RECORD_BYTES {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let record: Record = serde_json::from_slice(&text)?;
    if record.version != VERSION {
        return Err(bad(format!("its record has version {}", record.version)));
    }
    let kind = Kind { is_huge: record.huge, with_creator: record.creator.is_some() };
    let rights = record.rights.into_iter().map(|(user, rights)| {
        let whom = user.map_or(Whom::Everyone, Whom::User);
        Rights::decode(rights).map(|rights| (whom, rights))
    });
    Ok(Entry {
        name: Name::new(&record.name).ok_or_else(|| bad("its name is none"))?,
        owner: record.owner,
        place: Place::new(record.address, record.size_bytes, kind)
            .ok_or_else(|| bad("its address or its size cannot be"))?,
        rights: rights.collect::<Option<_>>().ok_or_else(|| bad("its rights are none"))?,
        creator: record.creator,
        created_s: record.created_s,
        is_removed: record.is_removed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back() {
        let kind = Kind { is_huge: true, with_creator: true };
        let mut entry = Entry {
            name: Name::new("abcdefghijklmnopqrstuvwxyz012345").unwrap(),
            owner: u32::MAX,
            place: Place::new((1 << 45) + 4096, 1 << 40, kind).unwrap(),
            rights: (0..RIGHTS_MAX as u32)
                .map(|nth| (Whom::User(u32::MAX - nth), Rights::Write))
                .collect(),
            creator: Some(u32::MAX),
            created_s: u64::MAX,
            is_removed: false,
        };
        entry.rights.insert(Whom::Everyone, Rights::Read);
        let record = make().unwrap();
        assert!(read(&record).is_err(), "nothing was written");
        write(&record, &entry).unwrap();
        assert_eq!(read(&record).unwrap(), entry);
        entry.is_removed = true;
        entry.rights.clear();
        write(&record, &entry).unwrap();
        assert_eq!(read(&record).unwrap(), entry);
    }
}
