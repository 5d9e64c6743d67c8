//! The command line.

use clap::Parser;
use std::path::PathBuf;
use tracing_subscriber::EnvFilter;
use yasmin_wire::layout::MAX_CLASS;

/// The YASMIN broker: gives TCP connections between programs on this machine a channel in
/// shared memory.
#[derive(Parser, Debug)]
#[command(name = "yasmind", version)]
pub struct Args {
    /// Socket to listen on [default: /run/yasmin/broker.sock for the system's broker, otherwise
    /// $XDG_RUNTIME_DIR/yasmin/broker.sock]
    #[arg(long, value_name = "PATH", env = yasmin_control::SOCKET_ENV)]
    pub socket: Option<PathBuf>,

    /// Be the system's broker, to which programs of all users may connect [default: as root]
    #[arg(long)]
    pub system: bool,

    /// Leave connections between programs of different users on TCP, root's too
    #[arg(long)]
    pub same_user_only: bool,

    /// Memory for all channels together, in bytes or with K, M or G [default: a quarter of what
    /// the machine and the control group have left]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub memory_limit: Option<u64>,

    /// Memory for the channels of one user [default: half of the memory limit for the system's
    /// broker, all of it otherwise]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub user_limit: Option<u64>,

    /// Memory for all segments together, in bytes or with K, M or G [default: what the machine has]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub segment_limit: Option<u64>,

    /// Memory for the segments of one user [default: half of the limit of all for the system's
    /// broker, all of it otherwise]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub segment_user_limit: Option<u64>,

    /// Segments of all users together; one user may have as many as are left for the others
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u16).range(1..))]
    pub segments: u16,

    /// What the broker starts to keep segments across its own death
    #[arg(long, hide = true)]
    pub keep_segments: bool,

    /// How long a program may take to receive a connection that is passed on to it over a Unix socket
    /// with bytes unread; a program without the library then has it reset. Without BPF 5 at most
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..=3600))]
    pub passed_on_for: u16,

    /// How long an offer waits for the other end's. A peer that is busy under the library offers within moments
    #[arg(long, hide = true, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u16).range(1..))]
    pub offers_for: u16,

    /// Exit when no process has been connected for so long, and there are no segments
    #[arg(long, value_name = "SECONDS")]
    pub exit_when_idle: Option<u64>,

    /// Do not use BPF: pair only connections inside the broker's own network namespace
    #[arg(long)]
    pub no_bpf: bool,

    /// Size class of a new channel's rings: 0 is 1 KiB, 1 is 4 KiB, and each next one twice as large
    #[arg(long, value_name = "CLASS", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=i64::from(MAX_CLASS)))]
    pub first_class: u8,

    /// Largest size class a ring may grow to
    #[arg(long, value_name = "CLASS", default_value_t = MAX_CLASS, value_parser = clap::value_parser!(u8).range(0..=i64::from(MAX_CLASS)))]
    pub max_class: u8,

    /// Which address belongs to which guest of this host
    #[arg(long, value_name = "FILE", default_value = "/etc/yasmin/hosts")]
    pub hosts: PathBuf,

    /// Be the host's broker of KVM or Xen guests, which this file names, and nothing else
    #[arg(long, value_name = "FILE")]
    pub host: Option<PathBuf>,

    /// With --host: folder for the memory of guests, in a file system that keeps files in memory
    #[arg(long, value_name = "FOLDER", default_value = "/dev/shm/yasmin-host")]
    pub host_memory: PathBuf,

    /// With --host: where `yasmin host` asks
    #[arg(long, value_name = "PATH", default_value = "/run/yasmin/host.sock")]
    pub host_socket: PathBuf,

    /// With --host: largest size class of guests' rings
    #[arg(long, value_name = "CLASS", default_value_t = 8, value_parser = clap::value_parser!(u8).range(0..=i64::from(MAX_CLASS)))]
    pub host_class: u8,

    /// In a KVM guest: the port to the host's broker [default: the virtio-serial port org.yasmin.0]
    #[arg(long, value_name = "PATH")]
    pub uplink: Option<PathBuf>,

    /// Leave connections to other guests of this host on TCP
    #[arg(long)]
    pub no_guests: bool,

    /// What to log: a level (error, warn, info, debug, trace) or a tracing filter
    #[arg(long, value_name = "FILTER", default_value = "info", env = "YASMIND_LOG")]
    pub log: String,
}

impl Args {
    pub fn log_filter(&self) -> EnvFilter {
        EnvFilter::new(&self.log)
    }

    pub fn is_system(&self) -> bool {
        self.system || rustix::process::geteuid().is_root()
    }

    /// A new ring can be no larger than the largest.
    pub fn first_class(&self) -> u8 {
        self.first_class.min(self.max_class)
    }
}

/// "4096", "64K", "1.5G" are not all alike: only whole numbers with one letter are taken.
fn parse_bytes(text: &str) -> Result<u64, String> {
    let bad = || format!("'{text}' is not a number of bytes; give for example 67108864, 64M or 1G");
    let (digits, shift) = match text.trim().to_ascii_uppercase() {
        t if t.ends_with('K') => (t[..t.len() - 1].to_owned(), 10),
        t if t.ends_with('M') => (t[..t.len() - 1].to_owned(), 20),
        t if t.ends_with('G') => (t[..t.len() - 1].to_owned(), 30),
        t => (t, 0),
    };
    let number: u64 = digits.parse().map_err(|_| bad())?;
    number.checked_mul(1 << shift).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_with_and_without_suffix() {
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("64k"), Ok(64 << 10));
        assert_eq!(parse_bytes("3M"), Ok(3 << 20));
        assert_eq!(parse_bytes("1G"), Ok(1 << 30));
        for bad in ["", "K", "1.5G", "-1", "1T", "99999999999G"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn command_line_is_consistent() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }
}
