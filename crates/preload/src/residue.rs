//! What another program needs to go on reading where this one stopped: its residue.
//!
//! Bytes that lie unread in a ring when a socket is handed to another program would be lost to
//! it. So both directions are parked for good, which makes the ring a finite string of bytes,
//! and the end's private pages and that string move into a memfd, at the same addresses here.
//! The other program inherits the memfd like the socket; its library finds it when it is
//! loaded, and both programs read on under the locks in it.
//! Its layout: `yasmin_channel::residue`.
//!
//! It lies at a high number, where no program looks for free ones.
//!
//! Storey 4: life.

use core::ffi::c_int;
use core::mem::size_of;
use core::sync::atomic::{AtomicBool, Ordering};

use yasmin_channel::attachment::Attachment;
use yasmin_channel::memfd;
use yasmin_channel::region::Region;
use yasmin_channel::residue::{CHANNEL_AT, MAGIC, MARK, SIDE_AT, VERSION};
use yasmin_channel::side::SIDE_BYTES;
use yasmin_wire::Medium;
use yasmin_wire::layout;

use crate::conn::Conn;
use crate::entry::{self, Entry};
use crate::sys::{self, PollFd, SO_LINGER, SOL_SOCKET, SOL_TCP, call};
use crate::{filter, process, set, table, tcp};

/// Most have numbers in a block of so many.
const BLOCK: usize = 256;
/// Sockets that were handed over are looked for below this number.
const SOCKETS_BELOW: c_int = 1 << 16;

#[repr(C)]
struct Header {
    magic: u64,
    version: u32,
    is_acceptor: u32,
    max_class: u32,
    /// TCP_NOTSENT_LOWAT.
    lowat: u32,
    cookie: u64,
    /// TCP bytes read before the channel came.
    read_before: u64,
    /// SO_LINGER.
    linger: u64,
}

impl Header {
    const fn settings(&self) -> Settings {
        Settings { lowat: self.lowat, linger: self.linger }
    }
}

/// What the program has set of a socket, where the mark of one that is passed on takes its place.
#[derive(Clone, Copy)]
pub struct Settings {
    pub lowat: u32,
    /// struct linger.
    pub linger: u64,
}

const TCP_NOTSENT_LOWAT: c_int = 25;

/// This process passed on, or got, what had bytes unread: what it receives may be its own.
static HAS_PASSED: AtomicBool = AtomicBool::new(false);

/// TCP_NOTSENT_LOWAT of a TCP socket.
pub fn lowat(fd: c_int) -> Option<u32> {
    sys::getsockopt_u64(fd, SOL_TCP, TCP_NOTSENT_LOWAT, 4).map(|value| value as u32)
}

pub fn set_lowat(fd: c_int, value: u32) {
    sys::setsockopt_bytes(fd, SOL_TCP, TCP_NOTSENT_LOWAT, &value.to_ne_bytes());
}

/// SO_LINGER of a socket.
pub fn linger(fd: c_int) -> u64 {
    sys::getsockopt_u64(fd, SOL_SOCKET, SO_LINGER, 8).unwrap_or(0)
}

pub fn set_linger(fd: c_int, value: u64) {
    sys::setsockopt_bytes(fd, SOL_SOCKET, SO_LINGER, &value.to_ne_bytes());
}

/// See `has_passed`.
pub fn note_passed() {
    HAS_PASSED.store(true, Ordering::Relaxed);
}

/// Whether this process passed on, or got, what had bytes unread.
pub fn has_passed() -> bool {
    HAS_PASSED.load(Ordering::Relaxed)
}

/// Nothing is unread any more, whoever claims it. Parked for good; under the receive lock, or when
/// nobody can hold anything back any more.
pub fn drained(conn: &Conn, fd: c_int) {
    if process::is_sandboxed() {
        return;
    }
    filter::takes_off(conn, fd);
    if has_passed()
        && lowat(fd) == Some(MARK)
        && let Some(settings) = settings_of(conn)
    {
        set_linger(fd, settings.linger);
    }
}

/// The first number for residues that are made here.
fn first_number() -> c_int {
    let top = table::own_below();
    // Below the broker's socket.
    if top >= 1024 { (top - 64 - BLOCK) as c_int } else { (top / 2) as c_int }
}

fn bytes(max_class: u8) -> usize {
    CHANNEL_AT + layout::channel_bytes(max_class)
}

/// Whether this process may make the largest one, if need be with a higher limit. Who may not does not hand on what
/// is unread, and gets no ring.
pub fn may_be_made() -> bool {
    sys::file_limit() >= bytes(layout::MAX_CLASS) as u64
}

