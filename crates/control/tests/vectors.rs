//! `spec/vectors/control.json`.

use serde_json::Value;
use yasmin_control::guest::Endpoint;
use yasmin_control::message::COMM_BYTES;
use yasmin_control::{
    BadMessage, CONTROL_VERSION, Decline, FromBroker, MESSAGE_BYTES, Role, Socket, Then, ToBroker,
};
use yasmin_wire::Medium;

fn bytes(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

fn text<'a>(case: &'a Value, name: &str) -> &'a str {
    case[name].as_str().unwrap_or_else(|| panic!("{name} in {case}"))
}

fn hex(case: &Value, name: &str) -> u64 {
    u64::from_str_radix(text(case, name).trim_start_matches("0x"), 16).unwrap()
}

fn number(case: &Value, name: &str) -> u64 {
    case[name].as_u64().unwrap_or_else(|| panic!("{name} in {case}"))
}

fn role(case: &Value) -> Role {
    match text(case, "role") {
        "connector" => Role::Connector,
        "acceptor" => Role::Acceptor,
        other => panic!("role {other}"),
    }
}

fn reason(case: &Value) -> Decline {
    match text(case, "reason") {
        "not_tcp" => Decline::NotTcp,
        "self_connected" => Decline::SelfConnected,
        "memory" => Decline::Memory,
        "policy" => Decline::Policy,
        "no_proof" => Decline::NoProof,
        "taken" => Decline::Taken,
        "too_many" => Decline::TooMany,
        "no_guest" => Decline::NoGuest,
        "no_residue" => Decline::NoResidue,
        "shared" => Decline::Shared,
        "own_calls" => Decline::OwnCalls,
        "option" => Decline::Option,
        "unseen" => Decline::Unseen,
        "later" => Decline::Later,
        "confined" => Decline::Confined,
        other => panic!("reason {other}"),
    }
}

/// "number cookie local:port peer:port", all but the numbers in hex.
fn socket(case: &Value) -> Socket {
    let words: Vec<&str> = text(case, "socket").split(' ').collect();
    let end = |word: &str| {
        let (address, port) = word.split_once(':').unwrap();
        let address = bytes(address).try_into().unwrap();
        Endpoint { address, port: port.parse().unwrap() }
    };
    Socket {
        number: words[0].parse().unwrap(),
        cookie: u64::from_str_radix(words[1], 16).unwrap(),
        local: end(words[2]),
        peer: end(words[3]),
    }
}

fn to_broker(case: &Value) -> ToBroker {
    match text(case, "message") {
        "hello" => {
            let comm: [u8; COMM_BYTES] = bytes(text(case, "comm_hex")).try_into().unwrap();
            ToBroker::Hello { version: number(case, "version") as u32, comm }
        }
        "offer" => ToBroker::Offer {
            id: hex(case, "id"),
            role: role(case),
            holders: case["holders"].as_u64().unwrap_or(0) as u8,
            socket: socket(case),
        },
        "stays" => ToBroker::Stays { role: role(case), reason: reason(case), socket: socket(case) },
        "release" => ToBroker::Release {
            id: hex(case, "id"),
            then: Then::of_bits(case["then"].as_u64().unwrap_or(0)),
        },
        "grow" => ToBroker::Grow { id: hex(case, "id"), class: number(case, "class") as u8 },
        "status" => ToBroker::Status { version: number(case, "version") as u32 },
        "prepare" => ToBroker::Prepare {
            version: number(case, "version") as u32,
            to: Endpoint {
                address: bytes(text(case, "address_hex")).try_into().unwrap(),
                port: number(case, "port") as u16,
            },
        },
        "join" => ToBroker::Join {
            version: number(case, "version") as u32,
            role: role(case),
            wait_ms: number(case, "wait_ms") as u32,
            socket: socket(case),
        },
        "leave" => {
            ToBroker::Leave { version: number(case, "version") as u32, socket: socket(case) }
        }
        "keep" => ToBroker::Keep,
        "claim" => {
            ToBroker::Claim { version: number(case, "version") as u32, socket: socket(case) }
        }
        "count" => ToBroker::Count {
            version: number(case, "version") as u32,
            number: number(case, "number") as u32,
        },
        other => panic!("message {other}"),
    }
}

