//! Built-in stacks by name.

/// Name and TOML text of each stack, sorted by name.
pub const STACKS: &[(&str, &str)] = &[
    ("automodel-2025", include_str!("../../../../clusters/stacks/automodel-2025.toml")),
    ("deepseek-v3", include_str!("../../../../clusters/stacks/deepseek-v3.toml")),
    ("deepspeed-zero3-2022", include_str!("../../../../clusters/stacks/deepspeed-zero3-2022.toml")),
    ("foundry-2023", include_str!("../../../../clusters/stacks/foundry-2023.toml")),
    ("fsdp-eager-2023", include_str!("../../../../clusters/stacks/fsdp-eager-2023.toml")),
    ("internevo-2023", include_str!("../../../../clusters/stacks/internevo-2023.toml")),
    ("jax-2025", include_str!("../../../../clusters/stacks/jax-2025.toml")),
    ("megatron-2021", include_str!("../../../../clusters/stacks/megatron-2021.toml")),
    ("megatron-2022", include_str!("../../../../clusters/stacks/megatron-2022.toml")),
    ("megatron-deepspeed-2022", include_str!("../../../../clusters/stacks/megatron-deepspeed-2022.toml")),
    ("megatron-lm-2024", include_str!("../../../../clusters/stacks/megatron-lm-2024.toml")),
    ("meta-llama3", include_str!("../../../../clusters/stacks/meta-llama3.toml")),
    ("nanotron-2025", include_str!("../../../../clusters/stacks/nanotron-2025.toml")),
    ("nemo-24", include_str!("../../../../clusters/stacks/nemo-24.toml")),
    ("nemo-25", include_str!("../../../../clusters/stacks/nemo-25.toml")),
    ("nemo-26", include_str!("../../../../clusters/stacks/nemo-26.toml")),
    ("simumax-2025", include_str!("../../../../clusters/stacks/simumax-2025.toml")),
    ("torchtitan-2024", include_str!("../../../../clusters/stacks/torchtitan-2024.toml")),
    ("torchtitan-2025", include_str!("../../../../clusters/stacks/torchtitan-2025.toml")),
    ("torchtitan-eager", include_str!("../../../../clusters/stacks/torchtitan-eager.toml")),
];

/// Name of the default stack of a vendor: one for Google's devices, one for all others.
pub fn usual(vendor: &str) -> &'static str {
    if vendor.eq_ignore_ascii_case("google") { "jax-2025" } else { "nemo-25" }
}
