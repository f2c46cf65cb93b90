//! Traffic of streaming kernels: bytes moved per element and number of kernels of each operation.
//!
//! Source: specification §2.4, and where an item names another section, that one.

use crate::kernel::PerPass;

/// Bytes of a bf16 element.
pub const BF16: f64 = 2.0;
/// Bytes of an fp32 element.
pub const FP32: f64 = 4.0;
/// Bytes moved per output element of a weight gradient that accumulates in fp32: read and written (specification §2.1).
pub const ACCUMULATED: f64 = 8.0;

/// Streaming kernels of one operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Streamed {
    /// Bytes moved per element.
    pub bytes: f64,
    /// Number of kernels.
    pub kernels: f64,
}

/// Traffic of both passes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamedPasses {
    /// Forward.
    pub forward: Streamed,
    /// Backward.
    pub backward: Streamed,
}

const fn streamed(bytes: f64, kernels: f64) -> Streamed {
    Streamed { bytes, kernels }
}

/// Bytes per hidden element of a norm, forward and backward.
pub const NORM: PerPass = PerPass::new(4.0, 8.0);
/// Bytes per hidden element of a residual addition, forward and backward.
pub const RESIDUAL: PerPass = PerPass::new(6.0, 5.0);
/// Bytes per hidden element of a residual's backward that Transformer Engine fuses into the norm's.
pub const FUSED_RESIDUAL_BACKWARD: f64 = 2.0;
/// Kernels of norms and residuals backward, against forward.
pub const NORM_BACKWARD_KERNELS: f64 = 1.5;

/// Split of the fused projection of queries, keys and values, and the rotation of queries and keys.
pub const SPLIT: Streamed = streamed(4.0, 2.0);

/// Passes of [`SPLIT`] over its elements, by library and by whether positions are rotary.
pub mod split_passes {
    /// PyTorch, without rotation.
    pub const PLAIN: f64 = 1.0;
    /// PyTorch, with rotation.
    pub const ROTARY: f64 = 1.3;
    /// Transformer Engine, without rotation.
    pub const FUSED: f64 = 0.0;
    /// Transformer Engine, with rotation.
    pub const FUSED_ROTARY: f64 = 0.65;
}

/// RMSNorm operator by operator, forward and backward, per element and call: reads and writes of every operator, 2
/// bytes in bf16 and 4 in fp32. Source: `LlamaRMSNorm` of [transformers], counted in specification §2.4.
pub const EAGER_NORM: StreamedPasses = StreamedPasses { forward: streamed(36.0, 8.0), backward: streamed(84.0, 15.0) };
/// Rotation operator by operator, forward and backward, per element of queries and keys. Source: `apply_rotary_pos_emb`
/// of [transformers], likewise.
pub const EAGER_ROTARY: StreamedPasses =
    StreamedPasses { forward: streamed(20.0, 10.0), backward: streamed(30.0, 18.0) };

/// Latent attention: two low-rank norms, and the rotary part joined to each head, 4(q_r + kv_r) + 12·a·d_qk/t.
pub mod latent {
    use crate::kernel::PerPass;

    /// Bytes per element of the low-rank norms.
    pub const NORM_BYTES: f64 = 4.0;
    /// Bytes per element of the rotary part.
    pub const ROTARY_BYTES: f64 = 12.0;
    /// Bytes per element of a head's own key that is copied beside the part that heads share, where nothing is rotated.
    pub const COPIED: f64 = 4.0;
    /// Bytes per element of the shared part of a key that is written for each head, where nothing is rotated.
    pub const EXPANDED: f64 = 2.0;
    /// Kernels forward and backward.
    pub const KERNELS: PerPass = PerPass::new(6.0, 8.0);
    /// Bytes moved backward, against forward.
    pub const BACKWARD: f64 = 1.5;
}

/// Attention over chosen keys: bytes and kernels, counted in [megatron-lm] `dsa_cudnn_kernels.py` and `dsa.py`, release 0.19.
pub mod sparse {
    use crate::kernel::PerPass;

