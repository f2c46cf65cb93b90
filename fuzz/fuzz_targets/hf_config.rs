//! Text of a Hugging Face config.json.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| meshwright_fuzz::hf_config(data));
