//! The program's first thread, stopped at the end of its exec.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Context, bail, ensure};
use libc::user_regs_struct as Registers;
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Runs `act`, and lets the program go: with what `act` changed, or as it was.
///
/// # Errors
/// `act`'s; the system's, where the program is gone or can no longer be traced.
pub fn at_exec(
    process: Pid,
    act: impl FnOnce(&mut Stopped) -> anyhow::Result<Registers>,
) -> anyhow::Result<()> {
    // The event comes in the middle of exec, which sets registers later.
    ptrace::syscall(process, None)?;
    wait_for_syscall(process)?;
    let before = ptrace::getregs(process)?;
    let mask = signal_mask(process)?;
    // What comes meanwhile waits, and is the program's.
    set_signal_mask(process, u64::MAX)?;
    let memory = File::options().read(true).write(true).open(format!("/proc/{process}/mem"));
    let result = memory
        .context("memory")
        .and_then(|memory| Stopped::new(process, memory, before))
        .and_then(|mut stopped| act(&mut stopped));
    let mut after = *result.as_ref().unwrap_or(&before);
    // No system call is to be made again.
    after.orig_rax = u64::MAX;
    ptrace::setregs(process, after)?;
    set_signal_mask(process, mask)?;
    ptrace::detach(process, None)?;
    result.map(drop)
}

pub struct Stopped {
    pub process: Pid,
    pub registers: Registers,
    memory: File,
    /// Of a `syscall` instruction, in the vDSO.
    gate: u64,
    auxiliary: Vec<[u64; 2]>,
}

impl Stopped {
    fn new(process: Pid, memory: File, registers: Registers) -> anyhow::Result<Self> {
        let words = std::fs::read(format!("/proc/{process}/auxv"))?;
        let auxiliary = words
            .chunks_exact(16)
            .map(|pair| {
                let word = |at: usize| u64::from_ne_bytes(pair[at..at + 8].try_into().unwrap());
                [word(0), word(8)]
            })
            .collect();
        let mut stopped = Self { process, registers, memory, gate: 0, auxiliary };
        let vdso = stopped.auxiliary(libc::AT_SYSINFO_EHDR).context("no vDSO")?;
        let mut code = [0; 8192];
        let len = stopped.memory.read_at(&mut code, vdso)?;
        let at = code[..len].windows(2).position(|bytes| bytes == [0x0f, 0x05]);
        stopped.gate = vdso + at.context("no system call in the vDSO")? as u64;
        Ok(stopped)
    }

    /// An entry of the auxiliary vector (getauxval(3)).
    pub fn auxiliary(&self, kind: u64) -> Option<u64> {
        self.auxiliary.iter().find(|pair| pair[0] == kind).map(|pair| pair[1])
    }

    /// Has the program make a system call.
    ///
    /// # Errors
    /// As the call itself; the system's.
    pub fn call(&mut self, number: i64, arguments: [u64; 6]) -> anyhow::Result<u64> {
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let registers = Registers {
            rip: self.gate,
            rax: number as u64,
            orig_rax: u64::MAX,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..self.registers
        };
        ptrace::setregs(self.process, registers)?;
        for _ in ["enters", "leaves"] {
            ptrace::syscall(self.process, None)?;
            wait_for_syscall(self.process)?;
        }
        let ret = ptrace::getregs(self.process)?.rax;
        // As it was: should this process end here, the program goes on without the library.
        let registers = Registers { orig_rax: u64::MAX, ..self.registers };
        ptrace::setregs(self.process, registers)?;
        match -(ret as i64) {
            errno @ 1..4096 => Err(std::io::Error::from_raw_os_error(errno as i32).into()),
            _ => Ok(ret),
        }
    }

    /// # Errors
    /// Nothing is mapped there.
    pub fn write(&self, at: u64, bytes: &[u8]) -> anyhow::Result<()> {
        self.memory.write_all_at(bytes, at).context("the program's memory")
    }
}

fn wait_for_syscall(process: Pid) -> anyhow::Result<()> {
    match waitpid(process, Some(WaitPidFlag::__WALL))? {
        WaitStatus::PtraceSyscall(_) => Ok(()),
        other => bail!("{other:?} instead of a system call"),
    }
}

/// Bytes of the kernel's signal set.
const MASK_BYTES: usize = 8;

fn signal_mask(process: Pid) -> anyhow::Result<u64> {
    let mut mask = 0u64;
    // SAFETY: the kernel writes eight bytes.
    let ret = unsafe {
        libc::ptrace(libc::PTRACE_GETSIGMASK, process.as_raw(), MASK_BYTES, &raw mut mask)
    };
    ensure!(ret == 0, std::io::Error::last_os_error());
    Ok(mask)
}

fn set_signal_mask(process: Pid, mask: u64) -> anyhow::Result<()> {
    // SAFETY: the kernel reads eight bytes.
    let ret = unsafe {
        libc::ptrace(libc::PTRACE_SETSIGMASK, process.as_raw(), MASK_BYTES, &raw const mask)
    };
    ensure!(ret == 0, std::io::Error::last_os_error());
    Ok(())
}
