//! DPDK's telemetry: a Unix socket for each process that takes a command as one packet and
//! answers with JSON in one packet (DPDK Programmer's Guide, "Telemetry Library").

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};
use serde_json::Value;

use crate::folder::Folder;

/// A process that does not answer must not hold up the others for longer.
const PATIENCE: Duration = Duration::from_millis(200);

/// The greeting says how long answers get; this is what every version says.
const GREETING_BYTES: usize = 1024;
const MOST_BYTES: u64 = 1 << 20;

pub struct Telemetry {
    socket: OwnedFd,
    pub pid: u32,
    buffer: Vec<u8>,
}

/// Every socket that a process might listen on; a later process of a prefix gets a number.
pub struct Sockets {
    roots: Vec<Folder>,
    /// DPDK leaves a prefix's folder behind, with its socket.
    prefixes: BTreeMap<PathBuf, Folder>,
    paths: Vec<PathBuf>,
}

impl Default for Sockets {
    fn default() -> Self {
        let mut roots = vec![PathBuf::from("/var/run/dpdk")];
        let own = std::env::var_os("XDG_RUNTIME_DIR");
        roots.extend(own.map(|folder| Path::new(&folder).join("dpdk")));
        let roots = roots.into_iter().map(Folder::new).collect();
        Self { roots, prefixes: BTreeMap::new(), paths: Vec::new() }
    }
}

impl Sockets {
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// True when sockets may have come, gone or taken another's place since the last call.
    pub fn look(&mut self) -> bool {
        // Each of them, also after one that has changed.
        let mut changed = self.roots.iter_mut().fold(false, |any, root| root.look() | any);
        if changed {
            let mut before = std::mem::take(&mut self.prefixes);
            let paths = self
                .roots
                .iter()
                .flat_map(|root| root.names().iter().map(|name| root.path().join(name)));
            for path in paths {
                let folder = before.remove(&path).unwrap_or_else(|| Folder::new(path.clone()));
                self.prefixes.insert(path, folder);
            }
        }
        changed |= self.prefixes.values_mut().fold(false, |any, prefix| prefix.look() | any);
        if changed {
            self.paths = self
                .prefixes
                .values()
                .flat_map(|prefix| {
                    let names = prefix.names().iter();
                    let sockets = names.filter(|name| name.starts_with("dpdk_telemetry.v2"));
                    sockets.map(|name| prefix.path().join(name))
                })
                .collect();
        }
        changed
    }
}

impl Telemetry {
    pub fn connect(path: &Path) -> io::Result<Self> {
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
        set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        let mut telemetry = Self { socket, pid: 0, buffer: vec![0; GREETING_BYTES] };
        let greeting = telemetry.receive()?;
        // The greeting names a process too, by its number in its own container.
        let pid = socket_peercred(&telemetry.socket)?.pid.as_raw_nonzero().get();
        telemetry.pid = u32::try_from(pid).map_err(nonsense)?;
        let len = greeting["max_output_len"].as_u64().unwrap_or(16 << 10).clamp(1024, MOST_BYTES);
        telemetry.buffer.resize(usize::try_from(len).unwrap_or(16 << 10), 0);
        Ok(telemetry)
    }

    /// The answer to `command`, or null where the process does not know it.
    pub fn ask(&mut self, command: &str) -> io::Result<Value> {
        send(&self.socket, command.as_bytes(), SendFlags::NOSIGNAL)?;
        let mut answer = self.receive()?;
        let key = command.split(',').next().unwrap_or(command);
        Ok(answer.get_mut(key).map_or(Value::Null, Value::take))
    }

    fn receive(&mut self) -> io::Result<Value> {
        let (len, _) = recv(&self.socket, self.buffer.as_mut_slice(), RecvFlags::empty())?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        serde_json::from_slice(&self.buffer[..len]).map_err(nonsense)
    }
}

fn nonsense(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("DPDK telemetry: {error}"))
}
