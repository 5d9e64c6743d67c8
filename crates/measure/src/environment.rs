//! The machine that a measurement ran on.

use std::fs;

use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub struct Environment {
    pub version: &'static str,
    pub cpu: String,
    pub cpus: usize,
    pub memory_bytes: u64,
    pub kernel: String,
    pub system: String,
    /// Whether the processor says that a hypervisor runs it.
    pub virtual_machine: bool,
}

impl Environment {
    pub fn read() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
        let uname = rustix::system::uname();
        let info = rustix::system::sysinfo();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            cpu: field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cpus: cpuinfo.lines().filter(|line| line.starts_with("processor")).count(),
            memory_bytes: info.totalram as u64 * u64::from(info.mem_unit),
            kernel: uname.release().to_string_lossy().into_owned(),
            system: pretty.unwrap_or("Linux").trim_matches('"').to_owned(),
            virtual_machine: field("flags").is_some_and(|flags| flags.contains(" hypervisor")),
        }
    }

    pub fn line(&self) -> String {
        format!(
            "{}, {} CPUs, {}{}, {}, Linux {}",
            self.cpu,
            self.cpus,
            indicatif::BinaryBytes(self.memory_bytes),
            if self.virtual_machine { " (virtual machine)" } else { "" },
            self.system,
            self.kernel
        )
    }
}
