//! The path `sockmap`: a BPF program that puts what a socket sends into the receive queue of its
//! peer, for all programs of one control group. Loaded as long as the value lives.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use aya::Ebpf;
use aya::maps::{Array, SockHash};
use aya::programs::{CgroupAttachMode, SkMsg, SockOps};

pub struct Sockmap {
    programs: Ebpf,
    group: PathBuf,
}

/// In the folder of the kernels' programs.
const OBJECT: &str = "sockmap.bpf.o";
/// In `lab/kernels/sockmap.bpf.c`, addresses and ports of both ends.
type Ends = [u32; 4];

impl Sockmap {
    /// # Errors
    /// What the kernel does not have or does not allow.
    pub fn load(programs: &Path) -> anyhow::Result<Self> {
        let group = groups()?.join(format!("yasmin-lab-{}", std::process::id()));
        fs::create_dir(&group).with_context(|| format!("cannot make {}", group.display()))?;
        let object = programs.join(OBJECT);
        let loaded = Ebpf::load_file(&object).context("the kernel does not take its BPF program");
        // Made before it is attached, so that half of it is put away too.
        let mut made = match loaded {
            Ok(programs) => Self { programs, group },
            Err(error) => {
                let _ = fs::remove_dir(&group);
                return Err(error);
            }
        };
        made.attach()?;
        Ok(made)
    }

    fn attach(&mut self) -> anyhow::Result<()> {
        let sockets = self.programs.map("sockets").context("it has no map sockets")?;
        let sockets: SockHash<_, Ends> = sockets.try_into()?;
        let sockets = sockets.fd().try_clone()?;
        let sends: &mut SkMsg =
            self.programs.program_mut("sends").context("it has no program sends")?.try_into()?;
        sends.load()?;
        sends.attach(&sockets)?;
        let connected = self.programs.program_mut("connected");
        let connected: &mut SockOps =
            connected.context("it has no program connected")?.try_into()?;
        connected.load()?;
        connected.attach(File::open(&self.group)?, CgroupAttachMode::Single)?;
        Ok(())
    }

    /// What stands before all words of a program that it is for, those of a placement too.
    pub fn words(&self) -> Vec<String> {
        let enter = format!("echo $$ >'{}/cgroup.procs'; exec \"$@\"", self.group.display());
        ["sh", "-c", &enter, "sh"].map(str::to_owned).to_vec()
    }

    /// That it put into peers' queues since it was loaded.
    pub fn bytes(&self) -> anyhow::Result<u64> {
        let counter = self.programs.map("redirected").context("it has no map redirected")?;
        let counter: Array<_, u64> = counter.try_into()?;
        Ok(counter.get(&0, 0)?)
    }
}

impl Drop for Sockmap {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.group);
    }
}

/// Where the second version of control groups is mounted.
fn groups() -> anyhow::Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let Some(path) = mounted(&mounts) else { bail!("no control groups of version 2 are mounted") };
    Ok(path)
}

/// `device where type options ...`
fn mounted(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let place = words.next()?;
        (words.next()? == "cgroup2").then(|| PathBuf::from(place))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_groups_are_found() {
        let mounts = "cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw,nosuid 0 0\n";
        assert_eq!(mounted(mounts), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(mounted("proc /proc proc rw 0 0\n"), None);
    }
}
