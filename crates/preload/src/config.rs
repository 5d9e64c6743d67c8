//! What the environment says; read once, when the library is loaded.
//!
//! Storey 1: system.

use core::ffi::c_char;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, Ordering};

use crate::real;

pub static SPIN_US: AtomicU32 = AtomicU32::new(50);
pub static PROMOTE_MESSAGES: AtomicU32 = AtomicU32::new(16);
pub static PROMOTE_BYTES: AtomicU32 = AtomicU32::new(64 * 1024);
/// Milliseconds that the offering call waits for its channel. For tests.
pub static PROMOTE_WAIT_MS: AtomicU32 = AtomicU32::new(0);
/// Milliseconds that a connect to another guest, or an accept from one, takes longer at most.
pub static GUEST_WAIT_MS: AtomicU32 = AtomicU32::new(20);
/// Not 0: `yasmin run --allow-io-uring`.
pub static ALLOW_IO_URING: AtomicU32 = AtomicU32::new(0);
/// Not 0: no text is looked through (`text`). For tests.
pub static TRUST_TEXT: AtomicU32 = AtomicU32::new(0);
/// Of 1,000 protocol steps, how many take the unlikely turn. For tests.
pub static CHAOS: AtomicU32 = AtomicU32::new(0);
static CHAOS_STATE: AtomicU32 = AtomicU32::new(0x9e37_79b9);
/// Copied: daemons overwrite their environment with their process title.
static SOCKET: [AtomicU8; SOCKET_BYTES] = [const { AtomicU8::new(0) }; SOCKET_BYTES];
/// As long as a Unix socket's address can be, with its NUL.
pub const SOCKET_BYTES: usize = 108;

static ENVIRON: AtomicPtr<*const c_char> = AtomicPtr::new(core::ptr::null_mut());

/// The environment: glibc hands it to constructors, which may run before libc's own; musl
/// hands them nothing, and has set its variable by then.
fn find_environ(handed: *const *const c_char) {
    let mut at = handed;
    if real::next(b"gnu_get_libc_version\0").is_null() {
        let variable = real::anywhere(b"environ\0").cast::<*const *const c_char>();
        // SAFETY: null, or libc's variable of this name.
        at = if variable.is_null() { core::ptr::null() } else { unsafe { *variable } };
    }
    ENVIRON.store(at.cast_mut(), Ordering::Relaxed);
}

/// The value of variable `name`, a string that lives as long as the process.
fn lookup(name: &[u8]) -> Option<*const u8> {
    let mut at = ENVIRON.load(Ordering::Relaxed).cast_const();
    if at.is_null() {
        return None;
    }
    // SAFETY: environ is a null-terminated array of NUL-terminated strings.
    unsafe {
        while !(*at).is_null() {
            let entry = (*at).cast::<u8>();
            let mut i = 0;
            while i < name.len() && *entry.add(i) == name[i] {
                i += 1;
            }
            if i == name.len() && *entry.add(i) == b'=' {
                return Some(entry.add(i + 1));
            }
            at = at.add(1);
        }
    }
    None
}

fn number(name: &[u8], into: &AtomicU32) {
    let Some(mut at) = lookup(name) else { return };
    let mut value = 0u32;
    // SAFETY: a NUL-terminated string.
    unsafe {
        if *at == 0 {
            return;
        }
        while *at != 0 {
            if !(*at).is_ascii_digit() {
                return;
            }
            value = value.saturating_mul(10).saturating_add(u32::from(*at - b'0'));
            at = at.add(1);
        }
    }
    into.store(value, Ordering::Relaxed);
}

/// Reads everything; `handed` is the third argument of the library's constructor.
pub fn read(handed: *const *const c_char) {
    find_environ(handed);
    number(b"YASMIN_SPIN_US", &SPIN_US);
    number(b"YASMIN_PROMOTE_MESSAGES", &PROMOTE_MESSAGES);
    number(b"YASMIN_PROMOTE_BYTES", &PROMOTE_BYTES);
    number(b"YASMIN_PROMOTE_WAIT_MS", &PROMOTE_WAIT_MS);
    number(b"YASMIN_GUEST_WAIT_MS", &GUEST_WAIT_MS);
    number(b"YASMIN_ALLOW_IO_URING", &ALLOW_IO_URING);
    number(b"YASMIN_TRUST_TEXT", &TRUST_TEXT);
    number(b"YASMIN_CHAOS", &CHAOS);
    number(b"YASMIN_CHAOS_SEED", &CHAOS_STATE);
    if let Some(path) = lookup(b"YASMIN_SOCKET") {
        keep_socket_path(path);
    }
}

/// A path that is too long for a socket is no path: then there is no broker.
fn keep_socket_path(path: *const u8) {
    for (i, kept) in SOCKET.iter().enumerate() {
        // SAFETY: a NUL-terminated string, read up to its NUL.
        let byte = unsafe { *path.add(i) };
        kept.store(byte, Ordering::Relaxed);
        if byte == 0 {
            return;
        }
    }
    SOCKET[0].store(b'?', Ordering::Relaxed);
    SOCKET[1].store(0, Ordering::Relaxed);
}

/// Bytes of the path of the broker's socket; none means the system's.
pub fn socket_path() -> impl Iterator<Item = u8> {
    SOCKET.iter().map(|byte| byte.load(Ordering::Relaxed)).take_while(|byte| *byte != 0)
}

/// Whether this protocol step is to take its unlikely turn; sometimes also delays.
pub fn chaos() -> bool {
    let per_mille = CHAOS.load(Ordering::Relaxed);
    if per_mille == 0 {
        return false;
    }
    let mut x = CHAOS_STATE.load(Ordering::Relaxed) | 1;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    CHAOS_STATE.store(x, Ordering::Relaxed);
    if x % 1000 >= per_mille {
        return false;
    }
    if x & 0x1000 != 0 {
        for _ in 0..(x >> 16) & 0x3fff {
            core::hint::spin_loop();
        }
    }
    true
}
