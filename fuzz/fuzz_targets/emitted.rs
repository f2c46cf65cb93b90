//! Names of any letters in emitted files, which read back as the same plan.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| meshwright_fuzz::emitted(data));
