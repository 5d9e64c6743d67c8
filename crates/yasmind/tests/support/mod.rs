//! A broker of our own, clients that speak its protocol, TCP connections to offer.
#![allow(dead_code, reason = "each test uses its part")]

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg,
    sendmsg, socket_with,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use yasmin_control::guest::Endpoint;
use yasmin_control::status::Status;
use yasmin_control::{CONTROL_VERSION, Decline, FromBroker, MESSAGE_BYTES, Role, Socket, ToBroker};

/// Longer than anything here takes, unless it is wrong.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct Broker {
    pub child: Child,
    pub directory: PathBuf,
    pub socket: PathBuf,
}

impl Broker {
    pub fn start(arguments: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "yasmind-test-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let directory = std::env::temp_dir().join(name);
        let socket = directory.join("broker.sock");
        let child = command(&socket, arguments).spawn().unwrap();
        let broker = Self { child, directory, socket };
        wait_until("the broker answers", || broker.answers());
        broker
    }

    pub fn answers(&self) -> bool {
        self.try_connect().is_some_and(|fd| {
            let probe = Client { fd, mailbox: None };
            probe.send(ToBroker::Status { version: CONTROL_VERSION });
            probe.receive_status().is_some()
        })
    }

    fn try_connect(&self) -> Option<OwnedFd> {
        let fd =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        connect(&fd, &SocketAddrUnix::new(&self.socket).unwrap()).ok()?;
        Some(fd)
    }

    /// A connection that has said nothing yet.
    pub fn connect(&self) -> Client {
        Client { fd: self.try_connect().unwrap(), mailbox: None }
    }

    /// A process that has been welcomed.
    pub fn client(&self) -> Client {
        let mut client = self.connect();
        client.greet();
        client
    }

    /// As `connect`, for a process of another user, which has what this one has now.
    pub fn process_as(&self, uid: u32) -> Foreigner {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let address = SocketAddrUnix::new(&self.socket).unwrap();
        // SAFETY: the child makes system calls only, and never comes back.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: no memory involved.
                unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) };
                let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
                if let Ok(fd) = socket_with(family, kind, SocketFlags::CLOEXEC, None)
                    && connect(&fd, &address).is_ok()
                {
                    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                    let mut control = SendAncillaryBuffer::new(&mut space);
                    let fds = [fd.as_fd()];
                    control.push(SendAncillaryMessage::ScmRights(&fds));
                    let _ =
                        sendmsg(&theirs, &[IoSlice::new(b"x")], &mut control, SendFlags::empty());
                }
                loop {
                    // SAFETY: no memory involved.
                    unsafe { libc::pause() };
                }
            }
            pid => {
                assert!(pid > 0);
                drop(theirs);
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                let mut control = RecvAncillaryBuffer::new(&mut space);
                let flags = RecvFlags::CMSG_CLOEXEC;
                recvmsg(&ours, &mut [IoSliceMut::new(&mut [0])], &mut control, flags).unwrap();
                let fd = control.drain().find_map(|message| match message {
                    RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
                    _ => None,
                });
                let client = Client { fd: fd.unwrap(), mailbox: None };
                Foreigner { client, _process: Forked { pid } }
            }
        }
    }

    /// A process of another user that connects as often as it can, says `message` on each
    /// connection, keeps `most` of them open without reading, and begins anew. Until dropped.
    pub fn flood_as(&self, uid: u32, message: &[u8], most: usize) -> Forked {
        let address = SocketAddrUnix::new(&self.socket).unwrap();
        let mut open = Vec::with_capacity(most);
        // SAFETY: the child makes system calls only, and never comes back.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: no memory involved.
                unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) };
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                loop {
                    while open.len() < most {
                        let fd =
                            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
                        let Ok(fd) = fd else { break };
                        if connect(&fd, &address).is_err() {
                            break;
                        }
                        let _ = rustix::net::send(&fd, message, SendFlags::NOSIGNAL);
                        open.push(fd);
                    }
                    open.clear();
                }
            }
            pid => {
                assert!(pid > 0);
                Forked { pid }
            }
        }
    }

    /// As `connect`, by a thread of another user. The process is not his.
    pub fn connect_as(&self, uid: u32) -> Client {
        as_user(uid, || self.connect())
    }

    pub fn status_as(&self, uid: u32) -> Status {
        as_user(uid, || self.status())
    }

    pub fn status(&self) -> Status {
        let client = self.connect();
        client.send(ToBroker::Status { version: CONTROL_VERSION });
        serde_json::from_slice(&client.receive_status().unwrap()).unwrap()
    }

    /// Descriptors that the broker has open.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    pub fn terminate(&mut self) -> std::process::ExitStatus {
        self.signal(rustix::process::Signal::TERM);
        self.child.wait().unwrap()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

