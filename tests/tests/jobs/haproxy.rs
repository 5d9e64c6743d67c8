//! HAProxy in front of two servers; its reload hands the listening sockets to a new process.

use std::fs;

use yasmin_tests::job::{self, Job, Rings, Stage};
use yasmin_tests::netns::allowed;
use yasmin_tests::process::eventually;
use yasmin_tests::sys::libc::SIGUSR2;

use crate::web::{Clients, make_pages, start_nginx};

#[test]
fn reload_under_load() {
    job::check(&Job {
        program: "HAProxy",
        job: "in front of two nginx, reloaded five times under load, every answer compared",
        needs: &["haproxy", "nginx", "python3"],
        is_large: false,
        rings: Rings::Used,
        note: "",
        run,
    });
}

const CONFIG: &str = "
global
  maxconn 500
  nbthread 2
  USER
  stats socket FOLDER/stats mode 600 level admin expose-fd listeners
defaults
  mode http
  timeout connect 10s
  timeout client 30s
  timeout server 30s
  default-server maxconn 200
frontend web
  bind IP:PORT
  default_backend servers
backend servers
  balance roundrobin
  http-reuse always
  server one IP:FIRST
  server two IP:SECOND
";

fn run(stage: &Stage) {
    let ports = [Stage::port(), Stage::port(), Stage::port()];
    make_pages(stage);
    let server = "server { listen @PORT@; root @FOLDER@/root; }";
    let mut servers = [("one", ports[0]), ("two", ports[1])]
        .map(|(name, port)| start_nginx(stage, name, port, server));
    let user = if allowed() { "user haproxy\n  group haproxy" } else { "" };
    let config = CONFIG
        .replace("FOLDER", &stage.folder().display().to_string())
        .replace("IP", &stage.ip())
        .replace("PORT", &ports[2].to_string())
        .replace("FIRST", &ports[0].to_string())
        .replace("SECOND", &ports[1].to_string())
        .replace("USER", user);
    let config = stage.write("haproxy.cfg", config);
    let mut haproxy = stage.server("haproxy", &["-W", "-f", &config]).listen(ports[2]);

    let mut clients = Clients::start(stage, ports[2]);
    for nth in 1..=if job::all() { 30 } else { 5 } {
        clients.go_on();
        let said = || haproxy.output();
        // A signal that comes while the last reload is not quite over is lost.
        let begun = said().matches("Reloading HAProxy").count();
        let mut looks = 0;
        eventually(
            "a reload",
            || {
                if looks % 200 == 0 && said().matches("Reloading HAProxy").count() == begun {
                    haproxy.signal(SIGUSR2);
                }
                looks += 1;
                (said().matches("Loading success").count() > nth).then_some(())
            },
            said,
        );
    }
    clients.go_on();
    assert_eq!(clients.finish(), ["one", "two"], "servers that answered");
    haproxy.terminate();
    for server in &mut servers {
        server.terminate();
    }
    for name in ["one", "two"] {
        let log = fs::read_to_string(stage.path(&format!("{name}.log"))).unwrap_or_default();
        let bad = log.lines().find(|line| !line.contains("[notice]"));
        assert_eq!(bad, None, "nginx complains");
    }
}
