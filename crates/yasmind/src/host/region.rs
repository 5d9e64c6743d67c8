//! A region: a file in memory that two guests map, and who holds which slice of it.
//!
//! The file's name says all that has to be known of it after a crash: its number, the class of its
//! channels, its guests. Nothing is read from the file, since the guests write it.

use super::grants::Grants;
use super::kept::Qemu;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use yasmin_wire::WIRE_VERSION;
use yasmin_wire::layout::{CHANNEL_MAGIC, MAX_CLASS, PAGE_BYTES, channel_bytes};

const MAGIC: &[u8; 8] = b"YASMINRG";
const VERSION: u32 = 1;

/// How the guests of a region get its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// As a PCI device's, by QEMU. Pages come when they are touched.
    Plugged,
    /// By Xen's grants, one for each page and guest. A granted page stays where it is.
    Granted,
}

impl Way {
    /// Of a region. A power of two, as a PCI device's memory has to be. Grants are few: Xen's default is room for
    /// 32,768 of dom0's.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Plugged => 64 << 20,
            Self::Granted => 16 << 20,
        }
    }

    /// Of a region's channels.
    pub const fn max_class(self) -> u8 {
        match self {
            Self::Plugged => MAX_CLASS,
            Self::Granted => 6,
        }
    }

    fn of(bytes: u64) -> Option<Self> {
        [Self::Plugged, Self::Granted].into_iter().find(|way| way.bytes() == bytes)
    }
}

pub struct Region {
    pub number: u64,
    pub way: Way,
    /// Of all its channels.
    pub class: u8,
    /// Names of its guests.
    pub guests: [String; 2],
    pub path: PathBuf,
    file: File,
    grants: Grants,
}

/// # Errors
/// `StorageFull`: the file system has not so many bytes left.
pub fn check_room(folder: &Path, bytes: u64) -> io::Result<()> {
    let room = rustix::fs::statvfs(folder)?;
    if room.f_bavail.saturating_mul(room.f_frsize) < bytes {
        return Err(io::ErrorKind::StorageFull.into());
    }
    Ok(())
}

/// Lets the user of a QEMU open a file of this process's. Where it may not, QEMU says so.
pub fn let_open(path: &Path, qemu: Qemu) {
    let Some(user) = qemu.user() else { return };
    let owner = match rustix::fs::stat(path) {
        Ok(stat) => stat.st_uid,
        Err(_) => return,
    };
    if owner == user || user == 0 {
        return;
    }
    if owner != rustix::process::geteuid().as_raw() {
        crate::rarely::warn!(
            "users {owner} and {user} run the QEMUs of guests that are to share memory, and only \
             one of them may open it: have one user run both"
        );
        return;
    }
    // Whoever may open it may do with it what the guest may.
    if let Err(error) = rustix::fs::chown(path, Some(rustix::fs::Uid::from_raw(user)), None) {
        crate::rarely::warn!("cannot let user {user} open {}: {error}", path.display());
    }
}

/// What the first page of plugged memory says of it.
pub fn identity(number: u64, bytes: u64) -> [u8; 32] {
    let mut first = [0; 32];
    first[..8].copy_from_slice(MAGIC);
    first[8..12].copy_from_slice(&VERSION.to_le_bytes());
    first[16..24].copy_from_slice(&number.to_le_bytes());
    first[24..32].copy_from_slice(&bytes.to_le_bytes());
    first
}

fn name(number: u64, class: u8, guests: &[String; 2]) -> String {
    format!("region-{number:016x}-{class}-{}+{}", guests[0], guests[1])
}

/// What a file's name says: number, class, guests.
pub fn parse_name(name: &str) -> Option<(u64, u8, [String; 2])> {
    let (number, rest) = name.strip_prefix("region-")?.split_once('-')?;
    let number = u64::from_str_radix(number, 16).ok()?;
    let (class, guests) = rest.split_once('-')?;
    let class: u8 = class.parse().ok()?;
    let (a, b) = guests.split_once('+')?;
    let is_known = class <= MAX_CLASS && !b.contains('+');
    is_known.then(|| (number, class, [a.to_owned(), b.to_owned()]))
}

fn slice_count(way: Way, class: u8) -> usize {
    ((way.bytes() - PAGE_BYTES as u64) / channel_bytes(class) as u64) as usize
}

