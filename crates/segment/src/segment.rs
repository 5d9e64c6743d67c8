//! An open segment, and one that is mapped.

use std::ffi::c_void;
#[cfg(not(loom))]
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, munmap};
use nix::sys::stat::fstat;
use yasmin_control::segment::{
    BadHeader, HEADER_BYTES, HEADER_USED, Name, Place, Rights, check_header,
};
#[cfg(not(loom))]
use yasmin_control::uplink::DOMAINS_MAX;

#[cfg(not(loom))]
use crate::sync::{
    Attachment, Belfry, Bells, Domain, FileProbe, Futex, Identity, Probe, Sleeping, Slot,
    open_again,
};
use crate::{Broker, Error, maps};

/// Where a segment is mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum At {
    /// At the address that it has in every process.
    #[default]
    Same,
    /// Where there is room, for programs that go by offsets.
    Anywhere,
}

/// A segment that this process may map. As long as it is there, or a mapping made from it, in this
/// process or in one that it forked, the segment counts as held.
#[derive(Debug)]
pub struct Segment {
    /// Who gave it.
    broker: Broker,
    name: Name,
    place: Place,
    rights: Rights,
    /// A memfd, or part of the memory of a device.
    memory: OwnedFd,
    /// The host gives it to several guests: this one's number among them, and its file of locks.
    guests: Option<(u8, OwnedFd)>,
}

impl Segment {
    /// One that several guests share. What the memory of a device is the broker alone can tell.
    pub(crate) fn among_guests(
        broker: Broker,
        name: Name,
        place: Place,
        rights: Rights,
        memory: OwnedFd,
        guests: (u8, OwnedFd),
    ) -> Self {
        Self { broker, name, place, rights, memory, guests: Some(guests) }
    }

    /// Checks what the broker sent.
    pub(crate) fn new(
        broker: Broker,
        name: Name,
        place: Place,
        rights: Rights,
        memfd: OwnedFd,
    ) -> Result<Self, Error> {
        let system = |doing| move |errno| Error::System { doing, errno };
        let seals = fcntl(&memfd, FcntlArg::F_GET_SEALS)
            .map_err(system("cannot read the seals of a segment's memory"))?;
        let wanted = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
        if !SealFlag::from_bits_truncate(seals).contains(wanted) {
            return Err(Error::Nonsense("memory that is not sealed".to_owned()));
        }
        let size = fstat(&memfd).map_err(system("cannot read the size of a segment"))?.st_size;
        let segment = Self { broker, name, place, rights, memory: memfd, guests: None };
        if u64::try_from(size).ok() != Some(place.mapped_bytes()) {
            let len_bytes = usize::try_from(size).unwrap_or(0);
            return Err(segment.damaged(BadHeader::Truncated { len_bytes }));
        }
        Ok(segment)
    }

    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Its own bytes, as they were asked for.
    pub const fn size_bytes(&self) -> u64 {
        self.place.size_bytes
    }

    /// Of its own bytes, in every process.
    pub const fn address(&self) -> u64 {
        self.place.address
    }

    pub const fn rights(&self) -> Rights {
        self.rights
    }

    /// Maps it with the rights that it was opened with.
    ///
    /// # Errors
    /// `AddressTaken` names what this process has there; `Attached` if that is the segment itself;
    /// `Header` if its first page is not what it must be.
    pub fn attach(&self, at: At) -> Result<Mapping, Error> {
        let (start, len_bytes) = (self.place.start(), self.place.mapped_bytes());
        // As large as an address, on the machines that this is built for.
        let len = NonZeroUsize::new(len_bytes as usize).ok_or(Error::Size(0))?;
        let (wanted, fixed) = match at {
            At::Same => (NonZeroUsize::new(start as usize), MapFlags::MAP_FIXED_NOREPLACE),
            At::Anywhere => (None, MapFlags::empty()),
        };
        let protection = match self.rights {
            Rights::Write => ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
            Rights::Read | Rights::None => ProtFlags::PROT_READ,
        };
        let flags = MapFlags::MAP_SHARED | fixed;
        // SAFETY: nothing that is mapped is replaced: the kernel is told not to, or chooses.
        let mapped = match unsafe { mmap(wanted, len, protection, flags, &self.memory, 0) } {
            Ok(start) => Mapping {
                start,
                len: len.get(),
                place: self.place,
                rights: self.rights,
                is_plugged: self.guests.is_some(),
            },
            Err(Errno::EEXIST) => return Err(self.in_the_way()),
            Err(errno) => return Err(Error::Map { name: self.name.to_string(), errno }),
        };
        // Before Linux 4.17 the kernel takes the address for a wish. Dropped, it is unmapped again.
        if at == At::Same && mapped.start.as_ptr() as u64 != start {
            return Err(self.in_the_way());
        }
        check_header(&mapped.header(), &self.name, &self.place).map_err(|why| self.damaged(why))?;
        Ok(mapped)
    }

