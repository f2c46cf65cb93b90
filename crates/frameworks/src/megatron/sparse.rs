//! Attention over the keys that an indexer chooses (`--experimental-attention-variant dsa`): its flags, written, read and limited.
//!
//! Source: [megatron-lm] `core/transformer/transformer_config.py` and `experimental_attention_variant/dsa.py`, release 0.19;
//! [megatron-bridge-glm5] `glm5_bridge.py`.

use super::import::arguments::Arguments;
use crate::emit::flags::FlagGroup;
use crate::import::finding::Finding;
use crate::rules::lacks;
use crate::sizes::Sizes;
use meshwright_engine::gpu::Format;
use meshwright_engine::model::{Details, Indexer};
use meshwright_engine::plan::{Modules, Plan, Recompute};
use meshwright_engine::problem::Problem;
use meshwright_planner::limits::Obstacle;

/// Name of the variant.
const VARIANT: &str = "dsa";
/// Kernels that are priced.
const KERNELS: &str = "cudnn";
/// Coefficient of the loss that trains the indexer, as Megatron-Bridge sets it for GLM 5.
const LOSS: &str = "0.001";
/// Epsilon of the norm on the index key. Source: [transformers] `modeling_deepseek_v32.py`.
const KEY_NORM_EPSILON: &str = "1e-06";

/// Note on a file with an indexer.
pub(crate) const NOTE: &str = "sparse attention needs FlashMLA and nvidia-cudnn-frontend[cutedsl], and \
fast-hadamard-transform where activations are \
                               rotated; the indexer is trained on the chosen keys, with a loss of 0.001, to be edited";

/// Layers that choose keys: each `every`-th from layer `offset` on, counted from 1, and all before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sharing {
    every: u32,
    offset: u32,
}

impl Sharing {
    fn shares(self, layer: u32) -> bool {
        !(layer + 1).saturating_sub(self.offset.max(1)).is_multiple_of(self.every.max(1))
    }

    /// The numbers that give a list, the smallest first; none where no numbers do.
    fn of(shares: &[bool]) -> Option<Self> {
        let layers = shares.len() as u32;
        let first = (0..layers).find(|layer| shares[*layer as usize]).unwrap_or(layers);
        if first == layers {
            return Some(Self { every: 1, offset: 0 });
        }
        let gives = |sharing: &Self| (0..layers).all(|layer| sharing.shares(layer) == shares[layer as usize]);
        (2..=layers).map(|every| Self { every, offset: first }).find(gives)
    }
}

/// Writes the flags of an indexer, if there is one.
pub(super) fn write(sizes: &Sizes, details: &Details, group: &mut FlagGroup) {
    let Some(indexer) = sizes.indexer() else { return };
    group.set("experimental-attention-variant", VARIANT);
    group.set("dsa-indexer-n-heads", indexer.heads);
    group.set("dsa-indexer-head-dim", indexer.head_dim);
    group.set("dsa-indexer-topk", indexer.top_k);
    if let Some(Sharing { every, offset }) = Sharing::of(&sizes.shares_keys).filter(|sharing| sharing.every > 1) {
        group.set("dsa-indexer-topk-freq", every);
        group.set("dsa-indexer-skip-topk-offset", offset);
    }
    group.set("dsa-indexer-loss-coeff", LOSS);
    group.on("dsa-indexer-use-sparse-loss");
    group.set("dsa-indexer-k-norm-epsilon", KEY_NORM_EPSILON);
    if details.index_interleaved == Some(true) {
        group.on("dsa-indexer-rope-interleaved");
        group.on("no-dsa-indexer-rotate-activation");
    }
    group.set("dsa-kernel-backend", KERNELS);
    group.on("no-rope-fusion");
}

/// Whether arguments select the variant.
pub(super) fn is_set(list: &Arguments) -> bool {
    list.peek("--experimental-attention-variant").as_deref() == Some(VARIANT)
}

