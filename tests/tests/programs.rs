//! Real programs, unmodified. What is not installed is skipped with a line that says so.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use yasmin_tests::installed::find_or_say;
use yasmin_tests::lab::{Folder, Knobs, Lab, artefact};
use yasmin_tests::netns::{Net, free_port};
use yasmin_tests::pattern::Pattern;
use yasmin_tests::process::{Process, eventually};
use yasmin_tests::redis;
use yasmin_tests::status::{self, Bytes, Status};

/// Ends the test where a program is missing.
macro_rules! need {
    ($($name:literal),+) => {
        if [$(find_or_say($name)),+].iter().any(Option::is_none) {
            return;
        }
    };
}

fn program(name: &str) -> PathBuf {
    find_or_say(name).unwrap_or_default()
}

#[track_caller]
fn start(lab: &Lab, site: usize, name: &str, arguments: &[&str]) -> Process {
    let site = if site == 0 { &lab.a } else { &lab.b };
    let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
    lab.start(name, site, &program(name), &arguments)
}

/// Runs to the end and gives back what it printed.
#[track_caller]
fn run(lab: &Lab, name: &str, arguments: &[&str]) -> String {
    start(lab, 1, name, arguments).run()
}

/// How often a load is run at most: watching gives way to other programs, and a virtual machine's host takes CPUs away
/// for milliseconds at a time.
const ROUNDS: u64 = 10;

/// Runs `load` until a good part of its bytes went by ring. It says how many it moved at least.
#[track_caller]
fn assert_much_by_ring(lab: &Lab, what: &str, mut load: impl FnMut() -> u64) {
    lab.assert_by_ring_of(ROUNDS, SHARE, |_| {
        let mut carried = Bytes::default();
        // The counters of a connection are added when the broker sees it close.
        wait_for(lab, what, |status| status.connections.is_empty());
        let before = lab.bytes_in_all();
        let at_least_bytes = load();
        let since = |status: &Status| {
            let all = status::bytes_in_all(status);
            Bytes { ring: all.ring - before.ring, tcp: all.tcp - before.tcp }
        };
        wait_for(lab, what, |status| {
            carried = since(status);
            status.connections.is_empty() && carried.ring + carried.tcp >= at_least_bytes
        });
        eprintln!("{what}: {carried:?}");
        (carried, carried.ring + carried.tcp)
    });
}

/// A good part, in percent.
const SHARE: u64 = 30;

/// Waits until the broker's status is as wanted, where there is one that has to tell.
#[track_caller]
fn wait_for(lab: &Lab, what: &str, mut is_so: impl FnMut(&Status) -> bool) {
    if lab.proves() {
        eventually(
            what,
            || lab.status().and_then(|status| is_so(&status).then_some(())),
            || format!("{:#?}", lab.status()),
        );
    }
}

fn write_pattern(path: &Path, seed: u64, len: usize) -> Vec<u8> {
    let mut data = vec![0; len];
    Pattern::new(seed).fill(0, &mut data);
    fs::write(path, &data).unwrap();
    data
}

#[test]
fn redis() {
    need!("redis-server", "redis-benchmark", "redis-cli");
    for net in [Net::Loopback, Net::Netns] {
        let lab = Lab::new(net, Knobs::default());
        let port = free_port();
        let (ip, port_text) = (lab.a.v4().to_string(), port.to_string());
        let folder = lab.folder.path().display().to_string();
        let arguments = redis::words(port, &folder, &redis::IN_MEMORY);
        let mut server = lab.start("redis", &lab.a, &program("redis-server"), &arguments);
        server.wait_until_listening(&lab.a, port);
        let at = ["-h", &ip, "-p", &port_text];
        let common = ["-c", "50", "-n", "200000", "-t", "set,get", "-q"];
        let pipelined =
            ["-c", "10", "-n", "200000", "-P", "16", "-d", "1000", "-t", "set,get,incr", "-q"];
        assert_much_by_ring(&lab, "redis", || {
            let text = run(&lab, "redis-benchmark", &[&at[..], &common[..]].concat());
            eprintln!("{net:?}: {}", text.replace('\r', "\n").trim_end().replace("\n\n", "\n"));
            run(&lab, "redis-benchmark", &[&at[..], &pipelined[..]].concat());
            // Of three kinds of pipelined requests two carry a value of 1000 bytes; half of it in
            // case the channels come late.
            200_000 * 1000
        });

        // A large value goes in and comes out unchanged.
        let file = lab.folder.path().join("value");
        let value = write_pattern(&file, 3, 20 << 20);
        let mut command = lab.command(&lab.b, &program("redis-cli"));
        let mut child = command
            .args(at)
            .args(["-x", "set", "large"])
            .stdin(fs::File::open(&file).unwrap())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        assert!(child.wait().unwrap().success());
        let mut command = lab.command(&lab.b, &program("redis-cli"));
        let output = command.args(at).args(["--raw", "get", "large"]).output().unwrap();
        assert!(output.status.success());
        assert!(output.stdout.strip_suffix(b"\n") == Some(&value[..]), "the value has changed");

        server.terminate();
    }
}