    /// Makes this process a member, so that it may use locks and heaps in the segment. `slots` lie
    /// in the segment, zeroed at first, at one place for all members; so many processes can be
    /// members at a time.
    ///
    /// # Errors
    /// No slot is free, or the segment is open for reading only. A process that may not open the
    /// memory by itself, being another user than the broker's, gets a description from the broker:
    /// then the broker has to be there, and the segment not removed.
    #[cfg(not(loom))]
    pub fn join<'a>(&self, slots: &'a [Slot]) -> io::Result<Attachment<'a>> {
        if self.rights != Rights::Write {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let own = self.locks_file().try_clone_to_owned()?;
        let (broker, name) = (self.broker.clone(), self.name);
        let open = move || {
            open_again(own.as_fd()).or_else(|_| {
                let again = broker.open(name.as_str(), Rights::Write, true);
                let again = again.map_err(|error| io::Error::from_raw_os_error(error.errno()))?;
                let file = |fd: BorrowedFd| fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
                if file(again.locks_file())? != file(own.as_fd())? {
                    // Removed, and made anew.
                    return Err(Errno::ENOENT.into());
                }
                Ok(again.into_locks_file().into())
            })
        };
        let identity = Identity { domain: 0, process: std::process::id(), epoch: 0 };
        Attachment::by(slots, self.probe()?, self.waiter()?, Box::new(open), identity)
    }

    /// How its members sleep and are woken.
    #[cfg(not(loom))]
    fn waiter(&self) -> io::Result<Sleeping> {
        let Some((domain, locks)) = &self.guests else { return Ok(Box::new(Futex::new())) };
        let (broker, name) = (self.broker.clone(), self.name);
        let ring = Box::new(move |guests, bell| broker.ring(&name, guests, bell));
        let belfry = Belfry::new(self.memory.as_fd(), locks.as_fd(), ring)?;
        Ok(Box::new(Bells::new((*domain).into(), belfry)))
    }

    /// How to ask whether members live.
    #[cfg(not(loom))]
    pub fn probe(&self) -> io::Result<Probe> {
        let own = FileProbe::new(self.locks_file())?;
        let Some((number, _)) = &self.guests else { return Ok(Probe::File(own)) };
        let domain = Domain { number: (*number).into(), count: DOMAINS_MAX.into() };
        let (broker, name) = (self.broker.clone(), self.name);
        let ask = Box::new(move |slot: usize| broker.life_of(&name, slot as u64));
        Ok(Probe::Guests { own, domain, ask })
    }

    /// The file whose locks say who lives.
    #[cfg(not(loom))]
    fn locks_file(&self) -> BorrowedFd<'_> {
        self.guests.as_ref().map_or(&self.memory, |(_, locks)| locks).as_fd()
    }

    #[cfg(not(loom))]
    fn into_locks_file(self) -> OwnedFd {
        self.guests.map_or(self.memory, |(_, locks)| locks)
    }

    /// Maps `len` of the segment's own bytes from `offset` on once more, with the rights that it was
    /// opened with, in place of what this process has at `at`. All three are multiples of 4096.
    ///
    /// # Errors
    /// `Size`: they are not inside; `Map`.
    ///
    /// # Safety
    /// What is mapped at `at`, and nothing else there, is the caller's to replace.
    pub unsafe fn alias(&self, at: *mut u8, offset: u64, len: usize) -> Result<(), Error> {
        let is_inside =
            offset.checked_add(len as u64).is_some_and(|end| end <= self.place.size_bytes);
        let all = [at.addr() as u64, offset, len as u64];
        let is_whole = all.iter().all(|value| value.is_multiple_of(HEADER_BYTES as u64));
        let (Some(wanted), Some(size)) = (NonZeroUsize::new(at.addr()), NonZeroUsize::new(len))
        else {
            return Err(Error::Size(len as u64));
        };
        if !is_inside || !is_whole {
            return Err(Error::Size(len as u64));
        }
        let protection = match self.rights {
            Rights::Write => ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
            Rights::Read | Rights::None => ProtFlags::PROT_READ,
        };
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED;
        let from = (HEADER_BYTES as u64 + offset) as i64;
        // SAFETY: the caller lets go of what is there.
        unsafe { mmap(Some(wanted), size, protection, flags, &self.memory, from) }
            .map_err(|errno| Error::Map { name: self.name.to_string(), errno })?;
        Ok(())
    }

    fn in_the_way(&self) -> Error {
        let (start, end) = (self.place.start(), self.place.start() + self.place.mapped_bytes());
        let other = maps::in_the_way(start, end);
        let name = self.name.to_string();
        let own = match self.guests {
            None => format!("/memfd:yasmin-segment:{name} (deleted) ({start:x}-"),
            Some(_) => format!("anon_inode:[yasmin-slice] ({start:x}-"),
        };
        match other {
            Some(other) if other.starts_with(&own) => Error::Attached { name },
            other => {
                let other = other.unwrap_or_else(|| "something that was there a moment ago".into());
                Error::AddressTaken { name, start, end, other }
            }
        }
    }

    fn damaged(&self, why: BadHeader) -> Error {
        Error::Header { name: self.name.to_string(), why }
    }
}

