//! Text of a plan: what parses prints and parses as the same plan with the same price.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| meshwright_fuzz::plan_text(data));
