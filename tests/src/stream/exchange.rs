//! The order of sending and receiving on one connection.

use std::time::Duration;

use crate::pattern::{Pattern, Rng};
use crate::sys::{self, Fd, Ready, libc};

use super::rx::Receiver;
use super::tx::Sender;
use super::wait::Waiter;
use super::{Config, Exchange, Pause, Role, Stop, WaitForm};

/// Perhaps a pause, as a program that does something else between two calls.
pub fn pause(pause: Pause, rng: &mut Rng) {
    if pause.every != 0 && rng.below(pause.every) == 0 {
        std::thread::sleep(Duration::from_micros(1 + rng.below(pause.longest_us.max(1))));
    }
}

/// How one end of a connection ended.
#[derive(Debug)]
pub struct Outcome {
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// What stopped the sending and the receiving half, where something did.
    pub send_stop: Option<Stop>,
    pub receive_stop: Option<Stop>,
}

pub struct End {
    sender: Sender,
    receiver: Receiver,
    waiter: Waiter,
    form: WaitForm,
    half_close: bool,
}

impl End {
    /// # Errors
    /// When a call fails.
    pub fn new(fd: Fd, config: &Config) -> Result<Self, Stop> {
        let (own, other) = match config.role {
            Role::Connect => (0, 1),
            Role::Listen => (1, 0),
        };
        let seed = config.seed * 2;
        Ok(Self {
            sender: Sender::new(fd, config, Pattern::new(seed + own), config.seed + 10 + own)?,
            receiver: Receiver::new(
                fd,
                config,
                Pattern::new(seed + other),
                config.seed + 20 + own,
            )?,
            waiter: Waiter::new(config.wait, fd, config.seed + 30 + own)?,
            form: config.wait,
            half_close: config.half_close,
        })
    }

    pub fn run(&mut self, config: &Config) -> Outcome {
        let (sends, receives) = (config.sends_bytes(), config.receives_bytes());
        let stop = match config.exchange {
            Exchange::Duplex => self.both(sends, receives),
            Exchange::Survive => self.both(u64::MAX, u64::MAX),
            Exchange::Mutual => self.mutual(config),
            Exchange::Echo => self.echo(config),
        };
        let (send_stop, receive_stop) = stop.unwrap_or((None, None));
        Outcome {
            sent_bytes: self.sender.position,
            received_bytes: self.receiver.position,
            send_stop,
            receive_stop,
        }
    }

    /// Ends the stream and reads the other's end.
    ///
    /// # Errors
    /// When the other end does not end its stream where it should.
    pub fn finish(&mut self) -> Result<(), Stop> {
        if !(self.half_close && self.sender.position != 0) {
            sys::shutdown(self.sender.fd, libc::SHUT_WR).map_err(super::failed("shutdown"))?;
        }
        let at = self.receiver.position;
        match self.receive_until(at + 1) {
            Err(Stop::Eof) => Ok(()),
            Err(other) => Err(other),
            Ok(()) => {
                let more = std::io::Error::other("bytes after the last one");
                Err(super::failed("receive")(more))
            }
        }
    }

    /// A few small messages to and fro first, so that nobody is asleep when it begins.
    fn mutual(&mut self, config: &Config) -> Option<(Option<Stop>, Option<Stop>)> {
        const GREETING_BYTES: u64 = 100;
        let (sends, receives) = (config.sends_bytes(), config.receives_bytes());
        for nth in 1..=20 {
            let both = nth * GREETING_BYTES;
            let (first, second) = match config.role {
                Role::Connect => ((both, 0), (both, both)),
                Role::Listen => ((0, both), (both, both)),
            };
            for (sent, received) in [first, second] {
                let stop = self.both(sent.max(self.sender.position), received);
                if stop.is_some() {
                    return stop;
                }
            }
        }
        self.both(sends, 0).or_else(|| self.both(sends, receives))
    }

    fn echo(&mut self, config: &Config) -> Option<(Option<Stop>, Option<Stop>)> {
        let mut sizes = Rng::new(config.seed + 40);
        let (mut asked, mut answered) = (0, 0);
        for _ in 0..config.rounds {
            asked += sizes.size(config.max_bytes) as u64;
            answered += sizes.size(config.max_bytes) as u64;
            let (sends, receives) = match config.role {
                Role::Connect => (asked, answered),
                Role::Listen => (answered, asked),
            };
            for sending in [config.role == Role::Connect, config.role == Role::Listen] {
                let stop = if sending {
                    (self.send_until(sends).err(), None)
                } else {
                    (None, self.receive_until(receives).err())
                };
                if stop.0.is_some() || stop.1.is_some() {
                    return Some(stop);
                }
            }
        }
        None
    }

