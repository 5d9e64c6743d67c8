//! `yasmin lab`, small and whole: kernels verified, paths proven, and a wrong path found out.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use yasmin_tests::installed;
use yasmin_tests::lab::{Folder, artefact};
use yasmin_tests::netns;
use yasmin_tests::sys;

/// Open MPI polls, so that its bytes go by ring on crowded machines too.
const PLAN: &str = r#"
rounds = 2
limit_s = 60

[[experiment]]
name = "product"
kernel = "product"
arguments = ["60"]
models = ["serial", "openmp", "openmpi", "mpich", "openshmem"]
workers = [1]
placements = ["native"]

[[experiment]]
name = "heat"
kernel = "heat"
arguments = ["64", "20"]
models = ["serial", "openmp", "openmpi", "mpich", "openshmem"]
workers = [1]
placements = ["native"]

[[experiment]]
name = "is"
kernel = "is"
arguments = ["S"]
models = ["serial", "openmp", "openmpi", "mpich", "openshmem"]
workers = [1]
placements = ["native"]

[[experiment]]
name = "heat-team"
kernel = "heat"
arguments = ["64", "20"]
models = ["openshmem"]
workers = [3]
placements = ["native", "containers"]

[[experiment]]
name = "is-team"
kernel = "is"
arguments = ["S"]
models = ["openshmem"]
workers = [3]
placements = ["native", "containers"]

[[experiment]]
name = "pingpong"
kernel = "imb"
arguments = ["pingpong", "4096"]
models = ["openmpi"]
workers = [2]
placements = ["native", "containers"]

[[experiment]]
name = "sockets"
kernel = "sockets"
arguments = ["4096"]
models = ["sockets"]
paths = ["tcp", "unix"]
workers = [2]
placements = ["containers"]
"#;

const NEEDS: [&str; 6] =
    ["make", "gcc", "mpirun.openmpi", "mpicc.openmpi", "mpirun.mpich", "mpicc.mpich"];

/// Whether the lab can run here; says why not.
fn can_run() -> bool {
    if !netns::allowed() {
        eprintln!("skipped: no namespaces without root");
        return false;
    }
    NEEDS.iter().all(|program| installed::find_or_say(program).is_some())
}

fn lab(folder: &Folder, words: &[&str]) -> Output {
    let plan = folder.path().join("plan.toml");
    std::fs::write(&plan, PLAN).unwrap();
    let mut command = Command::new(artefact("yasmin"));
    command.arg("lab").arg("--plan").arg(&plan).arg("--out").arg(folder.path()).args(words);
    command.output().unwrap()
}

fn report(folder: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join("report.json")).unwrap()).unwrap()
}

fn outcomes(report: &Value) -> &[Value] {
    report["outcomes"].as_array().unwrap()
}

