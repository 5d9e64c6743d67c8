//! The broker as a service: its socket, its signals, what it says of itself.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};
use support::{Broker, command, is_root, tcp_pair, wait_until};
use yasmin_control::{Role, Then, ToBroker};

#[test]
fn signals_stop_it_and_the_socket_goes() {
    let mut broker = Broker::start(&["--no-bpf"]);
    assert!(broker.terminate().success());
    assert!(!broker.socket.exists());
}

#[test]
fn a_second_broker_is_refused() {
    let broker = Broker::start(&["--no-bpf"]);
    let second = command(&broker.socket, &["--no-bpf"]).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let message = String::from_utf8(second.stderr).unwrap();
    assert!(message.contains("another broker already listens on"), "{message}");
    // The first one's socket is still there and answers.
    broker.status();
}

#[test]
fn a_socket_left_behind_is_replaced() {
    let mut broker = Broker::start(&["--no-bpf"]);
    broker.child.kill().unwrap();
    broker.child.wait().unwrap();
    assert!(broker.socket.exists());
    broker.child = command(&broker.socket, &["--no-bpf"]).spawn().unwrap();
    wait_until("the new one answers", || broker.answers());
}

#[test]
fn another_file_is_not_replaced() {
    let mut broker = Broker::start(&["--no-bpf"]);
    broker.terminate();
    std::fs::write(&broker.socket, "precious").unwrap();
    let output = command(&broker.socket, &["--no-bpf"]).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("is not a socket"));
    assert_eq!(std::fs::read(&broker.socket).unwrap(), b"precious");
}

#[test]
fn the_system_brokers_socket_is_for_all() {
    let broker = Broker::start(&["--no-bpf"]);
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let root = rustix::process::geteuid().is_root();
    assert_eq!(mode(&broker.socket), if root { 0o666 } else { 0o600 });
    assert_eq!(mode(&broker.directory), 0o755);
}

#[test]
fn idle_for_long_enough_it_exits() {
    let mut broker = Broker::start(&["--no-bpf", "--exit-when-idle", "1"]);
    let client = broker.client();
    std::thread::sleep(Duration::from_millis(1500));
    assert!(broker.child.try_wait().unwrap().is_none(), "a process is connected");
    let left = Instant::now();
    drop(client);
    assert!(broker.child.wait().unwrap().success());
    assert!(left.elapsed() >= Duration::from_millis(900));
    assert!(!broker.socket.exists());
}

#[test]
fn status_tells_all() {
    let broker = Broker::start(&["--memory-limit", "64M"]);
    let (connector, acceptor) = tcp_pair("127.0.0.1:0");
    let (lone, _its_peer) = tcp_pair("127.0.0.1:0");
    let (a, b) = (broker.client(), broker.client());
    a.offer(1, Role::Connector, &connector);
    b.offer(1, Role::Acceptor, &acceptor);
    a.offer(2, Role::Connector, &lone);
    let (to_a, _) = (a.channel(), b.channel());
    wait_until("both are known", || broker.status().connections.len() == 2);
    // What the sending end counts, as the library would; tx is 128 bytes into the side page.
    let at = std::mem::offset_of!(yasmin_channel::side::Side, tx)
        + std::mem::offset_of!(yasmin_channel::side::Tx, ring_bytes);
    rustix::io::pwrite(&to_a.side, &1_000_000u64.to_ne_bytes(), at as u64).unwrap();

    let status = broker.status();
    assert_eq!(status.broker.pid, broker.child.id());
    assert_eq!(status.broker.processes, 2);
    assert_eq!(status.broker.memory_limit_bytes, 64 << 20);
    assert_eq!(status.broker.channels_total, 1);
    let paired = status.connections.iter().find(|c| c.reason.is_none()).unwrap();
    assert_eq!(paired.ends.len(), 2);
    assert_eq!((&*paired.ends[0].role, &*paired.ends[1].role), ("connector", "acceptor"));
    assert_eq!(paired.ends[0].local, connector.local_addr().unwrap().to_string());
    assert_eq!(paired.ends[0].peer, paired.ends[1].local);
    assert_eq!(paired.ends[0].program, "test");
    assert_eq!(paired.ends[0].pid, std::process::id());
    assert_eq!(paired.ends[0].sends.state, "parked");
    assert_eq!(paired.ends[0].sends.ring_bytes, 1_000_000);
    assert!(paired.ends[0].sends.rate_bytes_s > 0.0);
    assert_eq!(paired.memory_bytes, status.broker.memory_used_bytes);
    let waiting = status.connections.iter().find(|c| c.reason.is_some()).unwrap();
    assert_eq!(waiting.reason.as_deref(), Some("peer not seen under yasmin"));
    assert_eq!(waiting.ends[0].local, lone.local_addr().unwrap().to_string());

    for client in [&a, &b] {
        client.send(ToBroker::Release { id: 1, then: Then::Closes });
    }
    wait_until("closed", || broker.status().broker.closed_ring_bytes == 1_000_000);
}

