//! The broker's units as they are shipped, under systemd itself.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use yasmin_tests::lab::{Folder, artefact};
use yasmin_tests::netns;

/// systemd in namespaces of its own, and its number out here.
struct Manager {
    unshare: std::process::Child,
    pid: String,
    _folder: Folder,
}

impl Drop for Manager {
    fn drop(&mut self) {
        // It has no other way to be told: it is the first process of its namespace.
        let _ = Command::new("kill").args(["-KILL", &self.pid]).status();
        let _ = self.unshare.wait();
    }
}

impl Manager {
    /// `None`, with the reason told, where this machine cannot have one.
    fn start() -> Option<Self> {
        if !netns::allowed() || !Path::new("/lib/systemd/systemd").exists() {
            eprintln!("skipped: needs root, namespaces and systemd");
            return None;
        }
        let folder = Folder::new();
        let release = artefact("yasmind");
        let mut unshare = Command::new("unshare")
            .args(["--fork", "--pid", "--mount", "--uts", "--ipc", "--net", "--cgroup"])
            .arg("--kill-child")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/boot.sh"))
            .arg(folder.path())
            .arg(release.parent().unwrap())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let children = format!("/proc/{0}/task/{0}/children", unshare.id());
        let begun = Instant::now();
        loop {
            assert!(unshare.try_wait().unwrap().is_none(), "it does not start");
            assert!(begun.elapsed() < Duration::from_secs(120), "it does not begin");
            let pid = std::fs::read_to_string(&children).unwrap_or_default().trim().to_owned();
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            if name.trim() == "systemd" {
                let manager = Self { unshare, pid, _folder: folder };
                while !manager.run("systemctl is-system-running").status.success() {
                    assert!(begun.elapsed() < Duration::from_secs(120), "it does not run");
                    std::thread::sleep(Duration::from_millis(100));
                }
                return Some(manager);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A shell command where it is.
    fn run(&self, command: &str) -> Output {
        let target = ["-t", &self.pid, "-m", "-p", "-n", "-i", "-u", "-r", "-w"];
        Command::new("nsenter").args(target).args(["sh", "-c", command]).output().unwrap()
    }

    /// What it prints; it succeeds.
    #[track_caller]
    fn tell(&self, command: &str) -> String {
        let output = self.run(command);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (told, why) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{command}: {told}{why}{}", self.log());
        told
    }

    fn log(&self) -> String {
        let output = self.run("journalctl -u yasmind --no-pager");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What went by ring in connections that are closed.
    fn ring_bytes(&self) -> u64 {
        let status = self.tell("yasmin status --json");
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        assert_eq!(status["broker"]["proof"], "bpf");
        status["broker"]["closed_ring_bytes"].as_u64().unwrap()
    }

    /// Hands a socket over with bytes unread, until bytes went by ring: on a busy machine two
    /// processes may not be awake at the same time for a whole conversation.
    #[track_caller]
    fn exchange(&self, user: &str, how: &str) {
        const ROUNDS: usize = 10;
        let before = self.ring_bytes();
        for _ in 0..ROUNDS {
            let told = self.tell(&format!(
                "timeout 60 setpriv --reuid {user} --clear-groups \
                 yasmin run python3 /srv/exchange.py {how}"
            ));
            assert_eq!(told, "whole\n", "{user} {how}");
            // The broker learns a little later of what was closed.
            for _ in 0..10 {
                if self.ring_bytes() > before + 100_000 {
                    return;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        panic!("{user} {how}: nothing by ring in {ROUNDS} rounds");
    }
}

#[test]
fn the_units_as_shipped() {
    let Some(manager) = Manager::start() else { return };
    manager.tell("systemd-sysusers && systemctl start yasmind.socket");
    // Every user's processes have rings, and what they hand over with unread bytes arrives.
    for user in ["root", "nobody"] {
        for how in ["exec", "passed", "inherited"] {
            manager.exchange(user, how);
        }
    }
    // The service manager keeps segments for the next broker.
    manager.tell("yasmin segment create kept --size 1M && systemctl restart yasmind");
    assert!(manager.tell("yasmin segment ls").contains("kept"));
    manager.exchange("nobody", "passed");
    let unit = manager.tell("systemctl show yasmind -p NRestarts -p Result -p ActiveState");
    for line in ["NRestarts=0", "Result=success", "ActiveState=active"] {
        assert!(unit.lines().any(|one| one == line), "{unit}{}", manager.log());
    }
    assert!(!manager.log().contains("WARN"), "{}", manager.log());
}