    /// Bytes per token and key of the index scores: written in fp32, and read twice to choose.
    pub const SCORE: f64 = 12.0;
    /// Bytes per token and chosen key of bounds, two compactions and a sort of the chosen keys, most of it in 64-bit integers.
    pub const CHOSEN: f64 = 400.0;
    /// Bytes per token and chosen key of the softmax of index scores, the target and their divergence.
    pub const COMPARED: f64 = 150.0;
    /// Bytes per token and chosen key that are resident together.
    pub const CHOSEN_AT_ONCE: f64 = 48.0;
    /// Kernels that join and copy queries, in addition to those of the rotation.
    pub const JOIN_KERNELS: f64 = 4.0;
    /// Kernels of the indexer's norm, rotations and copies.
    pub const INDEX_KERNELS: f64 = 26.0;
    /// Kernels of the choice of keys.
    pub const CHOICE_KERNELS: f64 = 40.0;
    /// Kernels of the indexer's loss.
    pub const LOSS_KERNELS: f64 = 30.0;
    /// Launches of the host in either pass beyond those of latent attention.
    pub const LAUNCHES: PerPass = PerPass::new(80.0, 50.0);
}

/// Scan of a state-space block, forward and backward, per token and inner channel (specification §2.3 [A]).
pub const SCAN: StreamedPasses = StreamedPasses { forward: streamed(12.0, 2.0), backward: streamed(30.0, 3.0) };

/// Gates and convolution of a gated short convolution, kernel by kernel in PyTorch and `causal-conv1d`, per token and
/// channel in bf16. Forward: B·x, convolution, C·y. Backward: gradients of C and y, convolution, gradients of B and x,
/// and their concatenation.
///
/// Source: [transformers] `modeling_lfm2.py`, `Lfm2ShortConv`; [causal-conv1d]; counted in specification §2.3.
pub const SHORT_CONV: StreamedPasses = StreamedPasses { forward: streamed(16.0, 3.0), backward: streamed(42.0, 6.0) };
/// Bytes per token and channel that a gated short convolution keeps for its backward pass: B, C and x, the input and
/// the output of the convolution, and the input of the projection out (specification §2.3).
pub const SHORT_CONV_KEPT: f64 = 12.0;

/// Convolution, scan by chunks and norm of a state-space block, kernel by kernel in `mamba_ssm` and Megatron-Core.
/// Source: [mamba-ssm], counted in specification §2.3.
pub mod chunked {
    use crate::cost::traffic::gated_delta;
    use crate::kernel::PerPass;
    use crate::model::DeltaNet;
    use crate::units::BytesPerSec;

    /// Bytes moved per token, by the size that they are proportional to.
    pub struct PerToken {
        /// Bytes for each inner channel.
        pub channel: f64,
        /// Bytes for each inner channel and element of its state, once a chunk.
        pub state: f64,
        /// Bytes for each element of B or C, of queries or keys.
        pub group: f64,
        /// Bytes for each element of the keys that are expanded to the heads of values.
        pub expanded: f64,
        /// Bytes for each pair of tokens of a chunk and group.
        pub chunk: f64,
    }

    /// Sizes of a block, for each token.
    #[derive(Clone, Copy)]
    pub struct BlockSizes {
        /// Inner channels.
        pub channels: f64,
        /// Elements of the state of a channel, of which a chunk has one: elements over tokens of a chunk.
        pub state: f64,
        /// Elements of B or C, of queries or keys.
        pub group: f64,
        /// Elements of the keys that are expanded to the heads of values.
        pub expanded: f64,
        /// Tokens that each token of a chunk is paired with, once a group or head.
        pub chunk: f64,
    }

    impl BlockSizes {
        /// Of a gated delta rule, with chunks of its own.
        pub fn of_delta_rule(net: &DeltaNet) -> Self {
            Self {
                channels: net.values() as f64,
                state: f64::from(net.key_dim) / gated_delta::TOKENS,
                group: net.keys() as f64,
                expanded: net.expanded_keys() as f64,
                chunk: f64::from(net.value_heads) * gated_delta::TOKENS,
            }
        }
    }

    impl PerToken {
        /// No bytes at all.
        pub const NONE: Self = Self { channel: 0.0, state: 0.0, group: 0.0, expanded: 0.0, chunk: 0.0 };

