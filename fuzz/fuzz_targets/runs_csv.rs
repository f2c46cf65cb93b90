//! Table of runs, read and predicted.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| meshwright_fuzz::runs_csv(data));
