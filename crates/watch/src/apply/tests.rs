//! With real processes, whose pinning is read from /proc.

use std::process::{Child, Command};

use super::*;
use crate::function::Process;
use crate::process;

struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("600").spawn().unwrap())
    }

    fn function(&self) -> Function {
        let process = process::identify(self.0.id()).unwrap();
        let name = process::label(process.pid, "sleep");
        Function { name, target: Target::Processes { processes: vec![process] } }
    }

    fn allowed(&self) -> String {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.unwrap().trim().to_owned()
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn order(function: Function, cpu: u32) -> Order {
    Order { function, cpu: CpuId(cpu), memory: None }
}

fn journal(folder: &tempfile::TempDir) -> Journal {
    Journal::open(&folder.path().join("journal")).unwrap()
}

#[test]
fn pinned_and_put_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = journal(&folder);
    let sleeper = Sleeper::start();
    let before = sleeper.allowed();
    assert_eq!(apply(&[order(sleeper.function(), 0)], &[], &mut journal).unwrap(), 1);
    assert_eq!(sleeper.allowed(), "0");
    assert_eq!(apply(&[order(sleeper.function(), 0)], &[], &mut journal).unwrap(), 0);
    assert!(journal.undo(0).is_empty());
    assert_eq!(sleeper.allowed(), before);
}

#[test]
fn a_cpu_that_is_not_there_moves_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = journal(&folder);
    let (one, two) = (Sleeper::start(), Sleeper::start());
    let before = one.allowed();
    let orders = [order(one.function(), 0), order(two.function(), 1023)];
    let failure = apply(&orders, &[], &mut journal).unwrap_err();
    assert!(matches!(failure.trouble, Trouble::Cpu { cpu: CpuId(1023), .. }), "{failure}");
    assert!(failure.to_string().contains("nothing was moved"));
    assert_eq!((one.allowed(), two.allowed()), (before.clone(), before));
    assert!(journal.steps().is_empty());
}

#[test]
fn a_process_that_ended_before_the_move_moves_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = journal(&folder);
    let (one, mut two) = (Sleeper::start(), Sleeper::start());
    let before = one.allowed();
    let orders = [order(one.function(), 0), order(two.function(), 0)];
    two.kill();
    let failure = apply(&orders, &[], &mut journal).unwrap_err();
    assert!(matches!(failure.trouble, Trouble::Gone(_)), "{failure}");
    assert_eq!(one.allowed(), before);
}

#[test]
fn another_process_with_the_same_number_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = journal(&folder);
    let sleeper = Sleeper::start();
    let before = sleeper.allowed();
    let real = process::identify(sleeper.0.id()).unwrap();
    let stale = Process { started: real.started - 1, ..real };
    let target = Target::Processes { processes: vec![stale] };
    let failure =
        apply(&[order(Function { name: "x".into(), target }, 0)], &[], &mut journal).unwrap_err();
    assert!(matches!(failure.trouble, Trouble::Gone(_)));
    assert_eq!(sleeper.allowed(), before);
}

#[test]
fn children_that_inherited_the_pinning_are_put_back_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = journal(&folder);
    // Starts its child when told to, after it was pinned.
    let mut shell = Command::new("sh")
        .args(["-c", "read go; sleep 600 & echo $!; wait"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let process = process::identify(shell.id()).unwrap();
    let target = Target::Processes { processes: vec![process] };
    apply(&[order(Function { name: "sh".into(), target }, 0)], &[], &mut journal).unwrap();
    std::io::Write::write_all(shell.stdin.as_mut().unwrap(), b"go\n").unwrap();
    let mut line = String::new();
    let mut out = std::io::BufReader::new(shell.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    let child: u32 = line.trim().parse().unwrap();
    assert_eq!(affinity::only(child), Some(CpuId(0)));
    assert!(journal.undo(0).is_empty());
    let alone = std::thread::available_parallelism().unwrap().get() == 1;
    assert_eq!(affinity::only(child).is_none(), !alone);
    let pid = rustix::process::Pid::from_raw(child as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let _ = shell.wait();
}
