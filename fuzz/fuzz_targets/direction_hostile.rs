//! Both ends of a direction while the peer rewrites the shared pages between their steps.
#![no_main]

#[path = "../../crates/ring/tests/hostile/mod.rs"]
mod hostile;

libfuzzer_sys::fuzz_target!(|data: &[u8]| hostile::run(data));
