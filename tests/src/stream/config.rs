//! What a stream peer is told on its command line: `key=value` words.

use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Listen,
    Connect,
}

macro_rules! forms {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($variant,)* }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($text => Ok(Self::$variant),)*
                    other => Err(format!("no {} {other:?}", stringify!($name))),
                }
            }
        }
    };
}

forms! {
    /// The call that sends.
    TxForm {
        Write = "write",
        Writev = "writev",
        Send = "send",
        SendMore = "sendmore",
        SendTo = "sendto",
        SendMsg = "sendmsg",
        SendMmsg = "sendmmsg",
        SendFile = "sendfile",
        Splice = "splice",
        // Any of the above but splice, another for each call.
        Mixed = "mixed",
    }
}

forms! {
    /// The call that receives.
    RxForm {
        Read = "read",
        Readv = "readv",
        Recv = "recv",
        Peek = "peek",
        WaitAll = "waitall",
        RecvFrom = "recvfrom",
        RecvMsg = "recvmsg",
        RecvMmsg = "recvmmsg",
        Splice = "splice",
        // Any of the above but splice, another for each call.
        Mixed = "mixed",
    }
}

forms! {
    /// How a peer waits until it can send or receive.
    WaitForm {
        // Blocking calls; a thread for each direction where both are wanted at once.
        Block = "block",
        // Blocking calls that give up after 5 ms (SO_RCVTIMEO, SO_SNDTIMEO), again and again.
        Timeout = "timeout",
        Poll = "poll",
        Ppoll = "ppoll",
        Select = "select",
        Pselect = "pselect",
        Epoll = "epoll",
        EpollPwait = "epollpwait",
        EpollEdge = "epolledge",
        EpollOneshot = "epolloneshot",
        // A blocking socket, MSG_DONTWAIT on each call, and poll.
        DontWait = "dontwait",
        // No waiting at all.
        Busy = "busy",
    }
}

forms! {
    /// In which order the two peers send.
    Exchange {
        // Both directions at once.
        Duplex = "duplex",
        // The connector asks, the listener answers, one at a time.
        Echo = "echo",
        // Both send everything, in calls of the largest size, then both receive. (With calls
        // of random sizes TCP itself, which counts buffers and not bytes, takes less.)
        Mutual = "mutual",
        // Both directions at once without end; says how it ended, and that is no failure.
        Survive = "survive",
    }
}

impl WaitForm {
    pub const fn is_blocking(self) -> bool {
        matches!(self, Self::Block | Self::Timeout)
    }
}

/// A pause of up to `longest_us` before every `every`th call on average. `every` 0: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    pub longest_us: u64,
    pub every: u64,
}

impl FromStr for Pause {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (longest, every) = text.split_once('/').ok_or("a pause is LONGEST_US/EVERY")?;
        let number = |text: &str| text.parse().map_err(|error| format!("{text}: {error}"));
        Ok(Self { longest_us: number(longest)?, every: number(every)? })
    }
}

#[derive(Clone, Debug)]
pub struct Config {
    pub role: Role,
    /// The address to listen on, or to connect to.
    pub address: IpAddr,
    /// 0 for a listener lets the kernel choose; it is printed.
    pub port: u16,
    /// Where the connector connects from; 0 lets the kernel choose.
    pub local_port: u16,
    pub seed: u64,
    /// Bytes in each direction, as seen from the connector.
    pub up_bytes: u64,
    pub down_bytes: u64,
    /// Largest size of one call, or of one message in `Exchange::Echo`.
    pub max_bytes: usize,
    pub rounds: u64,
    pub tx: TxForm,
    pub rx: RxForm,
    pub wait: WaitForm,
    pub exchange: Exchange,
    pub tx_pause: Pause,
    pub rx_pause: Pause,
    /// Shut down the sending side as soon as everything is sent.
    pub half_close: bool,
    pub nodelay: bool,
    /// SO_RCVBUF and SO_SNDBUF; 0 leaves the kernel's.
    pub buffer_bytes: i32,
    pub nonblocking_connect: bool,
    /// Send `count` times, on one connection after the other.
    pub connections: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            role: Role::Listen,
            address: Ipv4Addr::LOCALHOST.into(),
            port: 0,
            local_port: 0,
            seed: 1,
            up_bytes: 1 << 20,
            down_bytes: 1 << 20,
            max_bytes: 256 << 10,
            rounds: 100,
            tx: TxForm::Write,
            rx: RxForm::Read,
            wait: WaitForm::Block,
            exchange: Exchange::Duplex,
            tx_pause: Pause::default(),
            rx_pause: Pause::default(),
            half_close: false,
            nodelay: false,
            buffer_bytes: 0,
            nonblocking_connect: false,
            connections: 1,
        }
    }
}

