//! Entries that only need something done first, and then are libc's with every argument as it
//! was, variadic ones among them.
//!
//! Storey 7: exports.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::exports::{by_number, program};
use crate::{
    arrivals, fault, fork, handover, options, process, real, signals, streams, sys, table, text,
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
    backtrace_symbols_fd, BACKTRACE, report_writes;
    __backtrace_symbols_fd, BACKTRACE_TOO, report_writes;
    fclose, FCLOSE, stdio_closes;
    freopen, FREOPEN, stdio_reopens;
    freopen64, FREOPEN64, stdio_reopens;
    dlopen, DLOPEN, arrivals::before_dlopen;
    dlmopen, DLMOPEN, text::before_dlmopen;
    dlclose, DLCLOSE, text::before_dlclose;
}

// libc's functions that write, and close, by entries that nobody can get in front of.

extern "C" fn report_writes(_: usize, _: c_int, fd: c_int) {
    handover::leave_writes(fd);
}

/// libc puts the new file at the same number. What the stream has yet to write goes out as long as that is known.
extern "C" fn stdio_reopens(_: *const c_char, _: *const c_char, stream: *mut c_void) {
    if !stream.is_null() {
        let saved = sys::errno();
        // SAFETY: an open stream, by freopen's contract.
        let fd = unsafe { real::fileno(stream) };
        if table::raw(fd) != 0 {
            // SAFETY: as above.
            unsafe { real::fflush(stream) };
        }
        options::closes(fd);
        sys::set_errno(saved);
    }
}

/// Where its own functions are not seen, they close the number unseen.
extern "C" fn stdio_closes(stream: *mut c_void) {
    if !stream.is_null() && !streams::sees(stream) {
        let saved = sys::errno();
        // SAFETY: an open stream, by fclose's contract.
        options::closes(unsafe { real::fileno(stream) });
        sys::set_errno(saved);
    }
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
