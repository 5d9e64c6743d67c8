//! Containers, by the cpuset controller of cgroup v2: all of a container's processes, those to
//! come included, and where their memory comes from.

use std::fs;
use std::path::{Path, PathBuf};

use yasmin_topology::{CpuId, parse_cpus};

use super::{Step, Trouble};

/// Where cgroup v2 is mounted: alone, or beside the older hierarchies.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

pub fn mount() -> Option<PathBuf> {
    let is_v2 = |path: &&&str| Path::new(path).join("cgroup.controllers").exists();
    MOUNTS.iter().find(is_v2).map(PathBuf::from)
}

/// Whether the processes of this group can be placed by it.
pub fn is_placeable(path: &str) -> bool {
    path != "/" && mount().is_some_and(|mount| file(&mount, path, "cpuset.cpus").exists())
}

/// The names under which container engines and systemd keep containers.
pub fn is_container(path: &str) -> bool {
    let leaf = path.rsplit('/').find(|part| !part.is_empty()).unwrap_or_default();
    let engines = ["docker-", "libpod-", "cri-containerd-", "crio-", "lxc.payload", "lxc.monitor"];
    engines.iter().any(|engine| leaf.starts_with(engine))
        || path.contains("/kubepods")
        || path.starts_with("/docker/")
        || path.starts_with("/lxc/")
        || path.starts_with("/machine.slice/")
}

fn file(mount: &Path, path: &str, name: &str) -> PathBuf {
    mount.join(path.trim_start_matches('/')).join(name)
}

pub fn steps(path: &str, cpu: CpuId) -> Result<Vec<Step>, Trouble> {
    let Some(mount) = mount() else {
        return Err(Trouble::Failed("cgroup v2 is not mounted".into()));
    };
    if !file(&mount, path, "").is_dir() {
        return Err(Trouble::Gone(path.to_owned()));
    }
    let cpus = file(&mount, path, "cpuset.cpus");
    let before = fs::read_to_string(&cpus).map_err(|_| {
        Trouble::Failed(format!(
            "{path} has no cpuset: the controller is not enabled for it (cgroup.subtree_control)"
        ))
    })?;
    let (before, after) = (before.trim().to_owned(), cpu.0.to_string());
    let file = cpus.display().to_string();
    Ok((before != after).then_some(Step::Cgroup { file, before, after }).into_iter().collect())
}

pub fn set(file: &str, value: &str) -> Result<(), Trouble> {
    // An empty value is a line of its own: a write of nothing is no write.
    let result = fs::write(file, format!("{value}\n"));
    result.map_err(|error| match error.raw_os_error() {
        Some(code) if code == rustix::io::Errno::NODEV.raw_os_error() => {
            Trouble::Failed(format!("{file}: the group's folder has no cpuset any more"))
        }
        _ if error.kind() == std::io::ErrorKind::InvalidInput => match value.parse() {
            Ok(cpu) => Trouble::Cpu { what: file.to_owned(), cpu: CpuId(cpu) },
            Err(_) => Trouble::Failed(format!("{file}: {error}")),
        },
        _ => Trouble::of(file, "set", &error),
    })
}

pub fn restore(file: &str, before: &str, after: &str) -> Result<(), Trouble> {
    match fs::read_to_string(file) {
        Ok(now) if now.trim() == after => match set(file, before) {
            // A group with processes cannot be made empty of CPUs again (ENOSPC); empty stood for
            // what the group above has.
            Err(_) if before.is_empty() => set(file, &above(file)?),
            other => other,
        },
        Ok(_) => Ok(()),
        Err(error) => Err(Trouble::of(file, "read", &error)),
    }
}

fn above(file: &str) -> Result<String, Trouble> {
    let group = Path::new(file).parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    let text = fs::read_to_string(group.join("cpuset.cpus.effective"));
    text.map(|text| text.trim().to_owned()).map_err(|error| Trouble::of(file, "restore", &error))
}

/// The processes in it now.
pub fn processes(path: &str) -> Vec<u32> {
    let text = mount().map(|mount| fs::read_to_string(file(&mount, path, "cgroup.procs")));
    let text = text.and_then(Result::ok).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// The only CPU that the group may use, if there is only one.
pub fn pinned(path: &str) -> Option<CpuId> {
    let text = fs::read_to_string(file(&mount()?, path, "cpuset.cpus.effective")).ok()?;
    let cpus = parse_cpus(text.trim()).ok()?;
    cpus.first().copied().filter(|_| cpus.len() == 1)
}

pub fn whereabouts(path: &str) -> Option<CpuId> {
    pinned(path).or_else(|| {
        let pids = fs::read_to_string(file(&mount()?, path, "cgroup.procs")).ok()?;
        super::affinity::whereabouts(pids.lines().next()?.parse().ok()?, None)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_told_by_their_engines_names() {
        for path in [
            "/system.slice/docker-0a1b.scope",
            "/docker/0a1b",
            "/kubepods.slice/kubepods-pod1.slice/cri-containerd-7.scope",
            "/machine.slice/libpod-7.scope/container",
            "/lxc.payload.web",
        ] {
            assert!(is_container(path), "{path}");
        }
        for path in ["/", "/user.slice/user-0.slice/session-1.scope", "/system.slice/nginx.service"]
        {
            assert!(!is_container(path), "{path}");
        }
    }

    #[test]
    fn a_group_that_is_not_there_is_gone() {
        if mount().is_none() {
            return;
        }
        let said = steps("/no-such-group", CpuId(0)).unwrap_err();
        assert!(matches!(said, Trouble::Gone(_)), "{said}");
    }
}
