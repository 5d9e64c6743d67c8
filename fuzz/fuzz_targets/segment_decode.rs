//! Any datagram about segments, as the broker and as a member would take it; any first page.
#![no_main]

use yasmin_control::segment::{Answer, Request, check_header};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(message) = Request::decode(data) {
        assert_eq!(Request::decode(&message.encode()), Ok(message));
        if let Request::Create { name, size_bytes, kind, .. } = message {
            let address = yasmin_control::segment::ADDRESSES_START + 4096;
            let place = yasmin_control::segment::Place::new(address, size_bytes, kind);
            let place = place.expect("what can be asked for can be");
            let header = yasmin_control::segment::header(&name, &place);
            assert_eq!(check_header(&header, &name, &place), Ok(()));
            let _ = check_header(data, &name, &place);
        }
    }
    if let Ok(message) = Answer::decode(data) {
        assert_eq!(Answer::decode(&message.encode()), Ok(message));
    }
});