#[test]
fn every_kernel_is_verified_and_every_path_proven() {
    if !can_run() {
        return;
    }
    let folder = Folder::new();
    let output = lab(&folder, &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");

    let report = report(folder.path());
    // Five models of three kernels; two teams on two placements; three paths and two; two.
    assert_eq!(outcomes(&report).len(), 15 + 4 + 5 + 2);
    for outcome in outcomes(&report) {
        let name = &outcome["name"];
        assert_eq!(outcome["proven"], true, "{outcome}");
        let runs = outcome["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 2, "{name}");
        let checks = |run: &Value| run["checks"].as_u64().unwrap();
        let least = if outcome["kernel"] == "is" { 51 } else { 2 };
        assert!(runs.iter().all(|run| checks(run) >= least), "{name}");
        let measured = outcome["seconds"]["median"].as_f64();
        let measured = measured.or(outcome["points"][0]["latency_ns"]["median"].as_f64());
        assert!(measured.is_some_and(|value| value > 0.0), "{name}");
        // What carried the payload of two workers is what the name says.
        let sum = |field: &str| runs.iter().map(|run| run[field].as_u64().unwrap()).sum::<u64>();
        let (moved, rings) = (sum("moved_bytes"), sum("ring_bytes"));
        let interfaces = sum("interface_bytes");
        match outcome["path"].as_str().unwrap() {
            "rings" => assert!(rings > moved / 2 && rings > interfaces, "{outcome}"),
            "tcp" => assert!(interfaces >= moved * 8 / 10 && rings == 0, "{outcome}"),
            "memory" => assert_eq!((moved, rings), (0, 0), "{outcome}"),
            // One worker alone. A new interface says a few words by itself.
            "segments" if moved == 0 => assert_eq!(rings, 0, "{outcome}"),
            _ => assert!(interfaces < moved / 2 && rings == 0, "{outcome}"),
        }
    }
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    for part in ["<svg", "Where the bytes went", "pingpong/containers/openmpi/rings/2"] {
        assert!(page.contains(part), "{part}");
    }

    let path = folder.path().join("report.json");
    let words = ["lab", "advise", "--workers", "2", "--compute-ms", "1", "--message-bytes", "4096"];
    let mut advised = Command::new(artefact("yasmin"));
    let advised = advised.args(words).arg("--json").arg("--report").arg(&path).output().unwrap();
    assert!(advised.status.success(), "{}", String::from_utf8_lossy(&advised.stderr));
    let advice: Value = serde_json::from_slice(&advised.stdout).unwrap();
    let ways = advice["ways"].as_array().unwrap();
    let step = |name: &str| {
        let way = ways.iter().find(|way| way["name"] == name);
        way.and_then(|way| way["step_ns"].as_f64()).unwrap_or_else(|| panic!("{name}: {advice}"))
    };
    assert!(step("threads or segments") < step("openmpi over tcp, containers"), "{advice}");
    assert_eq!(step("one worker"), 1e6);
    assert!(advice["sentence"].as_str().unwrap().starts_with("With 2 workers"), "{advice}");

    let compared =
        Command::new(artefact("yasmin")).args(["lab", "compare"]).args([&path, &path]).output();
    let compared = compared.unwrap();
    let text = String::from_utf8_lossy(&compared.stdout);
    assert!(compared.status.success() && text.contains("within spread"), "{text}");
    assert!(!text.contains("slower") && !text.contains("NOT PROVEN"), "{text}");
}

/// ^C: what was measured until then is kept, and the command says that it is not all.
#[test]
fn interrupted_it_keeps_what_it_has() {
    if !can_run() {
        return;
    }
    let folder = Folder::new();
    let mut command = Command::new(artefact("yasmin"));
    command.args(["lab", "--quick", "--rounds", "10000", "--only", "is-s/serial", "--out"]);
    command.arg(folder.path()).env("TMPDIR", folder.path()).stderr(Stdio::piped());
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    // Each run has a file for what it prints.
    let runs = || {
        let entries = std::fs::read_dir(folder.path()).unwrap().flatten();
        let own = entries.filter(|entry| entry.path().is_dir()).map(|entry| entry.path());
        let files = own.flat_map(|own| std::fs::read_dir(own).into_iter().flatten().flatten());
        files.filter(|file| file.file_name().to_string_lossy().starts_with("serial")).count()
    };
    while runs() < 3 {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(20));
    }
    sys::kill(child.id().cast_signed(), libc::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("interrupted: the report has what was measured"), "{said}");
    let report = report(folder.path());
    assert_eq!(outcomes(&report).len(), 1, "{said}");
    assert!(outcomes(&report)[0]["runs"].as_array().unwrap().len() >= 2, "{said}");
}

/// Machines that the lab did not make: files go there by the placement's words, programs too.
#[test]
fn machines_that_are_given() {
    if !can_run() {
        return;
    }
    let folder = Folder::new();
    let copied = folder.path().join("copied");
    let placements = folder.path().join("placements.toml");
    // Each program in a network of its own, where nobody sends anything.
    let text = format!(
        r#"
        [[placement]]
        name = "there"
        about = "one that is there"
        network = "given"
        copy = ["sh", "-c", "echo {{name}} {{file}} >>{}"]
        [[placement.machine]]
        name = "a"
        address = "127.0.0.1"
        enter = ["unshare", "-n"]
        "#,
        copied.display()
    );
    std::fs::write(&placements, text).unwrap();
    let placements = placements.display().to_string();
    let words = ["--placements", &placements, "--on", "there", "--only", "is/serial"];
    let output = lab(&folder, &words);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let copied = std::fs::read_to_string(copied).unwrap();
    let files: Vec<&str> = copied.lines().collect();
    assert_eq!(files.len(), 2, "{copied}");
    assert!(files[0].starts_with("a /") && files[0].ends_with("/is-serial"), "{copied}");
    assert!(files[1].ends_with("/agent.sh"), "{copied}");
    assert_eq!(outcomes(&report(folder.path()))[0]["proven"], true);

    let output = lab(&folder, &["--placements", &placements, "--on", "there", "--only", "rings"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("no measurement has"), "{said}");
}

/// No broker listens: the ranks run all the same, over TCP, and say that they are under `yasmin
/// run`.
#[test]
fn rings_that_are_none_fail_the_lab() {
    if !can_run() {
        return;
    }
    let folder = Folder::new();
    let nobody = folder.path().join("nobody.sock").display().to_string();
    let output = lab(&folder, &["--only", "native/rings,native/openmpi/tcp", "--socket", &nobody]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("path rings not proven") && !said.contains("path tcp not"), "{said}");
    let report = report(folder.path());
    for outcome in outcomes(&report) {
        assert_eq!(outcome["proven"], outcome["path"] != "rings", "{outcome}");
        // The figure is there, and marked.
        assert_eq!(outcome["runs"].as_array().unwrap().len(), 2);
    }
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.contains("NOT PROVEN"));
}

/// Each way is proven by who carried its bytes, the BPF program's too; short connections, and the
/// table that puts them side by side.
#[test]
fn peers_stand_side_by_side() {
    if !can_run() || installed::find_or_say("clang").is_none() {
        return;
    }
    let folder = Folder::new();
    let mut command = Command::new(artefact("yasmin"));
    command.args(["lab", "peers", "--rounds", "1", "--out"]).arg(folder.path());
    let only =
        "latency/native,bandwidth/containers,connections/native,behaviour/native,mpi/openmpi";
    let output = command.args(["--only", only]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let report = report(folder.path());
    for outcome in outcomes(&report) {
        let path = outcome["path"].as_str().unwrap();
        if outcome["experiment"] == "behaviour" {
            let behaviours = outcome["behaviours"].as_array().unwrap();
            assert_eq!(behaviours.len(), 18, "{outcome} {said}");
            for behaviour in behaviours.iter().filter(|_| matches!(path, "tcp" | "rings")) {
                let name = behaviour["name"].as_str().unwrap();
                assert_eq!(behaviour["is_as_tcp"], true, "{path}: {name}");
            }
            if path == "rings" {
                assert!(outcome["runs"][0]["ring_bytes"].as_u64() > Some(0), "{outcome}");
            }
        }
        // Where CPUs are crowded a receiver sleeps, and its bytes go by TCP.
        if path == "rings" {
            continue;
        }
        assert_eq!(outcome["proven"], true, "{outcome} {said}");
        let run = &outcome["runs"][0];
        let [moved, redirected] =
            ["moved_bytes", "redirected_bytes"].map(|name| run[name].as_u64().unwrap());
        assert!(run["cpu_s"].as_f64().unwrap() > 0.0, "{outcome}");
        match path {
            "sockmap" => assert!(redirected >= moved * 8 / 10, "{outcome}"),
            _ => assert_eq!(redirected, 0, "{outcome}"),
        }
        if outcome["experiment"] == "connections" {
            assert!(outcome["connections_s"]["median"].as_f64().unwrap() > 0.0, "{outcome}");
        }
    }
    let ways: Vec<&str> =
        outcomes(&report).iter().filter_map(|outcome| outcome["path"].as_str()).collect();
    for way in ["tcp", "rings", "unix", "mpi-shm"] {
        assert!(ways.contains(&way), "{way}: {said}");
    }
    // Not on every kernel.
    assert!(ways.contains(&"sockmap") || said.contains("sockmap is left out"), "{said}");
    assert!(report["limits"]["cache_line_ns"].as_f64().unwrap() > 0.0);
    let text = String::from_utf8_lossy(&output.stdout);
    for part in [
        "native, rings",
        "containers, Unix sockets",
        "be written for MPI",
        "two copies",
        "not as TCP does",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.contains("Ways side by side"));
}

#[test]
fn what_cannot_be_is_named() {
    let folder = Folder::new();
    for (words, says) in [
        (&["--only", "moon"][..], "moon"),
        (&["--plan", "/nowhere.toml"], "/nowhere.toml"),
        (&["peers", "--only", "moon"], "moon"),
        (
            &["advise", "--workers", "2", "--compute-ms", "1", "--message-bytes", "1"],
            "--only pingpong",
        ),
        (&["compare", "/nowhere.json", "/nowhere.json"], "/nowhere.json"),
    ] {
        let mut command = Command::new(artefact("yasmin"));
        let output = command.arg("lab").args(words).current_dir(folder.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(says), "{said}");
    }
}
