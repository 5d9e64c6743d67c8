//! One end of a checked stream; what it does is told in `key=value` words (`stream::Config`).
//!
//! Says `listening PORT`, `connected`, then `done sent=N received=N` when the bytes are through, and waits
//! there for a line or the end of its input before it ends the connection. In the exchange
//! `survive` it says `ended send=WHY receive=WHY sent=N received=N` at the end. Anything unexpected goes to stderr, with status 1.

use std::io::{BufRead, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;

use yasmin_tests::stream::exchange::{End, Outcome};
use yasmin_tests::stream::{Config, Exchange, Role, Stop};
use yasmin_tests::sys::{self, Fd, libc};

fn main() -> ExitCode {
    let result = Config::parse(std::env::args().skip(1)).and_then(|config| run(&config));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("FAILED: {message}");
            ExitCode::FAILURE
        }
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn run(config: &Config) -> Result<(), String> {
    let listener = match config.role {
        Role::Listen => Some(listen(config).map_err(|error| format!("listen: {error}"))?),
        Role::Connect => None,
    };
    let mut lines = std::io::stdin().lock().lines();
    for nth in 0..config.connections {
        let fd = match listener {
            Some(listener) => sys::accept(listener, 0).map(|(fd, _)| fd),
            None => connect(config),
        }
        .map_err(|error| format!("connection {nth}: {error}"))?;
        say("connected");
        let config = Config { seed: config.seed + 100 * u64::from(nth), ..config.clone() };
        exchange(fd, &config, || drop(lines.next()))?;
    }
    Ok(())
}

fn exchange(fd: Fd, config: &Config, wait_for_release: impl FnOnce()) -> Result<(), String> {
    set_options(fd, config).map_err(|error| format!("options: {error}"))?;
    let mut end = End::new(fd, config).map_err(|stop| stop.to_string())?;
    let outcome = end.run(config);
    if config.exchange == Exchange::Survive {
        return survived(fd, &outcome);
    }
    if outcome.send_stop.is_some() || outcome.receive_stop.is_some() {
        return Err(format!("{} {outcome:?}", describe(&outcome)));
    }
    say(&format!("done sent={} received={}", outcome.sent_bytes, outcome.received_bytes));
    wait_for_release();
    end.finish().map_err(|stop| format!("at the end: {stop}"))?;
    drop(end);
    sys::close(fd).map_err(|error| format!("close: {error}"))
}

fn describe(outcome: &Outcome) -> String {
    let why = |stop: &Option<Stop>| stop.as_ref().map_or("none".to_owned(), Stop::to_string);
    format!(
        "send={} receive={} sent={} received={}",
        why(&outcome.send_stop).replace(' ', ":"),
        why(&outcome.receive_stop).replace(' ', ":"),
        outcome.sent_bytes,
        outcome.received_bytes
    )
}

fn survived(fd: Fd, outcome: &Outcome) -> Result<(), String> {
    for stop in [&outcome.send_stop, &outcome.receive_stop].into_iter().flatten() {
        if let Stop::Corrupt(mismatch) = stop {
            return Err(format!("corrupt: {mismatch}"));
        }
    }
    sys::close(fd).map_err(|error| format!("close: {error}"))?;
    say(&format!("ended {}", describe(outcome)));
    Ok(())
}

fn set_options(fd: Fd, config: &Config) -> std::io::Result<()> {
    if config.nodelay {
        sys::set_int(fd, libc::SOL_TCP, libc::TCP_NODELAY, 1)?;
    }
    if config.buffer_bytes != 0 {
        for option in [libc::SO_SNDBUF, libc::SO_RCVBUF] {
            sys::set_int(fd, libc::SOL_SOCKET, option, config.buffer_bytes)?;
        }
    }
    Ok(())
}

const fn family(address: IpAddr) -> i32 {
    match address {
        IpAddr::V4(_) => libc::AF_INET,
        IpAddr::V6(_) => libc::AF_INET6,
    }
}

fn listen(config: &Config) -> std::io::Result<Fd> {
    let any = match config.address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let fd = sys::socket(family(any), libc::SOCK_CLOEXEC)?;
    sys::set_int(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    sys::bind(fd, SocketAddr::new(any, config.port))?;
    sys::listen(fd, 64)?;
    say(&format!("listening {}", sys::getsockname(fd)?.port()));
    Ok(fd)
}

fn connect(config: &Config) -> std::io::Result<Fd> {
    let to = SocketAddr::new(config.address, config.port);
    let flags = if config.nonblocking_connect { libc::SOCK_NONBLOCK } else { 0 };
    let fd = sys::socket(family(config.address), libc::SOCK_CLOEXEC | flags)?;
    if config.local_port != 0 {
        let any = match config.address {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        sys::set_int(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        sys::bind(fd, SocketAddr::new(any, config.local_port))?;
    }
    match sys::connect(fd, to) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
            sys::poll_events(fd, libc::POLLOUT, -1)?;
            let number = sys::get_int(fd, libc::SOL_SOCKET, libc::SO_ERROR)?;
            if number != 0 {
                return Err(std::io::Error::from_raw_os_error(number));
            }
        }
        Err(error) => return Err(error),
    }
    if config.nonblocking_connect {
        sys::set_nonblocking(fd, false)?;
    }
    Ok(fd)
}
