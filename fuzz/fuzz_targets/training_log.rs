//! Training log of any framework.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| meshwright_fuzz::training_log(data));
