//! Virtual machines that libvirt runs, by `virsh vcpupin`: every virtual CPU of one to its CPU.

use std::process::Command;

use yasmin_topology::CpuId;

use super::{Step, Trouble};

pub fn steps(name: &str, cpu: CpuId) -> Result<Vec<Step>, Trouble> {
    let after = cpu.0.to_string();
    let listed = virsh(&["vcpupin", name, "--live"])?;
    let pinned = affinities(&listed);
    if pinned.is_empty() {
        return Err(Trouble::Gone(format!("domain {name}")));
    }
    let changed = pinned.into_iter().filter(|(_, before)| *before != after);
    Ok(changed
        .map(|(vcpu, before)| Step::Domain {
            name: name.to_owned(),
            vcpu,
            before,
            after: after.clone(),
        })
        .collect())
}

pub fn set(name: &str, vcpu: u32, cpus: &str) -> Result<(), Trouble> {
    virsh(&["vcpupin", name, &vcpu.to_string(), cpus, "--live"]).map(drop)
}

fn virsh(arguments: &[&str]) -> Result<String, Trouble> {
    let output = Command::new("virsh").arg("-q").args(arguments).env("LC_ALL", "C").output();
    let output = output.map_err(|error| Trouble::Failed(format!("virsh: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("").to_owned();
    let name = arguments.get(1).copied().unwrap_or_default();
    if said.contains("failed to get domain") || said.contains("domain is not running") {
        return Err(Trouble::Gone(format!("domain {name}")));
    }
    Err(Trouble::Failed(format!("virsh {}: {said}", arguments.join(" "))))
}

/// Lines of a number and a list of CPUs.
fn affinities(listed: &str) -> Vec<(u32, String)> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let number = words.next()?.trim_end_matches(':').parse().ok()?;
        Some((number, words.next()?.to_owned()))
    };
    listed.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_virsh() {
        let listed = " VCPU   CPU Affinity\n----------------------\n 0      0-1\n 1      3\n";
        assert_eq!(affinities(listed), [(0, "0-1".to_owned()), (1, "3".to_owned())]);
    }
}
