//! Dimensions of the models that OLMo-core makes by name.
//!
//! Source: [olmo-core] `nn/transformer/config.py`, release 2.5.0.

/// Model by name: the arguments with which its factory calls `llama_like`, unless the script gives others.
pub(super) struct Factory {
    pub name: &'static str,
    pub sizes: FactorySizes,
}

/// Family whose usual settings a factory has.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Family {
    Llama,
    Olmo2,
    Olmo3,
    Qwen3,
}

/// Dimensions that a factory gives a model.
#[derive(Clone, Copy)]
pub(super) struct FactorySizes {
    pub family: Family,
    pub hidden: u32,
    pub layers: u32,
    pub heads: u32,
    /// Groups of keys and values; none for as many as there are heads.
    pub kv_heads: Option<u32>,
    /// Width of a head; none for the hidden size over the heads.
    pub head_dim: Option<u32>,
    pub mlp: MlpWidth,
    /// Base of the rotary frequencies.
    pub theta: u32,
    /// Whether the output head is the embedding.
    pub tied: bool,
}

/// Width of a model's MLP.
#[derive(Clone, Copy)]
pub(super) enum MlpWidth {
    /// The width.
    Of(u32),
    /// Smallest multiple of this that is no less than 8/3 of the hidden size.
    Multiple(u32),
    /// Smallest multiple that is no less than `ratio` times 8/3 of the hidden size.
    Scaled { ratio: f64, multiple: u32 },
}

use MlpWidth::{Multiple, Of, Scaled};

const LLAMA2: FactorySizes = FactorySizes {
    family: Family::Llama,
    hidden: 4096,
    layers: 32,
    heads: 32,
    kv_heads: None,
    head_dim: None,
    mlp: Multiple(256),
    theta: 10_000,
    tied: false,
};
const LLAMA3: FactorySizes =
    FactorySizes { theta: 500_000, kv_heads: Some(8), mlp: Scaled { ratio: 1.3, multiple: 1024 }, ..LLAMA2 };
const OLMO2: FactorySizes =
    FactorySizes { family: Family::Olmo2, theta: 500_000, mlp: Scaled { ratio: 1.5, multiple: 256 }, ..LLAMA2 };
const QWEN3: FactorySizes = FactorySizes {
    family: Family::Qwen3,
    kv_heads: Some(8),
    head_dim: Some(128),
    theta: 1_000_000,
    tied: false,
    ..LLAMA2
};

/// Factor with which the MLP of 32 billion parameters is 27,648 wide.
const OF_32B: f64 = 27_648.0 / (8.0 * 5120.0 / 3.0);

