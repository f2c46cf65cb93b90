//! Workload of one optimizer step: batch, sequence, number format, optimizer.

use serde::{Deserialize, Serialize};

use crate::gpu::Format;
use crate::range::{self, OutOfRange};

/// Bytes per parameter in training (specification §6.1).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Bytes of the weights that GEMMs read.
    pub weight: f64,
    /// Bytes of the gradients.
    pub gradient: f64,
    /// Bytes of the master weights.
    pub master: f64,
    /// Bytes of the optimizer moments.
    pub state: f64,
}

impl Recipe {
    /// Weights, gradients and both moments of Adam in 16 bits, without master weights: a 16-bit model under `torch.optim`.
    pub const HALF: Self = Self { weight: 2.0, gradient: 2.0, master: 0.0, state: 4.0 };

    /// Total bytes per parameter.
    pub const fn total(&self) -> f64 {
        let Self { weight, gradient, master, state } = *self;
        weight + gradient + master + state
    }
}

/// Recipe by its name on the command line.
#[derive(Clone, Copy, Debug)]
pub struct NamedRecipe {
    /// The name.
    pub name: &'static str,
    /// Its bytes per parameter.
    pub recipe: Recipe,
    /// Formats or flags that give these bytes, in words.
    pub note: &'static str,
}

/// Named recipes of the specification §6.1.
pub const RECIPES: &[NamedRecipe] = &[
    NamedRecipe {
        name: "megatron",
        recipe: Recipe { weight: 2.0, gradient: 4.0, master: 4.0, state: 8.0 },
        note: "bf16, fp32 main gradients, AdamW",
    },
    NamedRecipe {
        name: "megatron-bf16-grads",
        recipe: Recipe { weight: 2.0, gradient: 2.0, master: 4.0, state: 8.0 },
        note: "--grad-reduce-in-bf16",
    },
    NamedRecipe {
        name: "deepspeed",
        recipe: Recipe { weight: 2.0, gradient: 2.0, master: 4.0, state: 8.0 },
        note: "bf16, AdamW in fp32",
    },
    NamedRecipe {
        name: "fp32",
        recipe: Recipe { weight: 4.0, gradient: 4.0, master: 0.0, state: 8.0 },
        note: "everything in fp32",
    },
    NamedRecipe {
        name: "pure-bf16",
        recipe: Recipe { weight: 2.0, gradient: 2.0, master: 0.0, state: 8.0 },
        note: "no master weights: numerically risky",
    },
    NamedRecipe {
        name: "deepseek-v3",
        recipe: Recipe { weight: 2.0, gradient: 4.0, master: 4.0, state: 4.0 },
        note: "moments in bf16",
    },
    NamedRecipe {
        name: "fp8-primary",
        recipe: Recipe { weight: 1.0, gradient: 2.0, master: 4.0, state: 8.0 },
        note: "--fp8-param-gather",
    },
    NamedRecipe {
        name: "fp8-compressed",
        recipe: Recipe { weight: 1.0, gradient: 2.0, master: 0.0, state: 6.0 },
        note: "FP8 weights, compressed Adam",
    },
    NamedRecipe {
        name: "adam8bit",
        recipe: Recipe { weight: 2.0, gradient: 2.0, master: 4.0, state: 2.06 },
        note: "8-bit moments with block scales",
    },
    NamedRecipe {
        name: "muon",
        recipe: Recipe { weight: 2.0, gradient: 2.0, master: 4.0, state: 4.0 },
        note: "momentum only",
    },
    NamedRecipe {
        name: "sgd",
        recipe: Recipe { weight: 2.0, gradient: 2.0, master: 4.0, state: 4.0 },
        note: "SGD with momentum",
    },
    NamedRecipe {
        name: "adafactor",
        recipe: Recipe { weight: 2.0, gradient: 2.0, master: 4.0, state: 0.0 },
        note: "factored second moment",
    },
];

/// Recipe by name.
pub fn recipe(name: &str) -> Option<Recipe> {
    RECIPES.iter().find(|known| known.name == name).map(|known| known.recipe)
}

/// Update rule of the weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Optimizer {
    /// Element by element (Adam and its relatives).
    #[default]
    Elementwise,
    /// Orthogonalised momentum by Newton–Schulz, on whole matrices.
    Muon,
}

impl Optimizer {
    /// Update rule of a recipe by its name in [`RECIPES`].
    pub fn of_recipe(name: &str) -> Self {
        if name == "muon" { Self::Muon } else { Self::Elementwise }
    }
}

/// Set of trained weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Adaptation {
    /// All weights of the model.
    #[default]
    Full,
    /// Low-rank adapters of every projection of a layer, on a frozen base; routed experts have none.
    Lora,
    /// Low-rank adapters of attention's projections alone, or of those of a recurrence in its place.
    LoraAttention,
}

impl Adaptation {
    /// Whether the weights of the model are frozen, and adapters are trained.
    pub const fn is_lora(self) -> bool {
        matches!(self, Self::Lora | Self::LoraAttention)
    }
}

/// 16-bit format of weights, activations and GEMMs that are not narrower. Both formats take the same time and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Half {
    /// bfloat16: the exponent of fp32.
    #[default]
    Bf16,
    /// float16, whose gradients need a scaled loss.
    Fp16,
}

impl Half {
    /// Name in every framework's files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
        }
    }
}

