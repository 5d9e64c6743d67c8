//! Processes and threads as /proc shows them.

use std::fs;
use std::io;

use crate::function::Process;

/// The fields of /proc/PID/stat that are used. Its second field, the name, may hold anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    pub name: String,
    pub parent: u32,
    pub started: u64,
    /// Clock ticks of CPU, user and system.
    pub busy_ticks: u64,
    /// The CPU that it last ran on.
    pub cpu: usize,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        let (head, tail) = text.rsplit_once(") ")?;
        let (_, name) = head.split_once('(')?;
        let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
        // proc(5) counts from 1 and the state, the first of `tail`, is its third.
        let field = |number: usize| fields.get(number - 3).copied();
        let number = |at: usize| field(at)?.parse::<u64>().ok();
        Some(Self {
            name: name.to_owned(),
            parent: field(4)?.parse().ok()?,
            started: number(22)?,
            busy_ticks: number(14)? + number(15)?,
            cpu: field(39)?.parse().ok()?,
        })
    }
}

fn read(path: &str) -> io::Result<Stat> {
    let text = fs::read(path).map_err(gone)?;
    Stat::parse(&String::from_utf8_lossy(&text))
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{path} is no stat")))
}

/// A task that ends between open and read gives ESRCH.
fn gone(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) if code == rustix::io::Errno::SRCH.raw_os_error() => {
            io::Error::new(io::ErrorKind::NotFound, error)
        }
        _ => error,
    }
}

pub fn stat(pid: u32) -> io::Result<Stat> {
    read(&format!("/proc/{pid}/stat"))
}

pub fn thread_stat(pid: u32, thread: u32) -> io::Result<Stat> {
    read(&format!("/proc/{pid}/task/{thread}/stat"))
}

/// The process that has this number now.
pub fn identify(pid: u32) -> io::Result<Process> {
    Ok(Process { pid, started: stat(pid)?.started })
}

pub fn is_alive(process: Process) -> bool {
    stat(process.pid).is_ok_and(|stat| stat.started == process.started)
}

/// All that have a number, in its order.
pub fn all() -> io::Result<Vec<u32>> {
    numbers("/proc")
}

pub fn threads(pid: u32) -> io::Result<Vec<u32>> {
    numbers(&format!("/proc/{pid}/task")).map_err(gone)
}

fn numbers(folder: &str) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        // A thread may end while the folder is read.
        let Ok(entry) = entry else { continue };
        found.extend(entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    found.sort_unstable();
    Ok(found)
}

/// The path in cgroup v2 of a process, "/" for the root.
pub fn cgroup(pid: u32) -> io::Result<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).map_err(gone)?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::"));
    Ok(path.unwrap_or("/").to_owned())
}

/// `nginx[812]`.
pub fn label(pid: u32, name: &str) -> String {
    let name: String = name.chars().filter(|letter| !letter.is_control()).collect();
    format!("{name}[{pid}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_itself() {
        let own = identify(std::process::id()).unwrap();
        assert!(is_alive(own));
        assert!(!is_alive(Process { started: own.started + 1, ..own }));
        assert!(threads(own.pid).unwrap().contains(&own.pid));
        assert!(all().unwrap().contains(&own.pid));
    }

    #[test]
    fn names_may_look_like_fields() {
        let text = "7 (a) 1 (b) S 1 7 7 0 -1 0 0 0 0 0 3 4 0 0 20 0 1 0 99 0 0 1 1 1 1 1 1 1 \
                    0 0 0 0 0 0 17 5 0 0";
        let stat = Stat::parse(text).unwrap();
        assert_eq!(
            stat,
            Stat { name: "a) 1 (b".into(), parent: 1, started: 99, busy_ticks: 7, cpu: 5 }
        );
        assert_eq!(Stat::parse("7 (a"), None);
    }

    #[test]
    fn who_has_gone_is_not_found() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert_eq!(stat(pid).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(threads(pid).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
