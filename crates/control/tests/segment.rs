//! `spec/vectors/segment.json`, and any datagram.

use proptest::prelude::*;
use serde_json::Value;
use yasmin_control::MESSAGE_BYTES;
use yasmin_control::segment::{
    Answer, BadSegment, Kind, Name, Place, Refusal, Request, Rights, Whom, header,
};
use yasmin_control::uplink::Life;

fn bytes(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

fn text<'a>(case: &'a Value, name: &str) -> &'a str {
    case[name].as_str().unwrap_or_else(|| panic!("{name} in {case}"))
}

/// Numbers are hexadecimal texts: JSON's own are exact up to 2^53.
fn number(case: &Value, name: &str) -> u64 {
    u64::from_str_radix(text(case, name).trim_start_matches("0x"), 16).unwrap()
}

fn name(case: &Value) -> Name {
    Name::new(text(case, "name")).unwrap()
}

fn kind(case: &Value) -> Kind {
    let words = text(case, "kind");
    Kind { is_huge: words.contains("huge"), with_creator: words.contains("creator") }
}

fn rights(case: &Value) -> Rights {
    let all = [Rights::None, Rights::Read, Rights::Write];
    all.into_iter().find(|rights| rights.describe() == text(case, "rights")).unwrap()
}

fn place(case: &Value) -> Place {
    Place::new(number(case, "address"), number(case, "size_bytes"), kind(case)).unwrap()
}

fn request(case: &Value) -> Request {
    let version = number(case, "version") as u32;
    match text(case, "message") {
        "create" => Request::Create {
            version,
            name: name(case),
            size_bytes: number(case, "size_bytes"),
            kind: kind(case),
        },
        "open" => Request::Open {
            version,
            name: name(case),
            rights: rights(case),
            sparse: case["sparse"].as_bool().unwrap(),
        },
        "remove" => Request::Remove { version, name: name(case) },
        "allow" => {
            let whom = match case.get("user") {
                None => Whom::Everyone,
                Some(_) => Whom::User(number(case, "user") as u32),
            };
            Request::Allow { version, name: name(case), whom, rights: rights(case) }
        }
        "about" => Request::About { version, name: name(case) },
        "probe" => Request::Probe { version, name: name(case), slot: number(case, "slot") },
        "ring" => Request::Ring {
            version,
            name: name(case),
            bell: number(case, "bell") as u8,
            domains: number(case, "domains") as u8,
        },
        "list" => Request::List { version, after: Name::new(text(case, "name")) },
        other => panic!("message {other}"),
    }
}

fn refusal(case: &Value) -> Refusal {
    let value = number(case, "value");
    match text(case, "reason") {
        "taken" => Refusal::Taken { owner: value as u32 },
        "no_segment" => Refusal::NoSegment,
        "rights" => Refusal::Rights { has: Rights::decode(value as u32).unwrap() },
        "not_owner" => Refusal::NotOwner { owner: value as u32 },
        "too_large" => Refusal::TooLarge { most_bytes: value },
        "user_share" => Refusal::UserShare { left_bytes: value },
        "all_shares" => Refusal::AllShares { left_bytes: value },
        "too_many" => Refusal::TooMany { most: value },
        "group" => Refusal::Group { left_bytes: value },
        "huge_pages" => Refusal::HugePages { free_bytes: value },
        "too_many_users" => Refusal::TooManyUsers { most: value },
        "unseen" => Refusal::Unseen,
        "kernel" => Refusal::Kernel { errno: value },
        "no_address" => Refusal::NoAddress,
        "of_host" => Refusal::OfHost,
        other => panic!("reason {other}"),
    }
}

