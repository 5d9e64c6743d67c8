//! The filter that holds back what comes by TCP while bytes that stand before it lie unread in a
//! ring.
//!
//! Who has a socket and not the library reads from the kernel alone. While its connection has ring
//! bytes unread, TCP must have none to give: that reader would take what follows for what comes
//! next. So whatever TCP has queued already goes into the ring, behind what is unread there, and a
//! filter drops each segment that brings bytes or the end; the peer sends those again, 200 ms later
//! or more. The filter goes with the last unread byte, when a process claims what is unread, or
//! with the connection.
//!
//! Storey 4: life.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use yasmin_channel::side::HELD_BACK;
use yasmin_ring::{Pages, Receiver, View};
use yasmin_wire::layout::class_bytes;

use crate::conn::Conn;
use crate::sys::{self, SOL_SOCKET, call};
use crate::tcp;

/// struct sock_filter (linux/filter.h).
#[repr(C)]
struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    operand: u32,
}

/// struct sock_fprog.
#[repr(C)]
struct Program {
    len: u16,
    instructions: *const Instruction,
}

const fn step(code: u16, operand: u32) -> Instruction {
    Instruction { code, if_true: 0, if_false: 0, operand }
}

const fn jump(code: u16, operand: u32, if_true: u8, if_false: u8) -> Instruction {
    Instruction { code, if_true, if_false, operand }
}

/// Of a segment, its TCP header first, the filter lets through what has neither payload nor FIN.
static NO_BYTES: [Instruction; 11] = {
    const LOAD_BYTE: u16 = 0x30;
    const LOAD_LEN: u16 = 0x80;
    const AND: u16 = 0x54;
    const SHIFT_RIGHT: u16 = 0x74;
    const TO_X: u16 = 0x07;
    const SUBTRACT_X: u16 = 0x1c;
    const IF_EQUAL: u16 = 0x15;
    const IF_SET: u16 = 0x45;
    const RETURN: u16 = 0x06;
    const OFFSET_AT: u32 = 12;
    const FLAGS_AT: u32 = 13;
    const FIN: u32 = 1;
    [
        // The header's length: the upper four bits count words of four bytes.
        step(LOAD_BYTE, OFFSET_AT),
        step(AND, 0xf0),
        step(SHIFT_RIGHT, 2),
        step(TO_X, 0),
        step(LOAD_LEN, 0),
        step(SUBTRACT_X, 0),
        jump(IF_EQUAL, 0, 0, 3),
        step(LOAD_BYTE, FLAGS_AT),
        jump(IF_SET, FIN, 1, 0),
        step(RETURN, u32::MAX),
        step(RETURN, 0),
    ]
};

/// Holds back what comes by TCP until `lets_through`. The direction is parked for good. `is_own`:
/// nobody else maps the ring, so what is queued already can go there.
///
/// Nothing is held back where a reader with the library would wait for it: TCP bytes that come
/// before the unread ones and are still under way, and a low-water mark.
pub fn holds_back(conn: &'static Conn, fd: c_int, is_own: bool) {
    let Ok(_rx) = conn.lock_rx(fd) else { return };
    let receiver = conn.receiver();
    let Some(before) = before_ring(conn, &receiver) else { return };
    let has_all = before == 0 || is_own && tcp::unread(fd) as u64 >= before;
    if !receiver.is_never() || !has_all || conn.low_water() > 1 {
        return;
    }
    let bits = &conn.side().rx.foreign;
    // Said, /then/ attached: one that nobody knows of would never go. Attached, /then/ what came
    // before is taken.
    bits.fetch_or(HELD_BACK, Ordering::SeqCst);
    if !attach(fd) {
        bits.fetch_and(!HELD_BACK, Ordering::SeqCst);
        return;
    }
    if is_own {
        gather(conn, fd, &receiver, before as usize);
    }
}

/// What TCP has goes into the ring, of which nobody else has a mapping. Parked for good.
pub fn gathers(conn: &'static Conn, fd: c_int) {
    let Ok(_rx) = conn.lock_rx(fd) else { return };
    let receiver = conn.receiver();
    let Some(before) = before_ring(conn, &receiver) else { return };
    if receiver.is_never() && tcp::unread(fd) as u64 >= before {
        gather(conn, fd, &receiver, before as usize);
    }
}

