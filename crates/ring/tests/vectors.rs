//! `spec/vectors/direction.json`: both ends of a direction step by step, honest and hostile.
#![cfg(not(loom))]

use serde_json::Value;
use yasmin_ring::{
    Block, Broken, Pages, Park, Publish, Receiver, ReceiverState, Room, Sender, SenderState, View,
};
use yasmin_wire::layout::class_bytes;
use yasmin_wire::{Position, State, Word};

fn hex(step: &Value, name: &str) -> u64 {
    let text = step[name].as_str().unwrap_or_else(|| panic!("{name} in {step}"));
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
}

fn number(step: &Value, name: &str) -> usize {
    step[name].as_u64().unwrap_or_else(|| panic!("{name} in {step}")) as usize
}

fn bytes(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

/// Result and value of a step, as the vectors write them.
type Outcome = (String, Option<u64>);

fn plain(result: &str) -> Outcome {
    (result.to_string(), None)
}

fn checked(result: Result<Outcome, Broken>) -> Outcome {
    result.unwrap_or_else(|Broken| plain("broken"))
}

#[test]
fn vectors() {
    let vectors: Value =
        serde_json::from_str(include_str!("../../../spec/vectors/direction.json")).unwrap();
    let cases = vectors["cases"].as_array().unwrap();
    assert!(cases.len() > 50);
    for case in cases {
        run(case);
    }
}

fn run(case: &Value) {
    let name = case["name"].as_str().unwrap();
    let max_class = number(case, "max_class") as u8;
    let start = Position::new(hex(case, "start"));
    let block = Block::new();
    block.scribble(Word { tail: start, ..Word::INITIAL }.encode(), 0, start.get());
    let [mut small, mut paged] =
        [class_bytes(0), class_bytes(max_class)].map(|len| vec![0u8; len as usize]);
    // SAFETY: both outlive both ends.
    let memory = unsafe { Pages::new(small.as_mut_ptr(), paged.as_mut_ptr()) };
    let (tx_state, rx_state) = (SenderState::starting_at(start), ReceiverState::starting_at(start));
    let tx = Sender { block: &block, state: &tx_state, memory, max_class, class_limit: max_class };
    let rx = Receiver { block: &block, state: &rx_state, memory, max_class };
    let mut write = None;

    for (index, step) in case["steps"].as_array().unwrap().iter().enumerate() {
        let outcome = match step["op"].as_str().unwrap() {
            "sender_room" => {
                checked(tx.room(number(step, "wanted_bytes")).map(|room| match room {
                    Room::Tcp => plain("tcp"),
                    Room::Full => plain("full"),
                    Room::Ring(granted) => {
                        let room_bytes = u64::from(granted.room_bytes);
                        write = Some(granted);
                        ("ring".to_string(), Some(room_bytes))
                    }
                }))
            }
            "sender_fill" => {
                let data = bytes(step["data_hex"].as_str().unwrap());
                let skip_bytes = number(step, "skip_bytes") as u32;
                // SAFETY: `data` is readable for its length.
                unsafe { tx.fill(write.as_ref().unwrap(), skip_bytes, data.as_ptr(), data.len()) };
                plain("")
            }
            "sender_publish" => checked(
                tx.publish(
                    write.as_ref().unwrap(),
                    number(step, "len_bytes") as u32,
                    hex(step, "own_tcp_position"),
                )
                .map(|publish| match publish {
                    Publish::Done => plain("done"),
                    Publish::Retry => plain("retry"),
                }),
            ),
            "sender_park" => {
                checked(tx.park().map(|was_open| plain(if was_open { "open" } else { "not_open" })))
            }
            "sender_park_for_good" => checked(tx.park_for_good().map(|()| plain("done"))),
            "sender_unread" => {
                checked(tx.unread_bytes().map(|unread| ("bytes".to_string(), Some(unread))))
            }
            "receiver_look" => {
                let own = hex(step, "own_tcp_position");
                checked(rx.look(|| Some(own)).map(|view| match view {
                    View::TcpUpTo { limit_bytes } => ("tcp_up_to".to_string(), Some(limit_bytes)),
                    View::Ring { unread_bytes } => {
                        ("ring".to_string(), Some(u64::from(unread_bytes)))
                    }
                    View::Tcp => plain("tcp"),
                    View::Empty { state: State::Offered } => plain("empty_offered"),
                    View::Empty { .. } => plain("empty_open"),
                }))
            }
            "receiver_peek" => {
                let mut out = vec![0u8; number(step, "len_bytes")];
                let skip_bytes = number(step, "skip_bytes") as u32;
                // SAFETY: `out` is writable for its length.
                let len = unsafe { rx.peek(skip_bytes, out.as_mut_ptr(), out.len()) };
                plain(&out[..len].iter().map(|byte| format!("{byte:02x}")).collect::<String>())
            }
            "receiver_consume" => {
                rx.consume(number(step, "len_bytes") as u32);
                plain("")
            }
            "receiver_took_tcp" => {
                rx.took_tcp(number(step, "len_bytes") as u64);
                plain("")
            }
            "receiver_park" => plain(match rx.park() {
                Park::Parked => "parked",
                Park::Moved => "moved",
            }),
            "receiver_offer" => plain(&rx.offer(number(step, "class") as u8).to_string()),
            "receiver_never_offer" => {
                rx.never_offer();
                plain("")
            }
            "hostile" => {
                block.scribble(
                    hex(step, "set_word"),
                    hex(step, "set_tcp_position"),
                    hex(step, "set_head"),
                );
                plain("")
            }
            op => panic!("op {op}"),
        };
        let place = format!("{name}: step {index}: {step}");
        let expected = (step["result"].as_str().unwrap_or(""), step["value"].as_u64());
        assert_eq!((outcome.0.as_str(), outcome.1), expected, "{place}");
        assert_eq!(block.word_raw(), hex(step, "word"), "word after {place}");
        assert_eq!(block.tcp_position_raw(), hex(step, "tcp_position"), "{place}");
        assert_eq!(block.head_raw(), hex(step, "head"), "head after {place}");
    }
}
