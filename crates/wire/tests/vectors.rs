//! `spec/vectors/word.json` and `layout.json`.

use serde::Deserialize;
use serde_json::Value;
use yasmin_wire::{BadWord, Position, State, WIRE_VERSION, Word, layout, position};

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).expect(text)
}

#[derive(Deserialize)]
struct Words {
    valid: Vec<Valid>,
    invalid: Vec<Invalid>,
}

#[derive(Deserialize)]
struct Valid {
    raw: String,
    state: String,
    class: u8,
    tail: String,
}

#[derive(Deserialize)]
struct Invalid {
    raw: String,
    error: String,
    value: u8,
}

#[test]
fn words() {
    let words: Words =
        serde_json::from_str(include_str!("../../../spec/vectors/word.json")).unwrap();
    assert!(!words.valid.is_empty() && !words.invalid.is_empty());
    for case in words.valid {
        let state = match case.state.as_str() {
            "parked" => State::Parked,
            "offered" => State::Offered,
            "open" => State::Open,
            other => panic!("state {other}"),
        };
        let word = Word { state, class: case.class, tail: Position::new(hex(&case.tail)) };
        assert_eq!(word.encode(), hex(&case.raw), "{}", case.raw);
        assert_eq!(Word::decode(hex(&case.raw)), Ok(word), "{}", case.raw);
    }
    for case in words.invalid {
        let expected = match case.error.as_str() {
            "state" => BadWord::State { bits: case.value },
            "class" => BadWord::Class { class: case.value },
            other => panic!("error {other}"),
        };
        assert_eq!(Word::decode(hex(&case.raw)), Err(expected), "{}", case.raw);
    }
}

#[derive(Deserialize)]
struct Layout {
    wire_version: u32,
    page_bytes: usize,
    max_class: u8,
    min_paged_class: u8,
    position_bits: u32,
    header: Value,
    block: Value,
    channels: Vec<Channel>,
    offsets: Vec<Offset>,
    distances: Vec<Distance>,
}

#[derive(Deserialize)]
struct Channel {
    max_class: u8,
    class_bytes: u32,
    direction_offset: [usize; 2],
    small_ring_offset: [usize; 2],
    ring_offset: [usize; 2],
    channel_bytes: usize,
}

#[derive(Deserialize)]
struct Offset {
    position: String,
    class: u8,
    offset: u32,
}

#[derive(Deserialize)]
struct Distance {
    earlier: String,
    later: String,
    distance: String,
}

#[test]
fn offsets() {
    let vectors: Layout =
        serde_json::from_str(include_str!("../../../spec/vectors/layout.json")).unwrap();
    assert_eq!(vectors.wire_version, WIRE_VERSION);
    assert_eq!(vectors.page_bytes, layout::PAGE_BYTES);
    assert_eq!(vectors.max_class, layout::MAX_CLASS);
    assert_eq!(vectors.min_paged_class, layout::MIN_PAGED_CLASS);
    assert_eq!(vectors.position_bits, position::POSITION_BITS);

    let magic: String =
        layout::CHANNEL_MAGIC.to_le_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let header = serde_json::json!({
        "magic": layout::HEADER_MAGIC,
        "version": layout::HEADER_VERSION,
        "max_class": layout::HEADER_MAX_CLASS,
        "magic_hex": magic,
    });
    assert_eq!(vectors.header, header);
    let block = serde_json::json!({
        "word": layout::DIRECTION_WORD,
        "tcp_position": layout::DIRECTION_TCP_POSITION,
        "tcp_hint": layout::DIRECTION_TCP_HINT,
        "sender_cpu": layout::DIRECTION_SENDER_CPU,
        "class_wanted": layout::DIRECTION_CLASS_WANTED,
        "tcp_elsewhere": layout::DIRECTION_TCP_ELSEWHERE,
        "stamp": layout::DIRECTION_STAMP,
        "head": layout::DIRECTION_HEAD,
        "receiver_cpu": layout::DIRECTION_RECEIVER_CPU,
        "stamps": layout::DIRECTION_STAMPS,
        "stamps_count": layout::DIRECTION_STAMPS_COUNT,
        "next_stamp": layout::DIRECTION_NEXT_STAMP,
        "bytes": layout::DIRECTION_BYTES,
    });
    assert_eq!(vectors.block, block);

    assert_eq!(vectors.channels.len(), usize::from(layout::MAX_CLASS) + 1);
    for channel in vectors.channels {
        let class = channel.max_class;
        assert_eq!(channel.class_bytes, layout::class_bytes(class));
        assert_eq!(channel.channel_bytes, layout::channel_bytes(class));
        for index in 0..2 {
            assert_eq!(channel.direction_offset[index], layout::direction_offset(index));
            assert_eq!(channel.small_ring_offset[index], layout::small_ring_offset(index));
            assert_eq!(channel.ring_offset[index], layout::ring_offset(index, class));
        }
    }
    for case in vectors.offsets {
        let at = Position::new(hex(&case.position));
        assert_eq!(at.offset(layout::class_bytes(case.class)), case.offset, "{}", case.position);
    }
    for case in vectors.distances {
        let (earlier, later) = (Position::new(hex(&case.earlier)), Position::new(hex(&case.later)));
        assert_eq!(later.since(earlier), hex(&case.distance), "{} {}", case.earlier, case.later);
    }
}
