//! Real functions: routers in network namespaces, DPDK programs, HAProxy before nginx. Each test
//! is skipped with a line where its program is not installed, or without root.

use std::fs;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use super::world::{Process, Watching, allowed, eventually, text, yasmin};

fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap();
    if !found.status.success() {
        eprintln!("skipped: {program} is not installed");
    }
    found.status.success()
}

/// Whether network namespaces can be made here, by trying.
fn has_namespaces() -> bool {
    let name = format!("ypt{}-{:?}", std::process::id(), std::thread::current().id());
    let name = name.replace(['(', ')'], "");
    let line = format!("ip netns add {name} && ip netns delete {name}");
    let tried = Command::new("sh").args(["-c", &line]).output().unwrap().status.success();
    if !tried {
        eprintln!("skipped: no network namespaces can be made here");
    }
    tried
}

#[track_caller]
fn run(line: &str) {
    let output = Command::new("sh").args(["-ec", line]).output().unwrap();
    assert!(output.status.success(), "{line}: {}", text(&output.stderr));
}

/// Namespaces in a row, joined by veths: `PREFIX-0 = PREFIX-1 = ...`, all of which forward.
///
/// ```text
///   10.77.0.1  10.77.0.2     10.77.1.1  10.77.1.2
///  [0]------------------[1]----------------------[2] ...
/// ```
struct Row {
    prefix: String,
    length: usize,
}

impl Row {
    fn new(name: &str, length: usize) -> Self {
        let row = Self { prefix: format!("yp{}{name}", std::process::id()), length };
        let end = length - 1;
        for at in 0..length {
            run(&format!("ip netns add {0}; ip -n {0} link set lo up", row.name(at)));
        }
        for at in 0..end {
            let (left, right) = (row.name(at), row.name(at + 1));
            run(&format!(
                "ip -n {left} link add right type veth peer name left netns {right}
                 ip -n {left} address add 10.77.{at}.1/24 dev right
                 ip -n {right} address add 10.77.{at}.2/24 dev left
                 ip -n {left} link set right up
                 ip -n {right} link set left up"
            ));
        }
        for at in 0..length {
            let name = row.name(at);
            if at < end {
                run(&format!("ip -n {name} route add default via 10.77.{at}.2"));
            }
            for net in 0..at.saturating_sub(1) {
                let via = at - 1;
                run(&format!("ip -n {name} route add 10.77.{net}.0/24 via 10.77.{via}.1"));
            }
            let on = "echo 1 >/proc/sys/net/ipv4/ip_forward";
            run(&format!("ip netns exec {name} sh -c '{on}'"));
        }
        row
    }

    fn name(&self, at: usize) -> String {
        format!("{}-{at}", self.prefix)
    }

    fn inside(&self, at: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(at), program]);
        command
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        for at in 0..self.length {
            let _ = Command::new("ip").args(["netns", "delete", &self.name(at)]).status();
        }
    }
}

fn chains(arguments: &[&str]) -> Value {
    let mut command = yasmin(&["chains", "--json"]);
    let output = command.args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    // Shown when the test fails.
    eprintln!("{} {}", answer["chains"], answer["troubles"]);
    answer
}

/// The functions of the chain that `name` is in, and its rate.
fn chain_of(answer: &Value, name: &str) -> Option<(Vec<String>, f64)> {
    answer["chains"].as_array()?.iter().find_map(|chain| {
        let functions = chain["functions"].as_array()?.iter();
        let functions: Vec<String> =
            functions.filter_map(Value::as_str).map(str::to_owned).collect();
        let rate = chain["rate_bytes_s"].as_f64()?;
        functions.iter().any(|one| one == name).then_some((functions, rate))
    })
}

#[test]
fn routers_in_namespaces_are_a_chain_and_are_steered() {
    if !has_namespaces() || !has("ping") {
        return;
    }
    let row = Row::new("r", 4);
    // A flood with its own pace: every answer asks the next question.
    let mut ping = row.inside(0, "ping");
    ping.args(["-f", "-q", "-s", "1400", "10.77.2.2"]).stdout(Stdio::null());
    let ping = Process::start(&mut ping);
    let names: Vec<String> = (0..4).map(|at| format!("netns:{}", row.name(at))).collect();
    let mut last = Value::Null;
    eventually("traffic on the whole chain", || {
        last = chains(&["--source", "netns", "--seconds", "0.5"]);
        let found = chain_of(&last, &names[1]);
        let Some((mut functions, rate)) = found else { return false };
        if functions.last() == Some(&names[0]) {
            functions.reverse();
        }
        functions == names && rate > 0.0
    });

    let before = allowed(ping.pid());
    let folder = tempfile::tempdir().unwrap();
    let steering = |at: usize| {
        let mut command = row.inside(at, "cat");
        let output = command.arg("/sys/class/net/left/queues/rx-0/rps_cpus").output().unwrap();
        text(&output.stdout).trim().replace([',', '0'], "")
    };
    let mut watch = yasmin(&["watch", "--plain", "--source", "netns", "--cpus", "0-1023"]);
    watch.args(["--only", &format!("netns:{}", row.prefix)]);
    watch.args(["--policy", "chain-first", "--journal"]).arg(folder.path().join("journal"));
    let watching = Watching::start(&mut watch);
    watching.until(&format!("move {}", names[1]));
    eventually("steering of the routers", || !steering(1).is_empty() && !steering(2).is_empty());
    // The program in the first namespace is a process, and pinned as one.
    eventually("pinning of ping", || allowed(ping.pid()).parse::<u32>().is_ok());
    watching.signal(Signal::TERM);
    assert!(watching.ends());
    assert_eq!((steering(1), steering(2)), (String::new(), String::new()));
    assert_eq!(allowed(ping.pid()), before);
}