impl Region {
    /// Makes one in `folder`, all zero but for its first page. `class`: of its channels, or the largest that
    /// there are this way. `first_grant`: a number far from that of any other broker.
    pub fn create(
        folder: &Path,
        way: Way,
        number: u64,
        class: u8,
        guests: [String; 2],
        first_grant: u64,
    ) -> io::Result<Self> {
        // Pages come when they are touched, and a QEMU whose guest touches one that is not to be had
        // dies of SIGBUS.
        check_room(folder, way.bytes())?;
        let class = class.min(way.max_class());
        let path = folder.join(name(number, class, &guests));
        let file =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        let first = identity(number, way.bytes());
        let filled = file.set_len(way.bytes()).and_then(|()| file.write_all_at(&first, 0));
        // A page that comes after the grants is not the guests'.
        let filled = filled.and_then(|()| match way {
            Way::Plugged => Ok(()),
            Way::Granted => Ok(fallocate(&file, FallocateFlags::empty(), 0, way.bytes())?),
        });
        if let Err(error) = filled {
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }
        let grants = Grants::new(slice_count(way, class), first_grant);
        Ok(Self { number, way, class, guests, path, file, grants })
    }

    /// One that an earlier broker made.
    pub fn adopt(folder: &Path, file_name: &str, first_grant: u64) -> Option<Self> {
        let (number, class, guests) = parse_name(file_name)?;
        let path = folder.join(file_name);
        let file = OpenOptions::new().read(true).write(true).open(&path).ok()?;
        let way = Way::of(file.metadata().ok()?.len())?;
        let grants = Grants::adopted(slice_count(way, class), first_grant);
        Some(Self { number, way, class, guests, path, file, grants })
    }

    pub fn is_idle(&self) -> bool {
        self.grants.is_idle()
    }

    /// Slices that a guest holds.
    pub fn held(&self) -> usize {
        (0..self.slices()).filter(|&index| !self.grants.is_free(index)).count()
    }

    fn slice_bytes(&self) -> u64 {
        channel_bytes(self.class) as u64
    }

    /// The slice at an offset that a guest named.
    fn index_of(&self, offset: u64) -> Option<usize> {
        let at = offset.checked_sub(PAGE_BYTES as u64)?;
        let index = usize::try_from(at / self.slice_bytes()).ok()?;
        (at.is_multiple_of(self.slice_bytes()) && index < self.slices()).then_some(index)
    }

    /// A slice that nobody holds, with a channel's header, given to both: its offset, and the grant's
    /// number. `None`: there is none.
    pub fn take(&mut self) -> io::Result<Option<(u64, u64)>> {
        let Some(index) = self.grants.free() else { return Ok(None) };
        let offset = PAGE_BYTES as u64 + index as u64 * self.slice_bytes();
        let mut header = [0; 16];
        header[..8].copy_from_slice(&CHANNEL_MAGIC.to_le_bytes());
        header[8..12].copy_from_slice(&WIRE_VERSION.to_le_bytes());
        header[12..16].copy_from_slice(&u32::from(self.class).to_le_bytes());
        self.erase(index)?;
        self.file.write_all_at(&header, offset)?;
        Ok(self.grants.give(index).map(|grant| (offset, grant)))
    }

