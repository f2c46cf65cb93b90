//! Text of a sweep file.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| meshwright_fuzz::sweep_file(data));
