//! One rtnetlink socket in one network namespace.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// It also hears when links in its namespace come, go or change.
pub struct Rtnl {
    socket: Socket,
    /// By which the kernel addresses answers to this socket.
    port: u32,
    sequence: u32,
    request: Vec<u8>,
    stirred: bool,
}

/// What the kernel sends at once, at most (32 KiB, include/linux/netlink.h), whatever the reader
/// would take. One for all sockets: it stays in the cache.
pub struct Buffer(Vec<u8>);

impl Default for Buffer {
    fn default() -> Self {
        Self(Vec::with_capacity(64 << 10))
    }
}

/// The kernel answers before it returns from the question. An answer that does not come was lost
/// to a queue that was full of news.
const PATIENCE: Duration = Duration::from_secs(1);

impl Rtnl {
    /// A socket in the namespace that `namespace` refers to. A socket stays where it was made, so
    /// only a thread that ends at once goes there.
    pub fn open(namespace: &File) -> io::Result<Self> {
        let (socket, address) = enter(namespace, || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            let address = socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            socket.add_membership(libc::RTNLGRP_LINK)?;
            Ok((socket, address))
        })?;
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
        let (port, request) = (address.port_number(), Vec::new());
        Ok(Self { socket, port, sequence: 0, request, stirred: false })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Takes what was heard. True if a link has come, gone or changed since the last call.
    pub fn stirred(&mut self, buffer: &mut Buffer) -> bool {
        loop {
            buffer.0.clear();
            match self.socket.recv(&mut buffer.0, libc::MSG_DONTWAIT) {
                Ok(_) => self.stirred = true,
                // News was lost for want of room: that is news, too.
                Err(error) if is(&error, Errno::NOBUFS) => self.stirred = true,
                Err(_) => return std::mem::take(&mut self.stirred),
            }
        }
    }

    /// Everything of a kind.
    pub fn dump(
        &mut self,
        question: RouteNetlinkMessage,
        buffer: &mut Buffer,
        take: impl FnMut(RouteNetlinkMessage),
    ) -> io::Result<()> {
        self.ask(question, NLM_F_REQUEST | NLM_F_DUMP, buffer, take)
    }

    /// For questions with one answer.
    pub fn get(
        &mut self,
        question: RouteNetlinkMessage,
        buffer: &mut Buffer,
    ) -> io::Result<RouteNetlinkMessage> {
        let mut answer = None;
        self.ask(question, NLM_F_REQUEST, buffer, |message| answer = Some(message))?;
        answer.ok_or_else(|| nonsense("no answer"))
    }

    fn ask(
        &mut self,
        question: RouteNetlinkMessage,
        flags: u16,
        buffer: &mut Buffer,
        mut take: impl FnMut(RouteNetlinkMessage),
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(question));
        message.finalize();
        self.request.resize(message.buffer_len(), 0);
        message.serialize(&mut self.request);
        self.socket.send(&self.request, 0)?;
        let is_dump = flags & NLM_F_DUMP == NLM_F_DUMP;
        while !self.collect(is_dump, buffer, &mut take)? {}
        Ok(())
    }

    /// Takes one datagram; true when it was the last.
    fn collect(
        &mut self,
        is_dump: bool,
        buffer: &mut Buffer,
        take: &mut impl FnMut(RouteNetlinkMessage),
    ) -> io::Result<bool> {
        buffer.0.clear();
        match self.socket.recv(&mut buffer.0, 0) {
            Ok(_) => {}
            // That was news; a dump goes on behind it.
            Err(error) if is(&error, Errno::NOBUFS) => {
                self.stirred = true;
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        let mut answered = false;
        let mut rest = buffer.0.as_slice();
        while !rest.is_empty() {
            let message =
                NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(nonsense)?;
            let len = (message.header.length as usize).next_multiple_of(4).min(rest.len());
            if len == 0 {
                return Err(nonsense("a message of no length"));
            }
            rest = &rest[len..];
            let header = message.header;
            if (header.sequence_number, header.port_number) != (self.sequence, self.port) {
                self.stirred = true;
                continue;
            }
            match message.payload {
                NetlinkPayload::Done(_) => return Ok(true),
                NetlinkPayload::Error(error) if error.code.is_none() => return Ok(true),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(answer) => {
                    take(answer);
                    answered = true;
                }
                _ => {}
            }
        }
        Ok(!is_dump && answered)
    }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

fn nonsense(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("rtnetlink: {error}"))
}

/// Runs `work` on a thread of its own inside a network namespace.
pub fn enter<T: Send>(
    namespace: &File,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    std::thread::scope(|scope| {
        let visit = scope.spawn(|| {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            work()
        });
        visit.join().unwrap_or_else(|_| Err(io::Error::other("the visiting thread panicked")))
    })
}
