//! Which ends are believed to belong together, and which are not.

mod support;

use rustix::fd::AsFd;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;
use support::{Broker, Client, in_new_netns, is_root, tcp_pair, tcp_pair_at, wait_until};
use yasmin_control::{Decline, FromBroker, Role, Then, ToBroker};

/// Long enough for the broker to make a mistake.
const MOMENT: Duration = Duration::from_millis(100);

fn inode(memfd: impl AsFd) -> u64 {
    rustix::fs::fstat(memfd).unwrap().st_ino
}

#[test]
fn root_has_bpf() {
    if !is_root("root_has_bpf") {
        return;
    }
    assert_eq!(Broker::start(&[]).status().broker.proof, "bpf");
    assert_eq!(Broker::start(&["--no-bpf"]).status().broker.proof, "addresses");
}

/// Two connections of the same addresses and ports, each in a namespace of its own.
fn twins() -> [(TcpStream, TcpStream); 2] {
    let make = || {
        let connector: SocketAddr = "127.0.0.1:40000".parse().unwrap();
        let acceptor: SocketAddr = "127.0.0.1:50000".parse().unwrap();
        tcp_pair_at(connector, acceptor)
    };
    [in_new_netns(make), in_new_netns(make)]
}

#[test]
fn twins_in_two_namespaces_are_told_apart() {
    if !is_root("twins_in_two_namespaces_are_told_apart") {
        return;
    }
    let broker = Broker::start(&[]);
    for _ in 0..10 {
        let [(connector_1, acceptor_1), (connector_2, acceptor_2)] = twins();
        assert_eq!(connector_1.peer_addr().unwrap(), connector_2.peer_addr().unwrap());
        let clients: [Client; 4] = std::array::from_fn(|_| broker.client());
        // A connector of one and the acceptor of the other: all that addresses tell fits.
        clients[0].offer(1, Role::Connector, &connector_1);
        clients[3].offer(1, Role::Acceptor, &acceptor_2);
        assert!(!clients[0].readable(MOMENT) && !clients[3].readable(MOMENT));
        // Both of the same role, too.
        clients[2].offer(1, Role::Connector, &connector_2);
        clients[1].offer(1, Role::Acceptor, &acceptor_1);
        let channels = clients.each_ref().map(|client| inode(client.channel().channel));
        assert_eq!(channels[0], channels[1]);
        assert_eq!(channels[2], channels[3]);
        assert_ne!(channels[0], channels[2]);
    }
}

#[test]
fn ends_in_two_namespaces_are_paired() {
    if !is_root("ends_in_two_namespaces_are_paired") {
        return;
    }
    let broker = Broker::start(&[]);
    let (connector, acceptor) = pair_across_veth();
    let (a, b) = (broker.client(), broker.client());
    a.offer(1, Role::Connector, &connector);
    b.offer(1, Role::Acceptor, &acceptor);
    assert_eq!(inode(a.channel().channel), inode(b.channel().channel));
}

/// A connection over a veth pair, one end in a new namespace each.
fn pair_across_veth() -> (TcpStream, TcpStream) {
    let (tell_ready, ready) = std::sync::mpsc::channel();
    let (tid, acceptor) = host("ve1", "10.99.0.2", "10.99.0.1", move || {
        let listener = std::net::TcpListener::bind("10.99.0.2:7000").unwrap();
        tell_ready.send(()).unwrap();
        listener.accept().unwrap().0
    });
    let connector = in_new_netns(move || {
        link("ve0", "10.99.0.1", "ve1", tid);
        ready.recv().unwrap();
        TcpStream::connect("10.99.0.2:7000").unwrap()
    });
    (connector, acceptor.join().unwrap())
}

/// The device `ours` of this thread's namespace, and behind it `theirs` of that thread's.
fn link(ours: &str, at: &str, theirs: &str, tid: std::num::NonZeroI32) {
    assert!(support::ip(&format!("link add {ours} type veth peer name {theirs} netns {tid}")));
    assert!(support::ip(&format!("addr add {at}/24 dev {ours}")));
    assert!(support::ip(&format!("link set {ours} up")));
}

