//! Mixers of hybrids: attention and Mamba side by side, the gated delta rule, Kimi Delta Attention, and latent
//! attention without positions.

use crate::random::workload;
use meshwright::catalog::{self, Overrides};
use meshwright::cost::Costs;
use meshwright::gpu::Format;
use meshwright::model::{Attention, AttentionMamba, DeltaNet, Ffn, KimiDelta, Mamba, Mixer, Mla, Model};
use meshwright::plan::Plan;
use meshwright::plan::text::parse_plan;
use meshwright::problem::{HbmProfile, Problem};
use meshwright::space::check;

/// Width of Falcon-H1-34B, in one kind of layer that has a mixer alone.
fn problem(mixer: &Mixer, stack: &str) -> Problem {
    let sets = Overrides::default();
    let mut model: Model = catalog::model("nemotron-h-56b", &sets).unwrap();
    let layer = model.kinds[0].clone();
    model.hidden = 5120;
    model.kinds = vec![meshwright::model::Layer { mixer: mixer.clone(), ffn: Ffn::None, norms: 0, ..layer }];
    model.order = vec![0; 8];
    let (cluster, stack) = (catalog::cluster("dgx-h100-64", &sets).unwrap(), catalog::stack(stack, &sets).unwrap());
    Problem::new(model, cluster, workload(64, 4096, Format::Bf16), stack, HbmProfile::Normal).unwrap()
}

/// Attention and Mamba of Falcon-H1-34B.
pub fn both() -> AttentionMamba {
    let mamba = Mamba {
        heads: 32,
        head_dim: 128,
        groups: 2,
        state: 256,
        conv_kernel: 4,
        conv_bias: true,
        proj_bias: false,
        out_bias: None,
        norm: true,
    };
    AttentionMamba { attention: Attention::plain(20, 4, 128), mamba }
}

/// Seconds and bytes of one layer.
struct Priced {
    /// Forward without norms and residuals.
    forward: f64,
    dgrad: f64,
    wgrad: f64,
    attention: f64,
    collectives: f64,
    host: f64,
    kept: f64,
}

fn priced(mixer: &Mixer, stack: &str, plan: &str) -> Priced {
    let problem = problem(mixer, stack);
    let plan: Plan = parse_plan(plan, &problem).unwrap();
    let costs = Costs::new(&problem);
    let cost = costs.layer(0, &plan);
    Priced {
        forward: (cost.forward - cost.norms).get(),
        dgrad: cost.dgrad.get(),
        wgrad: cost.wgrad.get(),
        attention: cost.attention.get(),
        collectives: cost.tp.sum().get(),
        host: cost.host.forward.get(),
        kept: costs.kept_activations(0, &plan).get(),
    }
}

/// GEMMs, cores and collectives are those of the two layers together; products and the sum come on top, the residual once.
#[test]
fn a_layer_of_both_is_the_sum_of_its_mixers() {
    let both = both();
    let [attention, mamba] = both.mixers();
    for stack in ["nemo-25", "torchtitan-2025"] {
        for plan in ["tp=1 dp=64 mbs=1", "tp=2 dp=32 mbs=1", "tp=1 cp=2 dp=32 mbs=1"] {
            let whole = priced(&Mixer::AttentionMamba(both.clone()), stack, plan);
            let parts = [priced(&attention, stack, plan), priced(&mamba, stack, plan)];
            let sum = |of: fn(&Priced) -> f64| parts.iter().map(of).sum::<f64>();
            let same = |of: fn(&Priced) -> f64| (of(&whole) - sum(of)).abs() <= 1e-9 * sum(of);
            assert!(same(|of| of.wgrad) && same(|of| of.attention) && same(|of| of.collectives), "{stack} {plan}");
            let around = whole.forward - sum(|of| of.forward);
            let (tokens, tp) = (4096.0, if plan.contains("tp=2") { 2.0 } else { 1.0 });
            let tokens = if plan.contains("cp=2") { tokens / 2.0 } else { tokens };
            let least = tokens * (26.0 * 5120.0 + 4.0 * (512.0 + 9248.0)) / tp / 3.35e12;
            assert!((least..3.0 * least).contains(&around), "{stack} {plan}: {around:e} of {least:e}");
            assert!(whole.host > parts[0].host || whole.host.abs() < 1e-12, "{stack}");
            let residual = 2.0 * tokens * 5120.0 / tp;
            let kept = sum(|of| of.kept);
            assert!((kept - 3.0 * residual..kept).contains(&whole.kept), "{stack} {plan}: {} {kept}", whole.kept);
        }
    }
}

