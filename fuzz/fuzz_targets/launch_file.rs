//! Launch script or settings of a framework, by shell, Python, YAML, TOML or JSON; what reads is checked.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| meshwright_fuzz::launch_file(data));
