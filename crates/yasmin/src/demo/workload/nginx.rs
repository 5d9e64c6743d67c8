//! nginx and wrk: a page of 1 KiB, on connections that are kept or made for each request.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::{Expect, Measured, READY, Workload, limit};
use crate::demo::stage::{How, Side, Stage};
use yasmin_measure::unit::Unit;

pub struct Page {
    key: &'static str,
    name: &'static str,
    keep_alive: bool,
}

const PAGE_BYTES: usize = 1024;
/// Connections a second vary so much that fewer pairs say nothing.
const CLOSE_PAIRS: usize = 8;
const CLOSE: [&str; 2] = ["-H", "Connection: close"];

impl Page {
    pub fn keep_alive() -> Self {
        Self { key: "nginx", name: "nginx + wrk, 1 KiB page, keep-alive", keep_alive: true }
    }

    pub fn close() -> Self {
        let name = "nginx + wrk, a connection each request";
        Self { key: "nginx-close", name, keep_alive: false }
    }
}

impl Workload for Page {
    fn key(&self) -> &'static str {
        self.key
    }

    fn name(&self) -> &str {
        self.name
    }

    fn unit(&self) -> Unit {
        Unit::PerSecond
    }

    fn needs(&self) -> &'static [(&'static str, &'static str)] {
        &[("nginx", "nginx-light"), ("wrk", "wrk")]
    }

    fn commands(&self) -> Vec<String> {
        let close = if self.keep_alive { "" } else { " -H 'Connection: close'" };
        vec![
            "nginx -c FILE  # one worker, no access log, a page of 1 KiB".into(),
            format!("wrk -t1 -c32 -d SECONDS{close} http://ADDRESS/page"),
        ]
    }

    fn expect(&self) -> Expect {
        if self.keep_alive { Expect::Rings } else { Expect::Either }
    }

    fn pairs(&self, asked: usize) -> usize {
        if self.keep_alive { asked } else { asked.max(CLOSE_PAIRS) }
    }

    fn measure(&self, stage: &Stage, how: How, seconds: u32) -> anyhow::Result<Measured> {
        let port = stage.port()?;
        let config = configure(stage, port)?;
        let arguments = ["-e".as_ref(), "stderr".as_ref(), "-c".as_ref(), config.as_os_str()];
        let mut server = stage.start(Side::Server, how, "nginx", arguments)?;
        server.listens(port, READY)?;
        let url = format!("http://{}:{port}/page", stage.address());
        let time = format!("{seconds}s");
        let mut arguments = vec!["-t1", "-c32", "-d", &time];
        if !self.keep_alive {
            arguments.extend(CLOSE);
        }
        arguments.push(&url);
        let client = stage.start(Side::Client, how, "wrk", arguments)?;
        let output = client.finish(limit(seconds))?;
        parse(&output).with_context(|| format!("wrk said: {output}"))
    }
}

/// Writes page and configuration; every path that nginx writes to is in the demo's folder.
fn configure(stage: &Stage, port: u16) -> anyhow::Result<PathBuf> {
    let folder = stage.folder().join(format!("nginx-{port}"));
    fs::create_dir(&folder)?;
    fs::write(folder.join("page"), [b'y'; PAGE_BYTES])?;
    let config = folder.join("nginx.conf");
    fs::write(&config, configuration(&folder, stage.address(), port))?;
    Ok(config)
}

fn configuration(folder: &Path, address: &str, port: u16) -> String {
    let folder = folder.display();
    // The worker may be another user only where it may read the demo's folder.
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("  {kind}_temp_path {folder}/{kind};\n"))
        .concat();
    format!(
        "daemon off;\n{user}\nworker_processes 1;\npid {folder}/pid;\n\
         events {{ worker_connections 1024; }}\nhttp {{\n{temporary}  access_log off;\n  \
         keepalive_requests 1000000000;\n  sendfile on;\n  tcp_nopush on;\n  \
         server {{ listen {address}:{port} backlog=1024; root {folder}; }}\n}}\n"
    )
}

fn parse(output: &str) -> anyhow::Result<Measured> {
    let value = output
        .lines()
        .find_map(|line| line.trim().strip_prefix("Requests/sec:")?.trim().parse().ok())
        .context("no rate in it")?;
    let requests: u64 = output
        .lines()
        .find_map(|line| line.trim().split_once(" requests in ")?.0.parse().ok())
        .context("no count in it")?;
    if let Some(line) = output.lines().find(|line| line.contains("Non-2xx")) {
        anyhow::bail!("{}", line.trim());
    }
    Ok(Measured { value, payload_bytes: requests * PAGE_BYTES as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_wrk_prints() {
        let output = "  2 threads and 32 connections\n  76000 requests in 1.00s, 9.88MB read\n\
                      Requests/sec:  75423.93\nTransfer/sec:     93.9MB\n";
        let measured = parse(output).unwrap();
        assert_eq!((measured.value, measured.payload_bytes), (75_423.93, 76_000 * 1024));
        assert!(parse(&format!("{output}  Non-2xx or 3xx responses: 76000\n")).is_err());
    }
}
