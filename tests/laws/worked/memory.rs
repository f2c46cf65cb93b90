//! §6: states and activations.

use meshwright::cost::Costs;
use meshwright::problem::Problem;
use meshwright::space::parse_plan;
use meshwright::workload::{RECIPES, recipe};

use super::{close, cluster, gpt, model, one_zero_cluster, one_zero_stack, prints, problem, te24};

#[test]
fn section_6_1_recipes_keep_the_printed_bytes() {
    let total = |name| recipe(name).unwrap().total();
    close(total("fp32"), 16.0, 1e-12);
    close(total("deepspeed"), 16.0, 1e-12);
    close(total("megatron"), 18.0, 1e-12);
    close(total("megatron-bf16-grads"), 16.0, 1e-12);
    close(total("pure-bf16"), 12.0, 1e-12);
    close(total("fp8-compressed"), 9.0, 1e-12);
    assert_eq!(RECIPES.len(), 12);
}

/// Sharded states of one parameter, in bytes, by ZeRO stage over 1,024 ranks.
#[test]
fn section_6_1_a_trillion_parameters_of_16_bytes_are_15_6_gb_over_1024_ranks() {
    let mut base = problem(model("megatron-1t"), cluster("dgx-a100-1k"), te24(), 1024, 2048);
    let mut workload = base.workload().clone();
    workload.recipe = recipe("deepspeed").unwrap();
    base = Problem::new(base.model().clone(), base.cluster().clone(), workload, te24(), base.hbm_profile()).unwrap();
    let costs = Costs::new(&base);
    let states = |zero: u32| {
        let plan = parse_plan(&format!("tp=1 zero={zero}"), &base).unwrap();
        let parameters = costs.rank_parameters(&plan)[0].total();
        let footprint = costs.fullest(&plan);
        (footprint.weights + footprint.gradients + footprint.optimizer).get() / parameters
    };
    close(states(3) * 1e12, 15.6e9, 0.01);
    close(states(2), 2.0 + 14.0 / 1024.0, 1e-9);
    close(states(1), 4.0 + 12.0 / 1024.0, 1e-9);
    close(states(0), 16.0, 1e-9);
}

/// Activations of one layer under a recomputation, over n·h·2 bytes.
#[test]
fn section_6_2_a_block_of_llama_7b_keeps_16_1_times_its_input() {
    let mut llama = model("llama2-7b");
    llama.order = vec![0; 32];
    let problem = problem(llama, cluster("dgx-h100-8"), te24(), 8, 4096);
    let costs = Costs::new(&problem);
    let kept = |recompute: &str| {
        let plan = parse_plan(&format!("recompute={recompute}"), &problem).unwrap();
        costs.kept_activations(0, &plan)
    };
    let input = 4096.0 * 4096.0 * 2.0;
    prints(kept("none").as_gib(), 0.502, 0.001);
    prints(kept("none").get() / input, 16.1, 0.1);
    prints(kept("act").get() / input, 13.4, 0.1);
    close(kept("full").get() / input, 1.0, 1e-12);
}

/// The four models of the sequence-parallelism paper: model, plan, and activations of the first stage in GiB, whole and
/// selective with sequence parallelism: of the paper, and of this specification.
#[test]
fn section_6_3_activations_are_those_of_the_sequence_parallelism_paper() {
    let models = [
        (gpt(48, 6144, 64), 8, "tp=8 pp=1 mbs=4", [59.25, 59.26], [9.56, 9.57]),
        (gpt(96, 12_288, 96), 64, "tp=8 pp=8 schedule=interleaved vpp=3", [66.84, 66.86], [12.35, 12.36]),
        (gpt(105, 20_480, 128), 280, "tp=8 pp=35 schedule=interleaved vpp=3", [114.02, 114.04], [23.08, 23.09]),
        (gpt(128, 25_600, 160), 512, "tp=8 pp=64", [131.25, 131.27], [26.56, 26.58]),
    ];
    for (gpt, gpus, plan, whole, selective) in models {
        let stack = one_zero_stack("megatron-2022", 1.35, 1.0);
        let problem = problem(gpt, one_zero_cluster("dgx-a100-1k", "a100-80-sxm", gpus), stack, 512, 2048);
        let costs = Costs::new(&problem);
        let kept = |rest: &str| {
            let plan = parse_plan(&format!("{plan} {rest}"), &problem).unwrap();
            costs.footprints(&plan)[0].activations.as_gib()
        };
        let (all, some) = (kept("sp=off"), kept("sp=on recompute=core_attn"));
        prints(all, whole[1], 0.01);
        prints(some, selective[1], 0.01);
        close(all, whole[0], 0.0005);
        close(some, selective[0], 0.002);
    }
}

fn llama_3_405b() -> Problem {
    let stack = one_zero_stack("meta-llama3", 1.35, 0.8);
    problem(model("llama3-405b"), one_zero_cluster("dgx-h100-16k", "h100-sxm", 8192), stack, 2048, 8192)
}

#[test]
fn section_6_4_full_recomputation_keeps_33_6_of_533_mb() {
    let problem = llama_3_405b();
    let kept = |recompute: &str| {
        let plan = parse_plan(&format!("tp=8 pp=16 recompute={recompute}"), &problem).unwrap();
        Costs::new(&problem).kept_activations(0, &plan).get()
    };
    close(kept("none"), 533e6, 0.01);
    close(kept("full"), 33.6e6, 0.01);
}

#[test]
fn section_6_8_llama_3_405b_does_not_fit_as_it_is() {
    let problem = llama_3_405b();
    let costs = Costs::new(&problem).with_unknown_splits(); // the specification counts 126/16 layers
    let layout = "tp=8 pp=16 schedule=interleaved vpp=8";
    let plan = parse_plan(&format!("{layout} zero=1"), &problem).unwrap();
    close(costs.kept_activations(0, &plan).as_gib(), 0.497, 0.01);
    let first = costs.footprints(&plan)[0];
    let states = (first.weights + first.gradients + first.optimizer).as_gib();
    let parameters = first.weights.get() / 2.0;
    close(parameters / 1e9, 3.40, 0.01);
    close(states, 19.6, 0.01);
    close(first.activations.as_gib(), 69.9, 0.01);
    close(states + first.activations.as_gib(), 89.8, 0.01);
    let plan = parse_plan(&format!("{layout} zero=2 recompute=act"), &problem).unwrap();
    let first = costs.footprints(&plan)[0];
    let states = (first.weights + first.gradients + first.optimizer).as_gib();
    close(states, 7.1, 0.01);
    close(states + first.activations.as_gib(), 63.0, 0.01);
}