fn answer(case: &Value) -> Answer {
    match text(case, "message") {
        "segment" => {
            let domain = case.get("domain").map(|_| number(case, "domain") as u8);
            Answer::Segment { place: place(case), rights: rights(case), domain }
        }
        "life" => Answer::Life(Life::decode(number(case, "life")).unwrap()),
        "done" => Answer::Done,
        "refused" => Answer::Refused(refusal(case)),
        "text" => Answer::Text { len_bytes: number(case, "len_bytes") },
        other => panic!("message {other}"),
    }
}

/// The error's name, without its value.
fn bad(error: BadSegment) -> &'static str {
    match error {
        BadSegment::Length { .. } => "length",
        BadSegment::Kind { .. } => "kind",
        BadSegment::Name => "name",
        BadSegment::Size { .. } => "size",
        BadSegment::Flags { .. } => "flags",
        BadSegment::Rights { .. } => "rights",
        BadSegment::Whom { .. } => "whom",
        BadSegment::Reason { .. } => "reason",
        BadSegment::User { .. } => "user",
        BadSegment::Place => "place",
        BadSegment::Domain => "domain",
        BadSegment::Life { .. } => "life",
        BadSegment::Bell { .. } => "bell",
    }
}

#[test]
fn vectors() {
    let vectors: Value =
        serde_json::from_str(include_str!("../../../spec/vectors/segment.json")).unwrap();
    let list = |name: &str| {
        let list = vectors[name].as_array().unwrap().clone();
        assert!(!list.is_empty(), "{name}");
        list
    };
    for case in list("to_broker") {
        let raw = bytes(text(&case, "hex"));
        assert_eq!(request(&case).encode().as_slice(), raw, "{case}");
        assert_eq!(Request::decode(&raw), Ok(request(&case)), "{case}");
    }
    for case in list("from_broker") {
        let raw = bytes(text(&case, "hex"));
        assert_eq!(answer(&case).encode().as_slice(), raw, "{case}");
        assert_eq!(Answer::decode(&raw), Ok(answer(&case)), "{case}");
    }
    for case in list("invalid_to_broker") {
        let error = Request::decode(&bytes(text(&case, "hex"))).unwrap_err();
        assert_eq!(bad(error), text(&case, "error"), "{case}");
    }
    for case in list("invalid_from_broker") {
        let error = Answer::decode(&bytes(text(&case, "hex"))).unwrap_err();
        assert_eq!(bad(error), text(&case, "error"), "{case}");
    }
    for case in list("headers") {
        assert_eq!(header(&name(&case), &place(&case)).as_slice(), bytes(text(&case, "hex")));
    }
}

/// Datagrams whose fields are often valid.
fn likely() -> impl Strategy<Value = Vec<u8>> {
    let word = || prop_oneof![0u64..4, 0x2000_0000_0000u64..0x2000_0000_2000, any::<u64>()];
    let name = prop_oneof![
        prop::collection::vec(prop_oneof![Just(b'a'), Just(b'.'), Just(0u8)], 32),
        Just(b"table\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec()),
        prop::collection::vec(any::<u8>(), 32),
    ];
    (prop_oneof![10u32..19, 110u32..117], 0u32..16, word(), word(), word(), name).prop_map(
        |(kind, a, id, b, c, name)| {
            let mut raw = Vec::with_capacity(MESSAGE_BYTES);
            raw.extend(kind.to_le_bytes());
            raw.extend(a.to_le_bytes());
            raw.extend(id.to_le_bytes());
            raw.extend(b.to_le_bytes());
            raw.extend(c.to_le_bytes());
            raw.extend(name);
            raw
        },
    )
}

proptest! {
    #[test]
    fn any_length(raw in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Request::decode(&raw);
        let _ = Answer::decode(&raw);
    }

    #[test]
    fn accepted_is_understood(raw in likely()) {
        if let Ok(message) = Request::decode(&raw) {
            prop_assert_eq!(Request::decode(&message.encode()), Ok(message));
        }
        if let Ok(message) = Answer::decode(&raw) {
            prop_assert_eq!(Answer::decode(&message.encode()), Ok(message));
        }
    }
}
