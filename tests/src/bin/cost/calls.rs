//! Calls on descriptors that have no channel.

use std::io::Result;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::Instant;

use yasmin_measure::spread::Spread;
use yasmin_tests::sys::{self, Fd, libc};

const CALLS: u32 = 1000;
const BATCHES: usize = 101;

/// Median over batches of the nanoseconds that one `call` takes.
fn measure(name: &str, mut call: impl FnMut()) {
    let samples = (0..BATCHES)
        .map(|_| {
            let begun = Instant::now();
            for _ in 0..CALLS {
                call();
            }
            begun.elapsed().as_nanos() as f64 / f64::from(CALLS)
        })
        .collect();
    println!("{name}={}", Spread::of(samples).median);
}

/// A TCP connection of this process with itself, and its listener.
fn connection() -> Result<(Fd, Fd, Fd)> {
    let listener = sys::socket(libc::AF_INET, libc::SOCK_CLOEXEC)?;
    sys::bind(listener, SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0))?;
    sys::listen(listener, 16)?;
    let one = sys::socket(libc::AF_INET, libc::SOCK_CLOEXEC)?;
    sys::connect(one, sys::getsockname(listener)?)?;
    let (other, _) = sys::accept(listener, 0)?;
    sys::set_nonblocking(listener, true)?;
    Ok((listener, one, other))
}

pub fn run() -> Result<()> {
    let zero = std::fs::File::open("/dev/zero")?;
    let null = std::fs::File::options().write(true).open("/dev/null")?;
    let (zero, null) = (zero.as_raw_fd(), null.as_raw_fd());
    let (listener, tcp, peer) = connection()?;
    let (unix, other) = sys::socket_pair()?;
    let mut byte = [0u8; 1];
    // As in most programs: the kernel and the library must reckon with another thread.
    std::thread::spawn(std::thread::park);
    measure("read, file", || drop(sys::read(zero, &mut byte)));
    measure("write, file", || drop(sys::write(null, b"x")));
    measure("recv, Unix socket", || drop(sys::recv(unix, &mut byte, libc::MSG_DONTWAIT)));
    measure("send and recv, Unix sockets", || {
        let _ = sys::send(unix, b"x", 0);
        let _ = sys::recv(other, &mut byte, 0);
    });
    measure("recv, TCP without channel", || drop(sys::recv(tcp, &mut byte, libc::MSG_DONTWAIT)));
    measure("recvmsg, TCP without channel", || {
        let _ = sys::recvmsg(tcp, &mut [&mut byte[..]], libc::MSG_DONTWAIT);
    });
    measure("send and recv, TCP without channel", || {
        let _ = sys::send(peer, b"x", 0);
        let _ = sys::recv(tcp, &mut byte, 0);
    });
    // Its buffers are full: the call goes all the way but for the copy and the wire.
    let much = vec![0; 1 << 20];
    while sys::send(tcp, &much, libc::MSG_DONTWAIT).is_ok() {}
    measure("send, TCP without channel", || drop(sys::send(tcp, b"x", libc::MSG_DONTWAIT)));
    measure("accept, listener", || drop(sys::accept(listener, 0)));
    measure("getsockopt, TCP without channel", || {
        let _ = sys::get_int(tcp, libc::SOL_SOCKET, libc::SO_TYPE);
    });
    measure("setsockopt, TCP without channel", || {
        let _ = sys::set_int(tcp, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1);
    });
    measure("ioctl FIONREAD, TCP without channel", || drop(sys::unread(tcp)));
    measure("poll 0 ms, Unix socket", || drop(sys::poll_events(unix, libc::POLLIN, 0)));
    measure("poll 0 ms, TCP without channel", || drop(sys::poll_events(tcp, libc::POLLIN, 0)));
    let epoll = sys::epoll_create()?;
    let events = libc::EPOLLIN as u32;
    sys::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, unix, events, 1)?;
    sys::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, tcp, events, 2)?;
    let mut room = [libc::epoll_event { events: 0, u64: 0 }; 4];
    measure("epoll_wait 0 ms", || drop(sys::epoll_wait_into(epoll, &mut room, 0)));
    measure("epoll_ctl, Unix socket", || {
        let _ = sys::epoll_ctl(epoll, libc::EPOLL_CTL_MOD, unix, events, 1);
    });
    measure("epoll_ctl, TCP without channel", || {
        let _ = sys::epoll_ctl(epoll, libc::EPOLL_CTL_MOD, tcp, events, 2);
    });
    measure("dup and close, file", || {
        if let Ok(copy) = sys::dup(null) {
            let _ = sys::close(copy);
        }
    });
    println!("done");
    Ok(())
}
