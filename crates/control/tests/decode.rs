//! Any datagram: decoding never panics, and what it accepts survives a round trip.

use proptest::prelude::*;
use yasmin_control::{FromBroker, MESSAGE_BYTES, ToBroker};

/// Datagrams whose kind, roles and classes are often valid.
fn likely() -> impl Strategy<Value = Vec<u8>> {
    (
        prop_oneof![0u32..11, 99u32..111, any::<u32>()],
        prop_oneof![0u32..12, any::<u32>()],
        any::<u64>(),
        prop_oneof![0u64..0x1000, any::<u64>()],
        any::<[u8; 40]>(),
    )
        .prop_map(|(kind, a, id, c, rest)| {
            let mut raw = Vec::with_capacity(MESSAGE_BYTES);
            raw.extend(kind.to_le_bytes());
            raw.extend(a.to_le_bytes());
            raw.extend(id.to_le_bytes());
            raw.extend(&rest[..8]);
            raw.extend(c.to_le_bytes());
            raw.extend(&rest[8..]);
            raw
        })
}

proptest! {
    #[test]
    fn any_length(raw in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = ToBroker::decode(&raw);
        let _ = FromBroker::decode(&raw);
    }

    #[test]
    fn accepted_is_understood(raw in likely()) {
        if let Ok(message) = ToBroker::decode(&raw) {
            prop_assert_eq!(ToBroker::decode(&message.encode()), Ok(message));
        }
        if let Ok(message) = FromBroker::decode(&raw) {
            prop_assert_eq!(FromBroker::decode(&message.encode()), Ok(message));
        }
    }
}