fn from_broker(case: &Value) -> FromBroker {
    match text(case, "message") {
        "welcome" => FromBroker::Welcome { version: number(case, "version") as u32 },
        "refused" => FromBroker::Refused { version: number(case, "version") as u32 },
        "channel" => FromBroker::Channel {
            id: hex(case, "id"),
            cookie: hex(case, "cookie"),
            role: role(case),
            max_class: number(case, "max_class") as u8,
            first_class: number(case, "first_class") as u8,
            medium: match case["medium"].as_str() {
                None => Medium::Memfd,
                Some("ivshmem") => Medium::Ivshmem,
                Some(other) => panic!("medium {other}"),
            },
        },
        "decline" => FromBroker::Decline { id: hex(case, "id"), reason: reason(case) },
        "status" => FromBroker::Status { len_bytes: hex(case, "len_bytes") },
        "prepared" => FromBroker::Prepared,
        "joined" => FromBroker::Joined { proof: hex(case, "proof") },
        "send" => FromBroker::Send,
        "left" => FromBroker::Left,
        "residue" => FromBroker::Residue { left: hex(case, "left") },
        "counted" => FromBroker::Counted { references: hex(case, "references") },
        other => panic!("message {other}"),
    }
}

fn bad(case: &Value) -> BadMessage {
    let value = hex(case, "value");
    match text(case, "error") {
        "length" => BadMessage::Length { len_bytes: value as usize },
        "kind" => BadMessage::Kind { value: value as u32 },
        "then" => BadMessage::Then { value: value as u32 },
        "role" => BadMessage::Role { value: value as u32 },
        "class" => BadMessage::Class { value },
        "reason" => BadMessage::Reason { value: value as u32 },
        "port" => BadMessage::Port { value },
        "medium" => BadMessage::Medium { value },
        other => panic!("error {other}"),
    }
}

#[test]
fn vectors() {
    let vectors: Value =
        serde_json::from_str(include_str!("../../../spec/vectors/control.json")).unwrap();
    assert_eq!(number(&vectors, "control_version"), u64::from(CONTROL_VERSION));
    assert_eq!(number(&vectors, "message_bytes"), MESSAGE_BYTES as u64);
    let list = |name: &str| {
        let list = vectors[name].as_array().unwrap().clone();
        assert!(!list.is_empty(), "{name}");
        list
    };
    for case in list("to_broker") {
        let raw = bytes(text(&case, "hex"));
        assert_eq!(to_broker(&case).encode().as_slice(), raw, "{case}");
        assert_eq!(ToBroker::decode(&raw), Ok(to_broker(&case)), "{case}");
    }
    for case in list("from_broker") {
        let raw = bytes(text(&case, "hex"));
        assert_eq!(from_broker(&case).encode().as_slice(), raw, "{case}");
        assert_eq!(FromBroker::decode(&raw), Ok(from_broker(&case)), "{case}");
    }
    for case in list("invalid_to_broker") {
        assert_eq!(ToBroker::decode(&bytes(text(&case, "hex"))), Err(bad(&case)), "{case}");
    }
    for case in list("invalid_from_broker") {
        assert_eq!(FromBroker::decode(&bytes(text(&case, "hex"))), Err(bad(&case)), "{case}");
    }
    // Fields that a kind does not name are not read.
    for case in list("unread_to_broker") {
        let read = ToBroker::decode(&bytes(text(&case, "hex"))).unwrap();
        assert_eq!(read.encode().as_slice(), bytes(text(&case, "same_as")), "{case}");
    }
    for case in list("unread_from_broker") {
        let read = FromBroker::decode(&bytes(text(&case, "hex"))).unwrap();
        assert_eq!(read.encode().as_slice(), bytes(text(&case, "same_as")), "{case}");
    }
}