/// Ways in which the kernel makes an accepted socket other than from a plain handshake.
#[test]
fn unusual_handshakes_give_the_same_numbers() {
    if !is_root("unusual_handshakes_give_the_same_numbers") {
        return;
    }
    use rustix::net::sockopt::set_tcp_nodelay;
    let broker = Broker::start(&[]);
    let cookies = || {
        std::fs::write("/proc/sys/net/ipv4/tcp_syncookies", "2").unwrap();
        tcp_pair("127.0.0.1:0")
    };
    let deferred = || {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        support::set_defer_accept(&listener);
        let connector = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        set_tcp_nodelay(&connector, true).unwrap();
        (&connector).write_all(b"the first bytes make the accepted socket").unwrap();
        (connector, listener.accept().unwrap().0)
    };
    for (connector, acceptor) in [in_new_netns(cookies), in_new_netns(deferred)] {
        let (a, b) = (broker.client(), broker.client());
        a.offer(1, Role::Connector, &connector);
        b.offer(1, Role::Acceptor, &acceptor);
        assert_eq!(inode(a.channel().channel), inode(b.channel().channel));
    }
}

#[test]
fn without_bpf_other_namespaces_have_no_proof() {
    if !is_root("without_bpf_other_namespaces_have_no_proof") {
        return;
    }
    let broker = Broker::start(&["--no-bpf"]);
    let [(connector_1, _acceptor_1), (_connector_2, acceptor_2)] = twins();
    let (a, b) = (broker.client(), broker.client());
    a.offer(1, Role::Connector, &connector_1);
    b.offer(2, Role::Acceptor, &acceptor_2);
    assert_eq!(a.declined(), (1, Decline::NoProof));
    assert_eq!(b.declined(), (2, Decline::NoProof));
}

/// The two connections of a transparent proxy, which talks to the server from the client's
/// address: by addresses they are the ends of one.
#[test]
fn a_transparent_proxy_is_not_paired_with_itself() {
    if !is_root("a_transparent_proxy_is_not_paired_with_itself") {
        return;
    }
    if !is_alone_in_netns("a_transparent_proxy_is_not_paired_with_itself") {
        return;
    }
    let proxy = TransparentProxy::new();
    let (connector, acceptor) = (&proxy.to_server, &proxy.from_client);
    assert_eq!(connector.local_addr().unwrap(), acceptor.peer_addr().unwrap());
    assert_eq!(connector.peer_addr().unwrap(), acceptor.local_addr().unwrap());
    for arguments in [&["--no-bpf"][..], &[]] {
        let broker = Broker::start(arguments);
        let (a, b) = (broker.client(), broker.client());
        a.offer(1, Role::Connector, connector);
        b.offer(2, Role::Acceptor, acceptor);
        if arguments.is_empty() {
            assert!(!a.readable(MOMENT) && !b.readable(MOMENT));
        } else {
            assert_eq!(a.declined(), (1, Decline::NoProof));
            assert_eq!(b.declined(), (2, Decline::NoProof));
        }
    }
}

/// Without BPF the broker knows its own namespace, and a process by that of its first thread:
/// runs the test `name` once more, as a process in a namespace of its own. True there.
fn is_alone_in_netns(name: &str) -> bool {
    const INSIDE: &str = "YASMIND_TEST_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        assert!(support::ip("link set lo up"));
        return true;
    }
    let status = std::process::Command::new("unshare")
        .arg("--net")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    false
}

struct TransparentProxy {
    from_client: TcpStream,
    to_server: TcpStream,
    _client: TcpStream,
    _server: TcpStream,
}

impl TransparentProxy {
    const CLIENT: &str = "10.98.1.2";
    const SERVER: &str = "10.98.2.2:80";