pub fn command(socket: &std::path::Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_yasmind"));
    command
        .arg("--socket")
        .arg(socket)
        .args(["--log", "warn"])
        .args(arguments)
        .stdin(Stdio::null());
    command
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

pub struct Client {
    pub fd: OwnedFd,
    pub mailbox: Option<OwnedFd>,
}

/// What CHANNEL brought.
pub struct Handout {
    pub id: u64,
    pub cookie: u64,
    pub role: Role,
    pub max_class: u8,
    pub first_class: u8,
    pub channel: OwnedFd,
    pub side: OwnedFd,
}

/// A process of another user, as far as it has a connection to the broker.
pub struct Foreigner {
    pub client: Client,
    _process: Forked,
}

/// A process that goes with this.
pub struct Forked {
    pid: i32,
}

impl Drop for Forked {
    fn drop(&mut self) {
        // SAFETY: a child of ours that nobody has waited for.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

impl Client {
    /// HELLO and WELCOME.
    pub fn greet(&mut self) {
        self.send(ToBroker::Hello {
            version: CONTROL_VERSION,
            comm: *b"test\0\0\0\0\0\0\0\0\0\0\0\0",
        });
        let (message, mut fds) = self.receive();
        assert_eq!(message, FromBroker::Welcome { version: CONTROL_VERSION });
        assert_eq!(fds.len(), 1);
        self.mailbox = fds.pop();
    }

    pub fn send(&self, message: ToBroker) {
        self.send_raw(&message.encode(), &[]).unwrap();
    }

    pub fn send_raw(&self, raw: &[u8], fds: &[BorrowedFd]) -> rustix::io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
        }
        sendmsg(&self.fd, &[IoSlice::new(raw)], &mut control, SendFlags::NOSIGNAL).map(drop)
    }

    pub fn offer(&self, id: u64, role: Role, socket: impl AsFd) {
        self.send(ToBroker::Offer { id, role, holders: 0, socket: named(socket) });
    }

    /// Of a socket that this process got from another one, and has by so many numbers.
    pub fn offer_handed(&self, id: u64, role: Role, socket: impl AsFd, holders: u8) {
        self.send(ToBroker::Offer { id, role, holders, socket: named(socket) });
    }

    /// All parts of the status; `None` when the broker has hung up.
    pub fn receive_status(&self) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        loop {
            assert!(self.readable(PATIENCE), "the broker does not answer");
            let mut part = vec![0; 1 << 16];
            let (len, _) = rustix::net::recv(&self.fd, &mut part[..], RecvFlags::empty()).ok()?;
            let message = FromBroker::decode(part[..len].get(..MESSAGE_BYTES)?).unwrap();
            let FromBroker::Status { len_bytes } = message else { panic!("{message:?}") };
            assert_eq!(len_bytes as usize, len - MESSAGE_BYTES);
            if len_bytes == 0 {
                return Some(text);
            }
            text.extend_from_slice(&part[MESSAGE_BYTES..len]);
        }
    }

    /// The next message; `None` when the broker has hung up.
    pub fn try_receive(&self) -> Option<(FromBroker, Vec<OwnedFd>)> {
        assert!(self.readable(PATIENCE), "the broker does not answer");
        let mut raw = [0; MESSAGE_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received =
            match recvmsg(&self.fd, &mut [IoSliceMut::new(&mut raw)], &mut control, flags) {
                Ok(received) => received,
                Err(rustix::io::Errno::CONNRESET) => return None,
                Err(error) => panic!("{error}"),
            };
        if received.bytes == 0 {
            return None;
        }
        let fds = control
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(fds) => Some(fds),
                _ => None,
            })
            .flatten()
            .collect();
        Some((FromBroker::decode(&raw[..received.bytes]).unwrap(), fds))
    }

    pub fn receive(&self) -> (FromBroker, Vec<OwnedFd>) {
        self.try_receive().expect("the broker hung up")
    }

    pub fn readable(&self, patience: Duration) -> bool {
        readable(&self.fd, patience)
    }

    pub fn channel(&self) -> Handout {
        let (message, mut fds) = self.receive();
        let FromBroker::Channel { id, cookie, role, max_class, first_class, .. } = message else {
            panic!("{message:?}")
        };
        assert_eq!(fds.len(), 2);
        let (side, channel) = (fds.pop().unwrap(), fds.pop().unwrap());
        Handout { id, cookie, role, max_class, first_class, channel, side }
    }

    pub fn declined(&self) -> (u64, Decline) {
        let (message, _) = self.receive();
        let FromBroker::Decline { id, reason } = message else { panic!("{message:?}") };
        (id, reason)
    }

    /// The mailbox's counter.
    pub fn mail(&self) -> u64 {
        u64_at(self.mailbox.as_ref().unwrap(), 0)
    }

    /// Whether the broker hangs up, whatever it says before.
    pub fn is_dropped(&self) -> bool {
        while let Some((message, _)) = self.try_receive() {
            assert!(!matches!(message, FromBroker::Welcome { .. }));
        }
        true
    }
}

