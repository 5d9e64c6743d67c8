//! What the injector says to whoever waits for it, who reads once.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A process of a namespace of its own, which the injector traces by a process whose number is NUMBER.
const TRACES: &str = "sleep 100 & echo NUMBER >/proc/sys/kernel/ns_last_pid; \
    \"$1\" $! library; exec sleep 100";

/// All four bytes of its number at once, whatever they are: a line's end is one of them from 2560 to 2815.
#[test]
fn comes_at_once() {
    for number in [2000, 2600] {
        let (ours, answers) = UnixDatagram::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut process = Command::new("unshare")
            .args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"])
            .args([&TRACES.replace("NUMBER", &number.to_string()), "sh"])
            .arg(env!("CARGO_BIN_EXE_yasmin-inject"))
            .stdout(Stdio::from(OwnedFd::from(answers)))
            .spawn()
            .expect("unshare");
        let mut said = [0; 8];
        let len = ours.recv(&mut said);
        process.kill().unwrap();
        process.wait().unwrap();
        assert_eq!(len.expect("an answer"), 4);
        let tracer = u32::from_ne_bytes(said[..4].try_into().unwrap());
        assert!((number + 1..number + 10).contains(&tracer), "{tracer}");
    }
}