/// Moves what `conn` knows and has unread into a memfd. Parked for good, both locks held. Gives the
/// memfd's number. Other processes that share the end have nothing of it any more: who of them
/// receives finds that it was moved.
pub fn make(conn: &'static Conn, fd: c_int) -> Option<c_int> {
    let cookie = tcp::cookie(fd)?;
    let receiver = conn.receiver();
    let max_class = conn.max_class();
    let (base, side) = conn.mapped();
    let header = Header {
        magic: MAGIC,
        version: VERSION,
        is_acceptor: u32::from(!conn.is_connector()),
        max_class: u32::from(max_class),
        lowat: lowat(fd).unwrap_or(0),
        cookie,
        read_before: conn.read_before(),
        linger: linger(fd),
    };
    if conn.low_water() > 1 {
        // Whoever reads on knows it from the kernel alone.
        tcp::set_low_water(fd, conn.low_water());
    }
    // Of the rings only what is unread: the rest was for this program, and not for the next one.
    let unread = receiver.spans(0, receiver.unread_bytes() as usize);
    let len_bytes = bytes(max_class);
    let memfd = sys::with_file_of(len_bytes, || {
        let memfd = Memfd::create(len_bytes)?;
        // SAFETY: all of it is mapped while the locks are held.
        let is_copied = unsafe {
            memfd.write((&raw const header).cast(), size_of::<Header>(), 0)
                && memfd.write(side.cast(), SIDE_BYTES, SIDE_AT)
                && memfd.write(base, layout::small_ring_offset(0), CHANNEL_AT)
                && unread.into_iter().all(|(place, len)| {
                    let from = receiver.memory.at(place);
                    memfd.write(from, len, CHANNEL_AT + (from.addr() - base.addr()))
                })
        };
        is_copied.then_some(memfd)
    })?;
    let number = memfd.keep()?;
    // First: whoever shares it finds it drained without a lock.
    conn.side().rx.moved.store(1, Ordering::SeqCst);
    // The sender is told that they were taken, as bytes are that TCP has delivered.
    receiver.consume(receiver.unread_bytes());
    let [side_region, channel_region] = regions(number, max_class);
    // The copy's lock is let go of later, this one now.
    conn.side().rx.lock.store(0, Ordering::Release);
    // SAFETY: both replace a mapping of ours of the same size with one of the same content.
    let is_moved = unsafe {
        side_region.map_over(side.cast()).is_ok() && channel_region.map_over(base).is_ok()
    };
    if !is_moved {
        sys::close(number);
        tcp::reset(fd);
        return None;
    }
    conn.share();
    // Only these can still read what is unread.
    conn.side().rx.more_holders.store(0, Ordering::SeqCst);
    Some(number)
}

/// A memfd that is closed again unless it is kept.
struct Memfd {
    fd: c_int,
}

impl Drop for Memfd {
    fn drop(&mut self) {
        sys::close(self.fd);
    }
}

impl Memfd {
    fn create(len_bytes: usize) -> Option<Self> {
        let region = memfd::create(c"yasmin-residue", len_bytes).ok()?;
        Some(Self { fd: region.fd })
    }

    /// # Safety
    /// `from` is readable for `len_bytes`; others may write there.
    unsafe fn write(&self, from: *const u8, len_bytes: usize, at: usize) -> bool {
        let mut done = 0;
        while done < len_bytes {
            let (from, left) = (from.wrapping_add(done), len_bytes - done);
            // SAFETY: the caller's memory, which the kernel copies.
            let ret = unsafe { call!(pwrite64, self.fd, from, left, at + done) };
            if ret == -(sys::EINTR as isize) {
                continue;
            }
            if ret <= 0 {
                return false;
            }
            done += ret as usize;
        }
        true
    }

    /// At a number where other programs' libraries find it.
    fn keep(self) -> Option<c_int> {
        let command = sys::F_DUPFD_CLOEXEC;
        // SAFETY: no memory involved.
        let number = unsafe { call!(fcntl, self.fd, command, first_number()) } as c_int;
        (number >= 0).then_some(number)
    }
}

/// The number of `conn`'s residue, where it is open and programs started now find it.
pub fn of(conn: &Conn) -> Option<c_int> {
    let number = conn.holding.residue.load(Ordering::Relaxed) - 1;
    (number >= 0 && is_residue(number)).then_some(number)
}

