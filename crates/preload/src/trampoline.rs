//! Entries that only need something done first, and then are libc's with every argument as it
//! was, variadic ones among them.
//!
//! Storey 7: exports.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::exports::{by_number, program};
use crate::{
    arrivals, fault, fork, handover, options, process, real, signals, stdio, sys, table, text,
};

/// All argument registers; seven words and 128 bytes keep rsp aligned.
macro_rules! keep_arguments {
    () => {
        "push rdi
        push rsi
        push rdx
        push rcx
        push r8
        push r9
        push rax
        sub rsp, 128
        movups [rsp], xmm0
        movups [rsp + 16], xmm1
        movups [rsp + 32], xmm2
        movups [rsp + 48], xmm3
        movups [rsp + 64], xmm4
        movups [rsp + 80], xmm5
        movups [rsp + 96], xmm6
        movups [rsp + 112], xmm7"
    };
}

/// libc's function, with them.
macro_rules! go_on {
    () => {
        "movups xmm0, [rsp]
        movups xmm1, [rsp + 16]
        movups xmm2, [rsp + 32]
        movups xmm3, [rsp + 48]
        movups xmm4, [rsp + 64]
        movups xmm5, [rsp + 80]
        movups xmm6, [rsp + 96]
        movups xmm7, [rsp + 112]
        add rsp, 128
        pop rax
        pop r9
        pop r8
        pop rcx
        pop rdx
        pop rsi
        pop rdi
        jmp qword ptr [rip + {slot}]"
    };
}

macro_rules! trampolines {
    ($($name:ident, $slot:ident, $hook:path;)*) => {
        $(
        #[allow(non_upper_case_globals)]
        static $slot: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

        /// libc's function of this name, after the hook.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub extern "C" fn $name() {
            core::arch::naked_asm!(
                keep_arguments!(),
                // A seventh argument for the hook: where the program's return address lies.
                "lea rax, [rsp + 184]", "push rax", "push rax",
                "call {hook}",
                "add rsp, 16",
                // Called before this library's constructor ran: look it up now.
                "cmp qword ptr [rip + {slot}], 0",
                "jne 2f",
                "call {resolve}",
                "2:",
                go_on!(),
                hook = sym $hook,
                resolve = sym resolve,
                slot = sym $slot,
            )
        }
        )*

        pub extern "C" fn resolve() {
            $($slot.store(real::next(concat!(stringify!($name), "\0").as_bytes()), Ordering::Relaxed);)*
            SYSCALL.store(real::next(b"syscall\0"), Ordering::Relaxed);
        }
    };
}

trampolines! {
    execl, EXECL, program::before_execl;
    execlp, EXECLP, program::before_execlp;
    execle, EXECLE, program::before_execl;
    posix_spawn_file_actions_adddup2, ADDDUP2, program::before_adddup2;
    system, SYSTEM, program::before_shell;
    popen, POPEN, program::before_shell;
    wordexp, WORDEXP, program::before_shell;
    _exit, EXIT_NOW, fork::exits;
    _Exit, EXIT_NOW_TOO, fork::exits;
    vfork, VFORK, handover::before_vfork;
    prctl, PRCTL, program::before_prctl;
    unshare, UNSHARE, handover::before_unshare;
    pthread_cancel, PTHREAD_CANCEL, process::before_cancelling;
    pthread_setcanceltype, PTHREAD_SETCANCELTYPE, signals::before_canceltype;
    pthread_sigmask, PTHREAD_SIGMASK, fault::before_masking;
    sigprocmask, SIGPROCMASK, fault::before_masking;
    sigsetmask, SIGSETMASK, fault::before_masking;
    sigblock, SIGBLOCK, fault::before_masking;
    sighold, SIGHOLD, fault::before_masking;
    dprintf, DPRINTF, stdio_writes;
    vdprintf, VDPRINTF, stdio_writes;
    __dprintf_chk, DPRINTF_CHK, stdio_writes;
    __vdprintf_chk, VDPRINTF_CHK, stdio_writes;
    backtrace_symbols_fd, BACKTRACE, report_writes;
    __backtrace_symbols_fd, BACKTRACE_TOO, report_writes;
    fclose, FCLOSE, stdio_closes;
    freopen, FREOPEN, stdio_reopens;
    freopen64, FREOPEN64, stdio_reopens;
    dlopen, DLOPEN, arrivals::before_dlopen;
    dlmopen, DLMOPEN, text::before_dlmopen;
    dlclose, DLCLOSE, text::before_dlclose;
}

// libc's stdio reads and writes by entries that nobody can get in front of.

extern "C" fn stdio_writes(fd: c_int) {
    handover::leave_writes(fd);
}

extern "C" fn report_writes(_: usize, _: c_int, fd: c_int) {
    handover::leave_writes(fd);
}

extern "C" fn stdio_closes(stream: *mut c_void) {
    let saved = sys::errno();
    if !stream.is_null() {
        stdio::closes(stream);
        // SAFETY: an open stream, by fclose's contract.
        options::closes(unsafe { real::fileno(stream) });
    }
    sys::set_errno(saved);
}

extern "C" fn stdio_reopens(_: *const c_char, _: *const c_char, stream: *mut c_void) {
    stdio_closes(stream);
}

/// libc's function of a name, found when it is called for the first time: a name that libc does not have must not
/// be looked for, since the linker then allocates memory, which may be what is under way.
#[repr(C)]
struct Found {
    at: AtomicPtr<c_void>,
    name: &'static [u8],
}

