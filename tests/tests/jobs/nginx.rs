//! nginx: its workers change while clients ask.

use std::fs;

use yasmin_tests::job::{self, Job, Rings, Stage};
use yasmin_tests::process::eventually;
use yasmin_tests::sys::libc::{SIGHUP, SIGQUIT};

use crate::web::{Clients, make_pages, start_nginx};

#[test]
fn reload_under_load() {
    job::check(&Job {
        program: "nginx",
        job: "reloaded five times under load by kept and new connections, every answer compared",
        needs: &["nginx", "python3"],
        is_large: false,
        rings: Rings::Used,
        note: "Connections of one request are too short.",
        run,
    });
}

fn run(stage: &Stage) {
    let port = Stage::port();
    make_pages(stage);
    let server = "server { listen @PORT@ backlog=1024; root @FOLDER@/root; }";
    let mut nginx = start_nginx(stage, "nginx", port, server);
    let mut clients = Clients::start(stage, port);
    let log = stage.path("nginx.log");
    for nth in 1..=if job::all() { 30 } else { 5 } {
        clients.go_on();
        nginx.signal(SIGHUP);
        let done = || fs::read_to_string(&log).unwrap_or_default();
        eventually(
            "new workers",
            || (done().matches("start worker process ").count() >= 2 + 2 * nth).then_some(()),
            done,
        );
    }
    clients.go_on();
    clients.finish();
    let text = fs::read_to_string(&log).unwrap_or_default();
    let bad = text.lines().find(|line| !line.contains("[notice]"));
    assert_eq!(bad, None, "nginx complains");
    nginx.signal(SIGQUIT);
    nginx.finish();
}
