//! The loop: it moves, puts back, and leaves nothing half moved, whatever ends it.

use rustix::process::Signal;

use super::world::{Process, Watching, World, eventually, text, yasmin};

/// One CPU each.
fn is_pinned(world: &World) -> bool {
    world.allowed().iter().all(|cpus| cpus.parse::<u32>().is_ok())
}

fn has_two_cpus() -> bool {
    std::thread::available_parallelism().unwrap().get() > 1
}

#[test]
fn moves_and_puts_back_however_it_is_stopped() {
    for signal in [Signal::TERM, Signal::INT] {
        let world = World::new(2);
        let before = world.allowed();
        world.tell(&[(0, 1, 1_000_000)]);
        let watching = Watching::start(&mut world.watch(&[]));
        let line = watching.until("move f");
        assert!(line.contains("expected traffic x distance"), "{line}");
        eventually("pinning", || is_pinned(&world));
        watching.signal(signal);
        assert!(watching.ends());
        assert_eq!(world.allowed(), before, "after {signal:?}");
    }
}

#[test]
fn a_killed_watch_is_undone_by_hand_or_by_the_next() {
    if !has_two_cpus() {
        return;
    }
    let world = World::new(2);
    let before = world.allowed();
    world.tell(&[(0, 1, 1_000_000)]);
    for by_hand in [true, false] {
        let mut watching = Watching::start(&mut world.watch(&[]));
        watching.until("move f");
        eventually("pinning", || is_pinned(&world));
        watching.process.kill();
        assert!(is_pinned(&world), "nobody has put it back yet");
        if by_hand {
            let said = text(&world.undo().stdout);
            assert!(said.starts_with('2'), "{said}");
        } else {
            let output = world.watch(&["--seconds", "0.1"]).output().unwrap();
            let said = text(&output.stderr);
            assert!(said.contains("put back 2 settings"), "{said}");
        }
        assert_eq!(world.allowed(), before);
    }
    assert!(text(&world.undo().stdout).starts_with('0'));
}

#[test]
fn a_dry_run_says_and_does_nothing() {
    let world = World::new(2);
    let before = world.allowed();
    world.tell(&[(0, 1, 1_000_000)]);
    let watching = Watching::start(&mut world.watch(&["--dry-run"]));
    watching.until("would move f1");
    assert_eq!(world.allowed(), before);
    assert!(!world.path("journal").exists());
    watching.signal(Signal::TERM);
    assert!(watching.ends());
}

#[test]
fn more_functions_than_cpus_share_and_it_is_said() {
    let cpus = std::thread::available_parallelism().unwrap().get();
    let world = World::new(cpus + 1);
    let links: Vec<_> = (0..cpus).map(|at| (at, at + 1, 1_000_000)).collect();
    world.tell(&links);
    let watching = Watching::start(&mut world.watch(&[]));
    watching.until("more functions than CPUs");
    eventually("pinning", || is_pinned(&world));
}

#[test]
fn a_function_that_vanishes_is_no_trouble_for_the_others() {
    let mut world = World::new(3);
    world.tell(&[(0, 1, 1_000_000), (1, 2, 1_000_000)]);
    let watching = Watching::start(&mut world.watch(&["--period", "0.2"]));
    watching.until("move f");
    eventually("pinning", || is_pinned(&world));
    // Still told of in the file, and gone.
    world.sleepers[2].kill();
    world.sleepers.push(Process::sleeper());
    world.tell(&[(0, 1, 1_000_000), (1, 2, 1_000_000), (1, 3, 9_000_000)]);
    watching.until("move f3");
    watching.signal(Signal::TERM);
    assert!(watching.ends());
}

#[test]
fn two_at_once_are_refused() {
    let world = World::new(1);
    world.tell(&[]);
    let watching = Watching::start(&mut world.watch(&[]));
    watching.until("move f0");
    let second = world.watch(&[]).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second.stderr).contains("another yasmin place is at work"));
}

