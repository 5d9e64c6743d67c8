//! What `make install` puts in its place: a C program finds it by pkg-config, Python by its folder,
//! both have one table at one address, in namespaces of their own; `make uninstall` leaves nothing.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use yasmin_tests::installed::{find_or_say, install, uninstall};
use yasmin_tests::process::Process;
use yasmin_tests::segment::{Host, is_root};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

#[track_caller]
fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// In a network and a PID namespace of its own, where this may be made.
fn apart(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("unshare");
    command.args(["--net", "--pid", "--fork", "--mount-proc", "--kill-child"]).arg(program);
    command
}

#[test]
fn the_example_runs_from_an_installation() {
    let (Some(pkg_config), Some(python)) = (find_or_say("pkg-config"), find_or_say("python3"))
    else {
        return;
    };
    let host = Host::new(&["--no-bpf"]);
    let prefix = host.folder.path().join("prefix");
    install(&prefix);
    let flags = Command::new(pkg_config)
        .args(["--cflags", "--libs", "yasmin-segment"])
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .output()
        .unwrap();
    let examples = repository().join("crates/segment/examples");
    let writer = host.folder.path().join("writer");
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([&writer, &examples.join("words.c")])
        .args(said(&flags).split_whitespace())
        .output()
        .unwrap();
    said(&compiled);

    let library = prefix.join("lib").display().to_string();
    let start = |name: &str, command: &mut Command| {
        let command = command
            .env("YASMIN_SOCKET", host.socket())
            .env("LD_LIBRARY_PATH", &library)
            .env("PYTHONPATH", prefix.join("lib/yasmin/python"));
        Process::start(name, command, &host.registry)
    };
    let mut writer = start("writer", &mut apart(&writer));
    let address = writer.expect("words at ");
    writer.say("the quick brown fox and the lazy dog and the rest");
    writer.expect("counted 11");
    let mut reader = apart(&python);
    let reader = start("reader", reader.arg(examples.join("words.py"))).run();
    // The reader follows the writer's pointers.
    let mut lines = reader.lines();
    assert_eq!(lines.next().unwrap(), format!("words at {address}"));
    let mut words: Vec<&str> = lines.collect();
    words.sort_unstable();
    let wanted = ["2 and", "3 the", "1 brown", "1 dog", "1 fox", "1 lazy", "1 quick", "1 rest"];
    let mut wanted = wanted.to_vec();
    wanted.sort_unstable();
    assert_eq!(words, wanted);
    writer.finish();

    uninstall(&prefix);
    assert_eq!(files(&prefix), Vec::<PathBuf>::new());
}
