//! Pairs of network namespaces joined by veth, and where a peer runs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Addresses of the two ends of every pair; the same in each pair, on purpose.
const V4: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2)];
const V6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2)];

/// What lies between the two peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Net {
    /// Both on the host's loopback.
    Loopback,
    /// A namespace each, joined by veth. Without root it is the loopback instead.
    Netns,
}

/// Where one peer runs and how the other reaches it.
#[derive(Clone, Debug)]
pub struct Site {
    namespace: Option<String>,
    pub v4: Ipv4Addr,
    pub v6: Ipv6Addr,
}

impl Site {
    pub const fn loopback() -> Self {
        Self { namespace: None, v4: Ipv4Addr::LOCALHOST, v6: Ipv6Addr::LOCALHOST }
    }

    pub const fn v4(&self) -> IpAddr {
        IpAddr::V4(self.v4)
    }

    pub const fn v6(&self) -> IpAddr {
        IpAddr::V6(self.v6)
    }

    /// The site's IPv4 address as an IPv6 socket sees it.
    pub const fn mapped(&self) -> IpAddr {
        IpAddr::V6(self.v4.to_ipv6_mapped())
    }

    /// A command that runs `program` here with `environment`, under the pid that it gets.
    pub fn command<'a>(
        &self,
        program: &std::path::Path,
        environment: impl IntoIterator<Item = (&'a str, String)>,
    ) -> Command {
        match &self.namespace {
            None => {
                let mut command = Command::new(program);
                command.envs(environment);
                command
            }
            Some(name) => {
                // `env` last, so that `ip` itself does not run with the library.
                let mut command = Command::new("ip");
                command.args(["netns", "exec", name, "env"]);
                for (key, value) in environment {
                    command.arg(format!("{key}={value}"));
                }
                command.arg(program);
                command
            }
        }
    }
}

/// Two namespaces; gone when dropped.
pub struct Pair {
    names: [String; 2],
}

fn run(program: &str, arguments: &str) -> Result<(), String> {
    let output = Command::new(program)
        .args(arguments.split_whitespace())
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program} {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

fn ip(arguments: &str) -> Result<(), String> {
    run("ip", arguments)
}

impl Pair {
    /// # Errors
    /// The `ip` command that failed, and what it said.
    pub fn new() -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (pid, nth) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let pair = Self { names: ["a", "b"].map(|end| format!("yasmin-{pid}-{nth}-{end}")) };
        let [a, b] = &pair.names;
        for name in &pair.names {
            ip(&format!("netns add {name}"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        ip(&format!("-n {a} link add peer type veth peer name peer netns {b}"))?;
        for (nth, name) in pair.names.iter().enumerate() {
            ip(&format!("-n {name} addr add {}/24 dev peer", V4[nth]))?;
            ip(&format!("-n {name} addr add {}/64 dev peer nodad", V6[nth]))?;
            ip(&format!("-n {name} link set peer up"))?;
        }
        Ok(pair)
    }

    /// What all interfaces of both namespaces have received, headers included.
    pub fn wire_bytes(&self) -> u64 {
        let of = |name: &String| -> u64 {
            let output =
                Command::new("ip").args(["netns", "exec", name, "cat", "/proc/net/dev"]).output();
            let text = output.map(|output| output.stdout).unwrap_or_default();
            String::from_utf8_lossy(&text)
                .lines()
                .filter_map(|line| {
                    line.split_once(':')?.1.split_whitespace().next()?.parse::<u64>().ok()
                })
                .sum::<u64>()
        };
        self.names.iter().map(of).sum()
    }

    /// At most so many bytes a second between the two from now on; `None`: no limit. What is held
    /// back comes all the same.
    ///
    /// # Errors
    /// The `tc` command that failed, and what it said.
    pub fn limit(&self, bytes_per_s: Option<u32>) -> Result<(), String> {
        // Changed in place, since a queue that is replaced drops what it holds.
        let (rate, burst) = bytes_per_s.map_or((4_000_000_000, 10_000_000), |rate| (rate, 1600));
        for name in &self.names {
            let tbf = format!("tbf rate {rate}bps burst {burst} limit 100000000");
            run("tc", &format!("-n {name} qdisc replace dev peer root {tbf}"))?;
        }
        Ok(())
    }

    /// Kills what is left in both namespaces: servers that left their parents.
    pub fn kill_processes(&self) {
        for name in &self.names {
            let output = Command::new("ip").args(["netns", "pids", name]).output();
            let text = output.map(|output| output.stdout).unwrap_or_default();
            for pid in String::from_utf8_lossy(&text).split_whitespace() {
                if let Ok(pid) = pid.parse() {
                    let _ = crate::sys::kill(pid, crate::sys::libc::SIGKILL);
                }
            }
        }
    }

    pub fn sites(&self) -> [Site; 2] {
        [0, 1].map(|nth| Site {
            namespace: Some(self.names[nth].clone()),
            v4: V4[nth],
            v6: V6[nth],
        })
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

/// May this process make namespaces?
pub fn allowed() -> bool {
    rustix::fs::access("/run", rustix::fs::Access::WRITE_OK).is_ok()
        && Command::new("ip").args(["netns", "list"]).output().is_ok()
        && std::fs::metadata("/proc/self").is_ok_and(|own| {
            use std::os::unix::fs::MetadataExt;
            own.uid() == 0
        })
}

/// A port that nobody has now.
pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    listener.local_addr().unwrap().port()
}
