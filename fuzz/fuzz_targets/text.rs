//! Any text with any unwind table: read without harm.
#![no_main]

use yasmin_text::{Scratch, Text, Unwind, judge, next};

libfuzzer_sys::fuzz_target!(|input: (&[u8], &[u8], u64)| {
    let (code, table, address) = input;
    let unwind = Unwind::new(table, address, address);
    let text = Text { code, address, unwind };
    let mut scratch = Box::new(Scratch::new());
    let mut at = 0;
    while let Some(here) = next(code, at) {
        assert!(here >= at && here + 2 <= code.len());
        judge(&text, here, &mut scratch);
        at = here + 1;
    }
});
