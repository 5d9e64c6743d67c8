//! Reads a socket's initial sequence numbers with a BPF program (bpf/numbers.bpf.c).
//!
//! The socket is put into a map of the program's, the program is run over the map, and the
//! socket is taken out again: what that costs does not depend on how many descriptors, sockets
//! or namespaces there are. It needs Linux 5.9 with BTF, CAP_BPF and CAP_PERFMON.

use crate::facts::Numbers;
use crate::sys::bpf;
use aya::maps::{Map, MapData, SkStorage};
use aya::programs::Iter;
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::io;

/// Why numbers cannot be read on this machine.
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
}

/// The compiled program; empty where no clang could compile it.
#[cfg(bpf_object)]
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/numbers.bpf.o"));
#[cfg(not(bpf_object))]
static OBJECT: &[u8] = &[];

/// Samples that are taken of one socket at most.
const SAMPLES: usize = 32;

/// Bytes of the program's struct record.
const RECORD_BYTES: usize = 32;

/// The loaded program.
pub struct Reader {
    marked: SkStorage<MapData, u64>,
    /// Keeps the program loaded.
    link: OwnedFd,
}

impl Reader {
    /// Loads the program, and tries it out.
    ///
    /// # Errors
    /// What the kernel does not have, or does not allow.
    pub fn load() -> Result<Self, LoadError> {
        if OBJECT.is_empty() {
            return Err(LoadError::NotBuilt);
        }
        let btf = aya::Btf::from_sys_fs()?;
        let mut object = aya::EbpfLoader::new().btf(Some(&btf)).load(OBJECT)?;
        let Some(Map::SkStorage(marked)) = object.take_map("marked") else {
            return Err(LoadError::Missing("map 'marked'"));
        };
        let program = object.program_mut("numbers").ok_or(LoadError::Missing("'numbers'"))?;
        let program: &mut Iter = program.try_into()?;
        program.load("bpf_sk_storage_map", &btf)?;
        let link = bpf::link_iterator(program.fd()?, marked.fd())?;
        let marked = SkStorage::try_from(Map::SkStorage(marked))?;
        let mut reader = Self { marked, link };
        let socket = rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::STREAM,
            None,
        );
        use rustix::fd::AsFd;
        reader.read(socket.map_err(io::Error::from)?.as_fd(), 1)?;
        Ok(reader)
    }

    /// The numbers of a TCP socket. `cookie` is the socket's, and so no other's.
    pub fn read(&mut self, socket: BorrowedFd, cookie: u64) -> io::Result<Numbers> {
        self.marked.insert(&socket.as_raw_fd(), cookie, 0).map_err(io::Error::other)?;
        let numbers = self.settle(cookie);
        self.marked.remove(&socket.as_raw_fd()).map_err(io::Error::other)?;
        numbers
    }

    /// Reads until two samples in a row agree.
    ///
    /// The kernel raises a counter and its sequence number in two adjacent stores under the
    /// socket's lock (tcp_rcv_nxt_update, tcp_snd_una_update), and the program reads without
    /// it: a sample from in between is off by what was just counted. Two samples are a system
    /// call apart, so two that are off by the same are no matter of chance; and should it
    /// happen, the numbers are nobody's and the connection stays on TCP.
    fn settle(&self, cookie: u64) -> io::Result<Numbers> {
        let mut last = self.sample(cookie)?;
        for _ in 1..SAMPLES {
            let next = self.sample(cookie)?;
            if next == last {
                return Ok(next);
            }
            last = next;
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "the numbers do not stand still"))
    }

    fn sample(&self, cookie: u64) -> io::Result<Numbers> {
        let run = bpf::run_iterator(&self.link)?;
        let mut buffer = [0; 32 * RECORD_BYTES];
        loop {
            // A thread that was left behind may have a socket in the map too: usually there
            // is one record, and the kernel gives whole ones.
            let len = match rustix::io::read(&run, &mut buffer) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::NotFound)),
                Ok(len) => len,
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => continue,
                Err(error) => return Err(error.into()),
            };
            let mut records = buffer[..len].chunks_exact(RECORD_BYTES);
            if let Some(numbers) = records.find_map(|record| decode(record, cookie)) {
                return Ok(numbers);
            }
        }
    }
}

/// struct record: tag, bytes_acked, bytes_received, snd_una, rcv_nxt.
fn decode(record: &[u8], cookie: u64) -> Option<Numbers> {
    let u64_at = |at: usize| Some(u64::from_ne_bytes(record.get(at..at + 8)?.try_into().ok()?));
    let u32_at = |at: usize| Some(u32::from_ne_bytes(record.get(at..at + 4)?.try_into().ok()?));
    if u64_at(0)? != cookie {
        return None;
    }
    // Sequence numbers are the low 32 bits of the counts.
    let (acked, received) = (u64_at(8)? as u32, u64_at(16)? as u32);
    Some(Numbers {
        sent: u32_at(24)?.wrapping_sub(acked),
        received: u32_at(28)?.wrapping_sub(received),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap() {
        let mut record = [0; RECORD_BYTES];
        record[0..8].copy_from_slice(&7u64.to_ne_bytes());
        record[8..16].copy_from_slice(&0x1_0000_0005u64.to_ne_bytes());
        record[16..24].copy_from_slice(&3u64.to_ne_bytes());
        record[24..28].copy_from_slice(&2u32.to_ne_bytes());
        record[28..32].copy_from_slice(&10u32.to_ne_bytes());
        let numbers = Numbers { sent: 2u32.wrapping_sub(5), received: 7 };
        assert_eq!(decode(&record, 7), Some(numbers));
        assert_eq!(decode(&record, 8), None);
        assert_eq!(decode(&record[..31], 7), None);
    }
}