/// Whether the next program gets `number`: only one that was counted as a holder may.
pub fn set_inherited(number: c_int, on: bool) {
    let flags = if on { 0 } else { sys::FD_CLOEXEC };
    // SAFETY: no memory involved.
    unsafe { call!(fcntl, number, sys::F_SETFD, flags) };
}

/// This process has `conn`'s residue at `number`.
pub fn set(conn: &Conn, number: c_int) {
    table::set_broker(number);
    conn.holding.residue.store(number + 1, Ordering::Relaxed);
}

/// The connection is closed, or drained.
pub fn drop_of(conn: &Conn) {
    let number = conn.holding.residue.swap(0, Ordering::Relaxed) - 1;
    if number >= 0 && !process::is_borrowed() {
        table::clear(number);
        sys::close(number);
    }
}

/// The program puts something else under the number.
pub fn abandon(number: c_int) {
    for fd in 0..table::end() {
        if let Entry::Conn(conn) = entry::get(fd)
            && conn.holding.residue.load(Ordering::Relaxed) == number + 1
        {
            conn.holding.residue.store(0, Ordering::Relaxed);
            table::clear(number);
        }
    }
}

/// When the library is loaded: takes over what the program before handed on, and the sets that it left open.
pub fn adopt() {
    let adopt = |number: c_int| {
        if !is_residue(number) {
            set::adopted::came(number);
        } else if !adopt_one(number) {
            sys::close(number);
        }
    };
    let has_many_numbers = sys::descriptor_limit() > table::OWN_BELOW_MOST;
    // Above these they lie only where the program before had no other number free.
    if !(has_many_numbers && each_open(adopt)) {
        each_open_below(table::OWN_BELOW_MOST as c_int, adopt);
    }
    set::adopted::read_all();
}

/// Names the numbers of open files below `end`.
fn each_open_below(end: c_int, each: impl Fn(c_int)) {
    const POLLNVAL: i16 = 0x20;
    const AT_ONCE: usize = 256;
    // More than the limit poll refuses.
    let at_once = sys::descriptor_limit().clamp(1, AT_ONCE);
    let mut numbers = [PollFd { fd: 0, events: 0, revents: 0 }; AT_ONCE];
    for first in (0..end).step_by(at_once) {
        let numbers = &mut numbers[..at_once];
        for (number, one) in (first..).zip(&mut *numbers) {
            *one = PollFd { fd: number, events: 0, revents: 0 };
        }
        // SAFETY: an array of ours; a timeout of 0.
        if unsafe { call!(poll, numbers.as_mut_ptr(), at_once, 0) } < 0 {
            // It does not say: all of them.
            numbers.iter_mut().for_each(|one| one.revents = 0);
        }
        numbers.iter().filter(|one| one.revents & POLLNVAL == 0).for_each(|one| each(one.fd));
    }
}

/// Names the numbers of all open files. False: nobody says which those are (no /proc).
fn each_open(each: impl Fn(c_int)) -> bool {
    const O_DIRECTORY: c_int = 0o200000;
    /// Of struct linux_dirent64: where the entry's length and its name are.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let path = c"/proc/self/fd".as_ptr();
    // SAFETY: a C string.
    let folder =
        unsafe { call!(openat, sys::AT_FDCWD, path, O_DIRECTORY | sys::O_CLOEXEC) } as c_int;
    if folder < 0 {
        return false;
    }
    let mut entries = [0u8; 2048];
    loop {
        // SAFETY: the kernel writes into the array only.
        let ret = unsafe { call!(getdents64, folder, entries.as_mut_ptr(), entries.len()) };
        let mut rest = entries.get(..usize::try_from(ret).unwrap_or(0)).unwrap_or(&[]);
        if rest.is_empty() {
            break;
        }
        while let Some(length) = rest.get(LENGTH..LENGTH + 2) {
            let length = usize::from(u16::from_ne_bytes([length[0], length[1]]));
            let digits = rest.get(NAME..).unwrap_or(&[]).iter().take_while(|b| b.is_ascii_digit());
            let is_number = rest.get(NAME).is_some_and(u8::is_ascii_digit);
            let number = digits.fold(0, |number: c_int, b| number * 10 + c_int::from(b - b'0'));
            if is_number && number != folder {
                each(number);
            }
            rest = rest.get(length.max(NAME)..).unwrap_or(&[]);
        }
    }
    sys::close(folder);
    true
}