/// Numbers that a process writes into its pages are shown, not believed.
#[test]
fn nonsense_in_the_pages_is_survived() {
    let broker = Broker::start(&[]);
    let (connector, acceptor) = tcp_pair("127.0.0.1:0");
    let (a, b) = (broker.client(), broker.client());
    a.offer(1, Role::Connector, &connector);
    b.offer(1, Role::Acceptor, &acceptor);
    let handouts = [a.channel(), b.channel()];
    for fill in [0xff, 0x55, 0x03] {
        for handout in &handouts {
            rustix::io::pwrite(&handout.side, &[fill; 4096], 0).unwrap();
            rustix::io::pwrite(&handout.channel, &[fill; 4096], 0).unwrap();
        }
        // The class limit in the page is not read back.
        a.send(ToBroker::Grow { id: 1, class: 4 });
        let used = 4096 + 32768 + 2 * 4096;
        wait_until("class 4", || broker.status().broker.memory_used_bytes == used);
    }
    // Holes are zeroes.
    for handout in &handouts {
        use rustix::fs::{FallocateFlags, fallocate};
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&handout.side, hole, 0, 4096).unwrap();
        fallocate(&handout.channel, hole, 0, 4096).unwrap();
    }
    broker.status();
    drop((a, b));
    wait_until("all is free", || broker.status().broker.memory_used_bytes == 0);
}

#[test]
fn users_see_their_own_connections() {
    if !is_root("users_see_their_own_connections") {
        return;
    }
    let broker = Broker::start(&[]);
    let (connector, acceptor) = tcp_pair("127.0.0.1:0");
    let (lone, _its_peer) = tcp_pair("127.0.0.1:0");
    let (mut process, root) = (broker.process_as(1001), broker.client());
    let a = &mut process.client;
    a.greet();
    a.offer(1, Role::Connector, &connector);
    root.offer(1, Role::Acceptor, &acceptor);
    root.offer(2, Role::Connector, &lone);
    a.channel();
    wait_until("root sees both", || broker.status().connections.len() == 2);
    let own = broker.status_as(1001);
    assert_eq!(own.connections.len(), 1);
    assert_eq!(own.connections[0].ends.len(), 2);
    assert!(broker.status_as(1002).connections.is_empty());
}

/// More than the broker looks at for one part, of which a part may show nothing.
#[test]
fn a_status_of_many_connections_is_whole() {
    const MANY: usize = 3000;
    if !is_root("a_status_of_many_connections_is_whole") {
        return;
    }
    let broker = Broker::start(&[]);
    let root = broker.client();
    let limit = rustix::process::Rlimit { current: Some(20_000), maximum: Some(20_000) };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let pairs: Vec<_> = (0..MANY)
        .map(|_| (std::net::TcpStream::connect(at).unwrap(), listener.accept().unwrap().0))
        .collect();
    for (id, (connector, _)) in (0u64..).zip(&pairs) {
        root.offer(id, Role::Connector, connector);
    }
    wait_until("all are seen", || broker.status().connections.len() == MANY);
    let mut process = broker.process_as(1001);
    process.client.greet();
    assert!(broker.status_as(1001).connections.is_empty());
}

