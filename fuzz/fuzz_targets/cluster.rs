//! Text of a cluster file, with pools or without.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| meshwright_fuzz::cluster(data));