    /// In this thread's namespace; client and server get one each.
    fn new() -> Self {
        use std::sync::mpsc::channel;
        let (tell_listens, listens) = channel();
        let (client_tid, client) = host("pc0", Self::CLIENT, "10.98.1.1", move || {
            listens.recv().unwrap();
            TcpStream::connect(Self::SERVER).unwrap()
        });
        let (server_tid, server) = host("ps0", "10.98.2.2", "10.98.2.1", || {
            std::net::TcpListener::bind(Self::SERVER).unwrap().accept().unwrap().0
        });
        for (ours, theirs, at, tid) in
            [("pc1", "pc0", "10.98.1.1", client_tid), ("ps1", "ps0", "10.98.2.1", server_tid)]
        {
            link(ours, at, theirs, tid);
            assert!(support::ip(&format!("rule add iif {ours} lookup 100")));
        }
        assert!(support::ip("route add local 0.0.0.0/0 dev lo table 100"));
        for name in ["all", "pc1", "ps1"] {
            std::fs::write(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"), "0").unwrap();
        }
        let listener = transparent("0.0.0.0:80".parse().unwrap());
        rustix::net::listen(&listener, 1).unwrap();
        tell_listens.send(()).unwrap();
        let from_client = std::net::TcpListener::from(listener).accept().unwrap().0;
        let upstream = transparent(from_client.peer_addr().unwrap());
        // The server's namespace may not be ready yet.
        wait_until("the server is there", || {
            rustix::net::connect(&upstream, &from_client.local_addr().unwrap()).is_ok()
        });
        Self {
            from_client,
            to_server: TcpStream::from(upstream),
            _client: client.join().unwrap(),
            _server: server.join().unwrap(),
        }
    }
}

/// A namespace with the device `name`, once that is there; what `work` made in it.
fn host(
    name: &'static str,
    at: &'static str,
    gateway: &'static str,
    work: impl FnOnce() -> TcpStream + Send + 'static,
) -> (std::num::NonZeroI32, thread::JoinHandle<TcpStream>) {
    let (tell_tid, tid) = std::sync::mpsc::channel();
    let thread = thread::spawn(move || {
        in_new_netns(move || {
            tell_tid.send(rustix::thread::gettid().as_raw_nonzero()).unwrap();
            let add = format!("addr add {at}/24 dev {name}");
            wait_until("the link is there", || support::ip(&add));
            assert!(support::ip(&format!("link set {name} up")));
            assert!(support::ip(&format!("route add default via {gateway}")));
            work()
        })
    });
    (tid.recv().unwrap(), thread)
}

/// A socket that may be bound to addresses of other hosts.
fn transparent(at: SocketAddr) -> rustix::fd::OwnedFd {
    use rustix::net::{AddressFamily, SocketType, bind, socket};
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::sockopt::set_socket_reuseaddr(&fd, true).unwrap();
    support::set_int(&fd, libc::SOL_IP, libc::IP_TRANSPARENT, 1);
    bind(&fd, &at).unwrap();
    fd
}

#[test]
fn a_bound_device_is_no_proof_by_address() {
    if !is_root("a_bound_device_is_no_proof_by_address") {
        return;
    }
    let broker = Broker::start(&["--no-bpf"]);
    let (connector, _acceptor) = tcp_pair("127.0.0.1:0");
    bind_to_loopback(&connector);
    let client = broker.client();
    client.offer(1, Role::Connector, &connector);
    assert_eq!(client.declined(), (1, Decline::NoProof));
}

#[test]
fn a_bound_device_does_not_matter_to_numbers() {
    if !is_root("a_bound_device_does_not_matter_to_numbers") {
        return;
    }
    let broker = Broker::start(&[]);
    let (connector, acceptor) = tcp_pair("127.0.0.1:0");
    bind_to_loopback(&connector);
    let (a, b) = (broker.client(), broker.client());
    a.offer(1, Role::Connector, &connector);
    b.offer(1, Role::Acceptor, &acceptor);
    assert_eq!(inode(a.channel().channel), inode(b.channel().channel));
}

fn bind_to_loopback(socket: &TcpStream) {
    use std::os::fd::AsRawFd;
    // SAFETY: the name is as long as said and lives through the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BINDTODEVICE,
            c"lo".as_ptr().cast(),
            3,
        )
    };
    assert_eq!(result, 0);
}