/// Models by name; OLMo 3 has the sizes of OLMo 2, with windows.
pub(super) const FACTORIES: &[Factory] = &[
    Factory { name: "llama2_271M", sizes: FactorySizes { hidden: 1024, layers: 16, heads: 8, ..LLAMA2 } },
    Factory { name: "llama2_1B", sizes: FactorySizes { hidden: 2048, layers: 18, heads: 16, ..LLAMA2 } },
    Factory { name: "llama2_7B", sizes: LLAMA2 },
    Factory { name: "llama2_13B", sizes: FactorySizes { hidden: 5120, layers: 40, heads: 40, ..LLAMA2 } },
    Factory { name: "llama2_26B", sizes: FactorySizes { hidden: 5120, layers: 80, heads: 40, ..LLAMA2 } },
    Factory {
        name: "llama2_70B",
        sizes: FactorySizes {
            hidden: 8192,
            layers: 80,
            heads: 64,
            kv_heads: Some(8),
            mlp: Scaled { ratio: 1.3, multiple: 4096 },
            ..LLAMA2
        },
    },
    Factory {
        name: "llama3_1B",
        sizes: FactorySizes { hidden: 2048, layers: 16, mlp: Scaled { ratio: 1.5, multiple: 256 }, ..LLAMA3 },
    },
    Factory { name: "llama3_8B", sizes: LLAMA3 },
    Factory {
        name: "llama3_70B",
        sizes: FactorySizes {
            hidden: 8196, // no misprint here: OLMo-core has 8196, not 8192
            layers: 80,
            heads: 64,
            mlp: Scaled { ratio: 1.3, multiple: 4096 },
            ..LLAMA3
        },
    },
    Factory {
        name: "llama3_405B",
        sizes: FactorySizes {
            hidden: 16_384,
            layers: 126,
            heads: 128,
            mlp: Scaled { ratio: 1.2, multiple: 4096 },
            ..LLAMA3
        },
    },
    Factory {
        name: "olmo2_1M",
        sizes: FactorySizes {
            hidden: 12,
            layers: 4,
            heads: 4,
            head_dim: Some(4),
            mlp: Scaled { ratio: 1.0, multiple: 256 },
            ..OLMO2
        },
    },
    Factory {
        name: "olmo2_14M",
        sizes: FactorySizes { hidden: 128, layers: 4, heads: 8, mlp: Multiple(256), ..OLMO2 },
    },
    Factory {
        name: "olmo2_30M",
        sizes: FactorySizes { hidden: 256, layers: 4, heads: 8, mlp: Multiple(256), ..OLMO2 },
    },
    Factory { name: "olmo2_60M", sizes: FactorySizes { hidden: 384, layers: 8, heads: 8, ..OLMO2 } },
    Factory { name: "olmo2_100M", sizes: FactorySizes { hidden: 512, layers: 12, heads: 8, ..OLMO2 } },
    Factory { name: "olmo2_190M", sizes: FactorySizes { hidden: 768, layers: 12, heads: 12, ..OLMO2 } },
    Factory { name: "olmo2_370M", sizes: FactorySizes { hidden: 1024, layers: 16, heads: 16, ..OLMO2 } },
    Factory { name: "olmo2_600M", sizes: FactorySizes { hidden: 1344, layers: 16, heads: 16, ..OLMO2 } },
    Factory { name: "olmo2_760M", sizes: FactorySizes { hidden: 1536, layers: 16, heads: 16, ..OLMO2 } },
    Factory { name: "olmo2_1B", sizes: FactorySizes { hidden: 2048, layers: 18, heads: 16, ..OLMO2 } },
    Factory { name: "olmo2_1B_v2", sizes: FactorySizes { hidden: 2048, layers: 16, heads: 16, ..OLMO2 } },
    Factory { name: "olmo2_3B", sizes: FactorySizes { hidden: 3328, layers: 16, heads: 16, ..OLMO2 } },
    Factory { name: "olmo2_7B", sizes: FactorySizes { mlp: Multiple(256), ..OLMO2 } },
    Factory {
        name: "olmo2_13B",
        sizes: FactorySizes { hidden: 5120, layers: 40, heads: 40, mlp: Multiple(256), ..OLMO2 },
    },
    Factory {
        name: "olmo2_32B",
        sizes: FactorySizes {
            hidden: 5120,
            layers: 64,
            heads: 40,
            kv_heads: Some(8),
            mlp: Scaled { ratio: OF_32B, multiple: 512 },
            ..OLMO2
        },
    },
    Factory {
        name: "qwen3_0_6B",
        sizes: FactorySizes { hidden: 1024, layers: 28, heads: 16, mlp: Of(3072), tied: true, ..QWEN3 },
    },
    Factory {
        name: "qwen3_1_7B",
        sizes: FactorySizes { hidden: 2048, layers: 28, heads: 16, mlp: Of(6144), tied: true, ..QWEN3 },
    },
    Factory { name: "qwen3_4B", sizes: FactorySizes { hidden: 2560, layers: 36, mlp: Of(9728), tied: true, ..QWEN3 } },
    Factory { name: "qwen3_8B", sizes: FactorySizes { layers: 36, mlp: Of(12_288), ..QWEN3 } },
    Factory {
        name: "qwen3_14B",
        sizes: FactorySizes { hidden: 5120, layers: 48, heads: 40, mlp: Of(17_408), ..QWEN3 },
    },
    Factory {
        name: "qwen3_32B",
        sizes: FactorySizes { hidden: 5120, layers: 64, heads: 40, mlp: Of(25_600), ..QWEN3 },
    },
];
