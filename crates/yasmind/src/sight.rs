//! Looks at a process's socket with a BPF program (bpf/socket.bpf.c), and at who holds its epoll set.
//!
//! The program is run for one process, finds the number in its table, and describes the socket
//! if it has the expected cookie; another one counts the references to an epoll set. Nothing is referenced, so nothing here can hold a connection's
//! end back, and nothing waits for anybody: what it costs depends neither on how many
//! descriptors and sockets there are nor on what their owners do. It needs Linux 6.1 with BTF,
//! CAP_BPF and CAP_PERFMON.

use crate::facts::{ESTABLISHED, Facts, Numbers, plain};
use crate::sys::bpf;
use crate::sys::sockopt::Credentials;
use aya::maps::{Array, Map, MapData};
use aya::programs::{Iter, ProgramFd};
use rustix::fd::{AsRawFd, OwnedFd};
use std::io;
use std::net::Ipv4Addr;
use yasmin_control::{Decline, Socket};

/// Why processes cannot be looked at on this machine.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("yasmind was built without a clang that compiles BPF")]
    NotBuilt,
    #[error("no description of the kernel's types: {0}")]
    Btf(#[from] aya::BtfError),
    #[error("the BPF program's file: {0}")]
    Object(#[from] aya::EbpfError),
    #[error("the BPF map: {0}")]
    Map(#[from] aya::maps::MapError),
    #[error("the kernel does not take the BPF program: {0}")]
    Program(#[from] aya::programs::ProgramError),
    #[error("{0} is missing in the BPF program's file")]
    Missing(&'static str),
    #[error("the kernel does not run the BPF program: {0}")]
    Run(#[from] io::Error),
    #[error("the kernel does not run a BPF program for one process alone, as from Linux 6.1 on")]
    Unbounded,
    #[error("the BPF program does not see this process's own socket")]
    Blind,
}

/// The compiled program; empty where no clang could compile it.
#[cfg(bpf_object)]
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/socket.bpf.o"));
#[cfg(not(bpf_object))]
static OBJECT: &[u8] = &[];

/// No process ever has it.
const NO_PID: u32 = 1 << 30;

/// Samples that are taken of one socket at most.
const SAMPLES: usize = 32;

/// Bytes of the program's struct record.
const RECORD_BYTES: usize = 120;

/// The loaded programs.
pub struct Sight {
    wanted: Array<MapData, [u64; 2]>,
    describe: ProgramFd,
    count: ProgramFd,
}

#[derive(Clone, Copy)]
enum Program {
    Describe,
    Count,
}

/// What the program found, but for what no caller needs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    raw: [u8; RECORD_BYTES],
}

impl Sight {
    /// Loads the program, and tries it out on a socket of this process.
    ///
    /// # Errors
    /// What the kernel does not have, or does not allow.
    pub fn load() -> Result<Self, LoadError> {
        if OBJECT.is_empty() {
            return Err(LoadError::NotBuilt);
        }
        let btf = aya::Btf::from_sys_fs()?;
        let mut object = aya::EbpfLoader::new().btf(Some(&btf)).load(OBJECT)?;
        let map = object.take_map("wanted").ok_or(LoadError::Missing("map 'wanted'"))?;
        let wanted = match map {
            Map::Array(_) => Array::try_from(map)?,
            _ => return Err(LoadError::Missing("map 'wanted'")),
        };
        let mut load = |name, missing| -> Result<ProgramFd, LoadError> {
            let program = object.program_mut(name).ok_or(LoadError::Missing(missing))?;
            let program: &mut Iter = program.try_into()?;
            program.load("task", &btf)?;
            Ok(program.fd()?.try_clone()?)
        };
        let (describe, count) = (load("describe", "'describe'")?, load("count", "'count'")?);
        let mut sight = Self { wanted, describe, count };
        let socket = rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::STREAM,
            None,
        )
        .map_err(io::Error::from)?;
        let cookie = rustix::net::sockopt::socket_cookie(&socket).map_err(io::Error::from)?;
        let number = socket.as_raw_fd() as u32;
        // Before Linux 6.1 the program is run for all processes, whichever is asked for.
        if sight.record(Program::Describe, NO_PID, number, cookie)?.is_some() {
            return Err(LoadError::Unbounded);
        }
        match sight.record(Program::Describe, std::process::id(), number, cookie)? {
            Some(record) if record.is_tcp() => Ok(sight),
            _ => Err(LoadError::Blind),
        }
    }

    /// The socket that `namer` names, if it has it under that number.
    ///
    /// # Errors
    /// Why this socket gets no channel.
    pub fn look(&mut self, namer: Credentials, socket: &Socket) -> Result<Facts, Decline> {
        let pid = namer.pid;
        if pid == 0 {
            return Err(Decline::NoProof);
        }
        let sample = |sight: &mut Self| {
            let record = sight.record(Program::Describe, pid, socket.number, socket.cookie);
            match record.map_err(|error| not_seen(&error))? {
                Some(record) if record.is_tcp() => Ok(record),
                _ => Err(Decline::NotTcp),
            }
        };
        let mut last = sample(self)?;
        if !last.is_of(namer) {
            return Err(Decline::NoProof);
        }
        // Until two samples in a row agree: the kernel raises a counter and its sequence number
        // in two adjacent stores under the socket's lock (tcp_rcv_nxt_update,
        // tcp_snd_una_update), and the program reads without it. A sample from in between is
        // off by what was just counted; two are a system call apart, so two that are off by the
        // same are no matter of chance, and should it happen, the numbers are nobody's and the
        // connection stays on TCP.
        for _ in 1..SAMPLES {
            let next = sample(self)?;
            if next.numbers() == last.numbers() {
                return next.facts().ok_or(Decline::NotTcp);
            }
            last = next;
        }
        Err(Decline::NoProof)
    }

    /// How many references there are to the epoll set that `namer` has under this number.
    ///
    /// # Errors
    /// There is none, or it cannot be told.
    pub fn count(&mut self, namer: Credentials, number: u32) -> Result<u64, Decline> {
        if namer.pid == 0 {
            return Err(Decline::NoProof);
        }
        let record = self.record(Program::Count, namer.pid, number, 0);
        let record = record.map_err(|error| not_seen(&error))?;
        let record = record.filter(|record| record.is_of(namer)).ok_or(Decline::NoProof)?;
        record.references().ok_or(Decline::NoProof)
    }

    /// How many references there are to a socket of this process's own. `None`: it cannot be told.
    pub fn references(&mut self, socket: &OwnedFd) -> Option<u64> {
        let cookie = rustix::net::sockopt::socket_cookie(socket).ok()?;
        let (pid, number) = (std::process::id(), socket.as_raw_fd() as u32);
        self.record(Program::Describe, pid, number, cookie).ok()??.references()
    }

    /// One run of a program.
    fn record(
        &mut self,
        program: Program,
        pid: u32,
        number: u32,
        cookie: u64,
    ) -> io::Result<Option<Record>> {
        let program = match program {
            Program::Describe => &self.describe,
            Program::Count => &self.count,
        };
        self.wanted.set(0, [cookie, u64::from(number)], 0).map_err(io::Error::other)?;
        let link = match bpf::link_iterator(program, pid) {
            // There is no such process any more.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
            link => link?,
        };
        let run: OwnedFd = bpf::run_iterator(&link)?;
        let mut raw = [0; RECORD_BYTES];
        loop {
            return match rustix::io::read(&run, &mut raw) {
                Ok(RECORD_BYTES) => Ok(Some(Record { raw })),
                Ok(_) => Ok(None),
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => continue,
                Err(error) => Err(error.into()),
            };
        }
    }
}

fn not_seen(error: &io::Error) -> Decline {
    crate::rarely::warn!("cannot look at a process: {error}");
    Decline::NoProof
}

/// struct record of the program.
impl Record {
    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut out = [0; N];
        out.copy_from_slice(&self.raw[at..at + N]);
        out
    }

    fn u64_at(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.bytes(at))
    }

    fn u32_at(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.bytes(at))
    }

    fn u16_at(&self, at: usize) -> u16 {
        u16::from_ne_bytes(self.bytes(at))
    }

    fn family(&self) -> i32 {
        i32::from(self.u16_at(52))
    }

    fn is_tcp(&self) -> bool {
        [libc::AF_INET, libc::AF_INET6].contains(&self.family())
            && i32::from(self.u16_at(54)) == libc::SOCK_STREAM
            && i32::from(self.u16_at(56)) == libc::IPPROTO_TCP
    }

    /// Whether the process still is what connected, as far as its rights go. A program that
    /// runs with more rights than whoever started it is not one of that user's: the library is
    /// not loaded there, and what connected before is not that program.
    fn is_of(&self, namer: Credentials) -> bool {
        self.u32_at(40) == namer.uid && self.u64_at(96) == 0
    }

    fn references(&self) -> Option<u64> {
        Some(self.u64_at(104)).filter(|&count| count != 0)
    }

    /// Sequence numbers are the low 32 bits of the counts.
    fn numbers(&self) -> Numbers {
        let (acked, received) = (self.u64_at(16) as u32, self.u64_at(24) as u32);
        Numbers {
            sent: self.u32_at(32).wrapping_sub(acked),
            received: self.u32_at(36).wrapping_sub(received),
        }
    }

    fn facts(&self) -> Option<Facts> {
        let address = |at: usize| match self.family() {
            libc::AF_INET => Ipv4Addr::from(self.bytes::<4>(at)).to_ipv6_mapped().octets(),
            _ => self.bytes(at),
        };
        let local = plain(address(64), self.u16_at(58));
        let peer = plain(address(80), u16::from_be(self.u16_at(60)));
        Some(Facts {
            cookie: self.u64_at(0),
            netns: Some(self.u64_at(8)).filter(|&netns| netns != 0),
            local,
            peer,
            is_plain: self.raw[62] == ESTABLISHED && self.raw[63] == 0,
            bound: self.u32_at(48) != 0,
            pid_namespace: u64::from(self.u32_at(44)),
            references: self.references(),
            numbers: Some(self.numbers()),
            beyond: Some(self.u64_at(112)).filter(|&netns| netns != 0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap() {
        let mut raw = [0; RECORD_BYTES];
        raw[16..24].copy_from_slice(&0x1_0000_0005u64.to_ne_bytes());
        raw[24..32].copy_from_slice(&3u64.to_ne_bytes());
        raw[32..36].copy_from_slice(&2u32.to_ne_bytes());
        raw[36..40].copy_from_slice(&10u32.to_ne_bytes());
        let numbers = Numbers { sent: 2u32.wrapping_sub(5), received: 7 };
        assert_eq!(Record { raw }.numbers(), numbers);
    }
}