/// FLOPs and weights are sums; the rules of both mixers hold, and the groups of Mamba divide by tp.
#[test]
fn a_layer_of_both_counts_as_its_mixers_do() {
    let both = both();
    let convention = meshwright::model::flops::AttentionConvention::Causal;
    let count = |mixer: &Mixer| {
        let problem = problem(mixer, "nemo-25");
        let layer = &problem.model().kinds[0];
        (layer.matmul_weights(5120), layer.mixing_flops(5120, 4096.0, convention), layer.parameters(5120, 1).mixer)
    };
    let whole = count(&Mixer::AttentionMamba(both.clone()));
    let [a, m] = both.mixers().map(|mixer| count(&mixer));
    assert_eq!(whole, (a.0 + m.0, a.1 + m.1, a.2 + m.2));
    let problem = problem(&Mixer::AttentionMamba(both), "nemo-25");
    let reasons = |plan: &str| {
        let plan = parse_plan(plan, &problem).unwrap();
        check(&Costs::new(&problem), &plan).iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(reasons("tp=2 dp=32 mbs=1"), "");
    assert!(
        reasons("tp=4 dp=16 mbs=1").contains("tp=4 does not divide the 2 groups"),
        "{}",
        reasons("tp=4 dp=16 mbs=1")
    );
    assert!(reasons("tp=8 dp=8 mbs=1").contains("the 20 heads"), "{}", reasons("tp=8 dp=8 mbs=1"));
}

/// Without the norm behind its gate, a Mamba-2 block runs one kernel less in either pass and moves 4 and 8 bytes less a channel.
#[test]
fn a_block_without_a_norm_takes_less_time() {
    let block = both().mamba;
    let time = |norm: bool| {
        let priced = priced(&Mixer::Mamba(Mamba { norm, ..block.clone() }), "nemo-25", "tp=1 dp=64 mbs=1");
        (priced.forward, priced.dgrad)
    };
    let (with, without) = (time(true), time(false));
    let bytes = 4096.0 * 4096.0 * 4.0;
    assert!(with.0 - without.0 > bytes / 3.35e12 && with.1 - without.1 > 2.0 * bytes / 3.35e12);
    let count = |norm: bool| Mamba { norm, ..block.clone() }.small_parameters(5120);
    assert_eq!(count(true) - count(false), 4096);
    let biases = |out_bias| Mamba { out_bias, proj_bias: true, ..block.clone() }.small_parameters(5120);
    assert_eq!(biases(None) - biases(Some(false)), 5120);
}

/// Kimi Delta Attention of Kimi-Linear: kernels and kept tensors by hand, with 4,096 channels, heads of 128 and chunks
/// of 64 tokens.
#[test]
fn kimi_delta_attention_moves_and_keeps_what_is_counted() {
    let net = KimiDelta { heads: 32, head_dim: 128, conv_kernel: 4 };
    let of = priced(&Mixer::KimiDelta(net.clone()), "nemo-25", "tp=1 dp=64 mbs=1");
    let tokens = 4096.0;
    let moved = tokens * (4096.0 * 32.0 + (4096.0 * (50.0 + 4.0 * 2.0) + 32.0 * 800.0) / 0.75);
    let least = moved / 3.35e12;
    assert!((least..1.5 * least).contains(&of.attention), "{:e} {least:e}", of.attention);
    let kept = tokens * (4.0 * 5120.0 + 20.0 * 4096.0 + 32.0 * (256.0 + 18.0) + 4.0 * 128.0);
    assert!((of.kept / kept - 1.0).abs() < 0.05, "{} {kept}", of.kept);
    let problem = problem(&Mixer::KimiDelta(net), "nemo-25");
    let flops =
        problem.model().kinds[0].mixing_flops(5120, 4096.0, meshwright::model::flops::AttentionConvention::Causal);
    assert!((flops - 6.0 * 4096.0 * 128.0).abs() < 1e-3);
}

/// Gated delta rule of Qwen3-Next: kernels and kept tensors by hand, with 4,096 channels, 2,048 of keys that two heads
/// of values share, heads of 128 and chunks of 64 tokens.
#[test]
fn a_gated_delta_rule_moves_and_keeps_what_is_counted() {
    let net = |key_heads| DeltaNet { key_heads, value_heads: 32, key_dim: 128, value_dim: 128, conv_kernel: 4 };
    let of = |key_heads| priced(&Mixer::DeltaNet(net(key_heads)), "nemo-25", "tp=1 dp=64 mbs=1");
    let (shared, own) = (of(16), of(32));
    let tokens = 4096.0;
    let by_chunk = 4096.0 * (12.0 + 4.0 * 2.0 + 4.0) + 2048.0 * 10.0 + 32.0 * 6.0 * 64.0;
    let moved = tokens * (4096.0 * 26.0 + 2048.0 * 40.0 + by_chunk / 0.75);
    let least = moved / 3.35e12;
    assert!((least..1.5 * least).contains(&shared.attention), "{:e} {least:e}", shared.attention);
    // A head of keys for each of values: twice the keys, and no sums of gradients backward.
    let more = own.attention - shared.attention;
    assert!((1.0..1.5).contains(&(more * 3.35e12 / (tokens * 2048.0 * (40.0 + 10.0 / 0.75)))), "{more:e}");
    let kept = tokens * (4.0 * 5120.0 + 10.0 * 4096.0 + 8.0 * 2048.0 + 32.0 * (128.0 + 18.0) + 16.0 * 8.0);
    assert!((shared.kept / kept - 1.0).abs() < 0.05, "{} {kept}", shared.kept);
    // Two ranks of tensor parallelism halve the bytes, and none of the gaps.
    let half = priced(&Mixer::DeltaNet(net(16)), "nemo-25", "tp=2 dp=32 mbs=1").attention;
    let gaps = 28.0 * 2.5e-6;
    assert!(half > shared.attention / 2.0 && half < shared.attention / 2.0 + gaps, "{half:e}");
}

/// Latent attention without positions moves less than with them, and is otherwise the same.
#[test]
fn latent_attention_without_positions_rotates_nothing() {
    let of = |rope| {
        let mla =
            Mla { heads: 32, q_rank: 0, kv_rank: 512, nope_dim: 128, rope_dim: 64, v_dim: 128, rope, indexer: None };
        priced(&Mixer::Mla(mla), "nemo-25", "tp=1 dp=64 mbs=1")
    };
    let (rotated, plain) = (of(true), of(false));
    assert!(plain.forward < rotated.forward && plain.dgrad < rotated.dgrad);
    let same = |of: fn(&Priced) -> f64| (of(&rotated) - of(&plain)).abs() < 1e-12;
    assert!(same(|of| of.wgrad) && same(|of| of.attention) && same(|of| of.kept));
}