/// Sends `fd` over a Unix socket, in a message of one byte.
pub fn pass(over: impl AsFd, fd: impl AsFd) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [fd.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    sendmsg(over, &[IoSlice::new(b"x")], &mut control, SendFlags::NOSIGNAL).unwrap();
}

/// A descriptor as the broker is told of it; what is no TCP connection has no addresses.
pub fn named(socket: impl AsFd) -> Socket {
    use std::os::fd::AsRawFd;
    let socket = socket.as_fd();
    let end = |address: Option<SocketAddr>| match address {
        Some(SocketAddr::V4(at)) => {
            Endpoint { address: at.ip().to_ipv6_mapped().octets(), port: at.port() }
        }
        Some(SocketAddr::V6(at)) => Endpoint { address: at.ip().octets(), port: at.port() },
        None => Endpoint { address: [0; 16], port: 0 },
    };
    let local = rustix::net::getsockname(socket).ok();
    let peer = rustix::net::getpeername(socket).ok().flatten();
    Socket {
        number: socket.as_raw_fd() as u32,
        cookie: rustix::net::sockopt::socket_cookie(socket).unwrap_or(1),
        local: end(local.and_then(|any| SocketAddr::try_from(any).ok())),
        peer: end(peer.and_then(|any| SocketAddr::try_from(any).ok())),
    }
}

pub fn readable(fd: impl AsFd, patience: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let timeout = Timespec::try_from(patience).unwrap();
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

pub fn u64_at(memfd: impl AsFd, offset: u64) -> u64 {
    let mut raw = [0; 8];
    rustix::io::pread(memfd, &mut raw, offset).unwrap();
    u64::from_ne_bytes(raw)
}

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Connector and acceptor.
pub fn tcp_pair(address: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(address).unwrap();
    let connector = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (connector, listener.accept().unwrap().0)
}

/// A pair whose addresses the caller chooses.
pub fn tcp_pair_at(connector: SocketAddr, acceptor: SocketAddr) -> (TcpStream, TcpStream) {
    use rustix::net::{bind, listen, socket};
    let open = |address: SocketAddr| {
        let fd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::sockopt::set_socket_reuseaddr(&fd, true).unwrap();
        bind(&fd, &address).unwrap();
        fd
    };
    let listener = open(acceptor);
    listen(&listener, 1).unwrap();
    let client = open(connector);
    connect(&client, &acceptor).unwrap();
    (TcpStream::from(client), TcpListener::from(listener).accept().unwrap().0)
}

/// Runs ip(8) in this thread's namespace.
pub fn ip(arguments: &str) -> bool {
    let mut command = Command::new("ip");
    command.args(arguments.split(' ')).stderr(Stdio::null()).status().unwrap().success()
}

pub fn set_defer_accept(listener: &TcpListener) {
    set_int(listener, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, 5);
}

pub fn set_int(socket: impl AsFd, level: i32, option: i32, value: i32) {
    use std::os::fd::AsRawFd;
    // SAFETY: the value is an int that lives through the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    assert_eq!(result, 0);
}

/// Runs `work` in a network namespace of its own, with the loopback up.
pub fn in_new_netns<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::spawn(|| {
        // SAFETY: changes the namespace of this thread alone, which ends with `work`.
        let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert_eq!(result, 0, "unshare: {}", std::io::Error::last_os_error());
        assert!(ip("link set lo up"));
        work()
    })
    .join()
    .unwrap()
}

/// Runs `work` in a thread that is `uid`'s.
fn as_user<T: Send>(uid: u32, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: the raw call changes this thread alone, which ends with `work`.
            let result = unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) };
            assert_eq!(result, 0);
            work()
        });
        thread.join().unwrap()
    })
}

/// Prints why a test is skipped when it is.
pub fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("{test}: skipped, needs root");
    }
    root
}
