//! §4, §5.1, §7.5 and §8.1: schedules, overlap, stragglers and the FLOP bound.

use meshwright::cost::{Costs, overlap::overlap, straggler};
use meshwright::gpu::Format;
use meshwright::model::flops::AttentionConvention;
use meshwright::schedule::Schedule;
use meshwright::schedule::closed::{RankTime, SendMode, bubble, busiest, exposed_sends, in_flight};
use meshwright::schedule::replay::{StageTime, replay};
use meshwright::space::parse_plan;
use meshwright::split::layers as split;
use meshwright::units::Seconds;

use super::{close, model, one_zero_cluster, one_zero_stack, prints, problem};

const INTERLEAVED: Schedule = Schedule::Interleaved { virtual_stages: 2 };

fn four_stages(schedule: Schedule) -> f64 {
    let s = Seconds::new;
    let ranks = vec![RankTime { forward: s(1.0), backward: s(2.0), wgrad: s(1.0) }; 4];
    (busiest(&ranks).both() * 8.0 + bubble(schedule, &ranks, 8.0)).get()
}

#[test]
fn section_4_four_stages_and_eight_micro_batches_take_33_27_and_28_5() {
    close(four_stages(Schedule::OneFOneB), 33.0, 1e-9);
    close(four_stages(Schedule::ZbH1), 27.0, 1e-9);
    close(four_stages(INTERLEAVED), 28.5, 1e-9);
}

#[test]
fn section_4_the_bubble_of_1f1b_is_37_5_percent_of_the_ideal_and_27_3_of_the_whole() {
    let total = four_stages(Schedule::OneFOneB);
    close((total - 24.0) / 24.0, 0.375, 1e-9);
    prints((total - 24.0) / total, 0.273, 0.001);
}

#[test]
fn section_4_the_replay_of_the_example_agrees() {
    let s = Seconds::new;
    let stages = |n: usize, chunk: f64| {
        let chunk = StageTime { forward: s(chunk), backward: s(2.0 * chunk), wgrad: s(chunk), ..StageTime::default() };
        vec![chunk; n]
    };
    let play = |schedule: Schedule, stages: &[StageTime]| {
        replay(schedule.on(4), 8, stages, Seconds::ZERO).unwrap().makespan.get()
    };
    close(play(Schedule::OneFOneB, &stages(4, 1.0)), 33.0, 1e-9);
    close(play(INTERLEAVED, &stages(8, 0.5)), 28.5, 1e-9);
    close(play(Schedule::ZbH1, &stages(4, 1.0)), 27.0, 1e-9);
}

#[test]
fn section_4_interleaving_multiplies_the_activations_of_stage_0() {
    let held = in_flight(Schedule::Interleaved { virtual_stages: 3 }.on(8), 0, 64.0);
    close(held, 8.0 * (1.0 + 7.0 / 24.0), 1e-12);
}

#[test]
fn section_4_3_llama_3_405b_lacks_a_layer_at_both_ends() {
    let layers = split::even(126, 16);
    assert_eq!((layers[0], layers[15]), (7, 7));
    assert!(layers[1..15].iter().all(|&count| count == 8));
}

#[test]
fn section_4_5_asynchronous_sends_of_1f1b_expose_12_4() {
    let send = Seconds::new(0.1);
    let exposed = exposed_sends(Schedule::OneFOneB.on(8), 64.0, send, SendMode::Asynchronous);
    close(exposed.get(), 12.4, 1e-9);
    prints(exposed.get() / (64.0 * 3.0 + 7.0 * 3.0), 0.06, 0.01);
    let stage = StageTime { forward: Seconds::new(1.0), backward: Seconds::new(2.0), ..StageTime::default() };
    let stages = [stage; 8];
    let play = |send| replay(Schedule::OneFOneB.on(8), 64, &stages, send).unwrap().makespan;
    close((play(send) - play(Seconds::ZERO)).get(), 12.4, 1e-9);
}

#[test]
fn section_5_1_six_hide_behind_ten_and_fourteen_do_not() {
    let time = |x| overlap(Seconds::new(10.0), Seconds::new(x), 0.12).get();
    close(time(6.0), 10.68, 0.01);
    close(time(14.0), 14.84, 0.01);
}

#[test]
fn section_7_5_the_slowest_of_2048_nodes_costs_1_1_percent() {
    for (n, printed) in [(64.0, 2.20), (256.0, 2.69), (2048.0, 3.32), (16_384.0, 3.86)] {
        close(straggler::expected_maximum(n), printed, 0.01);
    }
    prints(straggler::slow_down(2048 * 8, 0.01 / 3.0), 0.011, 0.001);
}

#[test]
fn section_8_1_the_flop_bound_of_llama_3_405b_is_8_56_s_and_no_plan_is_faster() {
    let cluster = one_zero_cluster("dgx-h100-16k", "h100-sxm", 8192);
    let llama = model("llama3-405b");
    let flops = llama.flops_per_token(8192, AttentionConvention::Causal).get() * 2048.0 * 8192.0;
    let curve = &cluster.gpu.gemm[&Format::Bf16];
    let rate = cluster.gpu.peak_of(Format::Bf16).unwrap().get() * curve.efficiency * curve.sustained;
    let bound = flops / (8192.0 * rate);
    close(bound, 8.56, 0.01);
    let problem = problem(llama, cluster, one_zero_stack("meta-llama3", 1.35, 0.8), 2048, 8192);
    let plan = parse_plan("tp=8 pp=16 schedule=interleaved vpp=8", &problem).unwrap();
    assert!(Costs::new(&problem).evaluate(&plan).step.total().get() > bound);
}