    /// Back to zeros, and, where it can be, the memory to the host.
    fn erase(&self, index: usize) -> io::Result<()> {
        let offset = PAGE_BYTES as u64 + index as u64 * self.slice_bytes();
        match self.way {
            Way::Plugged => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                Ok(fallocate(&self.file, flags, offset, self.slice_bytes())?)
            }
            Way::Granted => (0..self.slice_bytes())
                .step_by(PAGE_BYTES)
                .try_for_each(|at| self.file.write_all_at(&[0; PAGE_BYTES], offset + at)),
        }
    }

    /// How many it has.
    pub const fn slices(&self) -> usize {
        self.grants.count()
    }

    /// One of its guests says which slices it holds, by offset and grant: these and no other ones.
    pub fn told(&mut self, side: usize, held: &[(u64, u64)]) {
        let of = |&(offset, grant): &(u64, u64)| Some((self.index_of(offset)?, grant));
        let held: Vec<_> = held.iter().filter_map(of).collect();
        self.grants.told(side, &held);
    }

    /// One of its guests holds a slice by this grant no more.
    pub fn freed(&mut self, side: usize, offset: u64, grant: u64) {
        let Some(index) = self.index_of(offset) else { return };
        if self.grants.freed(side, index, grant)
            && let Err(error) = self.erase(index)
        {
            crate::rarely::warn!("cannot give memory back: {error}");
        }
    }

    /// Nothing of it is given any more.
    pub fn close(&mut self) {
        self.grants.close();
    }

    /// The file goes; memory that a guest still maps stays until it does not.
    pub fn remove(&self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!("cannot remove {}: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn slices_are_given_once_and_come_back_empty() {
        let folder = std::env::temp_dir().join(format!("yasmin-region-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let guests = ["a".to_owned(), "b.c".to_owned()];
        let mut region = Region::create(&folder, Way::Plugged, 7, 9, guests.clone(), 100).unwrap();
        let mut offsets = Vec::new();
        while let Some((offset, grant)) = region.take().unwrap() {
            assert_eq!(grant, 100 + offsets.len() as u64);
            offsets.push(offset);
        }
        assert_eq!((offsets.len(), offsets[0], offsets[1]), (31, 0x1000, 0x20_2000));
        region.file.write_all_at(b"secret", offsets[3] + 5000).unwrap();
        for bad in [0, 1, offsets[3] + 4096, u64::MAX] {
            region.freed(0, bad, 103);
            region.freed(1, bad, 103);
        }
        region.freed(0, offsets[3], 103);
        region.freed(1, offsets[3], 102);
        assert_eq!(region.take().unwrap(), None);
        region.freed(1, offsets[3], 103);
        assert_eq!(region.take().unwrap(), Some((offsets[3], 131)));
        let mut text = [1; 6];
        region.file.read_exact_at(&mut text, offsets[3] + 5000).unwrap();
        assert_eq!(text, [0; 6]);
        let file_name = region.path.file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(parse_name(&file_name), Some((7, 9, guests)));
        assert_eq!(parse_name("region-7-10-a+b"), None);
        assert_eq!(parse_name("region-7-9-a-b"), None);
        let dashes = ["web-1".to_owned(), "db-2".to_owned()];
        assert_eq!(parse_name(&name(7, 9, &dashes)), Some((7, 9, dashes)));
        let mut again = Region::adopt(&folder, &file_name, 500).unwrap();
        again.told(1, &[(offsets[0], 100), (offsets[0] + 1, 5)]);
        assert_eq!(again.take().unwrap(), None);
        again.told(0, &[]);
        assert!(!again.is_idle());
        assert_eq!(again.take().unwrap(), Some((offsets[1], 500)));
        again.close();
        assert_eq!(again.take().unwrap(), None);
        again.remove();
        std::fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn granted_pages_stay_where_they_are() {
        let folder = std::env::temp_dir().join(format!("yasmin-granted-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let guests = ["a".to_owned(), "b".to_owned()];
        let mut region = Region::create(&folder, Way::Granted, 7, 8, guests, 100).unwrap();
        assert_eq!((region.class, region.slices()), (6, 63));
        let is_whole = |region: &Region| {
            let meta = region.file.metadata().unwrap();
            assert_eq!(meta.len(), Way::Granted.bytes());
            meta.blocks() * 512 >= meta.len()
        };
        assert!(is_whole(&region));
        let (offset, grant) = region.take().unwrap().unwrap();
        region.file.write_all_at(b"secret", offset + 5000).unwrap();
        region.freed(0, offset, grant);
        region.freed(1, offset, grant);
        assert!(is_whole(&region));
        assert_eq!(region.take().unwrap(), Some((offset, grant + 1)));
        let mut text = [1; 6];
        region.file.read_exact_at(&mut text, offset + 5000).unwrap();
        assert_eq!(text, [0; 6]);
        let file_name = region.path.file_name().unwrap().to_str().unwrap().to_owned();
        let again = Region::adopt(&folder, &file_name, 500).unwrap();
        assert_eq!((again.way, again.slices()), (Way::Granted, 63));
        again.remove();
        std::fs::remove_dir(&folder).unwrap();
    }
}
