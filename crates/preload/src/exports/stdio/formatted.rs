//! dprintf(3) and its kin. libc writes there by itself: where the number concerns this library, libc makes a text of
//! it, and that is written.
//!
//! Storey 7: exports.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::{is_beside, stream};
use crate::{real, sys, table};

/// What a variadic function got, as libc's `v` functions take it: the address of a va_list.
type Arguments = *mut c_void;

/// The next function of its name: libc's, or an object's that has one of its own, of whatever arguments.
#[repr(C)]
struct Next {
    at: AtomicPtr<c_void>,
    is_libcs: AtomicBool,
    name: &'static [u8],
}

impl Next {
    fn find(&self) {
        let at = real::next(self.name);
        self.at.store(at, Ordering::Relaxed);
        self.is_libcs.store(is_beside(at, b"printf\0"), Ordering::Relaxed);
    }
}

/// Whether a call is to be done here.
extern "C" fn is_taken(fd: c_int, next: &Next) -> bool {
    if next.at.load(Ordering::Relaxed).is_null() {
        // Called before this library has begun.
        next.find();
    }
    table::raw(fd) != 0 && next.is_libcs.load(Ordering::Relaxed)
}

/// A function that goes on to the next one of its name with all registers as they were, or is done here: `then` gets
/// its arguments, and as the last of them, set by `rest`, a va_list of those that are not fixed (System V ABI for
/// x86-64, section 3.5.7).
macro_rules! formatted {
    ($name:ident, $next:ident, [$($rest:expr),*], $then:path) => {
        static $next: Next = Next {
            at: AtomicPtr::new(core::ptr::null_mut()),
            is_libcs: AtomicBool::new(false),
            name: concat!(stringify!($name), "\0").as_bytes(),
        };

        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                // 24 bytes for a va_list, the registers as that wants them, and rax.
                "sub rsp, 216",
                "mov [rsp + 24], rdi",
                "mov [rsp + 32], rsi",
                "mov [rsp + 40], rdx",
                "mov [rsp + 48], rcx",
                "mov [rsp + 56], r8",
                "mov [rsp + 64], r9",
                "movups [rsp + 72], xmm0",
                "movups [rsp + 88], xmm1",
                "movups [rsp + 104], xmm2",
                "movups [rsp + 120], xmm3",
                "movups [rsp + 136], xmm4",
                "movups [rsp + 152], xmm5",
                "movups [rsp + 168], xmm6",
                "movups [rsp + 184], xmm7",
                "mov [rsp + 200], rax",
                "lea rsi, [rip + {next}]",
                "call {is_taken}",
                "test al, al",
                "mov rdi, [rsp + 24]",
                "mov rsi, [rsp + 32]",
                "mov rdx, [rsp + 40]",
                "mov rcx, [rsp + 48]",
                "mov r8, [rsp + 56]",
                "mov r9, [rsp + 64]",
                "jne 2f",
                "movups xmm0, [rsp + 72]",
                "movups xmm1, [rsp + 88]",
                "movups xmm2, [rsp + 104]",
                "movups xmm3, [rsp + 120]",
                "movups xmm4, [rsp + 136]",
                "movups xmm5, [rsp + 152]",
                "movups xmm6, [rsp + 168]",
                "movups xmm7, [rsp + 184]",
                "mov rax, [rsp + 200]",
                "add rsp, 216",
                "jmp qword ptr [rip + {next}]",
                "2:",
                "mov dword ptr [rsp + 4], 48",
                "lea rax, [rsp + 224]",
                "mov [rsp + 8], rax",
                "lea rax, [rsp + 24]",
                "mov [rsp + 16], rax",
                $($rest,)*
                "call {then}",
                "add rsp, 216",
                "ret",
                next = sym $next,
                is_taken = sym is_taken,
                then = sym $then,
            )
        }
    };
}

formatted!(dprintf, DPRINTF, ["mov dword ptr [rsp], 16", "mov rdx, rsp"], write);
formatted!(__dprintf_chk, DPRINTF_CHK, ["mov dword ptr [rsp], 24", "mov rcx, rsp"], write_checked);
formatted!(vdprintf, VDPRINTF, [], write);
formatted!(__vdprintf_chk, VDPRINTF_CHK, [], write_checked);

/// Before the program's own code runs.
pub fn start() {
    for next in [&DPRINTF, &DPRINTF_CHK, &VDPRINTF, &VDPRINTF_CHK] {
        next.find();
    }
}

unsafe extern "C" fn write(fd: c_int, format: *const c_char, arguments: Arguments) -> c_int {
    // SAFETY: the program's own arguments.
    written(fd, |text| unsafe { real::vasprintf(text, format, arguments) })
}

unsafe extern "C" fn write_checked(
    fd: c_int,
    flag: c_int,
    format: *const c_char,
    arguments: Arguments,
) -> c_int {
    // SAFETY: the program's own arguments.
    written(fd, |text| unsafe { real::__vasprintf_chk(text, flag, format, arguments) })
}

/// Writes all of the text that `made` gives: its length, or -1 as soon as that fails.
fn written(fd: c_int, made: impl FnOnce(*mut *mut c_char) -> c_int) -> c_int {
    let mut text = core::ptr::null_mut();
    let len = made(&raw mut text);
    if len < 0 {
        return len;
    }
    let mut done = 0;
    while done < len as usize {
        // SAFETY: the rest of the text.
        let wrote = unsafe { stream::write(fd, text.cast::<u8>().add(done), len as usize - done) };
        if wrote < 0 {
            break;
        }
        done += wrote as usize;
    }
    let saved = sys::errno();
    real::free(text.cast());
    sys::set_errno(saved);
    if done < len as usize { -1 } else { len }
}
