//! What the environment says; read once, when the library is loaded.
//!
//! Storey 1: system.

use core::ffi::c_char;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::{environment, real};

pub static SPIN_US: AtomicU32 = AtomicU32::new(50);
/// Percent of one CPU that all watching of this process may use.
pub static SPIN_SHARE: AtomicU32 = AtomicU32::new(UNBOUNDED);
pub const UNBOUNDED: u32 = u32::MAX;
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

/// Whether connections are offered from the first byte on, whatever it costs.
pub fn is_forced() -> bool {
    PROMOTE_MESSAGES.load(Ordering::Relaxed) == 0
}

/// The environment: glibc hands it to constructors, which may run before libc's own; musl
/// hands them nothing, and has set its variable by then.
fn find_environment(handed: *const *const c_char) -> *const *const c_char {
    if real::LIBC.is_musl() { environment::own() } else { handed }
}

/// A decimal number, and nothing else; what is too large is the largest.
fn number(text: &[u8]) -> Option<u32> {
    let digit = |byte: u8| byte.is_ascii_digit().then(|| u32::from(byte - b'0'));
    let sum = |sum: u32, byte: &u8| Some(sum.saturating_mul(10).saturating_add(digit(*byte)?));
    if text.is_empty() { None } else { text.iter().try_fold(0, sum) }
}

/// Reads everything; `handed` is the third argument of the library's constructor.
pub fn read(handed: *const *const c_char) {
    let environment = find_environment(handed);
    // SAFETY: the program's environment.
    let value = |name| unsafe { environment::variable(environment, name) };
    let numbers: [(&[u8], &AtomicU32); 10] = [
        (b"YASMIN_SPIN_US=", &SPIN_US),
        (b"YASMIN_SPIN_SHARE=", &SPIN_SHARE),
        (b"YASMIN_PROMOTE_MESSAGES=", &PROMOTE_MESSAGES),
        (b"YASMIN_PROMOTE_BYTES=", &PROMOTE_BYTES),
        (b"YASMIN_PROMOTE_WAIT_MS=", &PROMOTE_WAIT_MS),
        (b"YASMIN_GUEST_WAIT_MS=", &GUEST_WAIT_MS),
        (b"YASMIN_ALLOW_IO_URING=", &ALLOW_IO_URING),
        (b"YASMIN_TRUST_TEXT=", &TRUST_TEXT),
        (b"YASMIN_CHAOS=", &CHAOS),
        (b"YASMIN_CHAOS_SEED=", &CHAOS_STATE),
    ];
    for (name, into) in numbers {
        if let Some(number) = value(name).and_then(number) {
            into.store(number, Ordering::Relaxed);
        }
    }
    if let Some(path) = value(b"YASMIN_SOCKET=") {
        keep_socket_path(path);
    }
}

/// A path that is too long for a socket is no path: then there is no broker.
fn keep_socket_path(path: &[u8]) {
    let path = if path.len() < SOCKET_BYTES { path } else { b"?" };
    for (kept, byte) in SOCKET.iter().zip(path.iter().chain(&[0])) {
        kept.store(*byte, Ordering::Relaxed);
    }
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
