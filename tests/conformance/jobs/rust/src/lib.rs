//! What echo's jobs in Rust have in common: their arguments and the messages.

use std::net::TcpListener;

/// All connections exchange so many messages each, of 1 to `most_bytes` bytes.
#[derive(Clone, Copy)]
pub struct Load {
    pub connections: u32,
    pub exchanges: u32,
    pub most_bytes: u32,
}

/// What the arguments say: `serve`, `ask PORT CONNECTIONS EXCHANGES BYTES` or `both CONNECTIONS
/// EXCHANGES BYTES`.
pub struct Task {
    /// To be served, for ever if there is no load.
    pub listener: Option<TcpListener>,
    pub port: u16,
    pub load: Option<Load>,
}

impl Task {
    /// Panics on arguments that it does not know.
    pub fn from_arguments() -> Self {
        let mut arguments = std::env::args().skip(1);
        let what = arguments.next().expect("serve, ask or both");
        let mut number = || arguments.next().and_then(|word| word.parse::<u32>().ok());
        let (listener, port) = if what == "ask" {
            (None, number().expect("a port") as u16)
        } else {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
            let port = listener.local_addr().expect("its address").port();
            (Some(listener), port)
        };
        if what == "serve" {
            println!("{port}");
        }
        let load = (what != "serve").then(|| Load {
            connections: number().expect("connections"),
            exchanges: number().expect("exchanges"),
            most_bytes: number().expect("bytes"),
        });
        Task { listener, port, load }
    }
}

/// One connection's messages, which no other connection has.
pub struct Messages {
    seed: u32,
    most_bytes: u32,
}

impl Messages {
    pub fn new(number: u32, load: Load) -> Self {
        Self { seed: 2_463_534_242 + number, most_bytes: load.most_bytes }
    }

    fn number(&mut self) -> u32 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 17;
        self.seed ^= self.seed << 5;
        self.seed
    }

    pub fn compose(&mut self) -> Vec<u8> {
        let length = 1 + self.number() % self.most_bytes;
        (0..length).map(|_| self.number() as u8).collect()
    }
}
