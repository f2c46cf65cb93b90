//! §1: parameters and model FLOPs.

use meshwright::model::flops::AttentionConvention::{Causal, Full};
use meshwright::model::{Mixer, Span};

use super::{close, gpt, model, prints};

#[test]
fn section_1_1_parameters_of_the_verified_models() {
    for (name, printed, unit) in [
        ("gpt3-175b", 174.6, 0.1),
        ("llama3-8b", 8.030, 0.001),
        ("llama3-70b", 70.554, 0.001),
        ("llama3-405b", 405.85, 0.01),
        ("deepseek-v3", 671.03, 0.01),
        ("qwen3-30b-a3b", 30.53, 0.01),
        ("qwen3-235b-a22b", 235.09, 0.01),
        ("nemotron4-340b", 341.0, 0.1),
    ] {
        prints(model(name).parameters().total as f64 / 1e9, printed, unit);
    }
}

#[test]
fn section_1_1_a_layer_of_llama_3_70b() {
    let model = model("llama3-70b");
    let layer = model.layer_parameters(0);
    prints(layer.mixer as f64 / 1e6, 83.89 + 67.11, 0.02);
    prints(layer.mlp as f64 / 1e6, 704.64, 0.01);
    prints(layer.norms as f64 / 1e6, 0.016, 0.001);
    prints(layer.total() as f64 / 1e6, 855.65, 0.01);
}

#[test]
fn section_1_1_the_blocks_of_deepseek_v3() {
    let model = model("deepseek-v3");
    let layer = model.layer_parameters(model.last_kind());
    prints(layer.mixer as f64 / 1e6, 187.107, 0.001);
    prints(layer.total() as f64 / 1e9, 11.507, 0.001);
    let visited = layer.dense() as f64 + layer.experts as f64 * 8.0 / 256.0;
    prints(visited / 1e6, 585.3, 0.1);
}

#[test]
fn section_1_3_a_sliding_window_sees_three_quarters_of_its_width() {
    close(Span::Window(4096).mean_keys(8192.0), 3072.0, 1e-12);
    close(Span::Full.mean_keys(8192.0), 4096.0, 1e-12);
}

#[test]
fn section_1_4_llama_3_405b_trains_a_token_in_2524_gigaflops() {
    let model = model("llama3-405b");
    let layers = f64::from(model.layers());
    let head = f64::from(model.vocab) * f64::from(model.hidden);
    let products = 6.0 * (layers * model.kinds[0].matmul_weights(model.hidden) + head);
    let scores = 3.0 * layers * model.kinds[0].mixing_flops(model.hidden, 8192.0, Causal);
    prints(products / 1e9, 2422.5, 0.1);
    prints(scores / 1e9, 101.5, 0.1);
    prints(model.flops_per_token(8192, Causal).get() / 1e9, 2524.0, 0.1);
}

#[test]
fn section_1_4_the_published_conventions_are_met() {
    let flops = |name: &str, s, convention| model(name).flops_per_token(s, convention).get() / 1e9;
    prints(flops("llama3-70b", 8192, Full), 481.4, 0.1);
    close(flops("llama3-70b", 8192, Full), 481.6, 0.006);
    close(flops("llama3-405b", 8192, Causal), 2524.8, 0.006);
    let mut deepseek = model("deepseek-v3");
    assert!(deepseek.kinds.iter().all(|layer| matches!(layer.mixer, Mixer::Mla(_))));
    deepseek.mtp_depth = 1;
    prints(deepseek.flops_per_token(4096, Causal).get() / 1e9, 260.6, 0.1);
    deepseek.mtp_depth = 0;
    prints(deepseek.flops_per_token(4096, Full).get() / 1e9, 281.2, 0.1);
    prints(deepseek.flops_per_token(4096, Causal).get() / 1e9, 250.4, 0.1);
}

#[test]
fn section_1_4_the_gap_between_the_conventions_is_4_percent_at_8k_and_40_at_128k() {
    let model = model("llama3-405b");
    let gap = |s| model.flops_per_token(s, Full).get() / model.flops_per_token(s, Causal).get() - 1.0;
    prints(gap(8192), 0.04, 0.01);
    prints(gap(131_072), 0.40, 0.01);
}

/// Korthikanti's 72·B·s·L·h²·(1 + s/6h + V/12Lh), without recomputation.
#[test]
fn section_1_4_a_gpt_needs_the_flops_of_the_published_formula() {
    let (layers, h, s, vocab) = (96.0, 12_288.0_f64, 2048.0, 51_200.0);
    let formula = 72.0 * layers * h.powi(2) * (1.0 + s / (6.0 * h) + vocab / (12.0 * layers * h));
    close(gpt(96, 12_288, 96).flops_per_token(2048, Full).get(), formula, 1e-9);
}
