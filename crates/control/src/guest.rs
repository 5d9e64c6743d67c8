//! What the brokers of two guests say to each other on a vsock connection, before it takes the
//! place of a TCP connection (spec/wire.md section 11).
//!
//! ```text
//! connector's broker   TOKEN, 64 bytes ──▶   acceptor's broker
//!                      ◀── READY, 16 bytes   acceptor's library
//! connector's library  GO, 8 bytes ──────▶   acceptor's library
//! ```
//!
//! Then come the program's bytes. Whoever is not content closes.

use crate::directory::Address;

/// Where each guest's broker listens. Below 1024: only root can, and only root connects from
/// such a port.
pub const PORT: u32 = 722;

/// Ports up to here are root's.
pub const LAST_PRIVILEGED_PORT: u32 = 1023;

pub const TOKEN_BYTES: usize = 64;
pub const READY_BYTES: usize = 16;
pub const GO: [u8; 8] = *b"YASMINGO";

const TOKEN_MAGIC: [u8; 8] = *b"YASMINTK";
const READY_MAGIC: [u8; 8] = *b"YASMINOK";
const VERSION: u32 = 1;

/// One end of a TCP connection; IPv4 mapped into IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    pub address: Address,
    pub port: u16,
}

/// Which TCP connection this vsock connection is meant for.
///
/// ```text
/// 0  magic "YASMINTK"   8  version u32   12 connector's port u16   14 acceptor's port u16
/// 16 connector's address   32 acceptor's address   48 proof u64   56 zero
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    pub connector: Endpoint,
    pub acceptor: Endpoint,
    /// 0: the connector has no proof.
    pub proof: u64,
}

/// Not what an honest broker of this version writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadToken {
    Magic,
    Version { value: u32 },
}

impl Token {
    pub fn encode(&self) -> [u8; TOKEN_BYTES] {
        let mut out = [0; TOKEN_BYTES];
        out[0..8].copy_from_slice(&TOKEN_MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..14].copy_from_slice(&self.connector.port.to_le_bytes());
        out[14..16].copy_from_slice(&self.acceptor.port.to_le_bytes());
        out[16..32].copy_from_slice(&self.connector.address);
        out[32..48].copy_from_slice(&self.acceptor.address);
        out[48..56].copy_from_slice(&self.proof.to_le_bytes());
        out
    }

    /// # Errors
    /// `BadToken`; the connection is then closed.
    pub fn decode(raw: &[u8; TOKEN_BYTES]) -> Result<Self, BadToken> {
        if raw[0..8] != TOKEN_MAGIC {
            return Err(BadToken::Magic);
        }
        let value = u32::from_le_bytes([raw[8], raw[9], raw[10], raw[11]]);
        if value != VERSION {
            return Err(BadToken::Version { value });
        }
        let port = |at: usize| u16::from_le_bytes([raw[at], raw[at + 1]]);
        let address = |at: usize| {
            let mut address = [0; 16];
            address.copy_from_slice(&raw[at..at + 16]);
            address
        };
        Ok(Self {
            connector: Endpoint { address: address(16), port: port(12) },
            acceptor: Endpoint { address: address(32), port: port(14) },
            proof: proof_at(raw, 48),
        })
    }
}

/// READY: the acceptor is about to use the connection, and waits for GO.
pub fn ready(proof: u64) -> [u8; READY_BYTES] {
    let mut out = [0; READY_BYTES];
    out[0..8].copy_from_slice(&READY_MAGIC);
    out[8..16].copy_from_slice(&proof.to_le_bytes());
    out
}

/// The proof in READY; `None`: it is no READY.
pub fn proof_of_ready(raw: &[u8; READY_BYTES]) -> Option<u64> {
    (raw[0..8] == READY_MAGIC).then(|| proof_at(raw, 8))
}

fn proof_at(raw: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&raw[at..at + 8]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Token {
        Token {
            connector: Endpoint {
                address: *b"\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\x02\x14",
                port: 40000,
            },
            acceptor: Endpoint {
                address: *b"\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\x02\x15",
                port: 6379,
            },
            proof: 7,
        }
    }

    #[test]
    fn a_token_comes_back() {
        let raw = token().encode();
        assert_eq!(Token::decode(&raw), Ok(token()));
        let mut bad = raw;
        bad[0] ^= 1;
        assert_eq!(Token::decode(&bad), Err(BadToken::Magic));
        let mut bad = raw;
        bad[8] = 9;
        assert_eq!(Token::decode(&bad), Err(BadToken::Version { value: 9 }));
        assert_eq!(proof_of_ready(&ready(5)), Some(5));
        assert_eq!(proof_of_ready(&[0; READY_BYTES]), None);
    }
}