/// Bytes that TCP has to give before the unread ones of the ring. `None`: there are none there.
fn before_ring(conn: &Conn, receiver: &Receiver<'_, Pages>) -> Option<u64> {
    match receiver.look(|| conn.read_position()) {
        Ok(View::TcpUpTo { limit_bytes }) => Some(limit_bytes),
        Ok(View::Ring { .. }) => Some(0),
        _ => None,
    }
}

fn is_held_back(conn: &Conn) -> bool {
    conn.side().rx.foreign.load(Ordering::Relaxed) & HELD_BACK != 0
}

/// Whoever has what is unread reads it first, or may wait for more.
pub fn lets_through(conn: &'static Conn, fd: c_int) {
    if let Ok(_rx) = conn.lock_rx(fd) {
        takes_off(conn, fd);
    }
}

/// The same under the receive lock: who holds it is the only one to put a filter on or take it off.
pub fn takes_off(conn: &Conn, fd: c_int) {
    if is_held_back(conn) {
        sys::setsockopt_bytes(fd, SOL_SOCKET, sys::SO_DETACH_FILTER, &0u32.to_ne_bytes());
        conn.side().rx.foreign.fetch_and(!HELD_BACK, Ordering::SeqCst);
    }
}

fn attach(fd: c_int) -> bool {
    let program = Program { len: NO_BYTES.len() as u16, instructions: NO_BYTES.as_ptr() };
    let len = size_of::<Program>();
    // SAFETY: the kernel reads the program and copies the instructions.
    unsafe {
        call!(setsockopt, fd, SOL_SOCKET, sys::SO_ATTACH_FILTER, &raw const program, len) == 0
    }
}

/// Moves what TCP has into the ring: `before` bytes of it stand in front of what is unread there.
/// If the ring cannot hold it, it stays. Under the receive lock.
fn gather(conn: &Conn, fd: c_int, receiver: &Receiver<'_, Pages>, before: usize) {
    let (unread, class) = (receiver.unread_bytes() as usize, receiver.max_class);
    let room = class_bytes(class) as usize - unread;
    let in_tcp = tcp::unread(fd);
    // An urgent byte has its place among the others.
    let is_urgent = sys::poll_now(fd, sys::POLLPRI) & sys::POLLPRI != 0;
    if in_tcp == 0 || in_tcp > room || is_urgent || tcp::peek_offset(fd).is_some() {
        return;
    }
    let len_bytes = unread + room;
    let Some(base) = sys::map_private(len_bytes) else { return };
    let mut from_tcp = read(fd, base, before);
    if from_tcp == before {
        // SAFETY: `unread` bytes of room, behind at most `room` bytes.
        unsafe { receiver.peek(0, base.wrapping_add(before), unread) };
        // Some may come between the two.
        loop {
            let most = tcp::unread(fd).min(room - from_tcp);
            let got = read(fd, base.wrapping_add(unread + from_tcp), most);
            from_tcp += got;
            if got == 0 {
                break;
            }
        }
        // SAFETY: that many were written there.
        unsafe { receiver.refill(class, base, (unread + from_tcp) as u32) };
    } else {
        // The kernel had said that they are there.
        receiver.spoil();
        tcp::reset(fd);
    }
    conn.side().rx.tcp_bytes.add(from_tcp as u64);
    // SAFETY: mapped above, and used no more.
    unsafe { call!(munmap, base, len_bytes) };
}

/// Up to `most` bytes that TCP has; asked for no more, it tells no error.
fn read(fd: c_int, to: *mut u8, most: usize) -> usize {
    let mut done = 0;
    while done < most {
        let (at, left) = (to.wrapping_add(done), most - done);
        // SAFETY: the caller's room.
        let ret = unsafe { call!(recvfrom, fd, at, left, sys::MSG_DONTWAIT, 0, 0) };
        match usize::try_from(ret) {
            Ok(len @ 1..) => done += len,
            _ if ret == -(sys::EINTR as isize) => {}
            _ => break,
        }
    }
    done
}
