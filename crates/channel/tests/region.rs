//! Which memory is mapped, and which is refused.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use yasmin_channel::attachment::Attachment;
use yasmin_channel::region::{Filling, Region};
use yasmin_channel::side::{SIDE_BYTES, SIDE_VERSION};
use yasmin_channel::{Errno, bytes, memfd};
use yasmin_ring::{Pages, Place};
use yasmin_wire::Medium;
use yasmin_wire::layout::class_bytes;

const PAGE: usize = 4096;

struct Memory {
    region: Region,
    _fd: OwnedFd,
}

fn memory(len_bytes: usize) -> Memory {
    let region = memfd::create(c"region", len_bytes).unwrap();
    // SAFETY: made just now.
    Memory { region, _fd: unsafe { OwnedFd::from_raw_fd(region.fd) } }
}

fn sealed_with(seals: SealFlags, len_bytes: usize) -> OwnedFd {
    let fd = memfd_create("region", MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&fd, len_bytes as u64).unwrap();
    fcntl_add_seals(&fd, seals).unwrap();
    fd
}

fn is_sound(fd: &OwnedFd, len_bytes: usize) -> bool {
    Region::first(fd.as_raw_fd(), len_bytes).is_sound()
}

#[test]
fn what_can_be_cut_is_not_sound() {
    let both = SealFlags::SHRINK | SealFlags::GROW;
    assert!(is_sound(&sealed_with(both, PAGE), PAGE));
    assert!(!is_sound(&sealed_with(SealFlags::GROW, PAGE), PAGE));
    assert!(!is_sound(&sealed_with(SealFlags::SHRINK, PAGE), PAGE));
    let (reader, _writer) = std::io::pipe().unwrap();
    assert!(!is_sound(&reader.into(), 0));
    assert!(!is_sound(&std::fs::File::open("/dev/zero").unwrap().into(), PAGE));
}

#[test]
fn a_region_ends_inside_its_file() {
    let memory = memory(2 * PAGE);
    let Region { fd, .. } = memory.region;
    assert!(memory.region.is_sound());
    assert!(!Region { fd, offset_bytes: PAGE, len_bytes: PAGE + 1 }.is_sound());
    assert!(!Region { fd, offset_bytes: PAGE, len_bytes: usize::MAX }.is_sound());
    let beyond = Region { fd, offset_bytes: 2 * PAGE, len_bytes: PAGE };
    assert_eq!(beyond.map(Filling::Usual).err(), Some(Errno::EINVAL));
}

#[test]
fn a_slice_ends_inside_its_region() {
    let whole = memory(4 * PAGE).region;
    let part = whole.slice(PAGE, 2 * PAGE).unwrap();
    assert_eq!((part.offset_bytes, part.len_bytes), (PAGE, 2 * PAGE));
    assert_eq!(part.slice(PAGE, PAGE).unwrap().offset_bytes, 2 * PAGE);
    assert_eq!(part.slice(PAGE, PAGE + 1), None);
    assert_eq!(part.slice(usize::MAX, 2), None);
}

#[test]
fn mappings_of_one_region_are_one_memory() {
    let memory = memory(3 * PAGE);
    let part = memory.region.slice(PAGE, PAGE).unwrap();
    let both = [part.map(Filling::Usual).unwrap(), memory.region.map(Filling::AsUsed).unwrap()];
    // SAFETY: mapped, and used by this thread alone.
    unsafe {
        both[0].as_ptr().write_volatile(7);
        assert_eq!(both[1].as_ptr().add(PAGE).read_volatile(), 7);
        // What is put in a mapping's place is unmapped with it.
        memory.region.slice(0, PAGE).unwrap().map_over(both[0].as_ptr()).unwrap();
        both[0].as_ptr().write_volatile(9);
        assert_eq!(both[1].as_ptr().read_volatile(), 9);
    }
}

#[test]
fn an_end_is_attached_to_what_is_whole_alone() {
    const CLASS: u8 = 2;
    let (channel, side) = (memory(PAGE + bytes(CLASS)), memory(SIDE_BYTES));
    let slice = channel.region.slice(PAGE, bytes(CLASS)).unwrap();
    let attach =
        |channel, side, class| Attachment::map(channel, Medium::Memfd, side, class, Filling::Usual);
    // Of no version yet.
    assert!(attach(slice, side.region, CLASS).is_none());
    let page = side.region.map(Filling::Usual).unwrap();
    // SAFETY: the page's first word is the version.
    unsafe { page.as_ptr().cast::<u32>().write_volatile(SIDE_VERSION) };
    let attachment = attach(slice, side.region, CLASS).unwrap();
    assert_eq!(attachment.max_class(), CLASS);
    let [(first, rings), (second, other_rings)] = [0, 1].map(|index| attachment.direction(index));
    assert_eq!(std::ptr::from_ref(second) as usize - std::ptr::from_ref(first) as usize, 0x200);
    // The smallest ring in the first page, all others behind it.
    let start = std::ptr::from_ref(first) as usize - 0x400;
    let place = |rings: Pages, class| rings.at(Place { class, at: 1 }) as usize - start - 1;
    assert_eq!([0, 1, CLASS].map(|class| place(rings, class)), [0x800, PAGE, PAGE]);
    let behind = PAGE + class_bytes(CLASS) as usize;
    assert_eq!([0, 1, CLASS].map(|class| place(other_rings, class)), [0xc00, behind, behind]);
    // Another one of a larger class, a short side page, an impossible class.
    assert!(attach(slice, side.region, CLASS + 1).is_none());
    assert!(attach(slice, side.region.slice(0, SIDE_BYTES - 1).unwrap(), CLASS).is_none());
    assert!(attach(slice, side.region, 10).is_none());
}
