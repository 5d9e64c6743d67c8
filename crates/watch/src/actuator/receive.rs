//! Functions without a process: a namespace in which the kernel itself forwards. It does so on
//! the CPU that handles what an interface received, and that can be chosen: receive packet
//! steering, a file for each queue (Documentation/networking/scaling.rst).

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use yasmin_topology::CpuId;

use super::{Step, Trouble};
use crate::source::netns::enter;

pub fn steps(namespace: &str, interfaces: &[String], cpu: CpuId) -> Result<Vec<Step>, Trouble> {
    let after = mask(cpu);
    let read = visit(namespace, |sysfs| {
        let mut values = Vec::new();
        for interface in interfaces {
            for queue in queues(&sysfs, interface)? {
                let mut value = String::new();
                open(&sysfs, &queue, OFlags::RDONLY)?.read_to_string(&mut value)?;
                values.push((queue, value.trim().to_owned()));
            }
        }
        Ok(values)
    })?;
    let steps = read.into_iter().filter(|(_, before)| !is_same(before, &after));
    Ok(steps
        .map(|(queue, before)| Step::Receive {
            namespace: namespace.to_owned(),
            queue,
            before,
            after: after.clone(),
        })
        .collect())
}

pub fn set(namespace: &str, queue: &str, value: &str) -> Result<(), Trouble> {
    visit(namespace, |sysfs| open(&sysfs, queue, OFlags::WRONLY)?.write_all(value.as_bytes()))
}

pub fn restore(namespace: &str, queue: &str, before: &str, after: &str) -> Result<(), Trouble> {
    visit(namespace, |sysfs| {
        let mut now = String::new();
        open(&sysfs, queue, OFlags::RDONLY)?.read_to_string(&mut now)?;
        if !is_same(now.trim(), after) {
            return Ok(());
        }
        open(&sysfs, queue, OFlags::WRONLY)?.write_all(before.as_bytes())
    })
}

/// The CPU that all queues are steered to, if it is one.
pub fn whereabouts(namespace: &str, interfaces: &[String]) -> Option<CpuId> {
    let name = interfaces.first()?;
    let value = visit(namespace, |sysfs| {
        let mut value = String::new();
        open(&sysfs, &format!("{name}/queues/rx-0/rps_cpus"), OFlags::RDONLY)?
            .read_to_string(&mut value)?;
        Ok(value)
    });
    single(value.ok()?.trim())
}

/// Runs `work` in a namespace, with the folder of its interfaces: a sysfs of its own that is
/// mounted nowhere and goes away with its descriptor.
fn visit<T: Send>(
    namespace: &str,
    work: impl FnOnce(OwnedFd) -> io::Result<T> + Send,
) -> Result<T, Trouble> {
    let file = File::open(namespace).map_err(|error| Trouble::of(namespace, "enter", &error))?;
    let result = enter(&file, || {
        let context = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        let flags = FsMountFlags::FSMOUNT_CLOEXEC;
        let root = fsmount(&context, flags, MountAttrFlags::empty())?;
        let folder = OFlags::DIRECTORY | OFlags::CLOEXEC;
        work(openat(&root, "class/net", folder, Mode::empty())?)
    });
    result.map_err(|error| Trouble::of(namespace, "steer what is received in", &error))
}

fn open(folder: &OwnedFd, path: &str, flags: OFlags) -> io::Result<File> {
    Ok(File::from(openat(folder, path, flags | OFlags::CLOEXEC, Mode::empty())?))
}

fn queues(sysfs: &OwnedFd, interface: &str) -> io::Result<Vec<String>> {
    let path = format!("{interface}/queues");
    let folder = openat(sysfs, &path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut found = Vec::new();
    for entry in rustix::fs::Dir::new(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with("rx-") {
            found.push(format!("{path}/{name}/rps_cpus"));
        }
    }
    found.sort();
    Ok(found)
}

/// Words of 32 bits in hexadecimal, the highest first, with commas.
fn mask(cpu: CpuId) -> String {
    let mut text = format!("{:x}", 1_u64 << (cpu.0 % 32));
    for _ in 0..cpu.0 / 32 {
        text.push_str(",00000000");
    }
    text
}

fn is_same(one: &str, other: &str) -> bool {
    let plain = |text: &str| text.replace(',', "").trim_start_matches('0').to_owned();
    plain(one) == plain(other)
}

fn single(text: &str) -> Option<CpuId> {
    let digits: Vec<u32> = text
        .replace(',', "")
        .chars()
        .rev()
        .map(|digit| digit.to_digit(16))
        .collect::<Option<_>>()?;
    let mut set = digits.iter().enumerate().filter(|(_, digit)| **digit != 0);
    let (at, digit) = set.next()?;
    let is_one = set.next().is_none() && digit.is_power_of_two();
    is_one.then(|| CpuId(at as u32 * 4 + digit.trailing_zeros()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_the_kernels() {
        for (cpu, text) in [(0, "1"), (5, "20"), (31, "80000000"), (32, "1,00000000")] {
            assert_eq!(mask(CpuId(cpu)), text);
            assert_eq!(single(text), Some(CpuId(cpu)));
            assert!(is_same(text, &format!("00000000,{text}")));
        }
        assert_eq!(single("3"), None);
        assert_eq!(single("0"), None);
        assert_eq!(single("1,00000001"), None);
    }
}
