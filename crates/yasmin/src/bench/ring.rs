//! YASMIN's ring, on pages as the broker makes them, with both sides awake.
//!
//! Each end maps the memory by itself, as two processes would.
#![allow(unsafe_code)]

use std::os::fd::{FromRawFd, OwnedFd};

use anyhow::{anyhow, bail};
use yasmin_channel::region::{Filling, Mapping};
use yasmin_channel::{self as channel, memfd};
use yasmin_ring::{
    Broken, Pages, Publish, Receiver, ReceiverState, Room, Sender, SenderState, View,
};
use yasmin_wire::layout::class_bytes;

use super::linked::{End, Ends};

const CLASS: u8 = 7;
pub const RING_BYTES: usize = class_bytes(CLASS) as usize;
/// Publishing a large message in pieces lets the receiver copy the first while the second is
/// written.
const PIECE_BYTES: usize = RING_BYTES / 8;
/// Looks at the word before the CPU is offered to somebody else.
const PATIENCE: u32 = 10_000;

/// Aligned, or the ends' private states might share a cache line.
#[repr(align(128))]
struct RingEnd {
    pages: Mapping,
    sends_on: usize,
    sender: SenderState,
    receiver: ReceiverState,
}

pub fn pair() -> anyhow::Result<Ends> {
    let pages = memfd::create(c"yasmin-bench", channel::bytes(CLASS)).map_err(failed)?;
    // SAFETY: made just now, and nobody else's.
    let _closes = unsafe { OwnedFd::from_raw_fd(pages.fd) };
    let end = |sends_on| -> anyhow::Result<Box<dyn End>> {
        Ok(Box::new(RingEnd {
            pages: pages.map(Filling::Usual).map_err(failed)?,
            sends_on,
            sender: SenderState::default(),
            receiver: ReceiverState::default(),
        }))
    };
    Ok((end(0)?, end(1)?))
}

fn failed(error: channel::Errno) -> anyhow::Error {
    std::io::Error::from_raw_os_error(error.into_raw()).into()
}

fn broken(_: Broken) -> anyhow::Error {
    anyhow!("the other side broke the ring")
}

/// Waits a moment; now and then lets another thread run.
struct Pause(u32);

impl Pause {
    fn wait(&mut self) {
        self.0 += 1;
        if self.0.is_multiple_of(PATIENCE) {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

impl RingEnd {
    fn direction(&self, index: usize) -> (&yasmin_ring::Block, Pages) {
        // SAFETY: a whole channel of CLASS is mapped until `self` is dropped.
        unsafe { channel::direction(self.pages.as_ptr(), index, CLASS) }
    }
}

impl End for RingEnd {
    fn send(&mut self, message: &[u8]) -> anyhow::Result<()> {
        let (block, memory) = self.direction(self.sends_on);
        let sender =
            Sender { block, state: &self.sender, memory, max_class: CLASS, class_limit: CLASS };
        let mut rest = message;
        let mut pause = Pause(0);
        while !rest.is_empty() {
            let Room::Ring(write) = sender.room(rest.len()).map_err(broken)? else {
                pause.wait();
                continue;
            };
            let len = rest.len().min(PIECE_BYTES).min(write.room_bytes as usize);
            // SAFETY: `rest` is readable for `len`.
            unsafe { sender.fill(&write, 0, rest.as_ptr(), len) };
            if sender.publish(&write, len as u32, 0).map_err(broken)? == Publish::Done {
                rest = &rest[len..];
            }
        }
        Ok(())
    }

    fn receive(&mut self, message: &mut [u8]) -> anyhow::Result<()> {
        let (block, memory) = self.direction(1 - self.sends_on);
        let receiver = Receiver { block, state: &self.receiver, memory, max_class: CLASS };
        let mut done = 0;
        let mut pause = Pause(0);
        while done < message.len() {
            match receiver.look(|| Some(0)).map_err(broken)? {
                View::Ring { .. } => {
                    let rest = &mut message[done..];
                    // SAFETY: `rest` is writable for its length.
                    let len = unsafe { receiver.peek(0, rest.as_mut_ptr(), rest.len()) };
                    receiver.consume(len as u32);
                    done += len;
                }
                View::Tcp => {
                    if !receiver.offer(CLASS) {
                        bail!("the ring cannot be offered");
                    }
                }
                View::Empty { .. } => pause.wait(),
                View::TcpUpTo { .. } => bail!("bytes by TCP, where there is no TCP"),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_arrive_as_they_were_sent() {
        let (mut first, mut second) = pair().unwrap();
        let sent: Vec<u8> = (0..3 * RING_BYTES + 7).map(|at| (at * 31 % 251) as u8).collect();
        let expected = sent.clone();
        let peer = std::thread::spawn(move || {
            let mut received = vec![0; expected.len()];
            second.receive(&mut received).unwrap();
            assert!(received == expected);
            second.send(&received[..9]).unwrap();
        });
        first.send(&sent).unwrap();
        let mut back = [0; 9];
        first.receive(&mut back).unwrap();
        assert_eq!(back, sent[..9]);
        peer.join().unwrap();
    }
}
