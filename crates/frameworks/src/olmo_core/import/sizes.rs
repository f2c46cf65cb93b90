//! Sizes of the models that OLMo-core makes by name.
//!
//! Source: [olmo-core] `nn/transformer/config.py`, release 2.5.0.

/// Model by name: the arguments with which its factory calls `llama_like`, unless the script gives others.
pub(super) struct Factory {
    pub name: &'static str,
    pub sizes: Sizes,
}

/// Family whose usual settings a factory has.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Family {
    Llama,
    Olmo2,
    Olmo3,
    Qwen3,
}

/// Sizes of a model.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub family: Family,
    pub hidden: u32,
    pub layers: u32,
    pub heads: u32,
    /// 0 for as many as there are heads.
    pub kv_heads: u32,
    /// 0 for the hidden size over the heads.
    pub head_dim: u32,
    /// Factor of the MLP's width; 0 for none.
    pub ratio: f64,
    /// Divisor of the MLP's width; of Qwen 3, the width itself.
    pub multiple: u32,
    pub theta: u32,
    pub tied: bool,
}

const LLAMA2: Sizes = Sizes {
    family: Family::Llama,
    hidden: 4096,
    layers: 32,
    heads: 32,
    kv_heads: 0,
    head_dim: 0,
    ratio: 0.0,
    multiple: 256,
    theta: 10_000,
    tied: false,
};
const LLAMA3: Sizes = Sizes { theta: 500_000, kv_heads: 8, ratio: 1.3, multiple: 1024, ..LLAMA2 };
const OLMO2: Sizes = Sizes { family: Family::Olmo2, theta: 500_000, ratio: 1.5, ..LLAMA2 };
const QWEN3: Sizes =
    Sizes { family: Family::Qwen3, kv_heads: 8, head_dim: 128, theta: 1_000_000, tied: false, ..LLAMA2 };

/// Factor with which the MLP of 32 billion parameters is 27,648 wide.
const OF_32B: f64 = 27_648.0 / (8.0 * 5120.0 / 3.0);

/// Models by name; OLMo 3 has the sizes of OLMo 2, with windows.
pub(super) const FACTORIES: &[Factory] = &[
    Factory { name: "llama2_271M", sizes: Sizes { hidden: 1024, layers: 16, heads: 8, ..LLAMA2 } },
    Factory { name: "llama2_1B", sizes: Sizes { hidden: 2048, layers: 18, heads: 16, ..LLAMA2 } },
    Factory { name: "llama2_7B", sizes: LLAMA2 },
    Factory { name: "llama2_13B", sizes: Sizes { hidden: 5120, layers: 40, heads: 40, ..LLAMA2 } },
    Factory { name: "llama2_26B", sizes: Sizes { hidden: 5120, layers: 80, heads: 40, ..LLAMA2 } },
    Factory {
        name: "llama2_70B",
        sizes: Sizes { hidden: 8192, layers: 80, heads: 64, kv_heads: 8, ratio: 1.3, multiple: 4096, ..LLAMA2 },
    },
    Factory { name: "llama3_1B", sizes: Sizes { hidden: 2048, layers: 16, ratio: 1.5, multiple: 256, ..LLAMA3 } },
    Factory { name: "llama3_8B", sizes: LLAMA3 },
    Factory { name: "llama3_70B", sizes: Sizes { hidden: 8196, layers: 80, heads: 64, multiple: 4096, ..LLAMA3 } },
    Factory {
        name: "llama3_405B",
        sizes: Sizes { hidden: 16_384, layers: 126, heads: 128, ratio: 1.2, multiple: 4096, ..LLAMA3 },
    },
    Factory { name: "olmo2_1M", sizes: Sizes { hidden: 12, layers: 4, heads: 4, head_dim: 4, ratio: 1.0, ..OLMO2 } },
    Factory { name: "olmo2_14M", sizes: Sizes { hidden: 128, layers: 4, heads: 8, ratio: 0.0, ..OLMO2 } },
    Factory { name: "olmo2_30M", sizes: Sizes { hidden: 256, layers: 4, heads: 8, ratio: 0.0, ..OLMO2 } },
    Factory { name: "olmo2_60M", sizes: Sizes { hidden: 384, layers: 8, heads: 8, ..OLMO2 } },
    Factory { name: "olmo2_100M", sizes: Sizes { hidden: 512, layers: 12, heads: 8, ..OLMO2 } },
    Factory { name: "olmo2_190M", sizes: Sizes { hidden: 768, layers: 12, heads: 12, ..OLMO2 } },
    Factory { name: "olmo2_370M", sizes: Sizes { hidden: 1024, layers: 16, heads: 16, ..OLMO2 } },
    Factory { name: "olmo2_600M", sizes: Sizes { hidden: 1344, layers: 16, heads: 16, ..OLMO2 } },
    Factory { name: "olmo2_760M", sizes: Sizes { hidden: 1536, layers: 16, heads: 16, ..OLMO2 } },
    Factory { name: "olmo2_1B", sizes: Sizes { hidden: 2048, layers: 18, heads: 16, ..OLMO2 } },
    Factory { name: "olmo2_1B_v2", sizes: Sizes { hidden: 2048, layers: 16, heads: 16, ..OLMO2 } },
    Factory { name: "olmo2_3B", sizes: Sizes { hidden: 3328, layers: 16, heads: 16, ..OLMO2 } },
    Factory { name: "olmo2_7B", sizes: Sizes { ratio: 0.0, ..OLMO2 } },
    Factory { name: "olmo2_13B", sizes: Sizes { hidden: 5120, layers: 40, heads: 40, ratio: 0.0, ..OLMO2 } },
    Factory {
        name: "olmo2_32B",
        sizes: Sizes { hidden: 5120, layers: 64, heads: 40, kv_heads: 8, ratio: OF_32B, multiple: 512, ..OLMO2 },
    },
    Factory {
        name: "qwen3_0_6B",
        sizes: Sizes { hidden: 1024, layers: 28, heads: 16, multiple: 3072, tied: true, ..QWEN3 },
    },
    Factory {
        name: "qwen3_1_7B",
        sizes: Sizes { hidden: 2048, layers: 28, heads: 16, multiple: 6144, tied: true, ..QWEN3 },
    },
    Factory { name: "qwen3_4B", sizes: Sizes { hidden: 2560, layers: 36, multiple: 9728, tied: true, ..QWEN3 } },
    Factory { name: "qwen3_8B", sizes: Sizes { layers: 36, multiple: 12_288, ..QWEN3 } },
    Factory { name: "qwen3_14B", sizes: Sizes { hidden: 5120, layers: 48, heads: 40, multiple: 17_408, ..QWEN3 } },
    Factory { name: "qwen3_32B", sizes: Sizes { hidden: 5120, layers: 64, heads: 40, multiple: 25_600, ..QWEN3 } },
];