        /// Bytes moved per token of a block of these sizes.
        pub const fn bytes(&self, of: &BlockSizes) -> f64 {
            of.channels * (self.channel + self.state * of.state)
                + (self.group * of.group + self.chunk * of.chunk)
                + self.expanded * of.expanded
        }

        /// Bytes per token that stream in the time of these, of which `by_chunk` are moved by kernels that multiply a
        /// chunk's matrices and take `slowdown` times as long as streaming kernels.
        pub const fn streamed(&self, by_chunk: &Self, slowdown: f64, of: &BlockSizes) -> f64 {
            self.bytes(of) + (slowdown - 1.0) * by_chunk.bytes(of)
        }
    }

    /// Time of kernels that multiply the small matrices of a chunk, against streaming kernels of as many bytes: waiting
    /// for the memory, and work of the device's processors, which does not hide.
    ///
    /// ```text
    /// max(4/3 , 0.52 + BW'/(25.8 GB/s · processors))          specification §2.3
    /// ```
    ///
    /// `bandwidth` is that of streaming kernels.
    pub fn slowdown(bandwidth: BytesPerSec, processors: u32) -> f64 {
        (MEMORY + bandwidth / (PROCESSOR * f64::from(processors))).max(LEAST)
    }

    /// Part of the time of streaming kernels that those by chunk wait for the memory. Source: [meshwright-silicon],
    /// seven scans on an H100 and an H200, which differ in their memory alone (specification §2.3).
    const MEMORY: f64 = 0.52;
    /// Bytes that one processor works on in a second. Source: as [`MEMORY`].
    const PROCESSOR: BytesPerSec = BytesPerSec::new(25.8e9);
    /// Least slowdown: that of the H100, under which no device was measured. Source: as [`MEMORY`].
    const LEAST: f64 = 4.0 / 3.0;

    /// Tokens of a chunk. Source: [megatron-lm] `mamba_mixer.py`.
    pub const TOKENS: f64 = 128.0;
    /// Forward pass of a block.
    pub const FORWARD: PerToken = PerToken { channel: 18.0, state: 12.0, group: 16.0, expanded: 0.0, chunk: 8.0 };
    /// Part of it by kernels that multiply a chunk's matrices: all but convolution and norm.
    pub const FORWARD_BY_CHUNK: PerToken =
        PerToken { channel: 10.0, state: 12.0, group: 8.0, expanded: 0.0, chunk: 8.0 };
    /// Backward pass of a block, which recomputes the states.
    pub const BACKWARD: PerToken = PerToken { channel: 52.0, state: 34.0, group: 58.0, expanded: 0.0, chunk: 24.0 };
    /// Part of it by kernels that multiply a chunk's matrices: all but convolutions, the gate's gradient and the norm's.
    pub const BACKWARD_BY_CHUNK: PerToken =
        PerToken { channel: 22.0, state: 34.0, group: 38.0, expanded: 0.0, chunk: 24.0 };
    /// Copies from and to the order of Megatron-Core in either pass, with several sequences.
    pub const COPIES: PerToken = PerToken { channel: 12.0, state: 0.0, group: 8.0, expanded: 0.0, chunk: 0.0 };
    /// Kernels forward and backward.
    pub const KERNELS: PerPass = PerPass::new(7.0, 17.0);
    /// Bytes for each inner channel of the norm behind the gate, forward and backward: a kernel in either pass, which
    /// blocks without that norm do not run.
    pub const NORM: PerPass = PerPass::new(4.0, 8.0);
}

/// Gated delta rule as Qwen3-Next's class runs it, kernel by kernel in PyTorch, `causal-conv1d` and Triton: the
/// projections' parts copied out and joined, convolution, copies of queries, keys and values, norms of queries and
/// keys, the rule by chunks, gated norm. A state has a key's elements for each channel, in bf16.
///
/// Source: [transformers] `modeling_qwen3_next.py`, `Qwen3NextGatedDeltaNet`; [flash-linear-attention] `fla/ops/gated_delta_rule/`;
/// counted in specification §2.3.
pub mod gated_delta {
    use crate::cost::traffic::chunked::PerToken;
    use crate::kernel::PerPass;

