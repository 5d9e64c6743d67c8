//! What another guest may send before the program's bytes: TOKEN and READY.
#![no_main]

use yasmin_control::guest::{self, READY_BYTES, TOKEN_BYTES, Token};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Some(raw) = data.first_chunk::<TOKEN_BYTES>()
        && let Ok(token) = Token::decode(raw)
    {
        assert_eq!(Token::decode(&token.encode()), Ok(token));
        // All that it reads it also writes; the rest is not read.
        assert_eq!(token.encode()[..56], raw[..56]);
    }
    if let Some(raw) = data.first_chunk::<READY_BYTES>()
        && let Some(proof) = guest::proof_of_ready(raw)
    {
        assert_eq!(guest::ready(proof), *raw);
    }
});