/// `None`: it is no residue. Its header may change at any time: this copy is what counts.
fn header_of(number: c_int) -> Option<Header> {
    // First: of other files a read may wait.
    if !Region::first(number, size_of::<Header>()).is_sound() {
        return None;
    }
    let mut header = core::mem::MaybeUninit::<Header>::uninit();
    // SAFETY: the kernel writes at most a header.
    let ret = unsafe { call!(pread64, number, header.as_mut_ptr(), size_of::<Header>(), 0) };
    if ret != size_of::<Header>() as isize {
        return None;
    }
    // SAFETY: written whole, and any bytes are one.
    let header = unsafe { header.assume_init() };
    let is_known = header.magic == MAGIC
        && header.version == VERSION
        && header.max_class <= u32::from(layout::MAX_CLASS)
        && regions(number, header.max_class as u8).iter().all(Region::is_sound);
    is_known.then_some(header)
}

/// Where the side page and the channel lie in the residue at `number`.
const fn regions(number: c_int, max_class: u8) -> [Region; 2] {
    [
        Region { fd: number, offset_bytes: SIDE_AT, len_bytes: SIDE_BYTES },
        Region {
            fd: number,
            offset_bytes: CHANNEL_AT,
            len_bytes: layout::channel_bytes(max_class),
        },
    ]
}

/// What the residue at `number` has, mapped.
fn map(number: c_int, header: &Header) -> Option<Attachment> {
    let max_class = header.max_class as u8;
    let [side, channel] = regions(number, max_class);
    Attachment::map(channel, Medium::Memfd, side, max_class, sys::filling(channel.len_bytes))
}

fn is_residue(number: c_int) -> bool {
    header_of(number).is_some()
}

/// The residue of a socket that this process got as `fd`, with the socket's settings. `None`: it
/// is not what it should be.
pub fn adopt_for(fd: c_int, memfd: c_int, cookie: u64) -> Option<Settings> {
    let memfd = Memfd { fd: memfd };
    let header = header_of(memfd.fd).filter(|header| header.cookie == cookie)?;
    let number = memfd.keep()?;
    let conn = map(number, &header).and_then(|memory| over(fd, memory, &header));
    match conn {
        Some(conn) => set(conn, number),
        None => {
            sys::close(number);
        }
    }
    conn.map(|_| header.settings())
}

/// A residue of a connection that this process holds already: it counts once.
pub fn own(conn: &'static Conn, fd: c_int, memfd: c_int) -> Option<Settings> {
    let memfd = Memfd { fd: memfd };
    let header = header_of(memfd.fd)?;
    if conn.has_moved() {
        return follow(conn, fd, memfd, &header);
    }
    conn.one_less_holds();
    Some(header.settings())
}

/// What this process shared was moved there by another one.
fn follow(conn: &'static Conn, fd: c_int, memfd: Memfd, header: &Header) -> Option<Settings> {
    let (Ok(_rx), Ok(_tx)) = (conn.lock_rx(fd), conn.lock_tx(fd)) else { return None };
    let (base, side) = conn.mapped();
    if header.max_class != u32::from(conn.max_class()) {
        return None;
    }
    let number = memfd.keep()?;
    let [side_region, channel_region] = regions(number, conn.max_class());
    // SAFETY: both replace a mapping of ours of the same size; both locks are held.
    let is_mapped = unsafe {
        side_region.map_over(side.cast()).is_ok() && channel_region.map_over(base).is_ok()
    };
    set(conn, number);
    is_mapped.then(|| header.settings())
}

/// The settings of `conn`'s socket before it was passed on.
pub fn settings_of(conn: &Conn) -> Option<Settings> {
    header_of(of(conn)?).map(|header| header.settings())
}

/// A connection over a residue's memory.
fn over(fd: c_int, memory: Attachment, header: &Header) -> Option<&'static Conn> {
    let conn = Conn::over(fd, memory, header.is_acceptor != 0, header.read_before)?;
    conn.share();
    conn.holding.plain.store(1, Ordering::Relaxed);
    table::set_conn(fd, conn.address());
    Some(conn)
}

fn adopt_one(number: c_int) -> bool {
    let Some(header) = header_of(number) else { return false };
    let end = (sys::descriptor_limit() as c_int).min(SOCKETS_BELOW);
    let mut sockets = (0..end).filter(|fd| tcp::cookie(*fd) == Some(header.cookie));
    let Some(memory) = map(number, &header) else { return false };
    let Some(first) = sockets.next() else {
        // Whoever started this program counted it as a holder of a socket that it did not get.
        let holders = &memory.side().rx.more_holders;
        let _ = holders.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        return false;
    };
    let Some(conn) = over(first, memory, &header) else { return false };
    for fd in sockets {
        entry::name(conn, fd);
    }
    set(conn, number);
    true
}
