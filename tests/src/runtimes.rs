//! Echo servers of the runtimes that people write servers in, and the load that is put on them:
//! 64 connections with one request each under way, every byte of every answer checked.
//!
//! `tests/runtimes` runs them for a moment; the program `runtimes` measures. The servers' sources
//! lie in tests/runtimes/.

mod build;
mod load;

use std::path::Path;

pub use build::Server;
pub use load::{CONNECTIONS, Carried, Running, run};

/// What a server is asked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Bytes, as they come back.
    Bytes,
    /// Redis' ECHO.
    Redis,
    /// gRPC's unary calls, by its C core's synchronous or asynchronous interface for Python.
    Grpc(&'static str),
}

pub struct Runtime {
    pub name: &'static str,
    /// What it is, for a table.
    pub what: &'static str,
    pub protocol: Protocol,
    /// How many requests it is measured by, in thousands.
    pub thousands: u32,
    /// Builds it in a folder, with this package's peers in another one. `None`, after a line that
    /// says so: what it needs is not installed.
    pub build: fn(folder: &Path, peers: &Path) -> Option<Server>,
}

macro_rules! runtimes {
    ($($name:literal, $what:literal, $protocol:expr, $thousands:literal, $build:expr;)+) => {
        &[$(Runtime {
            name: $name,
            what: $what,
            protocol: $protocol,
            thousands: $thousands,
            build: $build,
        }),+]
    };
}

use Protocol::{Bytes, Grpc, Redis};

pub const ALL: &[Runtime] = runtimes! {
    "tokio-current", "tokio, one thread", Bytes, 200, |_, peers| build::tokio(peers, "current");
    "tokio-multi", "tokio, two workers", Bytes, 200, |_, peers| build::tokio(peers, "multi");
    "engine", "the shape of .NET's SocketAsyncEngine, two workers", Bytes, 200, |folder, _| build::engine(folder);
    "asio-1", "asio, one thread", Bytes, 200, |folder, _| build::asio(folder, "1");
    "asio-4", "asio, four threads on one context", Bytes, 200, |folder, _| build::asio(folder, "4");
    "java-nio2", "Java's asynchronous channels", Bytes, 200, |folder, _| build::java(folder, "Nio2", 11);
    "java-virtual", "Java's virtual threads", Bytes, 200, |folder, _| build::java(folder, "Virtual", 21);
    "java-selector", "Java's selector, one thread", Bytes, 200, |folder, _| build::java(folder, "Selector", 11);
    "erlang-once", "Erlang's gen_tcp, active once", Bytes, 100, |_, _| build::erlang("once");
    "erlang-passive", "Erlang's gen_tcp, passive", Bytes, 100, |_, _| build::erlang("passive");
    "mono", "Mono's asynchronous socket calls", Bytes, 60, |folder, _| build::mono(folder);
    "grpc-sync", "gRPC's C core, Python's synchronous server", Grpc("sync"), 8, |_, _| build::grpc("sync");
    "grpc-aio", "gRPC's C core, Python's asyncio server", Grpc("aio"), 8, |_, _| build::grpc("aio");
    "node", "Node.js", Bytes, 200, |_, _| build::node();
    "go", "Go's net, with cgo", Bytes, 200, |folder, _| build::go(folder);
    "go-static", "Go's net, static", Bytes, 200, |folder, _| build::static_go(folder);
    "redis", "redis", Redis, 200, |folder, _| build::redis(folder);
};

pub fn by_name(name: &str) -> Option<&'static Runtime> {
    ALL.iter().find(|one| one.name == name)
}
