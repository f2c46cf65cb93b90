//! Text of a file of prices and failure rates.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| meshwright_fuzz::market(data));