#[test]
fn each_user_has_a_share() {
    if !is_root("each_user_has_a_share") {
        return;
    }
    // Room for one channel of one user.
    let broker = Broker::start(&["--user-limit", "16K", "--memory-limit", "1M"]);
    let pairs = [0; 3].map(|_| tcp_pair("127.0.0.1:0"));
    let mut processes = [1001, 1002].map(|uid| broker.process_as(uid));
    for process in &mut processes {
        process.client.greet();
    }
    let [greedy, other] = processes.each_ref().map(|process| &process.client);
    let pair_up = |client: &support::Client, at: usize| {
        let (id, (connector, acceptor)) = (at as u64 * 2, &pairs[at]);
        client.offer(id, Role::Connector, connector);
        client.offer(id + 1, Role::Acceptor, acceptor);
        matches!(client.receive().0, yasmin_control::FromBroker::Channel { .. })
            & matches!(client.receive().0, yasmin_control::FromBroker::Channel { .. })
    };
    assert!(pair_up(greedy, 0));
    assert!(!pair_up(greedy, 1));
    assert!(pair_up(other, 2));
}

/// A process has no channel for what it has not, nor one that it is no more: a program with more
/// rights takes the place of the one that connected.
#[test]
fn what_another_process_has_is_not_handed_out() {
    if !is_root("what_another_process_has_is_not_handed_out") {
        return;
    }
    for arguments in [&[][..], &["--no-bpf"]] {
        let broker = Broker::start(arguments);
        let mut process = broker.process_as(1001);
        process.client.greet();
        // Made after the other process, which so has it not.
        let (connector, _acceptor) = tcp_pair("127.0.0.1:0");
        process.client.offer(1, Role::Connector, &connector);
        process.client.declined();
        // A thread of this process is another user's, and this process is not.
        let _ = broker.status_as(1001);
        let client = broker.connect_as(1001);
        client.send(ToBroker::Claim {
            version: yasmin_control::CONTROL_VERSION,
            socket: support::named(&connector),
        });
        assert_eq!(client.declined(), (0, yasmin_control::Decline::NoProof));
    }
}

/// As the unit starts it, as far as this can be had without systemd: another user with these two
/// capabilities and no more, never to have any other, and a socket on which root listens. Under systemd
/// itself: the end-to-end test `unit`.
#[test]
fn under_the_units_rights_channels_and_residues_come_about() {
    if !is_root("under_the_units_rights_channels_and_residues_come_about") {
        return;
    }
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
    use std::os::unix::process::CommandExt;
    let unit = include_str!("../yasmind.service");
    assert!(unit.contains("\nAmbientCapabilities=CAP_BPF CAP_PERFMON\n"));
    assert!(unit.contains("\nCapabilityBoundingSet=CAP_BPF CAP_PERFMON\n"));
    let directory = std::env::temp_dir().join(format!("yasmind-unit-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = directory.join("broker.sock");
    let fd = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    bind(&fd, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&fd, 64).unwrap();
    // Others' programs are not where everybody can start them.
    let program = directory.join("yasmind");
    std::fs::copy(env!("CARGO_BIN_EXE_yasmind"), &program).unwrap();
    let mut command = std::process::Command::new("sh");
    command
        .args([
            "-c",
            "LISTEN_PID=$$ exec setpriv --reuid 65533 --regid 65533 --clear-groups \
            --no-new-privs --bounding-set -all,+bpf,+perfmon --inh-caps -all,+bpf,+perfmon \
            --ambient-caps -all,+bpf,+perfmon \"$0\" --system --socket \"$1\" --log warn",
        ])
        .arg(&program)
        .arg(&path)
        .env("LISTEN_FDS", "1");
    let raw = std::os::fd::AsRawFd::as_raw_fd(&fd);
    // SAFETY: one system call, which is allowed between fork and exec.
    unsafe {
        command.pre_exec(move || match libc::dup2(raw, 3) {
            3 if raw == 3 => {
                libc::fcntl(3, libc::F_SETFD, 0);
                Ok(())
            }
            3 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let child = command.spawn().unwrap();
    let broker = Broker { child, directory, socket: path };
    assert_eq!(broker.status().broker.proof, "bpf");
    // Of a process that is another user's.
    let (connector, acceptor) = tcp_pair("127.0.0.1:0");
    let client = broker.client();
    client.offer(1, Role::Acceptor, &acceptor);
    client.offer(2, Role::Connector, &connector);
    assert_eq!(client.channel().id + client.channel().id, 3);
    let leave = ToBroker::Leave {
        version: yasmin_control::CONTROL_VERSION,
        socket: support::named(&connector),
    };
    let client = broker.connect();
    client.send(leave);
    assert_eq!(client.receive().0, yasmin_control::FromBroker::Send);
}
