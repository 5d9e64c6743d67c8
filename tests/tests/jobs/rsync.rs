//! rsync, to its daemon and over ssh.

use std::fs;

use yasmin_tests::job::{self, Job, Rings, Stage};

use crate::{files, ssh};

#[test]
fn trees_to_the_daemon() {
    job::check(&Job {
        program: "rsync",
        job: "daemon: a tree there and back, then changes and deletions; trees compared",
        needs: &["rsync", "diff"],
        is_large: false,
        rings: Rings::Used,
        note: "",
        run: daemon,
    });
}

#[test]
fn trees_over_ssh() {
    job::check(&Job {
        program: "rsync over ssh",
        job: "a tree there and back, then changes and deletions; trees compared",
        needs: &["rsync", "diff", "ssh", "sshd", "ssh-keygen"],
        is_large: false,
        rings: Rings::Unused(
            "sshd executes itself for each connection: one that has a ring already, as when forced, is TCP from then on.",
        ),
        note: "",
        run: over_ssh,
    });
}

/// Changes in the middle of a large file, new files, files that go.
fn change(stage: &Stage, tree: &str) {
    let large = format!("{tree}/large");
    let mut data = fs::read(&large).unwrap();
    for at in [100, 5 << 20, 20 << 20] {
        data.splice(at..at + 10, *b"another text, longer than the one that was here");
    }
    fs::write(&large, data).unwrap();
    fs::remove_dir_all(format!("{tree}/folder3")).unwrap();
    for nth in 0..50 {
        stage.write_pattern(&format!("tree/folder5/new{nth}"), nth, 5000);
    }
}

fn both_ways(stage: &Stage, options: &[&str], there: &str, remote: &str) {
    let tree = files::make_tree(stage, "tree");
    let back = stage.make_folder("back", None);
    let (tree_text, back_text) = (format!("{tree}/"), format!("{back}/"));
    let rsync = |words: &[&str]| {
        stage.client("rsync", &[&["-a", "--delete", "--checksum"], options, words].concat()).run()
    };
    for turn in 0..2 {
        rsync(&[&tree_text, remote]);
        files::assert_same_trees(&tree, there);
        rsync(&["-z", remote, &back_text]);
        files::assert_same_trees(&tree, &back);
        if turn == 0 {
            change(stage, &tree);
        }
    }
}

fn daemon(stage: &Stage) {
    let port = Stage::port();
    let there = stage.make_folder("there", None);
    let own = files::own_name();
    let config = format!(
        "use chroot = no\nuid = {own}\n[tree]\npath = {there}\nread only = no\nmunge symlinks = no\n"
    );
    let config = stage.write("rsyncd.conf", config);
    let port_text = format!("--port={port}");
    let words = ["--daemon", "--no-detach", "--config", &config, &port_text];
    let mut server = stage.server("rsync", &words).listen(port);
    both_ways(stage, &[], &there, &format!("rsync://{}:{port}/tree/", stage.ip()));
    server.terminate();
}

fn over_ssh(stage: &Stage) {
    let mut login = ssh::start(stage);
    let there = stage.make_folder("there", None);
    let shell = format!("ssh {} -o Port={}", login.options.join(" "), login.port);
    let remote = format!("{}@{}:{there}/", login.user, stage.ip());
    both_ways(stage, &["-e", &shell], &there, &remote);
    login.server.terminate();
}
