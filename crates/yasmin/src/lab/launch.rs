//! One run of a case: the counters before, the programs, the counters after.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use super::counters::{Carried, Counters};
use super::load::{Besides, Ticks};
use super::output::Output;
use super::plan::Case;
use super::rings::Rings;
use super::site::Site;
use super::sockmap::Sockmap;
use super::way::{Model, Path as Way};
use crate::demo::broker::Totals;
use crate::demo::interrupt;
use crate::demo::process::Process;

/// Everything that runs need, made ready.
pub struct Bench {
    /// For files of the runs.
    pub folder: PathBuf,
    /// Of the kernels.
    pub programs: PathBuf,
    /// By the names of their placements.
    pub sites: BTreeMap<String, Site>,
    pub rings: Rings,
    /// Where a case has this path.
    pub sockmap: Option<Sockmap>,
    /// This executable.
    pub yasmin: PathBuf,
    next_port: AtomicU16,
}

pub struct Run {
    pub output: Output,
    pub carried: Carried,
    pub besides: Besides,
    pub wall_s: f64,
    /// Of all its programs, the kernel's time for them too.
    pub cpu_s: f64,
}

/// Below the ports that the kernel gives to clients.
const FIRST_PORT: u16 = 20000;
/// For what others wait for.
const READY: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(2);