/// The indexer that arguments describe; none without the variant.
pub(super) fn read(list: &mut Arguments) -> Option<Indexer> {
    list.word("--experimental-attention-variant").filter(|variant| variant == VARIANT)?;
    let (heads, head_dim) = (list.size("--dsa-indexer-n-heads"), list.size("--dsa-indexer-head-dim"));
    let top_k = list.size("--dsa-indexer-topk");
    let kernels = list.word("--dsa-kernel-backend").unwrap_or_else(|| "none".into());
    let sparse_loss = list.has("--dsa-indexer-use-sparse-loss");
    let trained = list.real("--dsa-indexer-loss-coeff").is_some_and(|loss| loss > 0.0);
    let (Some(heads), Some(head_dim), Some(top_k)) = (heads, head_dim, top_k) else {
        let finding = Finding::error("missing-flag", "an indexer without its heads, their width or the number of keys");
        let all = "--dsa-indexer-n-heads, --dsa-indexer-head-dim and --dsa-indexer-topk";
        list.report("--experimental-attention-variant", finding.expected(all));
        return None;
    };
    let mut say = |flag: &str, message: String| list.report(flag, Finding::warning("not-modelled", message));
    if kernels != KERNELS {
        let message = format!(
            "kernels `{kernels}` of sparse attention are priced as `{KERNELS}`, which compute the chosen keys alone"
        );
        say("--dsa-kernel-backend", message);
    }
    if trained && !sparse_loss {
        let message = "the loss of the indexer over all keys is priced as one over the chosen keys".to_owned();
        say("--dsa-indexer-loss-coeff", message);
    } else if !trained {
        let message = "an indexer without a loss is priced as one with it".to_owned();
        say("--experimental-attention-variant", message);
    }
    for flag in ["--dsa-indexer-k-norm-epsilon", "--dsa-indexer-rope-interleaved"] {
        list.mark_used(flag);
    }
    Some(Indexer { heads, head_dim, top_k, shared: false })
}

/// Whether each layer takes the keys that an earlier one chose, by the arguments.
pub(super) fn sharing(list: &mut Arguments, layers: u32) -> Vec<bool> {
    let every = list.number("--dsa-indexer-topk-freq").unwrap_or(1);
    let offset = list.number("--dsa-indexer-skip-topk-offset").unwrap_or(0);
    let sharing = Sharing { every, offset };
    (0..layers).map(|layer| sharing.shares(layer)).collect()
}

/// Obstacles of an indexer, whatever the plan.
pub(super) fn obstacles(problem: &Problem, sizes: &Sizes, is_hybrid: bool) -> Vec<Obstacle> {
    let model = problem.model();
    if sizes.indexer().is_none() {
        return Vec::new();
    }
    let mut found = Vec::new();
    if is_hybrid {
        found.push(lacks(
            model,
            "an indexer beside Mamba layers",
            "hybrids are written with attention to all keys here",
        ));
    }
    if Sharing::of(&sizes.shares_keys).is_none() {
        let why = "`--dsa-indexer-topk-freq` is one interval for all layers after the first ones";
        found.push(lacks(model, "layers that share chosen keys irregularly", why));
    }
    found
}

/// Source: [megatron-lm] `absorbed_mla.py`: absorbed maps are recomputed in 16 bits alone.
pub(super) fn recompute(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let Recompute::Selective(modules) = plan.recompute else { return None };
    let refused =
        modules.mla_up_proj && problem.workload().format != Format::Bf16 && problem.model().indexer().is_some();
    let left = Modules { mla_up_proj: false, ..modules };
    let near = if left == Modules::default() { Recompute::None } else { Recompute::Selective(left) };
    refused.then(|| Obstacle {
        what: format!("recompute={}", plan.recompute),
        why: "`mla_up_proj` of sparse attention is recomputed in 16 bits alone".into(),
        instead: Some(Plan { recompute: near, ..plan.clone() }),
    })
}

#[cfg(test)]
mod tests {
    use super::Sharing;

    /// GLM 5.2: layers 1, 2, 3, 7, 11 ... 75 of 78 choose keys.
    #[test]
    fn a_list_of_layers_is_an_interval_and_an_offset() {
        let chooses = |layer: u32| layer <= 3 || (layer - 3).is_multiple_of(4);
        let glm: Vec<bool> = (1..=78).map(|layer| !chooses(layer)).collect();
        let sharing = Sharing::of(&glm).unwrap();
        assert_eq!(sharing, Sharing { every: 4, offset: 3 });
        assert_eq!((0..78).filter(|layer| !sharing.shares(*layer)).count(), 21);
        assert_eq!(Sharing::of(&[false; 5]), Some(Sharing { every: 1, offset: 0 }));
        assert_eq!(Sharing::of(&[false, true, true, false, false]), None);
        for every in 1..9 {
            for offset in 0..9 {
                let of_flags = Sharing { every, offset };
                let list: Vec<bool> = (0..40).map(|layer| of_flags.shares(layer)).collect();
                let again = Sharing::of(&list).unwrap();
                assert!((0..40).all(|layer| again.shares(layer) == of_flags.shares(layer)), "{every} from {offset}");
            }
        }
    }
}