/// Its memory, to ask about; the descriptor closes on exec.
impl AsFd for Segment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

/// A mapped segment. Dropping it unmaps it; pointers into it are then invalid.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<c_void>,
    len: usize,
    place: Place,
    rights: Rights,
    /// Of a device, whose memory is there as a whole.
    is_plugged: bool,
}

// SAFETY: it is an address and a length; who goes through the pointer must synchronise, with other
// processes as with other threads.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// The segment's own bytes: `size_bytes` of them, aligned to 4096. Others may write them at any
    /// time: go through raw pointers or atomics, never through references to what is not atomic.
    /// With the right to read, a write faults.
    pub const fn as_ptr(&self) -> *mut u8 {
        // SAFETY: the header's page is inside the mapping.
        unsafe { self.start.cast::<u8>().byte_add(HEADER_BYTES).as_ptr() }
    }

    pub const fn size_bytes(&self) -> u64 {
        self.place.size_bytes
    }

    pub const fn rights(&self) -> Rights {
        self.rights
    }

    /// Copies bytes from `offset` on; `None`: not all of them are inside. Others may write them
    /// meanwhile: then some are older than others.
    pub fn copy_out(&self, offset: u64, to: &mut [u8]) -> Option<()> {
        let from = self.inside(offset, to.len())?;
        for (at, byte) in to.iter_mut().enumerate() {
            // SAFETY: inside the mapping, as just seen, and read once.
            *byte = unsafe { from.add(at).read_volatile() };
        }
        Some(())
    }

    /// Copies bytes to `offset` and behind; `None`: not all of them are inside, or this may only
    /// be read.
    pub fn copy_in(&self, offset: u64, from: &[u8]) -> Option<()> {
        let to = self.inside(offset, from.len()).filter(|_| self.rights == Rights::Write)?;
        for (at, byte) in from.iter().enumerate() {
            // SAFETY: inside the mapping, as just seen, which may be written.
            unsafe { to.add(at).write_volatile(*byte) };
        }
        Some(())
    }

    fn inside(&self, offset: u64, len: usize) -> Option<*mut u8> {
        let end = offset.checked_add(len as u64)?;
        // SAFETY: at most the end of the segment's own bytes, all of which are mapped.
        (end <= self.place.size_bytes).then(|| unsafe { self.as_ptr().byte_add(offset as usize) })
    }

    /// Has the kernel provide all of its memory now, and not where it is first written.
    ///
    /// # Errors
    /// `System`: there is not so much.
    pub fn populate(&self) -> Result<(), Error> {
        if self.is_plugged {
            return Ok(());
        }
        let advice = match self.rights {
            Rights::Write => MmapAdvise::MADV_POPULATE_WRITE,
            Rights::Read | Rights::None => MmapAdvise::MADV_POPULATE_READ,
        };
        // SAFETY: this mapping's own pages, whose bytes stay what they are.
        unsafe { madvise(self.start, self.len, advice) }
            .map_err(|errno| Error::System { doing: "the segment's memory is not there", errno })
    }

    /// A copy of what has a meaning in the first page.
    fn header(&self) -> [u8; HEADER_USED] {
        let mut copy = [0; HEADER_USED];
        for (at, byte) in copy.iter_mut().enumerate() {
            // SAFETY: inside the mapping. Others may write it meanwhile: each byte is read once,
            // and compared, whatever it is.
            *byte = unsafe { self.start.cast::<u8>().add(at).read_volatile() };
        }
        copy
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `attach`, unmapped nowhere else.
        let _ = unsafe { munmap(self.start, self.len) };
    }
}