impl Bench {
    pub fn new(
        folder: &Path,
        programs: PathBuf,
        sites: BTreeMap<String, Site>,
        rings: Rings,
        sockmap: Option<Sockmap>,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            folder: folder.to_owned(),
            programs,
            sites,
            rings,
            sockmap,
            yasmin: std::env::current_exe()?,
            next_port: AtomicU16::new(FIRST_PORT),
        })
    }

    pub fn run(&self, case: &Case) -> anyhow::Result<Run> {
        let site = self.site(case)?;
        let counters = Counters::read(site)?;
        let rings = self.totals(site)?;
        let redirected = self.redirected()?;
        let ticks = Ticks::read();
        let cpu_s = programs_cpu_s()?;
        let begun = Instant::now();
        let text = match case.model {
            Model::Sockets | Model::Iceoryx2 => self.serve_and_measure(case, site)?,
            Model::Shmem if site.len() > 1 => self.lead_and_join(case, site)?,
            _ => {
                let process = self.start(case, site, 0, &self.words(case)?, case.model.name())?;
                process.finish(Duration::from_secs(case.limit_s))?
            }
        };
        let wall_s = begun.elapsed().as_secs_f64();
        let cpu_s = programs_cpu_s()? - cpu_s;
        // Of machines that are not parts of this one, its load says nothing.
        let besides = if site.is_own { ticks.until(Ticks::read()) } else { Besides::default() };
        let rings = self.moved_since(site, rings)?;
        let mut carried = counters.until(Counters::read(site)?, rings);
        carried.redirected_bytes = self.redirected()? - redirected;
        let output = Output::parse(&text)?;
        Ok(Run { output, carried, besides, wall_s, cpu_s })
    }

    /// What rings carried so far, by the placement's counters or the lab's broker.
    fn totals(&self, site: &Site) -> anyhow::Result<Option<Totals>> {
        if site.is_own {
            return Ok(self.rings.totals());
        }
        let bytes = site.moved_bytes()?;
        Ok(bytes.map(|ring_bytes| Totals { ring_bytes, tcp_bytes: 0 }))
    }

    fn moved_since(&self, site: &Site, before: Option<Totals>) -> anyhow::Result<Option<Totals>> {
        if site.is_own {
            return Ok(self.rings.moved_since(before));
        }
        let now = self.totals(site)?;
        Ok(before.zip(now).map(|(before, now)| Totals {
            ring_bytes: now.ring_bytes.saturating_sub(before.ring_bytes),
            tcp_bytes: 0,
        }))
    }

    fn redirected(&self) -> anyhow::Result<u64> {
        self.sockmap.as_ref().map_or(Ok(0), Sockmap::bytes)
    }

    /// The words of a run that are not the placement's, as a reader would repeat them.
    pub fn describe(&self, case: &Case) -> String {
        let plain = |words: Vec<String>| {
            let folders =
                [&self.programs, &self.folder].map(|folder| format!("{}/", folder.display()));
            let own = self.yasmin.display().to_string();
            let text = words.join(" ").replace(&own, "yasmin");
            folders.iter().fold(text, |text, folder| text.replace(folder, ""))
        };
        self.words(case).map(plain).unwrap_or_default()
    }

    fn site(&self, case: &Case) -> anyhow::Result<&Site> {
        self.sites.get(&case.placement).context("the placement is not ready")
    }

    pub fn start(
        &self,
        case: &Case,
        site: &Site,
        machine: usize,
        words: &[String],
        name: &str,
    ) -> anyhow::Result<Process> {
        interrupt::check()?;
        let outside = match (case.path, &self.sockmap) {
            (Way::Sockmap, Some(sockmap)) => sockmap.words(),
            (Way::Sockmap, None) => bail!("{}: no BPF program is loaded", case.name),
            _ => Vec::new(),
        };
        let command = site.command(machine, &outside, words)?;
        Process::start(command, &self.folder, name).with_context(|| case.name.clone())
    }

    /// The kernel with its arguments, under `yasmin run` where its bytes go through rings.
    fn worker(&self, case: &Case, site: &Site, arguments: &[String]) -> Vec<String> {
        let program = self.programs.join(case.kernel.program(case.model)).display().to_string();
        let mut words = match (case.path, &site.rings) {
            (Way::Rings, Some(rings)) => rings.clone(),
            (Way::Rings, None) => self.rings.words(&self.yasmin),
            _ => Vec::new(),
        };
        words.push(program);
        words.extend_from_slice(arguments);
        words
    }

    pub fn words(&self, case: &Case) -> anyhow::Result<Vec<String>> {
        let site = self.site(case)?;
        let worker = self.worker(case, site, &case.arguments);
        let mut words: Vec<String> = match case.model {
            Model::Serial => Vec::new(),
            Model::OpenMp => vec!["env".into(), format!("OMP_NUM_THREADS={}", case.workers)],
            Model::OpenMpi => open_mpi(case, site)?,
            Model::Mpich => mpich(case, site)?,
            Model::Shmem => self.lead(case, site),
            Model::Sockets | Model::Iceoryx2 => {
                return Ok(self.worker(case, site, &measure("ADDRESS", case)));
            }
        };
        words.extend(worker);
        Ok(words)
    }

    /// The server on the last machine, its client on the first.
    fn serve_and_measure(&self, case: &Case, site: &Site) -> anyhow::Result<String> {
        let last = site.len() - 1;
        let port = self.next_port.fetch_add(1, Ordering::Relaxed);
        let address = match case.path {
            Way::Iceoryx2 => format!("yasmin-lab-{}-{port}", std::process::id()),
            Way::Unix => self.folder.join(format!("socket-{port}")).display().to_string(),
            _ => format!("{}:{port}", site.address(last)),
        };
        let words = self.worker(case, site, &["serve".to_owned(), address.clone()]);
        let mut server = self.start(case, site, last, &words, "server")?;
        await_line(&mut server, "the server listens", |line| (line == "listens").then_some(()))?;
        let limit = Duration::from_secs(case.limit_s);
        let words = self.worker(case, site, &measure(&address, case));
        let client = self.start(case, site, 0, &words, "client")?;
        let text = client.finish(limit)?;
        server.finish(limit)?;
        Ok(text)
    }
}

/// The CPUs' time of all programs that have ended.
fn programs_cpu_s() -> anyhow::Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let both_us = (usage.user_time() + usage.system_time()).num_microseconds();
    Ok(1e-6 * both_us as f64)
}