/// The numbers follow from counters that move with every packet.
#[test]
fn busy_connections_are_paired() {
    for arguments in [&[][..], &["--no-bpf"]] {
        let broker = Broker::start(arguments);
        let (connector, acceptor) = tcp_pair("127.0.0.1:0");
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            // Both directions at full speed, so that all four counters move.
            for (mut from, mut to) in [(&connector, &acceptor), (&acceptor, &connector)] {
                let stop = &stop;
                scope.spawn(move || {
                    while !stop.load(Relaxed) {
                        from.write_all(&[1; 16384]).unwrap();
                    }
                    from.shutdown(std::net::Shutdown::Write).unwrap();
                });
                scope.spawn(move || {
                    let mut buffer = [0; 16384];
                    while to.read(&mut buffer).unwrap() > 0 {}
                });
            }
            let (a, b) = (broker.client(), broker.client());
            for id in 0..300 {
                a.offer(id, Role::Connector, &connector);
                b.offer(id, Role::Acceptor, &acceptor);
                assert!(a.readable(support::PATIENCE) && b.readable(support::PATIENCE));
                assert_eq!(inode(a.channel().channel), inode(b.channel().channel));
                for client in [&a, &b] {
                    client.send(ToBroker::Release { id, then: Then::Closes });
                }
                // The second offer of a socket is taken once the first is released.
                wait_until("released", || broker.status().broker.memory_used_bytes == 0);
            }
            stop.store(true, Relaxed);
        });
    }
}

/// The FIN counts as a byte, on both sides.
#[test]
fn a_connection_that_begins_to_close_is_not_offered() {
    let broker = Broker::start(&[]);
    let (connector, acceptor) = tcp_pair("127.0.0.1:0");
    connector.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!((&acceptor).read(&mut [0]).unwrap(), 0);
    let client = broker.client();
    client.offer(1, Role::Connector, &connector);
    client.offer(2, Role::Acceptor, &acceptor);
    assert_eq!(client.declined(), (1, Decline::NotTcp));
    assert_eq!(client.declined(), (2, Decline::NotTcp));
}

/// A connection to itself is one socket that is both ends.
#[test]
fn a_self_connected_socket_is_declined() {
    let fd = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        None,
    )
    .unwrap();
    rustix::net::bind(&fd, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = SocketAddr::try_from(rustix::net::getsockname(&fd).unwrap()).unwrap();
    rustix::net::connect(&fd, &address).unwrap();
    let broker = Broker::start(&[]);
    let client = broker.client();
    client.offer(1, Role::Connector, &fd);
    assert_eq!(client.declined(), (1, Decline::SelfConnected));
}

