//! Any datagram, as the broker and as the library would take it.
#![no_main]

use yasmin_control::{FromBroker, ToBroker};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(message) = ToBroker::decode(data) {
        assert_eq!(ToBroker::decode(&message.encode()), Ok(message));
    }
    if let Ok(message) = FromBroker::decode(data) {
        assert_eq!(FromBroker::decode(&message.encode()), Ok(message));
    }
});