/// What `found` makes of a line that `process` prints; `what` it says.
pub fn await_line<T>(
    process: &mut Process,
    what: &str,
    found: impl Fn(&str) -> Option<T>,
) -> anyhow::Result<T> {
    let begun = Instant::now();
    loop {
        let output = process.output();
        let mut whole = output.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        if let Some(found) = whole.find_map(&found) {
            return Ok(found);
        }
        interrupt::check()?;
        if process.has_ended()? {
            bail!("it ended before it said that {what}: {}", process.output().trim());
        }
        if begun.elapsed() > READY {
            bail!("it does not say that {what}: {}", process.output().trim());
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn measure(address: &str, case: &Case) -> Vec<String> {
    let mut words = vec!["measure".to_owned(), address.to_owned()];
    words.extend(case.arguments.iter().cloned());
    words
}

/// Ranks are bound to nothing, as MPICH's: where each machine has a launcher of its own, Open MPI
/// binds the first rank of all machines to the same core. And ranks that wait let others run, since
/// those may be more than there are CPUs.
fn open_mpi(case: &Case, site: &Site) -> anyhow::Result<Vec<String>> {
    let transport = match case.path {
        Way::Tcp | Way::Rings => "tcp,self",
        Way::MpiShm => "vader,self",
        Way::Memory | Way::Unix | Way::Sockmap | Way::Segments | Way::Iceoryx2 => {
            bail!("Open MPI has no path {}", case.path.name())
        }
    };
    let mut words = split(
        "mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none \
         --mca mpi_yield_when_idle 1 --mca pml ob1 --mca btl",
    );
    words.push(transport.to_owned());
    if site.len() > 1 {
        let slots: Vec<String> =
            site.addresses().iter().map(|address| format!("{address}:{}", case.workers)).collect();
        words.extend(split("--map-by node --host"));
        words.push(slots.join(","));
        // A machine's other networks may not lead to the others.
        if let Some(network) = common_network(&site.addresses()) {
            for component in ["btl", "oob"] {
                words.extend(["--mca".into(), format!("{component}_tcp_if_include")]);
                words.push(network.clone());
            }
        }
    }
    // Where one is needed. Without it Open MPI insists on an ssh.
    words.extend(split("--mca plm_rsh_agent"));
    words.push(site.agent.display().to_string());
    words.extend(["-n".into(), case.workers.to_string()]);
    Ok(words)
}

/// The smallest network of at most 30 bits that has all of the addresses, as `10.0.2.20/30`. `None`:
/// they have nothing in common, or are no IPv4 addresses.
fn common_network(addresses: &[&str]) -> Option<String> {
    let numbers = addresses.iter().map(|address| Some(address.parse::<Ipv4Addr>().ok()?.to_bits()));
    let numbers: Vec<u32> = numbers.collect::<Option<_>>()?;
    let first = *numbers.first()?;
    let length = numbers.iter().map(|number| (number ^ first).leading_zeros()).min()?;
    // Longer ones have no addresses for hosts, as most programs see it.
    let length = length.min(30);
    let mask = u32::MAX.checked_shl(32 - length).filter(|_| length > 0)?;
    Some(format!("{}/{length}", Ipv4Addr::from_bits(first & mask)))
}

fn mpich(case: &Case, site: &Site) -> anyhow::Result<Vec<String>> {
    let transport = match case.path {
        Way::Tcp | Way::Rings => "tcp,self",
        Way::MpiShm => "posix,self",
        Way::Memory | Way::Unix | Way::Sockmap | Way::Segments | Way::Iceoryx2 => {
            bail!("MPICH has no path {}", case.path.name())
        }
    };
    let mut words = split("mpirun.mpich -genv UCX_TLS");
    words.push(transport.to_owned());
    if site.len() > 1 {
        words.extend(split("-launcher ssh -launcher-exec"));
        words.extend([site.agent.display().to_string(), "-hosts".into()]);
        words.extend([site.addresses().join(","), "-ppn".into(), "1".into()]);
    }
    words.extend(["-n".into(), case.workers.to_string()]);
    Ok(words)
}

fn split(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_that_machines_share() {
        for (addresses, network) in [
            (&["10.9.0.1", "10.9.0.2"][..], Some("10.9.0.0/30")),
            (&["10.0.2.20", "10.0.2.21"], Some("10.0.2.20/30")),
            (&["10.77.1.1", "10.77.2.1", "10.77.9.1"], Some("10.77.0.0/20")),
            (&["10.0.0.1", "192.0.2.1"], None),
            (&["10.0.0.1", "fe80::1"], None),
            (&[], None),
        ] {
            assert_eq!(common_network(addresses).as_deref(), network, "{addresses:?}");
        }
    }
}
