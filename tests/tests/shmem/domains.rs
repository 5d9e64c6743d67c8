//! Jobs of several domains: namespaces of their own, as containers have them.

use yasmin_segment::Broker;
use yasmin_tests::process::{Process, eventually};
use yasmin_tests::sys::libc::{SIGKILL, SIGTERM};

use crate::ends::{gone, pids};
use crate::lab::{Lab, command};

/// A job with PEs here and in a domain where a person would start what is printed.
struct Job {
    lead: Process,
    /// With all that it starts: the PID namespace's first process.
    there: Process,
}

/// What `oshrun` says to start in the domain `web`.
fn told(lead: &Process) -> String {
    let said = |lead: &Process| {
        let output = lead.output();
        let mut lines = output.lines();
        lines.find_map(|line| Some(line.split_once("oshrun: in web, start: ")?.1.to_owned()))
    };
    eventually("what to start in web", || said(lead), || lead.output())
}

fn in_a_domain(lab: &Lab, line: &str) -> Process {
    let path = format!("{}:/usr/bin:/bin", lab.tool("").display());
    let mut unshare = command("unshare");
    unshare
        .args(["--mount", "--net", "--ipc", "--uts", "--pid", "--fork", "--mount-proc"])
        .args(["--kill-child", "sh", "-c", &format!("exec {line}")])
        .env("PATH", path)
        .env("YASMIN_SOCKET", lab.host.socket());
    Process::start("there", &mut unshare, &lab.host.registry)
}

fn lead(lab: &Lab, domains: &str, count: u16, name: &str, arguments: &[&str]) -> Process {
    let mut oshrun = command(lab.tool("oshrun"));
    oshrun
        .args(["-n", &count.to_string(), "--domains", domains])
        .arg(lab.program(name))
        .args(arguments)
        .env("SHMEM_SYMMETRIC_SIZE", "16M")
        .env("YASMIN_SOCKET", lab.host.socket());
    Process::start("lead", &mut oshrun, &lab.host.registry)
}

impl Job {
    fn new(lab: &Lab, domains: &str, count: u16, name: &str, arguments: &[&str]) -> Self {
        let lead = lead(lab, domains, count, name, arguments);
        let line = told(&lead);
        Self { there: in_a_domain(lab, &line), lead }
    }

    #[track_caller]
    fn ends(mut self, lab: &Lab, lead: Option<i32>, there: Option<i32>) -> (String, String) {
        let codes = (self.lead.wait().code(), self.there.wait().code());
        let outputs = (self.lead.output(), self.there.output());
        assert_eq!(codes, (lead, there), "{outputs:?}");
        lab.nothing_left();
        outputs
    }
}

#[test]
fn pes_of_two_domains_are_one_program() {
    let lab = Lab::new();
    for (name, domains, count) in [
        ("collective.c", ".,web", 4),
        ("lock.c", "web,.", 3),
        ("team.c", "web", 4),
        ("reduce.c", ".,web", 8),
    ] {
        lab.compile(name, &[]);
        Job::new(&lab, domains, count, name, &[]).ends(&lab, Some(0), Some(0));
    }
}

#[test]
fn pes_are_dealt_out_in_order() {
    let lab = Lab::new();
    let mut oshrun = command(lab.tool("oshrun"));
    oshrun
        .args(["-n", "5", "--domains", ".,web", "sh", "-c", "echo it is $YASMIN_SHMEM_PE"])
        .env("YASMIN_SOCKET", lab.host.socket());
    let lead = Process::start("lead", &mut oshrun, &lab.host.registry);
    let line = told(&lead);
    let there = in_a_domain(&lab, &line);
    let (lead, there) = Job { lead, there }.ends(&lab, Some(0), Some(0));
    let numbers = |said: &str| {
        let mut all: Vec<_> =
            said.lines().filter_map(|line| line.trim().strip_prefix("it is ")).collect();
        all.sort_unstable();
        all.join(" ")
    };
    assert_eq!((numbers(&lead), numbers(&there)), ("0 1 2".to_owned(), "3 4".to_owned()));
}

/// PE 1 fails, which is there in the one job, and here in the other.
#[test]
fn a_pe_that_fails_ends_all_domains() {
    let lab = Lab::new();
    lab.compile("ends.c", &[]);
    for (domains, is_here) in [(".,web", false), ("web,.", true)] {
        let job = Job::new(&lab, domains, 2, "ends.c", &["code"]);
        let (lead, there) = job.ends(&lab, Some(7), Some(7));
        let said = if is_here { lead } else { there };
        assert!(said.contains("oshrun: PE 1 ended with exit code 7: all others end"), "{said}");
        let job = Job::new(&lab, domains, 2, "ends.c", &["global"]);
        job.ends(&lab, Some(42), Some(42));
    }
}

/// A job that waits for ever, and the process of its PE here.
fn waits(lab: &Lab) -> (Job, Vec<u32>) {
    let mut job = Job::new(lab, ".,web", 2, "ends.c", &["pid"]);
    let here = pids(&mut job.lead, 1);
    job.there.expect("PE 1 of 2");
    (job, here)
}

#[test]
fn a_signal_to_the_one_that_leads_is_one_to_all() {
    let lab = Lab::new();
    lab.compile("ends.c", &[]);
    let (job, here) = waits(&lab);
    job.lead.signal(SIGTERM);
    let code = Some(128 + SIGTERM);
    job.ends(&lab, code, code);
    gone(&here);
}

