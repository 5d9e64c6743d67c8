//! One rtnetlink socket in one network namespace.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

pub struct Rtnl {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

/// The kernel sends at most this much at once (32 KiB, include/linux/netlink.h), whatever the
/// reader would take.
const BUFFER_BYTES: usize = 64 << 10;

impl Rtnl {
    /// A socket in the namespace that `namespace` refers to. A socket stays where it was made, so
    /// only a thread that ends at once goes there.
    pub fn open(namespace: &File) -> io::Result<Self> {
        let socket = enter(namespace, || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            Ok(socket)
        })?;
        Ok(Self { socket, sequence: 0, buffer: Vec::new() })
    }

    pub fn dump(&mut self, question: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.ask(question, NLM_F_REQUEST | NLM_F_DUMP)
    }

    /// For questions with one answer.
    pub fn get(&mut self, question: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.ask(question, NLM_F_REQUEST)
    }

    fn ask(
        &mut self,
        question: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(question));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let mut answers = Vec::new();
        while !self.collect(&mut answers, flags & NLM_F_DUMP == NLM_F_DUMP)? {}
        Ok(answers)
    }

    /// Takes one datagram; true when it was the last.
    fn collect(
        &mut self,
        answers: &mut Vec<RouteNetlinkMessage>,
        is_dump: bool,
    ) -> io::Result<bool> {
        self.buffer.clear();
        self.buffer.reserve(BUFFER_BYTES);
        self.socket.recv(&mut self.buffer, 0)?;
        let mut rest = self.buffer.as_slice();
        while !rest.is_empty() {
            let message =
                NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(nonsense)?;
            let len = (message.header.length as usize).next_multiple_of(4).min(rest.len());
            if len == 0 {
                return Err(nonsense("a message of no length"));
            }
            rest = &rest[len..];
            if message.header.sequence_number != self.sequence {
                continue;
            }
            match message.payload {
                NetlinkPayload::Done(_) => return Ok(true),
                NetlinkPayload::Error(error) if error.code.is_none() => return Ok(true),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(answer) => answers.push(answer),
                _ => {}
            }
        }
        Ok(!is_dump && !answers.is_empty())
    }
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