#[test]
fn a_chain_across_a_bridge_is_found_by_its_routes() {
    if !has_namespaces() {
        return;
    }
    let row = Row::new("b", 2);
    let bridge = format!("ypb{}", std::process::id());
    // Two more namespaces at a bridge in the first; 10.78.0.1 in [2] is the gateway of [3].
    let hosts = Row { prefix: format!("{}x", row.prefix), length: 3 };
    for at in 0..3 {
        run(&format!("ip netns add {}", hosts.name(at)));
    }
    let middle = hosts.name(2);
    run(&format!(
        "ip -n {middle} link add {bridge} type bridge; ip -n {middle} link set {bridge} up"
    ));
    let ends = [(hosts.name(0), 1), (hosts.name(1), 2), (row.name(1), 3)];
    for (name, last) in &ends {
        run(&format!(
            "ip -n {name} link add side type veth peer name p{last} netns {middle}
             ip -n {name} address add 10.78.0.{last}/24 dev side
             ip -n {name} link set side up
             ip -n {middle} link set p{last} master {bridge} up"
        ));
    }
    for name in [&ends[1].0, &ends[2].0] {
        run(&format!("ip -n {name} route add 10.99.0.0/16 via 10.78.0.1"));
    }
    let answer = chains(&["--source", "netns", "--seconds", "0.1"]);
    let edges: Vec<&Value> = answer["edges"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|edge| edge["origins"][0].as_str().unwrap().contains(&bridge))
        .collect();
    let gateway = format!("netns:{}", hosts.name(0));
    let touches =
        |edge: &&Value| edge["a"]["function"] == gateway || edge["b"]["function"] == gateway;
    assert_eq!(edges.len(), 2, "{answer:#}");
    assert!(edges.iter().all(touches), "{answer:#}");
}

/// testpmd between memory interfaces that `devices` names. It sends what came in by one out by
/// the other, or back if there is one only.
fn testpmd(prefix: &str, devices: &[String], more: &[&str]) -> Process {
    let cpus = std::thread::available_parallelism().unwrap().get() - 1;
    let lcores = format!("0@(0-{cpus}),1@(0-{cpus})");
    let mut command_line = Command::new("dpdk-testpmd");
    command_line.args(["--no-huge", "-m", "96", "--no-pci", "--lcores", &lcores]);
    command_line.args(["--file-prefix", prefix]);
    command_line.args(devices.iter().map(|device| format!("--vdev={device}")));
    command_line.args(["--", "--total-num-mbufs=2048", "--no-lsc-interrupt", "--auto-start"]);
    command_line.args(["--stats-period", "600", "--port-topology=chained"]).args(more);
    Process::start(command_line.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()))
}

fn name_of(process: &Process) -> String {
    format!("dpdk-testpmd[{}]", process.pid())
}