#[test]
fn whoever_is_killed_the_others_end() {
    let lab = Lab::new();
    lab.compile("ends.c", &[]);
    let (mut job, here) = waits(&lab);
    job.lead.signal(SIGKILL);
    job.lead.wait();
    assert_eq!(job.there.wait().code(), Some(1));
    let said = job.there.output();
    assert!(said.contains("has ended: all others end"), "{said}");
    gone(&here);
    lab.nothing_left();

    let (mut job, here) = waits(&lab);
    job.there.kill();
    assert_eq!(job.lead.wait().code(), Some(1));
    let said = job.lead.output();
    assert!(said.contains("oshrun: web: its oshrun was killed: all others end"), "{said}");
    gone(&here);
    lab.nothing_left();
}

#[test]
fn who_cannot_join_says_why() {
    let lab = Lab::new();
    lab.compile("ends.c", &[]);
    let oshrun = |words: &[&str]| {
        let mut oshrun = command(lab.tool("oshrun"));
        let output = oshrun.args(words).env("YASMIN_SOCKET", lab.host.socket()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = oshrun(&["-n", "2", "--domains", ".,a,b", "true"]);
    assert_eq!((code, said.contains("3 domains for 2 PEs")), (Some(2), true), "{said}");
    for words in [
        &["--domains", "lxc:a", "true"][..],
        &["--join", "7", "true"],
        &["--join", "7:1", "-n", "2", "true"],
    ] {
        assert_eq!(oshrun(words).0, Some(2), "{words:?}");
    }
    let (code, said) = oshrun(&["--join", "7-1:0", "true"]);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("job 7-1 cannot be joined") && said.contains("none of this name"),
        "{said}"
    );
    let (code, said) = oshrun(&["--domains", "docker:no-such", "true"]);
    assert!(code != Some(0) && said.contains("oshrun: docker:no-such: "), "{code:?}: {said}");

    let mut lead = lead(&lab, "web", 2, "ends.c", &["pid"]);
    let line = told(&lead);
    let ticket = line.split(' ').find(|word| word.contains(':')).unwrap().to_owned();
    let (_, said) = oshrun(&["--join", &ticket.replace(":0", ":1"), "true"]);
    assert!(said.contains("has no part 1, but 0 to 0"), "{said}");
    let mut there = in_a_domain(&lab, &line);
    pids(&mut there, 2);
    let (_, said) = oshrun(&["--join", &ticket, "true"]);
    assert!(said.contains("has been started already"), "{said}");
    // Without the program there, all end.
    let _ = lead.terminate();
    there.wait();
    let lead = self::lead(&lab, "web", 2, "ends.c", &["pid"]);
    let line = told(&lead);
    let line = line.replace(lab.program("ends.c").to_str().unwrap(), "/no/such/program");
    let there = in_a_domain(&lab, &line);
    let (_, said) = Job { lead, there }.ends(&lab, Some(127), Some(127));
    assert!(said.contains("oshrun: /no/such/program cannot be started"), "{said}");
}

/// What a job leaves in the segment is nothing to the next one.
#[test]
fn jobs_come_one_after_another_in_a_segment_that_was_there() {
    let lab = Lab::new();
    let broker = Broker::at(lab.host.socket());
    let size = 96 << 20;
    broker.create("team", size, Default::default()).unwrap();
    let lead = |count: u16, name: &str, argument: &str| {
        lab.compile(name, &[]);
        let mut oshrun = command(lab.tool("oshrun"));
        oshrun
            .args(["--segment", "team", "-n", &count.to_string(), "--domains", ".,web"])
            .arg(lab.program(name))
            .arg(argument)
            .env("SHMEM_SYMMETRIC_SIZE", "16M")
            .env("YASMIN_SOCKET", lab.host.socket());
        Process::start("lead", &mut oshrun, &lab.host.registry)
    };
    let job = |count: u16, name: &str, argument: &str| {
        let lead = lead(count, name, argument);
        let there = in_a_domain(&lab, &told(&lead));
        Job { lead, there }
    };
    for (name, count) in [("collective.c", 4), ("rma.c", 2), ("team.c", 3), ("collective.c", 2)] {
        let mut job = job(count, name, "");
        let codes = (job.lead.wait().code(), job.there.wait().code());
        assert_eq!(
            codes,
            (Some(0), Some(0)),
            "{name}: {} {}",
            job.lead.output(),
            job.there.output()
        );
    }
    let mut one = job(2, "ends.c", "pid");
    pids(&mut one.there, 1);
    let mut other = lead(2, "ends.c", "pid");
    assert_eq!(other.wait().code(), Some(1));
    let said = other.output();
    assert!(said.contains("segment team is another job's, which runs"), "{said}");
    one.lead.signal(SIGKILL);
    one.there.wait();
    let mut large = job(6, "ends.c", "pid");
    assert_eq!(large.lead.wait().code(), Some(1));
    let said = large.lead.output() + &large.there.output();
    let wanted = format!("segment team has {size} bytes; for 6 PEs of ");
    assert!(said.contains(&wanted) && said.contains("SHMEM_SYMMETRIC_SIZE"), "{said}");
    assert_eq!(broker.list().unwrap().len(), 1);
}