/// The addresses of an offer that waits are given to another connection meanwhile.
#[test]
fn reused_addresses_do_not_pair_with_the_old_offer() {
    for arguments in [&[][..], &["--no-bpf"]] {
        let broker = Broker::start(arguments);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let acceptor_at = listener.local_addr().unwrap();
        let connect_from = |from: Option<SocketAddr>| {
            use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
            let fd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            rustix::net::sockopt::set_socket_reuseaddr(&fd, true).unwrap();
            bind(&fd, &from.unwrap_or("127.0.0.1:0".parse().unwrap())).unwrap();
            // A program that another test starts holds a copy of every socket until its exec, so
            // that the addresses can still be in use for a moment.
            wait_until("connected", || match connect(&fd, &acceptor_at) {
                Err(rustix::io::Errno::ADDRNOTAVAIL) => false,
                connected => connected.is_ok(),
            });
            (TcpStream::from(fd), listener.accept().unwrap().0)
        };
        let (old_connector, old_acceptor) = connect_from(None);
        let from = old_connector.local_addr().unwrap();
        let (a, b) = (broker.client(), broker.client());
        a.offer(1, Role::Connector, &old_connector);
        wait_until("the offer waits", || broker.status().connections.len() == 1);
        // Closed by a reset, so that nothing is left in TIME_WAIT, and not released.
        let now = Some(Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(&old_connector, now).unwrap();
        drop((old_connector, old_acceptor));

        let (connector, acceptor) = connect_from(Some(from));
        b.offer(2, Role::Acceptor, &acceptor);
        if broker.status().broker.proof == "bpf" {
            // The numbers are others: both wait.
            assert!(!a.readable(MOMENT) && !b.readable(MOMENT));
        } else {
            // The old end is gone, which is found out when its peer seems to come.
            assert_eq!(a.declined(), (1, Decline::NoProof));
            assert_eq!(b.declined(), (2, Decline::NoProof));
        }
        drop(connector);
    }
}

/// Offers the end until it is paired. A program that another test starts may hold the socket for a moment more.
fn paired_at_last(client: &Client, acceptor: &TcpStream, holders: u8) {
    let mut id = 3;
    wait_until("paired", || {
        id += 1;
        client.offer_handed(id, Role::Acceptor, acceptor, holders);
        match client.receive().0 {
            FromBroker::Decline { reason, .. } => {
                assert_eq!(reason, Decline::Shared);
                false
            }
            FromBroker::Channel { id: paired, .. } => {
                assert_eq!(paired, id);
                true
            }
            other => panic!("{other:?}"),
        }
    });
}

/// By as many numbers as the process says, no more and no fewer.
#[test]
fn what_was_handed_over_and_has_two_numbers_is_paired() {
    if !is_root("what_was_handed_over_and_has_two_numbers_is_paired") {
        return;
    }
    let broker = Broker::start(&[]);
    let (connector, acceptor) = tcp_pair("127.0.0.1:0");
    let (a, b) = (broker.client(), broker.client());
    a.offer(1, Role::Connector, &connector);
    let copy = acceptor.try_clone().unwrap();
    for (id, holders) in [(2, 1), (3, 3)] {
        b.offer_handed(id, Role::Acceptor, &acceptor, holders);
        assert_eq!(b.declined(), (id, Decline::Shared));
    }
    paired_at_last(&b, &acceptor, 2);
    assert_eq!(a.channel().id, 1);
    drop(copy);
}

/// Of what came from another process the kernel says who else holds it.
#[test]
fn what_was_handed_over_is_paired_once_it_is_held_once() {
    if !is_root("what_was_handed_over_is_paired_once_it_is_held_once") {
        return;
    }
    let broker = Broker::start(&[]);
    let (connector, acceptor) = tcp_pair("127.0.0.1:0");
    let (a, b) = (broker.client(), broker.client());
    a.offer(1, Role::Connector, &connector);
    let copy = acceptor.try_clone().unwrap();
    b.offer_handed(2, Role::Acceptor, &acceptor, 1);
    assert_eq!(b.declined(), (2, Decline::Shared));
    // A message that carries it holds it too.
    let (first, second) = std::os::unix::net::UnixStream::pair().unwrap();
    support::pass(&first, &copy);
    drop(copy);
    b.offer_handed(3, Role::Acceptor, &acceptor, 1);
    assert_eq!(b.declined(), (3, Decline::Shared));
    drop((first, second));
    paired_at_last(&b, &acceptor, 1);
    assert_eq!(a.channel().id, 1);
    // Nobody counts without BPF.
    let broker = Broker::start(&["--no-bpf"]);
    let (_connector, acceptor) = tcp_pair("127.0.0.1:0");
    let client = broker.client();
    client.offer_handed(1, Role::Acceptor, &acceptor, 1);
    assert_eq!(client.declined(), (1, Decline::NoProof));
}