extern "C" fn find(found: &Found) {
    found.at.store(real::next(found.name), Ordering::Relaxed);
}

/// Entries of functions that are called for each byte: they look first whether there is anything to do.
macro_rules! readers {
    ($($name:ident, $slot:ident, $hook:path;)*) => {
        $(
        static $slot: Found = Found {
            at: AtomicPtr::new(core::ptr::null_mut()),
            name: concat!(stringify!($name), "\0").as_bytes(),
        };

        /// libc's function of this name, once the stream that it reads has what is unread in a ring.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub extern "C" fn $name() {
            core::arch::naked_asm!(
                "cmp dword ptr [rip + {streams}], 0",
                "jne 2f",
                "cmp qword ptr [rip + {slot}], 0",
                "je 2f",
                "jmp qword ptr [rip + {slot}]",
                "2:",
                keep_arguments!(),
                "call {hook}",
                "cmp qword ptr [rip + {slot}], 0",
                "jne 3f",
                "lea rdi, [rip + {slot}]",
                "call {find}",
                "3:",
                go_on!(),
                hook = sym $hook,
                find = sym find,
                streams = sym table::STREAMS,
                slot = sym $slot,
            )
        }
        )*
    };
}

readers! {
    fgetc, FGETC, stdio::before_reading;
    fgetc_unlocked, FGETC_UNLOCKED, stdio::before_reading;
    getc, GETC, stdio::before_reading;
    _IO_getc, IO_GETC, stdio::before_reading;
    getc_unlocked, GETC_UNLOCKED, stdio::before_reading;
    getw, GETW, stdio::before_reading;
    __uflow, UFLOW, stdio::before_reading;
    __underflow, UNDERFLOW, stdio::before_reading;
    fgets, FGETS, stdio::before_reading;
    fgets_unlocked, FGETS_UNLOCKED, stdio::before_reading;
    __fgets_chk, FGETS_CHK, stdio::before_reading;
    __fgets_unlocked_chk, FGETS_UNLOCKED_CHK, stdio::before_reading;
    fread, FREAD, stdio::before_reading;
    fread_unlocked, FREAD_UNLOCKED, stdio::before_reading;
    __fread_chk, FREAD_CHK, stdio::before_reading;
    __fread_unlocked_chk, FREAD_UNLOCKED_CHK, stdio::before_reading;
    getline, GETLINE, stdio::before_reading;
    getdelim, GETDELIM, stdio::before_reading;
    __getdelim, GETDELIM_TOO, stdio::before_reading;
    fscanf, FSCANF, stdio::before_reading;
    vfscanf, VFSCANF, stdio::before_reading;
    __isoc99_fscanf, FSCANF_99, stdio::before_reading;
    __isoc99_vfscanf, VFSCANF_99, stdio::before_reading;
    __isoc23_fscanf, FSCANF_23, stdio::before_reading;
    __isoc23_vfscanf, VFSCANF_23, stdio::before_reading;
    fgetwc, FGETWC, stdio::before_reading_wide;
    fgetwc_unlocked, FGETWC_UNLOCKED, stdio::before_reading_wide;
    getwc, GETWC, stdio::before_reading_wide;
    getwc_unlocked, GETWC_UNLOCKED, stdio::before_reading_wide;
    fgetws, FGETWS, stdio::before_reading_wide;
    fgetws_unlocked, FGETWS_UNLOCKED, stdio::before_reading_wide;
    fwscanf, FWSCANF, stdio::before_reading_wide;
    vfwscanf, VFWSCANF, stdio::before_reading_wide;
    getchar, GETCHAR, stdio::before_reading_input;
    getchar_unlocked, GETCHAR_UNLOCKED, stdio::before_reading_input;
    gets, GETS, stdio::before_reading_input;
    __gets_chk, GETS_CHK, stdio::before_reading_input;
    scanf, SCANF, stdio::before_reading_input;
    vscanf, VSCANF, stdio::before_reading_input;
    __isoc99_scanf, SCANF_99, stdio::before_reading_input;
    __isoc99_vscanf, VSCANF_99, stdio::before_reading_input;
    __isoc23_scanf, SCANF_23, stdio::before_reading_input;
    __isoc23_vscanf, VSCANF_23, stdio::before_reading_input;
    getwchar, GETWCHAR, stdio::before_reading_wide_input;
    getwchar_unlocked, GETWCHAR_UNLOCKED, stdio::before_reading_wide_input;
    wscanf, WSCANF, stdio::before_reading_wide_input;
    vwscanf, VWSCANF, stdio::before_reading_wide_input;
}

static SYSCALL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// syscall(2), but for calls that concern this library.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub extern "C" fn syscall() {
    core::arch::naked_asm!(
        // Seven words keep rsp aligned.
        "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
        "cmp qword ptr [rip + {slot}], 0",
        "jne 2f",
        "call {resolve}",
        "mov rdi, [rsp + 48]",
        "mov rsi, [rsp + 40]",
        "mov rdx, [rsp + 32]",
        "mov rcx, [rsp + 24]",
        "2:",
        "call {concerns}",
        "test al, al",
        // Neither pop nor mov changes the flags.
        "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
        // The sixth argument lies on the stack for both, as the seventh of a function.
        "jne {take}",
        "jmp qword ptr [rip + {slot}]",
        resolve = sym resolve,
        concerns = sym by_number::concerns,
        take = sym by_number::take,
        slot = sym SYSCALL,
    )
}