/// Root's process, moved by somebody else.
#[test]
fn without_permission_nothing_moves_and_it_is_said() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become somebody else");
        return;
    }
    let world = World::new(1);
    let before = world.allowed();
    world.tell(&[]);
    let watch = world.watch(&[]);
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("own");
    std::fs::create_dir(&own).unwrap();
    std::os::unix::fs::chown(&own, Some(65534), Some(65534)).unwrap();
    for open in [folder.path(), world.path("").as_path()] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(open, mode).unwrap();
    }
    let arguments: Vec<_> = watch.get_args().map(std::ffi::OsStr::to_owned).collect();
    // The command where nobody may read it.
    let program = folder.path().join("yasmin");
    std::fs::copy(watch.get_program(), &program).unwrap();
    let mut as_nobody = std::process::Command::new("setpriv");
    as_nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
    let journal = world.path("journal");
    for argument in &arguments {
        as_nobody.arg(if *argument == journal {
            own.join("journal").into()
        } else {
            argument.clone()
        });
    }
    let watching = Watching::start(&mut as_nobody);
    let line = watching.until("failed:");
    assert!(line.contains("no permission") && line.contains("nothing was moved"), "{line}");
    assert_eq!(world.allowed(), before);
}

#[test]
fn a_log_can_be_decided_again() {
    let world = World::new(2);
    world.tell(&[(0, 1, 1_000_000)]);
    let log = world.path("log").display().to_string();
    let watching = Watching::start(&mut world.watch(&["--log", &log]));
    watching.until("move f1");
    watching.signal(Signal::TERM);
    assert!(watching.ends());
    for policy in ["chain-first", "first-free"] {
        let output = yasmin(&["replay", &log, "--policy", policy]).output().unwrap();
        let said = text(&output.stdout);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let words = format!("{policy}: ");
        assert!(said.contains(&words) && said.contains("1 plans with 2 moves"), "{said}");
        assert!(said.contains("(recorded: 1 plans, 2 moves)"), "{said}");
    }
    std::fs::write(&log, "{\"sample\": {\"at_s\": \"x\", \"rates\": []}}\n").unwrap();
    let output = yasmin(&["replay", &log]).output().unwrap();
    let said = text(&output.stderr);
    assert!(said.contains("line 1") && said.contains("sample.at_s"), "{said}");
}

#[test]
fn metrics_are_served() {
    let world = World::new(2);
    world.tell(&[(0, 1, 1_000_000)]);
    let mut command = world.watch(&["--metrics", "127.0.0.1:0"]);
    command.stderr(std::process::Stdio::piped());
    let mut watching = Watching::start(&mut command);
    let mut line = String::new();
    let mut said = std::io::BufReader::new(watching.process.0.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    watching.until("move f1");
    eventually("the move in the metrics", || {
        let mut socket = std::net::TcpStream::connect(&address).unwrap();
        let ask = b"GET /metrics HTTP/1.0\r\n\r\n";
        std::io::Write::write_all(&mut socket, ask).unwrap();
        let mut page = String::new();
        std::io::Read::read_to_string(&mut socket, &mut page).unwrap();
        page.contains("yasmin_place_moves_total 2")
            && page.contains("yasmin_place_function_cpu{function=\"f1\"}")
            && page.ends_with("# EOF\n")
    });
}

#[test]
fn mistakes_in_files_are_named() {
    let world = World::new(1);
    let file = world.path("o.toml");
    std::fs::write(&file, "[[chain]]\nfunctions = 7\n").unwrap();
    let output = yasmin(&["chains", "--overrides"]).arg(&file).output().unwrap();
    let said = text(&output.stderr);
    assert!(said.contains("line 2") && said.contains("chain[0].functions"), "{said}");
    std::fs::write(world.path("traffic.json"), "{\"functions\": 7}").unwrap();
    let output = yasmin(&["chains", "--seconds", "0.1", "--traffic-file"])
        .arg(world.path("traffic.json"))
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert!(said.contains("functions: ") && said.contains("line 1 column"), "{said}");
}