    /// Tokens of a chunk.
    pub const TOKENS: f64 = 64.0;
    /// Forward pass of a block.
    pub const FORWARD: PerToken = PerToken { channel: 38.0, state: 4.0, group: 50.0, expanded: 4.0, chunk: 6.0 };
    /// Part of it by kernels that multiply a chunk's matrices: all but copies, convolution and norms.
    pub const FORWARD_BY_CHUNK: PerToken =
        PerToken { channel: 12.0, state: 4.0, group: 10.0, expanded: 4.0, chunk: 6.0 };
    /// Backward pass of a block, which recomputes factors and states.
    pub const BACKWARD: PerToken = PerToken { channel: 58.0, state: 8.0, group: 64.0, expanded: 16.0, chunk: 4.0 };
    /// Part of it by kernels that multiply a chunk's matrices: all but copies, convolution, norms and sums.
    pub const BACKWARD_BY_CHUNK: PerToken =
        PerToken { channel: 30.0, state: 8.0, group: 18.0, expanded: 16.0, chunk: 4.0 };
    /// Sums of the gradients of queries and keys over the heads of values that share them, backward.
    pub const SHARED: PerToken = PerToken { channel: 0.0, state: 0.0, group: 6.0, expanded: 6.0, chunk: 0.0 };
    /// Kernels forward and backward, which are launches beyond those of a layer with attention as well.
    pub const KERNELS: PerPass = PerPass::new(28.0, 28.0);
    /// Kernels of the sums backward where heads share keys.
    pub const SHARED_KERNELS: f64 = 3.0;
    /// Bytes that are kept for backward.
    pub const KEPT: PerToken = PerToken { channel: 10.0, state: 0.0, group: 8.0, expanded: 0.0, chunk: 2.0 };
    /// Bytes that are kept of a head of values: its decay before and after the activation and summed, its step, the
    /// scale of its norm.
    pub const KEPT_OF_VALUES: f64 = 18.0;
    /// Bytes that are kept of a head of keys: the scales of two norms.
    pub const KEPT_OF_KEYS: f64 = 8.0;
}

/// Kimi Delta Attention, kernel by kernel in Triton: convolutions, norms of queries and keys, decays summed over a
/// chunk, scores inside a chunk and their inverse, states of chunks, output and gated norm. A state is as wide as a
/// head, in bf16.
///
/// Source: [flash-linear-attention] `fla/layers/kda.py`, `fla/ops/kda/`; counted in specification §2.3.
pub mod kimi_delta {
    use crate::cost::traffic::chunked::PerToken;
    use crate::kernel::PerPass;

    /// Tokens of a chunk.
    pub const TOKENS: f64 = 64.0;
    /// Tokens of the part of a chunk whose scores are in fp32, against a chunk.
    const PART: f64 = 16.0 / TOKENS;
    /// Forward pass of a block.
    pub const FORWARD: PerToken =
        PerToken { channel: 82.0, state: 4.0, group: 0.0, expanded: 0.0, chunk: 10.0 * (1.0 + PART) };
    /// Part of it by kernels that multiply a chunk's matrices: all but convolutions, norms and decays.
    pub const FORWARD_BY_CHUNK: PerToken =
        PerToken { channel: 50.0, state: 4.0, group: 0.0, expanded: 0.0, chunk: 10.0 * (1.0 + PART) };
    /// Backward pass of a block, which recomputes decays, factors and states.
    pub const BACKWARD: PerToken = PerToken { channel: 202.0, state: 8.0, group: 0.0, expanded: 0.0, chunk: 22.0 };
    /// Part of it by kernels that multiply a chunk's matrices: all but convolutions, norms and decays.
    pub const BACKWARD_BY_CHUNK: PerToken =
        PerToken { channel: 106.0, state: 8.0, group: 0.0, expanded: 0.0, chunk: 22.0 };
    /// Kernels forward and backward.
    pub const KERNELS: PerPass = PerPass::new(15.0, 32.0);
    /// Launches of the host beyond those of a layer with attention: the kernels, and five GEMMs, of which backward has two each.
    pub const LAUNCHES: PerPass = PerPass::new(20.0, 42.0);
    /// Bytes that are kept for backward.
    pub const KEPT: PerToken = PerToken { channel: 20.0, state: 0.0, group: 0.0, expanded: 0.0, chunk: 4.0 };
    /// Bytes that are kept of a head: its step size before and after the sigmoid, and the scales of three norms in fp32.
    pub const KEPT_OF_HEAD: f64 = 18.0;
    /// Bytes that are kept for each element of the two maps of low rank.
    pub const KEPT_LOW_RANK: f64 = 4.0;
}