const NGINX: &str = "
daemon off; worker_processes 1; pid FOLDER/nginx.pid; error_log FOLDER/error.log warn;
USER
events { worker_connections 1024; }
http {
  access_log off; sendfile SENDFILE; tcp_nopush on; keepalive_requests 1000000;
  client_body_temp_path FOLDER/body; proxy_temp_path FOLDER/proxy;
  fastcgi_temp_path FOLDER/fastcgi; uwsgi_temp_path FOLDER/uwsgi; scgi_temp_path FOLDER/scgi;
  server { listen PORT; listen [::]:PORT; root FOLDER/root; }
}
";

#[test]
fn nginx() {
    need!("nginx", "wrk", "curl");
    for (net, sendfile) in [(Net::Loopback, "on"), (Net::Netns, "off")] {
        let lab = Lab::new(net, Knobs::default());
        let port = free_port();
        let files = Folder::new();
        let folder = files.path().display().to_string();
        fs::create_dir(files.path().join("root")).unwrap();
        let large = write_pattern(&files.path().join("root/large"), 4, 64 << 20);
        write_pattern(&files.path().join("root/page"), 5, 1024);
        let user = if yasmin_tests::netns::allowed() { "user root;" } else { "" };
        let config = NGINX
            .replace("FOLDER", &folder)
            .replace("PORT", &port.to_string())
            .replace("SENDFILE", sendfile)
            .replace("USER", user);
        fs::write(files.path().join("nginx.conf"), config).unwrap();
        let conf = format!("{folder}/nginx.conf");
        let mut server =
            start(&lab, 0, "nginx", &["-c", &conf, "-e", &format!("{folder}/error.log")]);
        server.wait_until_listening(&lab.a, port);

        let url = format!("http://{}:{port}", lab.a.v4());
        let v6 = format!("http://[{}]:{port}", lab.a.v6());
        for (nth, url) in [&url, &v6, &url].into_iter().enumerate() {
            let got = files.path().join(format!("got{nth}"));
            let got_text = got.display().to_string();
            run(&lab, "curl", &["-sS", "-g", "-f", "-o", &got_text, &format!("{url}/large")]);
            assert!(fs::read(&got).unwrap() == large, "{url}/large has changed");
        }
        let page = format!("{url}/page");
        assert_much_by_ring(&lab, "nginx", || {
            let text = run(&lab, "wrk", &["-t1", "-c32", "-d2s", &page]);
            assert!(!text.contains("Socket errors") && !text.contains("Non-2xx"), "{text}");
            eprintln!("{net:?}: {text}");
            let requests =
                text.split(" requests in").next().and_then(|it| it.split_whitespace().last());
            requests.and_then(|it| it.parse::<u64>().ok()).expect(&text) * 1024 / 2
        });
        let close = ["-t1", "-c16", "-d1s", "-H", "Connection: close", &page];
        let text = run(&lab, "wrk", &close);
        assert!(!text.contains("Non-2xx"), "{text}");
        server.terminate();
    }
}

#[test]
fn iperf3() {
    need!("iperf3");
    for net in [Net::Loopback, Net::Netns] {
        let lab = Lab::new(net, Knobs::default());
        let port = free_port();
        let (ip, port_text) = (lab.a.v4().to_string(), port.to_string());
        for way in [&[][..], &["-R"], &["--bidir"], &["-P", "4"]] {
            let before = lab.bytes_in_all();
            let mut server = start(&lab, 0, "iperf3", &["-s", "-1", "-p", &port_text]);
            server.wait_until_listening(&lab.a, port);
            let client = ["-c", &ip, "-p", &port_text, "-t", "1", "-J"];
            let text = run(&lab, "iperf3", &[&client[..], way].concat());
            let report: serde_json::Value = serde_json::from_str(&text).unwrap();
            let received = report["end"]["sum_received"]["bytes"].as_u64().unwrap_or(0);
            assert!(received > 1 << 20, "{text}");
            server.release();
            server.finish();
            if lab.proves() {
                let bytes = eventually(
                    "the bytes of a closed connection",
                    || {
                        let after = lab.bytes_in_all();
                        let ring = after.ring - before.ring;
                        (ring + (after.tcp - before.tcp) >= received / 2).then_some(after)
                    },
                    || format!("{before:?}, then {:?}; received {received}", lab.bytes_in_all()),
                );
                let ring = bytes.ring - before.ring;
                let tcp = bytes.tcp - before.tcp;
                eprintln!("{net:?} {way:?}: {ring} by ring, {tcp} by TCP");
                assert!(9 * ring >= tcp, "iperf3 {way:?}: {ring} by ring, {tcp} by TCP");
            }
        }
    }
}

