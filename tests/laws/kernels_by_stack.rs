//! Kernels and exchanges that a stack turns on: each adds what its formula says, and only where it applies.

use crate::random::{Spec, spec};
use meshwright::collective::Group;
use meshwright::cost::Costs;
use meshwright::cost::layer::LayerCost;
use meshwright::gpu::{AttentionKernel, Collective, Format};
use meshwright::kernel::LinearShape;
use meshwright::space::parse_plan;
use meshwright::units::{Bytes, Seconds};
use meshwright::workload::Adaptation;

/// The last kind of layer of a model under a plan on 512 H100 without what NeMo 25.x scales, with `key` off and on, and the time
/// of streaming so many bytes by so many kernels.
fn off_and_on(
    (model, seq_len): (&'static str, u32),
    plan: &str,
    key: &str,
    (bytes, kernels): (f64, f64),
) -> (LayerCost, LayerCost, Seconds) {
    let spec = spec(model, "h100-512", "nemo-25", 512, seq_len).set("stack.traffic=1");
    let [off, on] = [false, true].map(|on| spec.set(format!("stack.{key}={on}")).problem());
    let layer = |problem| {
        let plan = parse_plan(plan, problem).unwrap();
        Costs::new(problem).layer(problem.model().last_kind(), &plan)
    };
    let streamed = Costs::new(&off).device.stream(Bytes::new(bytes), kernels);
    (layer(&off), layer(&on), streamed)
}

#[track_caller]
fn is(what: &str, ours: Seconds, expected: Seconds) {
    assert!((ours.get() / expected.get() - 1.0).abs() < 1e-9, "{what}: {ours} s, {expected} s expected");
}

/// Experts' casts have a share of their own where one is stated, and that of all GEMMs otherwise.
#[test]
fn experts_cast_what_no_producer_does() {
    let spec = spec("qwen3-30b-a3b", "h100-512", "meta-llama3", 512, 4096);
    let pass = |casts: f64, experts: &str| {
        let problem = spec.set(format!("stack.casts={casts}")).set(format!("stack.expert_casts={experts}")).problem();
        let device = Costs::new(&problem).device;
        let shape = LinearShape { tokens: 1024.0, input: 2048.0, output: 1536.0, batch: 16.0 };
        (device.linear(shape, Format::Fp8), device.expert_linear(shape, Format::Fp8))
    };
    let ((half, experts), (all, _)) = (pass(0.5, "1"), pass(1.0, "1"));
    assert_eq!(experts, all);
    assert!(experts.forward > half.forward && experts.dgrad > half.dgrad && experts.wgrad == half.wgrad);
    assert_eq!(pass(0.5, "0.5").1, half);
}

/// Expert GEMMs by the way in which a stack launches them: one kernel adds its set-up to a batch of equal sizes,
/// streams add the last tiles of each product and its launch, fewer streams more.
#[test]
fn experts_run_in_one_kernel_or_on_streams() {
    let spec = spec("qwen3-30b-a3b", "h100-512", "meta-llama3", 512, 4096);
    let time = |streams: Option<u32>, tokens: f64, experts: f64| {
        let set = |streams| spec.set(format!("stack.expert_streams={streams}"));
        let problem = streams.map_or_else(|| spec.clone(), set).problem();
        let shape = LinearShape { tokens, input: 2048.0, output: 1536.0, batch: experts };
        let device = Costs::new(&problem).device;
        (device.linear(shape, Format::Bf16), device.expert_linear(shape, Format::Bf16))
    };
    let (batch, kernel) = time(Some(0), 256.0, 16.0);
    is("set-up", kernel.forward - batch.forward, Seconds::new(9e-6));
    for tokens in [64.0, 256.0, 1024.0, 4096.0] {
        let [one, four, eight] = [1, 4, 8].map(|streams| time(Some(streams), tokens, 16.0).1);
        assert!(one.forward > four.forward && four.forward > eight.forward, "{tokens} tokens");
        assert!(one.wgrad > four.wgrad && four.wgrad > eight.wgrad, "{tokens} tokens");
        let batch = time(Some(4), tokens, 16.0).0;
        // 15 launches but those of the first on each stream, and 16 last tiles by four.
        let tile = 2.0 * tokens.min(128.0) * 128.0 * 2048.0 / (989.4e12 / 132.0);
        let most = 4.0 * tile * 2.0 + 3.0 * 3e-6;
        let added = (four.forward - batch.forward).get();
        assert!(added > 2.9 * 2e-6 && added < most, "{tokens} tokens: {added} s, at most {most}");
    }
    // A single expert is a plain product; a stack that says nothing has the ramp, far slower with few tokens.
    let (plain, single) = time(Some(4), 256.0, 1.0);
    assert_eq!(plain, single);
    assert!(time(None, 64.0, 16.0).1.forward > time(Some(0), 64.0, 16.0).1.forward * 1.5);
}

/// 4,096 tokens, 8 copies of 2,048 elements: 8 bytes an element in either pass, where a rank has several experts of 128.
#[test]
fn received_tokens_are_sorted_by_local_expert() {
    let qwen = ("qwen3-30b-a3b", 4096);
    let elements = 4096.0 * 8.0 * 2048.0;
    let plan = |ep: u32, dispatcher: &str| format!("ep={ep} dispatcher={dispatcher} zero=1 mbs=1");
    let key = "sorts_received_tokens";
    let (off, on, sorts) = off_and_on(qwen, &plan(8, "alltoall"), key, (8.0 * elements, 2.0));
    is("forward", on.forward - off.forward, sorts);
    is("backward", on.dgrad - off.dgrad, sorts);
    for (ep, dispatcher) in [(128, "alltoall"), (8, "deepep"), (1, "alltoall")] {
        let (off, on, _) = off_and_on(qwen, &plan(ep, dispatcher), key, (0.0, 0.0));
        assert_eq!(off, on, "ep {ep}, {dispatcher}");
    }
}

/// Four bytes a copy take a latency of the exchange and little more, and nothing where they travel with the tokens.
#[test]
fn weights_of_tokens_are_an_exchange_of_their_own() {
    let cost = |ep: u32, dispatcher: &str| {
        let plan = format!("ep={ep} dispatcher={dispatcher} zero=1 mbs=1");
        let (off, on, _) = off_and_on(("qwen3-30b-a3b", 4096), &plan, "sends_token_weights", (0.0, 0.0));
        assert_eq!(off.ep.backward - off.ep.forward, on.ep.backward - on.ep.forward);
        (on.ep.forward - off.ep.forward).get()
    };
    let inside = cost(8, "alltoall");
    assert!(inside > 15e-6 && inside < 20e-6, "{inside} s");
    assert!(cost(16, "alltoall") > 25e-6);
    assert!(cost(8, "deepep") == 0.0 && cost(1, "alltoall") == 0.0);
}

/// 32 heads of queries and 8 of keys, of 128: a norm's 4 and 8 bytes an element, and nothing for Llama 3, which has none.
#[test]
fn norms_of_queries_and_keys_are_kernels() {
    let elements = 4096.0 * 40.0 * 128.0;
    let plan = "tp=2 sp=on zero=1 mbs=1";
    let (off, on, norms) = off_and_on(("qwen3-8b", 4096), plan, "qk_norm_kernels", (2.0 * elements, 2.0));
    is("forward", on.forward - off.forward, norms);
    let (_, _, backward) = off_and_on(("qwen3-8b", 4096), plan, "qk_norm_kernels", (4.0 * elements, 3.0));
    is("backward", on.dgrad - off.dgrad, backward);
    let (off, on, _) = off_and_on(("llama3-8b", 4096), plan, "qk_norm_kernels", (0.0, 0.0));
    assert_eq!(off, on);
}

/// RMSNorm of 4,096 hidden elements, twice, and the rotation of 32 heads of queries and 8 of keys, of 128: the bytes of
/// PyTorch's operators in place of fused kernels', and none of the stack's traffic on them. GPT's `LayerNorm` is one
/// kernel in PyTorch too.
#[test]
fn norms_and_rotation_run_operator_by_operator() {
    let (tokens, plan) = (4096.0, "tp=1 zero=1 mbs=1");
    let (hidden, rotated, qkv) = (tokens * 4096.0, tokens * 40.0 * 128.0, tokens * 48.0 * 128.0);
    let more = |eager: f64, fused: f64| {
        let llama = ("llama3-8b", 4096);
        let (off, on, eager) = off_and_on(llama, plan, "eager_operators", (eager, 0.0));
        (off, on, eager - off_and_on(llama, plan, "eager_operators", (fused, 0.0)).2)
    };
    let kernels = |count: f64| {
        let (_, _, gaps) = off_and_on(("llama3-8b", 4096), plan, "eager_operators", (0.0, count));
        gaps
    };
    let (off, on, forward) = more(36.0 * 2.0 * hidden + 20.0 * rotated, 4.0 * 2.0 * hidden + 0.65 * 4.0 * qkv);
    is("forward", on.forward - off.forward, forward + kernels(2.0 * 8.0 + 10.0 - 2.0 - 2.0));
    let (_, _, backward) = more(84.0 * 2.0 * hidden + 30.0 * rotated, 8.0 * 2.0 * hidden + 0.65 * 4.0 * qkv);
    is("backward", on.dgrad - off.dgrad, backward + kernels(2.0 * 15.0 + 18.0 - 2.0 * 1.5 - 2.0));
    let (off, on, _) = off_and_on(("gpt3-175b", 2048), "tp=8 pp=8 sp=on zero=1 mbs=1", "eager_operators", (0.0, 0.0));
    assert_eq!(off, on);
}

/// Adapters of Llama 3 8B read and write 3 bytes of each input and 5 of each output, forward: of q, k, v and o, and of
/// gate, up and down.
#[test]
fn adapters_stream_the_inputs_and_outputs_of_their_projections() {
    let forward = |adaptation, output: f64| {
        let mut spec = spec("llama3-8b", "dgx-h100-8", "fsdp-eager-2023", 8, 4096);
        spec.adaptation = adaptation;
        let traffic = [("input_forward", 3.0), ("output_forward", output), ("kernels_forward", 0.0)];
        let set = |spec: Spec, (key, value): &(&str, f64)| spec.set(format!("stack.adapters.{key}={value}"));
        let problem = traffic.iter().fold(spec, set).problem();
        let costs = Costs::new(&problem);
        let time = costs.layer(0, &parse_plan("dp=8 zero=3 mbs=1", &problem).unwrap()).forward;
        (time, costs.device.stream_fused(Bytes::new(4096.0), 0.0))
    };
    let (full, kilobyte) = forward(Adaptation::Full, 5.0);
    let of_attention = (3.0 * 4.0 * 4096.0, 5.0 * (2.0 * 4096.0 + 2.0 * 1024.0));
    let of_mlp = (3.0 * (2.0 * 4096.0 + 14336.0), 5.0 * (2.0 * 14336.0 + 4096.0));
    let (attention, _) = forward(Adaptation::LoraAttention, 5.0);
    is("attention", attention - full, kilobyte * (of_attention.0 + of_attention.1));
    let (all, _) = forward(Adaptation::Lora, 5.0);
    is("MLP", all - attention, kilobyte * (of_mlp.0 + of_mlp.1));
    let (less, _) = forward(Adaptation::LoraAttention, 0.0);
    is("inputs", less - full, kilobyte * of_attention.0);
}

/// 48 layers of Qwen3 30B with 512 tokens a rank wait for the host: 36 and 60 launches of 6 us by the weight, forward
/// again under full recomputation. Of 34 and 41 operators CUDA graphs of modules leave 7 and 9, those behind the dispatch, and 0.12 of
/// the rest; where their scope leaves out attention, its 10 and 18 too. Nothing where kernels take longer, or without experts. Grace takes
/// as long.
#[test]
fn layers_with_experts_wait_for_the_host() {
    const GRACE: &str = "gb300-nvl72-1152";
    let (small, qwen) = ("tp=8 ep=8 dp=64 zero=1 mbs=1 dispatcher=alltoall", "qwen3-30b-a3b");
    let of = |model, cluster, plan: &str, settings: &[&str]| {
        let spec = spec(model, cluster, "nemo-25", if cluster == GRACE { 1152 } else { 512 }, 4096);
        let spec = settings.iter().fold(spec, |spec, set| spec.set(*set));
        let problem = spec.problem();
        Costs::new(&problem).evaluate_simulated(&parse_plan(plan, &problem).unwrap()).step
    };
    let more = |plan: &str, settings: &[&str]| {
        let host = |weight| of(qwen, "h100-512", plan, &[settings, &[weight]].concat()).host;
        host("stack.launches.expert_layer=60") - host("stack.launches.expert_layer=50")
    };
    let micro_batches = 8.0;
    let launches = |count: f64| Seconds::new(micro_batches * 48.0 * 10.0 * count * 6e-6);
    is("forward and backward", more(small, &[]), launches(36.0 + 60.0));
    is("recomputed", more(&format!("{small} recompute=full"), &[]), launches(36.0 + 60.0 + 36.0));
    is("norms again", more(&format!("{small} recompute=layernorm"), &[]), launches(36.0 + 60.0 + 2.0));
    let graphs = ["stack.cuda_graphs=true"];
    let counted = |forward: f64, backward: f64| 36.0 * forward / 34.0 + 60.0 * backward / 41.0;
    is("under graphs", more(small, &graphs), launches(counted(7.0 + 0.12 * 27.0, 9.0 + 0.12 * 32.0)));
    let of_router = [graphs[0], "stack.graph_scope.attention=false"];
    let launched = counted(17.0 + 0.12 * 17.0, 27.0 + 0.12 * 14.0);
    is("under graphs of the router", more(small, &of_router), launches(launched));
    let replayed = |launches| of(qwen, "h100-512", small, &[graphs[0], launches]).host;
    let (slow, quick) = (replayed("stack.launches.graph_replay=110"), replayed("stack.launches.graph_replay=100"));
    is("replays", slow - quick, launches(2.0));
    let on_grace = |weight| of(qwen, GRACE, "tp=8 ep=8 dp=144 zero=1 mbs=1 dispatcher=alltoall", &[weight]).host;
    let python = on_grace("stack.launches.expert_layer=30") - on_grace("stack.launches.expert_layer=20");
    is("Python takes as long on Grace", python, launches(36.0 + 60.0));
    let long = "tp=1 ep=8 dp=512 zero=1 mbs=1 dispatcher=alltoall";
    for (model, plan) in [("mixtral-8x22b", long), ("llama3-8b", "tp=8 dp=64 zero=1 mbs=1")] {
        let total = |weight| of(model, "h100-512", plan, &[weight]).total();
        let (heavy, light) = (total("stack.launches.expert_layer=30"), total("stack.launches.expert_layer=1"));
        assert_eq!(heavy, light, "{model} {plan}");
    }
}

/// Graphs of modules replay no layer that is recomputed as a whole: such a plan waits for the host as without graphs, and one that
/// recomputes modules does not.
#[test]
fn recomputed_layers_are_launched_kernel_by_kernel() {
    let host = |graphs: &str, recompute: &str| {
        let spec = spec("qwen3-30b-a3b", "h100-512", "nemo-25", 512, 4096).set(format!("stack.cuda_graphs={graphs}"));
        let problem = spec.problem();
        let plan = parse_plan(&format!("tp=8 ep=8 dp=64 zero=1 mbs=1 recompute={recompute}"), &problem).unwrap();
        Costs::new(&problem).evaluate_simulated(&plan).step.host
    };
    // What gaps between kernels take is shorter under graphs, and the host waits for that as well.
    assert!(host("true", "full") >= host("false", "full"));
    assert!(host("true", "layernorm") < host("false", "layernorm") * 0.5);
}

/// Pools of graphs take memory where the stack has graphs, and only there.
#[test]
fn pools_of_graphs_take_memory() {
    let reserved = |set: &str| {
        let problem = spec("qwen3-30b-a3b", "h100-512", "nemo-25", 512, 4096).set(set).problem();
        let plan = parse_plan("tp=8 ep=8 dp=64 zero=1 mbs=1", &problem).unwrap();
        Costs::new(&problem).fullest(&plan).peak().get()
    };
    let more = reserved("stack.cuda_graphs=true") - reserved("stack.cuda_graphs=false");
    assert!((more - 10e9).abs() < 1.0, "{more}");
}

/// Llama 3 8B has four heads of queries for each of keys: four times the keys and values, 2·65,536·8·128 bf16 elements,
/// are gathered.
#[test]
fn repeated_keys_are_exchanged_for_each_head_of_queries() {
    let spec = spec("llama3-8b", "h100-512", "torchtitan-2024", 512, 65536).set("stack.overlap.cp=0");
    let [off, on] = [false, true].map(|on| spec.set(format!("stack.repeats_keys={on}")).problem());
    let exposed = |problem| {
        let plan = parse_plan("cp=8 cp-kind=allgather zero=3 mbs=1", problem).unwrap();
        Costs::new(problem).layer(0, &plan).cp.forward
    };
    let gather = |times: f64| {
        let payload = Bytes::new(times * 2.0 * 65536.0 * 8.0 * 128.0 * 2.0);
        Costs::new(&off).fabric.time(Collective::AllGather, payload, Group { ranks: 8, stride: 1 }, 1.0)
    };
    is("forward", exposed(&on) - exposed(&off), gather(4.0) - gather(1.0));
}

/// By hand, `Nemotron-H` 56B: d = 16,384, g = 8, N = 256 and chunks of 128, so 0.73 MB a token forward, 2.11 backward,
/// and copies with a second sequence. All but convolutions, the gate's gradient and the norm runs at three quarters of
/// the bandwidth.
#[test]
fn a_scan_by_chunks_streams_each_kernel_s_operands() {
    let (d, state, pairs) = (16384.0, 8.0 * 256.0, 8.0 * 128.0);
    let forward = 8.0 * d + 8.0 * state + ((10.0 + 12.0 * 2.0) * d + 8.0 * state + 8.0 * pairs) / 0.75;
    let backward = 30.0 * d + 20.0 * state + ((22.0 + 34.0 * 2.0) * d + 38.0 * state + 24.0 * pairs) / 0.75;
    let copies = 12.0 * d + 8.0 * state;
    let spec = spec("nemotron-h-56b", "h100-512", "nemo-25", 512, 8192).set("stack.traffic=1");
    let kind =
        spec.problem().model().kinds.iter().position(|kind| matches!(kind.mixer, meshwright::model::Mixer::Mamba(_)));
    for sequences in [1.0, 2.0] {
        let tokens = 8192.0 * sequences / 8.0;
        let problem = spec.problem();
        let device = Costs::new(&problem).device;
        let copied = if sequences > 1.0 { copies } else { 0.0 };
        let added = |(bytes, kernels): (f64, f64), (simple, simple_kernels): (f64, f64)| {
            let chunked = device.stream_fused(Bytes::new(tokens * (bytes + copied)), kernels);
            chunked - device.stream(Bytes::new(tokens * simple * d), simple_kernels)
        };
        let plan = format!("tp=8 sp=on zero=1 mbs={sequences}");
        let layer = |on: bool| {
            let problem = spec.set(format!("stack.scans_by_chunk={on}")).problem();
            let plan = parse_plan(&plan, &problem).unwrap();
            Costs::new(&problem).layer(kind.unwrap(), &plan)
        };
        let (off, on) = (layer(false), layer(true));
        is("forward", on.forward - off.forward, added((forward, 7.0), (12.0, 2.0)));
        is("backward", on.dgrad - off.dgrad, added((backward, 17.0), (30.0, 3.0)));
    }
}

/// A problem's attention runs on its device, whatever the stack: on Volta by PyTorch's memory-efficient kernel, which takes the time of
/// plain attention with a softmax of one kernel and keeps no scores, or by plain attention.
#[test]
fn attention_is_by_a_kernel_that_the_device_runs() {
    for stack in meshwright::catalog::stack_names() {
        for cluster in ["64xv100-sxm2-32", "a100-40-64", "dgx-h100-64"] {
            let problem = spec("llama2-7b", cluster, stack, 512, 4096).problem();
            assert!(problem.cluster().gpu.runs(problem.stack().attention), "{stack} on {cluster}");
        }
    }
    for (cluster, third) in [("dgx-h100-64", true), ("a100-40-64", false), ("l40s-8", false)] {
        let problem = spec("llama2-7b", cluster, "meta-llama3", 512, 4096).problem();
        assert_eq!(problem.stack().attention == AttentionKernel::Fa3, third, "FlashAttention 3 on {cluster}");
    }
    let volta = spec("llama2-7b", "64xv100-sxm2-32", "fsdp-eager-2023", 128, 4096).set("stack.traffic=1");
    let [efficient, plain] = ["efficient", "unfused"].map(|kernel| {
        let problem = volta.set(format!("stack.older_attention={kernel}")).problem();
        let plan = parse_plan("tp=1 cp=1 pp=1 dp=64 zero=3 mbs=1", &problem).unwrap();
        Costs::new(&problem).evaluate(&plan)
    });
    is("attention", efficient.step.compute, plain.step.compute);
    assert!(plain.footprint.peak() - efficient.footprint.peak() > Bytes::new(2.0 * 32.0 * 32.0 * 4096.0 * 4096.0));
}