/// Attention and Mamba side by side as Falcon-H1's class runs them: multiplications by the numbers of `config.json` and
/// the sum of both outputs, kernel by kernel, in bf16. A product reads and writes an element in either pass.
///
/// Source: [transformers] `modeling_falcon_h1.py`, `FalconH1DecoderLayer`; counted in specification §2.3.
pub mod beside {
    use crate::kernel::PerPass;

    /// Bytes per element of a product with a number, in either pass.
    pub const PRODUCT: f64 = 4.0;
    /// Multiplications over the hidden size: inputs of attention and of Mamba, outputs of both, output of the MLP.
    pub const HIDDEN_PRODUCTS: f64 = 5.0;
    /// Bytes per hidden element of the sum of both outputs, and of the sum of both gradients of the normed input.
    pub const SUM: f64 = 6.0;
    /// Kernels in either pass: the multiplications above, those of keys, of Mamba's projection and of the MLP's gate, and the sum.
    pub const KERNELS: f64 = 9.0;
    /// Launches of the host in either pass beyond those of a layer with attention: Mamba's two projections, whose
    /// backward has two GEMMs each, in addition to its scan and the kernels above.
    pub const PROJECTIONS: PerPass = PerPass::new(2.0, 4.0);
}

/// Experts with a bias, operator by operator, beyond the fused activation: bytes per received token, forward and backward. Source:
/// [megatron-experts], counted in specification §2.4.
pub mod biased {
    use crate::kernel::PerPass;

    /// Per element of an expert's output: its weighted bias in fp32, concatenation, cast.
    pub const OUTPUT: PerPass = PerPass::new(28.0, 40.0);
    /// Per element of its activation: clamps, offset, product and weights by themselves.
    pub const ACTIVATION: PerPass = PerPass::new(28.0, 62.0);
    /// Kernels per local expert.
    pub const KERNELS: PerPass = PerPass::new(2.0, 5.0);
}

/// Permutation of tokens to experts and back: 2h(1+k) + 4h·k bytes per owned token.
pub mod permute {
    use crate::kernel::PerPass;

    /// Bytes per element that is read or scattered.
    pub const SCATTERED: f64 = 2.0;
    /// Bytes per element that is gathered and summed.
    pub const GATHERED: f64 = 4.0;
    /// Kernels forward and backward.
    pub const KERNELS: PerPass = PerPass::new(6.0, 8.0);
    /// Bytes moved backward, against forward.
    pub const BACKWARD: f64 = 1.2;
    /// Bytes per element of a received copy that is sorted by local expert after dispatch and back before combine, in either pass.
    /// Source: [megatron-dispatcher].
    pub const SORTED: f64 = 8.0;
    /// Kernels of both sorts, in either pass.
    pub const SORTS: f64 = 2.0;
}

/// Embedding, forward: rows of the table gathered and written.
pub const EMBEDDING: Streamed = streamed(4.0, 3.0);
/// Embedding with learned positions, forward: rows of both tables gathered and written.
pub const EMBEDDING_WITH_POSITIONS: Streamed = streamed(6.0, 3.0);
/// Gradient of the embedding, backward: added to the rows of the table.
pub const EMBEDDING_BACKWARD: Streamed = streamed(6.0, 2.0);
/// Cross-entropy in one kernel, forward and backward, per logit.
pub const FUSED_LOSS: StreamedPasses = StreamedPasses { forward: streamed(8.0, 6.0), backward: streamed(6.0, 2.0) };
/// Cross-entropy in several kernels, forward and backward, per logit.
pub const UNFUSED_LOSS: StreamedPasses = StreamedPasses { forward: streamed(22.0, 6.0), backward: streamed(8.0, 2.0) };
/// Kernels of a compiled cross-entropy in one pass: two reductions over the vocabulary and one over the tokens.
pub const COMPILED_LOSS_KERNELS: f64 = 3.0;
