//! A virtual machine that libvirt runs, under software emulation: nothing boots in it, but its
//! virtual CPUs are real threads.

use std::fs;
use std::process::Command;

use rustix::process::Signal;

use super::world::{Watching, eventually, text, yasmin};

struct Domain {
    name: String,
}

fn virsh(arguments: &[&str]) -> Option<String> {
    let output = Command::new("virsh").arg("-q").args(arguments).output().ok()?;
    output.status.success().then(|| text(&output.stdout))
}

impl Domain {
    fn start(folder: &std::path::Path) -> Self {
        let name = format!("yasmin-test-{}", std::process::id());
        let file = folder.join("domain.xml");
        let xml = format!(
            "<domain type='qemu'><name>{name}</name><memory unit='MiB'>32</memory><vcpu>2</vcpu>
             <os><type arch='x86_64' machine='pc'>hvm</type></os><devices/></domain>"
        );
        fs::write(&file, xml).unwrap();
        assert!(virsh(&["create", file.to_str().unwrap()]).is_some(), "the domain does not start");
        Self { name }
    }

    /// What each thread that is a virtual CPU may use, as the kernel lists it.
    fn allowed(&self) -> Vec<String> {
        let pid = fs::read_to_string(format!("/run/libvirt/qemu/{}.pid", self.name)).unwrap();
        let tasks = fs::read_dir(format!("/proc/{}/task", pid.trim())).unwrap();
        let status = |path: std::path::PathBuf| fs::read_to_string(path.join("status")).unwrap();
        let field = |status: &str, name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().to_owned()
        };
        let mut found: Vec<String> = tasks
            .map(|task| status(task.unwrap().path()))
            .filter(|status| field(status, "Name:").starts_with("CPU "))
            .map(|status| field(&status, "Cpus_allowed_list:"))
            .collect();
        found.sort();
        found
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        virsh(&["destroy", &self.name]);
    }
}

#[test]
fn virtual_cpus_of_a_domain_are_pinned_and_put_back() {
    if virsh(&["list"]).is_none() {
        eprintln!("skipped: libvirt does not run here");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let domain = Domain::start(folder.path());
    let before = domain.allowed();
    assert!(!before.is_empty(), "no thread of a virtual CPU");
    let traffic = folder.path().join("traffic.json");
    let text = format!(
        "{{\"functions\": [{{\"name\": \"vm\", \"domain\": \"{}\"}}], \"links\": []}}",
        domain.name
    );
    fs::write(&traffic, text).unwrap();
    let mut watch = yasmin(&["watch", "--plain", "--policy", "chain-first", "--cpus", "0-1023"]);
    watch.arg("--traffic-file").arg(&traffic);
    watch.arg("--journal").arg(folder.path().join("journal"));
    let watching = Watching::start(&mut watch);
    watching.until("move vm");
    eventually("pinned virtual CPUs", || {
        domain.allowed().iter().all(|cpus| cpus.parse::<u32>().is_ok())
    });
    watching.signal(Signal::TERM);
    assert!(watching.ends());
    assert_eq!(domain.allowed(), before);
}