#[test]
fn sockperf() {
    need!("sockperf");
    for net in [Net::Loopback, Net::Netns] {
        let lab = Lab::new(net, Knobs::default());
        let port = free_port();
        let (ip, port_text) = (lab.a.v4().to_string(), port.to_string());
        let at = ["--tcp", "-i", &ip, "-p", &port_text];
        let mut server = start(&lab, 0, "sockperf", &[&["server"][..], &at[..]].concat());
        server.wait_until_listening(&lab.a, port);
        for (kind, arguments) in [
            ("ping-pong", &["-t", "1", "-m", "64", "--mps=500000"][..]),
            ("under-load", &["-t", "1", "-m", "64", "--mps=10000", "--reply-every=10"]),
        ] {
            // Warns of dropped messages, which TCP has none of, when replies are still due.
            let text = run(&lab, "sockperf", &[&[kind][..], &at[..], arguments].concat());
            assert!(text.contains("Summary: Latency is"), "{text}");
            assert!(text.contains("# dropped messages = 0"), "{text}");
            assert!(text.contains("# out-of-order messages = 0"), "{text}");
        }
        if lab.proves() {
            let bytes = lab.bytes_in_all();
            eprintln!("{net:?}: {bytes:?}");
            assert!(bytes.ring > 100_000, "sockperf: {bytes:?}");
        }
        server.terminate();
    }
}

/// An asyncio server and client, with a check at both ends.
const ECHO: &str = r"
import asyncio, hashlib, os, sys
async def serve(reader, writer):
    seen = hashlib.sha256()
    while data := await reader.read(65536):
        seen.update(data)
        writer.write(data)
        await writer.drain()
    writer.close()
async def main():
    if sys.argv[1] == 'listen':
        server = await asyncio.start_server(serve, '0.0.0.0', int(sys.argv[2]))
        await server.serve_forever()
    async def one():
        reader, writer = await asyncio.open_connection(sys.argv[2], int(sys.argv[3]))
        sent, got = hashlib.sha256(), hashlib.sha256()
        async def send():
            for _ in range(300):
                data = os.urandom(1 + os.urandom(1)[0] * 300)
                sent.update(data)
                writer.write(data)
                await writer.drain()
            writer.write_eof()
        sending = asyncio.create_task(send())
        while data := await reader.read(65536):
            got.update(data)
        await sending
        writer.close()
        assert sent.digest() == got.digest(), 'the echo differs'
    await asyncio.gather(*(one() for _ in range(10)))
    print('same')
asyncio.run(main())
";

#[test]
fn python_asyncio() {
    need!("python3");
    let lab = Lab::new(Net::Netns, Knobs::default());
    let port = free_port();
    let (ip, port_text) = (lab.a.v4().to_string(), port.to_string());
    let mut server = start(&lab, 0, "python3", &["-c", ECHO, "listen", &port_text]);
    server.wait_until_listening(&lab.a, port);
    let text = run(&lab, "python3", &["-c", ECHO, "connect", &ip, &port_text]);
    assert_eq!(text.trim(), "same");
    if lab.proves() {
        let bytes = lab.bytes_in_all();
        eprintln!("{bytes:?}");
        // Python is slow enough to sleep between most messages, and those go by TCP.
        assert!(bytes.ring > 1 << 20, "asyncio: {bytes:?}");
    }
    server.terminate();
}

/// A server with the library and a client without it: plain TCP between them.
#[test]
fn only_one_side_has_the_library() {
    need!("nginx");
    let lab = Lab::new(Net::Loopback, Knobs::default());
    let port = free_port();
    let files = Folder::new();
    let folder = files.path().display().to_string();
    fs::create_dir(files.path().join("root")).unwrap();
    let large = write_pattern(&files.path().join("root/large"), 6, 8 << 20);
    let user = if yasmin_tests::netns::allowed() { "user root;" } else { "" };
    let config = NGINX
        .replace("FOLDER", &folder)
        .replace("PORT", &port.to_string())
        .replace("SENDFILE", "on")
        .replace("USER", user);
    let conf = format!("{folder}/nginx.conf");
    fs::write(&conf, config).unwrap();
    let mut server = start(&lab, 0, "nginx", &["-c", &conf, "-e", &format!("{folder}/error.log")]);
    server.wait_until_listening(&lab.a, port);
    let address = SocketAddr::new(lab.a.v4(), port);
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    for _ in 0..5 {
        client.write_all(b"GET /large HTTP/1.1\r\nHost: lab\r\n\r\n").unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let mut body = vec![0; large.len()];
        client.read_exact(&mut body).unwrap();
        assert!(body == large, "the file has changed");
    }
    server.terminate();
}

/// What the demo measures itself by: with a system call of its own it would stay on TCP.
#[test]
fn the_ping_pong_of_the_demo() {
    let lab = Lab::new(Net::Loopback, Knobs::default());
    let port = free_port();
    let address = SocketAddr::new(lab.a.v4(), port).to_string();
    let pingpong = |site: &_, arguments: &[&str]| {
        let words = ["pingpong"].iter().chain(arguments);
        let words: Vec<String> = words.map(|&word| word.to_owned()).collect();
        lab.start("pingpong", site, &artefact("yasmin"), &words)
    };
    let mut server = pingpong(&lab.a, &["serve", &address]);
    server.wait_until_listening(&lab.a, port);
    let before = lab.bytes_in_all();
    pingpong(&lab.b, &["client", &address]).run();
    let since = lab.bytes_in_all();
    lab.assert_some_by_ring(since.ring - before.ring);
}
