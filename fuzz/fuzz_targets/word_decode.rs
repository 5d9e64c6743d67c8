//! Any word: decoding is exact, and positions stay in their bounds.
#![no_main]

use yasmin_wire::{Word, layout};

libfuzzer_sys::fuzz_target!(|raws: (u64, u64)| {
    let (one, two) = (Word::decode(raws.0), Word::decode(raws.1));
    if let Ok(word) = one {
        assert_eq!(word.encode(), raws.0);
        let size = layout::class_bytes(word.class);
        assert!(word.tail.offset(size) < size);
    } else {
        assert!(raws.0 & 3 == 3 || raws.0 >> 2 & 15 > u64::from(layout::MAX_CLASS));
    }
    if let (Ok(one), Ok(two)) = (one, two) {
        let distance = two.tail.since(one.tail);
        assert!(distance < 1 << 58);
        assert_eq!(one.tail.plus(distance), two.tail);
    }
});