    fn send_until(&mut self, target: u64) -> Result<(), Stop> {
        let want = Ready { readable: false, writable: true };
        while self.sender.position < target {
            if self.waiter.wait(want)?.writable
                && self.sender.step(target, self.waiter.flags())?.is_none()
            {
                self.waiter.would_block(false);
            }
        }
        Ok(())
    }

    fn receive_until(&mut self, target: u64) -> Result<(), Stop> {
        let want = Ready { readable: true, writable: false };
        while self.receiver.position < target {
            if self.waiter.wait(want)?.readable
                && self.receiver.step(target, self.waiter.flags())?.is_none()
            {
                self.waiter.would_block(true);
            }
        }
        Ok(())
    }

    /// Both halves to their targets; what stopped them, where something did.
    fn both(&mut self, sends: u64, receives: u64) -> Option<(Option<Stop>, Option<Stop>)> {
        let stops = if self.form.is_blocking() {
            self.both_by_threads(sends, receives)
        } else {
            self.both_by_events(sends, receives)
        };
        (stops.0.is_some() || stops.1.is_some()).then_some(stops)
    }

    fn both_by_threads(&mut self, sends: u64, receives: u64) -> (Option<Stop>, Option<Stop>) {
        let (sender, receiver) = (&mut self.sender, &mut self.receiver);
        let half_close = self.half_close && sends != 0;
        if receives <= receiver.position {
            return (send_blocking(sender, sends, half_close).err(), None);
        }
        if sends <= sender.position {
            return (None, receive_blocking(receiver, receives).err());
        }
        std::thread::scope(|scope| {
            let sending = scope.spawn(move || send_blocking(sender, sends, half_close).err());
            let received = receive_blocking(receiver, receives).err();
            let sent = sending.join().unwrap_or_else(|_| {
                Some(super::failed("thread")(std::io::Error::other("panicked")))
            });
            (sent, received)
        })
    }

    fn both_by_events(&mut self, sends: u64, receives: u64) -> (Option<Stop>, Option<Stop>) {
        let (mut send_stop, mut receive_stop) = (None, None);
        let mut shut = !self.half_close;
        loop {
            let want = Ready {
                readable: receive_stop.is_none() && self.receiver.position < receives,
                writable: send_stop.is_none() && self.sender.position < sends,
            };
            if !want.writable && !shut && send_stop.is_none() {
                shut = true;
                let ended = sys::shutdown(self.sender.fd, libc::SHUT_WR);
                send_stop = ended.map_err(super::failed("shutdown")).err();
            }
            if want == Ready::default() {
                return (send_stop, receive_stop);
            }
            let ready = match self.waiter.wait(want) {
                Ok(ready) => ready,
                Err(stop) => return (Some(stop), receive_stop),
            };
            // An end of the connection makes everything ready, also what is done already.
            if ready.writable && want.writable {
                match self.sender.step(sends, self.waiter.flags()) {
                    Ok(Some(_)) => {}
                    Ok(None) => self.waiter.would_block(false),
                    Err(stop) => send_stop = Some(stop),
                }
            }
            if ready.readable && want.readable {
                match self.receiver.step(receives, self.waiter.flags()) {
                    Ok(Some(_)) => {}
                    Ok(None) => self.waiter.would_block(true),
                    Err(stop) => receive_stop = Some(stop),
                }
            }
        }
    }
}

fn send_blocking(sender: &mut Sender, target: u64, half_close: bool) -> Result<(), Stop> {
    while sender.position < target {
        sender.step(target, 0)?;
    }
    if half_close {
        sys::shutdown(sender.fd, libc::SHUT_WR).map_err(super::failed("shutdown"))?;
    }
    Ok(())
}

fn receive_blocking(receiver: &mut Receiver, target: u64) -> Result<(), Stop> {
    while receiver.position < target {
        receiver.step(target, 0)?;
    }
    Ok(())
}