/// Number format as `--precision` writes it: that of most GEMMs, or the 16-bit one.
pub fn precision(format: Format, half: Half) -> String {
    match (format, half) {
        (Format::Bf16, Half::Fp16) => "fp16".to_owned(),
        (Format::Bf16 | Format::Fp8 | Format::Fp8Block | Format::Mxfp8 | Format::Nvfp4, _) => format.to_string(),
    }
}

/// Work of one optimizer step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Workload {
    /// Sequences per step (global batch).
    pub global_batch: u32,
    /// Sequence length in tokens.
    pub seq_len: u32,
    /// Length in tokens of the documents that are packed into a sequence and within which attention stays, as a mean token sees it:
    /// Σ len²/Σ len (specification §1.3). None where attention spans the whole sequence.
    pub document_len: Option<u32>,
    /// Format of most GEMMs.
    pub format: Format,
    /// 16-bit format of all other values.
    pub half: Half,
    /// Bytes per parameter.
    pub recipe: Recipe,
    /// Update rule of the weights.
    pub optimizer: Optimizer,
    /// Set of trained weights.
    pub adaptation: Adaptation,
    /// Load of the busiest expert rank relative to the mean (ξ, specification §2.8); 1 is balanced.
    pub imbalance: f64,
    /// Whether routing drops surplus tokens, so that the host need not know their counts.
    pub drops_tokens: bool,
}

impl Workload {
    /// Checks every number against the range of its kind.
    pub(crate) fn check_ranges(&self) -> Result<(), OutOfRange> {
        let Recipe { weight, gradient, master, state } = self.recipe;
        range::check([
            ("global_batch", f64::from(self.global_batch), range::BATCH),
            ("seq_len", f64::from(self.seq_len), range::SEQUENCE),
            ("document_len", f64::from(self.document_len.unwrap_or(1)), range::SEQUENCE),
            ("imbalance", self.imbalance, range::IMBALANCE),
            ("optimizer: bytes of a weight", weight, range::SENT_ELEMENT),
            ("optimizer: bytes of a gradient", gradient, range::ELEMENT),
            ("optimizer: bytes of a master weight", master, range::ELEMENT),
            ("optimizer: bytes of the moments", state, range::ELEMENT),
        ])
    }

    /// Tokens of one optimizer step, B·s.
    pub fn tokens_per_step(&self) -> f64 {
        f64::from(self.global_batch) * f64::from(self.seq_len)
    }

    /// Tokens over which attention spans: those of a document, or of a sequence that is one document.
    pub fn attention_len(&self) -> u32 {
        self.document_len.map_or(self.seq_len, |length| length.min(self.seq_len))
    }

    /// Number format as `--precision` writes it.
    pub fn precision(&self) -> String {
        precision(self.format, self.half)
    }
}

/// Smallest and largest default batch in sequences: 2048 × 8192 tokens is the batch of Llama 3 405B.
const BATCH: (u32, u32) = (128, 2048);

/// Default global batch, since a model's description seldom includes one.
///
/// One sequence per GPU, in multiples that reach 128; above 2048 GPUs, the odd part of their number times the power of
/// two that first comes near 2048, so that any such factor of the GPUs may be the data-parallel size (3,072 for 24,576
/// GPUs). Of sequences of 131,072 tokens and more, half as many until the step has no more than 2048 × 8192 tokens, as
/// Llama 3 405B had at that length.
///
/// Source: [llama3-infrastructure].
pub fn usual_batch(gpus: u32, seq_len: u32) -> u32 {
    let mut batch = batch_of_gpus(gpus);
    let tokens = |batch: u32| u64::from(batch) * u64::from(seq_len);
    while seq_len >= LONG && batch.is_multiple_of(2) && tokens(batch) > u64::from(BATCH.1 * LLAMA_SEQUENCE) {
        batch /= 2;
    }
    batch
}

/// Tokens of a sequence of Llama 3 405B.
const LLAMA_SEQUENCE: u32 = 8192;
/// Tokens of a sequence in the last stage of its training.
const LONG: u32 = 131_072;

/// [`usual_batch`] of sequences of any length.
fn batch_of_gpus(gpus: u32) -> u32 {
    const NEAR: f64 = 0.9;
    const MOST_ODD: u32 = 16_384;
    let (least, most) = BATCH;
    if gpus == 0 {
        return least;
    }
    if gpus <= most {
        return gpus * least.div_ceil(gpus);
    }
    let odd = gpus >> gpus.trailing_zeros();
    if odd > MOST_ODD {
        return most;
    }
    let mut batch = odd;
    while f64::from(batch) < NEAR * f64::from(most) {
        batch *= 2;
    }
    batch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usual_batch_divides_among_replicas() {
        let batches = [1, 7, 8, 1024, 2048, 16_384, 24_576, 100_000].map(batch_of_gpus);
        assert_eq!(batches, [128, 133, 128, 1024, 2048, 2048, 3072, 3125]);
    }

    #[test]
    fn long_sequences_make_no_larger_steps() {
        let sized = |gpus, seq_len| usual_batch(gpus, seq_len);
        assert_eq!((sized(24_576, 8192), sized(64, 131_072), sized(64, 1_048_576)), (3072, 128, 16));
        assert_eq!((sized(1152, 32_768), sized(7, 1_048_576)), (1152, 133), "odd factors of the GPUs stay");
    }
}