#[test]
fn dpdk_programs_are_found_by_telemetry_and_pinned() {
    if !rustix::process::geteuid().is_root() || !has("dpdk-testpmd") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let memif = |round: usize, port: usize, role: &str, at: usize| {
        let socket = folder.path().join(format!("memif{at}-{round}")).display().to_string();
        (format!("net_memif{port},role={role},id={at},socket={socket},socket-abstract=no"), socket)
    };
    let prefix = |at: usize| format!("yp{}{at}", std::process::id());
    // A few packets that go round: on two CPUs one of the three always waits for a CPU, and of a
    // stream without end most would be dropped before it. What is sent before every link is up
    // is lost, and DPDK may fail to start: then again, all three, as a server of memory interfaces
    // may crash when its client leaves (Debian's DPDK 22.11).
    let start = |round: usize| {
        let (servers, sockets): (Vec<_>, Vec<_>) =
            (0..2).map(|at| memif(round, at, "server", at)).unzip();
        let middle = testpmd(&prefix(3 * round), &servers, &[]);
        eventually("the servers' sockets", || sockets.iter().all(|at| fs::exists(at).unwrap()));
        let client = |at| [memif(round, 0, "client", at).0];
        let sink = testpmd(&prefix(3 * round + 1), &client(1), &[]);
        let source = testpmd(&prefix(3 * round + 2), &client(0), &["--tx-first"]);
        [source, middle, sink]
    };
    let mut chain = None;
    let mut looks = 0;
    eventually("a chain of three with traffic", || {
        if looks % 8 == 0 {
            drop(chain.take());
            chain = Some(start(looks / 8));
        }
        looks += 1;
        let names = chain.as_ref().unwrap().each_ref().map(name_of);
        let answer = chains(&["--source", "dpdk", "--seconds", "0.5"]);
        let Some((mut functions, rate)) = chain_of(&answer, &names[1]) else { return false };
        if functions.last() == Some(&names[0]) {
            functions.reverse();
        }
        functions == names && rate > 0.0
    });
    let [source, middle, sink] = chain.unwrap();
    let names = [&source, &middle, &sink].map(name_of);
    let worker = |process: &Process| {
        let tasks = fs::read_dir(format!("/proc/{}/task", process.pid())).unwrap();
        let mut tasks = tasks.map(|task| task.unwrap().path());
        let is_worker = |path: &std::path::PathBuf| {
            fs::read_to_string(path.join("comm")).unwrap().contains("worker")
        };
        let path = tasks.find(is_worker).expect("a worker");
        let status = fs::read_to_string(path.join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.unwrap().trim().to_owned()
    };
    let before = worker(&middle);
    let mut watch = yasmin(&["watch", "--plain", "--source", "dpdk", "--cpus", "0-1023"]);
    watch.args(["--only", &names.join(",")]);
    watch.args(["--policy", "chain-first", "--journal"]).arg(folder.path().join("journal"));
    let watching = Watching::start(&mut watch);
    watching.until(&format!("move {}", names[1]));
    eventually("pinned workers", || {
        [&source, &middle, &sink].iter().all(|one| worker(one).parse::<u32>().is_ok())
    });
    watching.signal(Signal::TERM);
    assert!(watching.ends());
    assert_eq!(worker(&middle), before);
}

#[test]
fn haproxy_before_nginx_is_a_chain() {
    if !has_namespaces() || !has("haproxy") || !has("nginx") || !has("curl") {
        return;
    }
    let row = Row::new("h", 3);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(folder.path().join("blob"), vec![7_u8; 1 << 20]).unwrap();
    run(&format!("chmod 755 {}", folder.path().display()));
    let root = folder.path().display();
    fs::write(
        path("nginx.conf"),
        format!(
            "daemon off; worker_processes 1; pid {root}/nginx.pid; error_log {root}/error.log;
             events {{}} http {{ access_log off; client_body_temp_path {root};
             proxy_temp_path {root}; fastcgi_temp_path {root}; uwsgi_temp_path {root};
             scgi_temp_path {root};
             server {{ listen 10.77.1.2:80; root {root}; }} }}"
        ),
    )
    .unwrap();
    fs::write(
        path("haproxy.cfg"),
        "global\n nbthread 1\ndefaults\n mode http\n timeout connect 9s\n timeout client 9s\n \
         timeout server 9s\nfrontend f\n bind 10.77.0.2:80\n default_backend b\nbackend b\n \
         server s 10.77.1.2:80\n",
    )
    .unwrap();
    let mut nginx = row.inside(2, "nginx");
    nginx.args(["-p", &path(""), "-c", &path("nginx.conf")]).stderr(Stdio::null());
    let _nginx = Process::start(&mut nginx);
    let mut haproxy = row.inside(1, "haproxy");
    haproxy.args(["-db", "-f", &path("haproxy.cfg")]).stderr(Stdio::null());
    let haproxy = Process::start(haproxy.stdout(Stdio::null()));
    let get = "while :; do curl -s -o /dev/null http://10.77.0.2/blob; done";
    let mut client = row.inside(0, "sh");
    let _client = Process::start(client.args(["-c", get]));
    let names: Vec<String> = (0..3).map(|at| format!("netns:{}", row.name(at))).collect();
    eventually("a chain of three with traffic", || {
        let answer = chains(&["--source", "netns", "--seconds", "0.5"]);
        let Some((mut functions, rate)) = chain_of(&answer, &names[1]) else { return false };
        if functions.last() == Some(&names[0]) {
            functions.reverse();
        }
        functions == names && rate > 0.0
    });
    let before = allowed(haproxy.pid());
    let mut watch = yasmin(&["watch", "--plain", "--source", "netns", "--cpus", "0-1023"]);
    watch.args(["--only", &format!("netns:{}", row.prefix)]);
    watch.args(["--policy", "chain-first", "--journal"]).arg(folder.path().join("journal"));
    let watching = Watching::start(&mut watch);
    watching.until(&format!("move {}", names[1]));
    eventually("pinning of haproxy", || allowed(haproxy.pid()).parse::<u32>().is_ok());
    watching.signal(Signal::TERM);
    assert!(watching.ends());
    assert_eq!(allowed(haproxy.pid()), before);
}
