//! The built-in devices, by name.

/// Name and text of each, sorted by name.
pub const GPUS: &[(&str, &str)] = &[
    (
        "a100-40-sxm",
        include_str!("../../clusters/gpus/a100-40-sxm.toml"),
    ),
    (
        "a100-80-pcie",
        include_str!("../../clusters/gpus/a100-80-pcie.toml"),
    ),
    (
        "a100-80-sxm",
        include_str!("../../clusters/gpus/a100-80-sxm.toml"),
    ),
    ("a800-sxm", include_str!("../../clusters/gpus/a800-sxm.toml")),
    (
        "b200-power-capped",
        include_str!("../../clusters/gpus/b200-power-capped.toml"),
    ),
    ("b200-sxm", include_str!("../../clusters/gpus/b200-sxm.toml")),
    ("b300-sxm", include_str!("../../clusters/gpus/b300-sxm.toml")),
    ("gaudi3", include_str!("../../clusters/gpus/gaudi3.toml")),
    ("gb200", include_str!("../../clusters/gpus/gb200.toml")),
    ("gb300", include_str!("../../clusters/gpus/gb300.toml")),
    ("gh200", include_str!("../../clusters/gpus/gh200.toml")),
    (
        "h100-96gb-hbm2e",
        include_str!("../../clusters/gpus/h100-96gb-hbm2e.toml"),
    ),
    ("h100-pcie", include_str!("../../clusters/gpus/h100-pcie.toml")),
    ("h100-sxm", include_str!("../../clusters/gpus/h100-sxm.toml")),
    ("h20-sxm", include_str!("../../clusters/gpus/h20-sxm.toml")),
    ("h200-sxm", include_str!("../../clusters/gpus/h200-sxm.toml")),
    ("h800-sxm", include_str!("../../clusters/gpus/h800-sxm.toml")),
    ("mi250x", include_str!("../../clusters/gpus/mi250x.toml")),
    ("mi300x", include_str!("../../clusters/gpus/mi300x.toml")),
    ("mi325x", include_str!("../../clusters/gpus/mi325x.toml")),
    ("mi350x", include_str!("../../clusters/gpus/mi350x.toml")),
    ("mi355x", include_str!("../../clusters/gpus/mi355x.toml")),
    ("tpu-v4", include_str!("../../clusters/gpus/tpu-v4.toml")),
    ("tpu-v5e", include_str!("../../clusters/gpus/tpu-v5e.toml")),
    ("tpu-v5p", include_str!("../../clusters/gpus/tpu-v5p.toml")),
    ("tpu-v6e", include_str!("../../clusters/gpus/tpu-v6e.toml")),
    ("tpu-v7", include_str!("../../clusters/gpus/tpu-v7.toml")),
    ("trainium2", include_str!("../../clusters/gpus/trainium2.toml")),
    (
        "v100-sxm2-16",
        include_str!("../../clusters/gpus/v100-sxm2-16.toml"),
    ),
    (
        "v100-sxm2-32",
        include_str!("../../clusters/gpus/v100-sxm2-32.toml"),
    ),
];
