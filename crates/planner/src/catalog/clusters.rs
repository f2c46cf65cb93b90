//! Built-in clusters by name.

/// Name and TOML text of each cluster, sorted by name.
pub const CLUSTERS: &[(&str, &str)] = &[
    ("a100-40-64", include_str!("../../../../clusters/a100-40-64.toml")),
    ("a100-pcie-8", include_str!("../../../../clusters/a100-pcie-8.toml")),
    ("b300-512", include_str!("../../../../clusters/b300-512.toml")),
    ("dgx-a100-1k", include_str!("../../../../clusters/dgx-a100-1k.toml")),
    ("dgx-h100-16k", include_str!("../../../../clusters/dgx-h100-16k.toml")),
    ("dgx-h100-1k", include_str!("../../../../clusters/dgx-h100-1k.toml")),
    ("dgx-h100-64", include_str!("../../../../clusters/dgx-h100-64.toml")),
    ("dgx-h100-8", include_str!("../../../../clusters/dgx-h100-8.toml")),
    ("gb200-nvl72-1152", include_str!("../../../../clusters/gb200-nvl72-1152.toml")),
    ("gb300-nvl72-1152", include_str!("../../../../clusters/gb300-nvl72-1152.toml")),
    ("h100-24576", include_str!("../../../../clusters/h100-24576.toml")),
    ("h100-512", include_str!("../../../../clusters/h100-512.toml")),
    ("h200-1k", include_str!("../../../../clusters/h200-1k.toml")),
    ("h200-ethernet-512", include_str!("../../../../clusters/h200-ethernet-512.toml")),
    ("h800-2048", include_str!("../../../../clusters/h800-2048.toml")),
    ("hgx-b200-512", include_str!("../../../../clusters/hgx-b200-512.toml")),
    ("mi300x-512", include_str!("../../../../clusters/mi300x-512.toml")),
    ("mi355x-512", include_str!("../../../../clusters/mi355x-512.toml")),
    ("tpu-v5p-1024", include_str!("../../../../clusters/tpu-v5p-1024.toml")),
];