impl Config {
    /// # Errors
    /// The word that makes no sense, and why.
    pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Self, String> {
        fn value<T: FromStr<Err: ToString>>(text: &str) -> Result<T, String> {
            text.parse().map_err(|error: T::Err| format!("{text:?}: {}", error.to_string()))
        }
        let mut config = Self::default();
        for word in words {
            let (key, text) = word.split_once('=').ok_or(format!("{word:?} is no key=value"))?;
            match key {
                "role" => {
                    config.role = match text {
                        "listen" => Role::Listen,
                        "connect" => Role::Connect,
                        other => return Err(format!("no role {other:?}")),
                    }
                }
                "address" => config.address = value(text)?,
                "port" => config.port = value(text)?,
                "localport" => config.local_port = value(text)?,
                "seed" => config.seed = value(text)?,
                "up" => config.up_bytes = value(text)?,
                "down" => config.down_bytes = value(text)?,
                "max" => config.max_bytes = value(text)?,
                "rounds" => config.rounds = value(text)?,
                "tx" => config.tx = value(text)?,
                "rx" => config.rx = value(text)?,
                "wait" => config.wait = value(text)?,
                "exchange" => config.exchange = value(text)?,
                "txpause" => config.tx_pause = value(text)?,
                "rxpause" => config.rx_pause = value(text)?,
                "half" => config.half_close = value(text)?,
                "nodelay" => config.nodelay = value(text)?,
                "buffer" => config.buffer_bytes = value(text)?,
                "nonblocking" => config.nonblocking_connect = value(text)?,
                "connections" => config.connections = value(text)?,
                other => return Err(format!("no key {other:?}")),
            }
        }
        Ok(config)
    }

    /// Words that `parse` turns into this.
    pub fn words(&self) -> Vec<String> {
        let pause = |pause: Pause| format!("{}/{}", pause.longest_us, pause.every);
        let role = match self.role {
            Role::Listen => "listen",
            Role::Connect => "connect",
        };
        vec![
            format!("role={role}"),
            format!("address={}", self.address),
            format!("port={}", self.port),
            format!("localport={}", self.local_port),
            format!("seed={}", self.seed),
            format!("up={}", self.up_bytes),
            format!("down={}", self.down_bytes),
            format!("max={}", self.max_bytes),
            format!("rounds={}", self.rounds),
            format!("tx={}", self.tx.text()),
            format!("rx={}", self.rx.text()),
            format!("wait={}", self.wait.text()),
            format!("exchange={}", self.exchange.text()),
            format!("txpause={}", pause(self.tx_pause)),
            format!("rxpause={}", pause(self.rx_pause)),
            format!("half={}", self.half_close),
            format!("nodelay={}", self.nodelay),
            format!("buffer={}", self.buffer_bytes),
            format!("nonblocking={}", self.nonblocking_connect),
            format!("connections={}", self.connections),
        ]
    }

    /// Bytes that this end sends.
    pub const fn sends_bytes(&self) -> u64 {
        match self.role {
            Role::Connect => self.up_bytes,
            Role::Listen => self.down_bytes,
        }
    }

    pub const fn receives_bytes(&self) -> u64 {
        match self.role {
            Role::Connect => self.down_bytes,
            Role::Listen => self.up_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_back() {
        let config = Config {
            role: Role::Connect,
            wait: WaitForm::EpollEdge,
            tx: TxForm::SendMore,
            rx_pause: Pause { longest_us: 3, every: 9 },
            half_close: true,
            ..Config::default()
        };
        let again = Config::parse(config.words()).unwrap();
        assert_eq!(again.words(), config.words());
        assert!(Config::parse(["wait=never".to_owned()]).is_err());
    }
}
