//! Question of `plan`, its answer, and the explanation of each plan in it.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| meshwright_fuzz::question(data));
