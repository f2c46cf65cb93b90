//! Text of a file of a GPU.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| meshwright_fuzz::gpu(data));
