//! Refuses io_uring to the program, so that it falls back to calls that the library sees.
//!
//! Installed only where that is possible without NO_NEW_PRIVS, which would take sudo and the
//! like from the program. It costs each of the program's system calls some 13 ns.
//! (seccompiler always sets NO_NEW_PRIVS, and kills programs of another architecture, such as
//! an i386 child: hence these six instructions.)

use std::mem::offset_of;

use libc::{
    BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO,
    seccomp_data, sock_filter, sock_fprog,
};

/// AUDIT_ARCH_* of linux/audit.h, for which the system call's number below is meant.
#[cfg(target_arch = "x86_64")]
const AUDIT_ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const AUDIT_ARCH: u32 = 0xc000_00b7;

const fn instruction(code: u32, operand: u32, jump_false: u8) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: jump_false, k: operand }
}

const LOAD: u32 = BPF_LD | BPF_W | BPF_ABS;
const JUMP_IF_EQUAL: u32 = BPF_JMP | BPF_JEQ | BPF_K;
const RETURN: u32 = BPF_RET | BPF_K;

const FILTER: [sock_filter; 6] = [
    instruction(LOAD, offset_of!(seccomp_data, arch) as u32, 0),
    instruction(JUMP_IF_EQUAL, AUDIT_ARCH, 3),
    instruction(LOAD, offset_of!(seccomp_data, nr) as u32, 0),
    instruction(JUMP_IF_EQUAL, libc::SYS_io_uring_setup as u32, 1),
    instruction(RETURN, SECCOMP_RET_ERRNO | libc::ENOSYS as u32, 0),
    instruction(RETURN, SECCOMP_RET_ALLOW, 0),
];

/// From here on io_uring_setup fails with ENOSYS, in this process and all it becomes.
#[allow(unsafe_code)]
pub fn refuse_io_uring() -> std::io::Result<()> {
    let program = sock_fprog { len: FILTER.len() as u16, filter: FILTER.as_ptr().cast_mut() };
    // SAFETY: `program` names the instructions of FILTER, which is static; the kernel only
    // copies them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW,
            &raw const program,
        )
    };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
