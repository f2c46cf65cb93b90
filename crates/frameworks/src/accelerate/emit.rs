//! Hugging Face Accelerate: its YAML (DDP, or FSDP2 with a mesh), and a script with the launcher line.
//!
//! Keys: [accelerate] `commands/config/config_args.py`, `commands/launch.py`, release 1.15.0. Nested keys that no launch option
//! has are copied there without complaint, so none is written.

use super::limits::LIMITS;
use crate::emit::header::lines;
use crate::emit::language::{Shell, Yaml};
use crate::emit::launcher::{FIRST, NODE, Nodes, PORT, environment, launch_script, own_code_duties, with_duties};
use crate::emit::request::{EmittedFile, Program, Request};
use crate::emit::snippet::{Snippet, snippet};
use crate::emit::text::Lines;
use meshwright_engine::plan::{CpKind, Layout, Plan, Recompute, ZeroStage};
use meshwright_planner::limits::Obstacle;

/// The launch script and the YAML.
#[allow(clippy::unnecessary_wraps)] // as every framework returns its files
pub(crate) fn files(request: &Request) -> Result<Vec<EmittedFile>, Vec<Obstacle>> {
    let workload = request.costs.problem.workload();
    let note = format!(
        "batch and recomputation of sequences of {} tokens are train.py's: micro-batch {}, {} accumulation steps",
        workload.seq_len,
        request.evaluation.plan.micro_batch,
        request.accumulation()
    );
    Ok(vec![script(request), config(request, lines(&LIMITS, request, &[note]), Program::Own)])
}

/// Name of the YAML.
const CONFIG: &str = "accelerate.yaml";

/// The YAML of a plan below a header.
pub(crate) fn config(request: &Request, header: Vec<String>, program: Program) -> EmittedFile {
    let (problem, plan) = (request.costs.problem, &request.evaluation.plan);
    let nodes = Nodes::of_request(request).count;
    let sharded = plan.zero == ZeroStage::Three;
    let mut text = Lines::<Yaml>::new();
    text.comments(header);
    text.fixed("compute_environment: LOCAL_MACHINE");
    text.fixed("debug: false");
    text.line(snippet!("distributed_type: {}", if sharded { "FSDP" } else { "MULTI_GPU" }));
    text.line(snippet!("mixed_precision: {}", problem.workload().half.name()));
    text.line(snippet!("num_machines: {}\nnum_processes: {}\nmachine_rank: 0", nodes, problem.cluster().gpus));
    if nodes > 1 {
        text.fixed("main_process_ip: localhost\nmain_process_port: 29500");
    }
    text.fixed("rdzv_backend: static\nsame_network: true\nuse_cpu: false\nmain_training_function: main");
    if sharded {
        text.fixed("fsdp_config:\n  fsdp_version: 2");
        text.line(snippet!("  fsdp_reshard_after_forward: {}", plan.reshard_after_forward));
        text.fixed("  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP");
        let recomputes = program == Program::Own && plan.recompute == Recompute::Full;
        text.line(snippet!("  fsdp_activation_checkpointing: {}", recomputes));
        text.fixed("  fsdp_offload_params: false\n  fsdp_cpu_ram_efficient_loading: true");
        text.fixed("  fsdp_state_dict_type: SHARDED_STATE_DICT");
        if program == Program::Own {
            mesh(request, &mut text);
        }
    }
    text.into_file(CONFIG)
}

/// Ranks of FSDP2's mesh along data: weights are sharded over `shard` and context parallelism together.
pub(crate) struct Mesh {
    /// Copies of the weights.
    pub copies: u32,
    /// Replicas that share one copy.
    pub shard: u32,
}

/// The mesh of a plan.
pub(crate) fn mesh_of(plan: &Plan) -> Mesh {
    let Layout { cp, dp, .. } = plan.layout;
    let shard = plan.dense_shards() / cp;
    Mesh { copies: dp / shard, shard }
}

fn mesh(request: &Request, text: &mut Lines<Yaml>) {
    let plan = &request.evaluation.plan;
    let (Layout { tp, cp, .. }, Mesh { copies, shard }) = (plan.layout, mesh_of(plan));
    text.fixed("parallelism_config:");
    for (key, size) in [("dp_replicate", copies), ("dp_shard", shard), ("tp", tp), ("cp", cp)] {
        text.line(snippet!("  parallelism_config_{}_size: {}", Snippet::fixed(key), size));
    }
    if cp > 1 {
        let strategy = if plan.cp_kind == CpKind::Ring { "alltoall" } else { "allgather" };
        text.line(snippet!("  parallelism_config_cp_comm_strategy: {}", strategy));
    }
}

/// The launcher with its options, on every node.
pub(crate) fn launcher(request: &Request) -> Snippet<Shell> {
    let hosts = if Nodes::of_request(request).count > 1 {
        snippet!(
            " \\\n    --machine_rank {} \\\n    --main_process_ip {} \\\n    --main_process_port {}",
            Snippet::fixed(NODE),
            Snippet::fixed(FIRST),
            Snippet::fixed(PORT)
        )
    } else {
        Snippet::fixed("")
    };
    snippet!("accelerate launch --config_file {}{}", CONFIG, hosts)
}

fn script(request: &Request) -> EmittedFile {
    let (problem, plan) = (request.costs.problem, &request.evaluation.plan);
    let mut duties = own_code_duties(request);
    if plan.layout.tp > 1 {
        duties.push("load it with tp_plan=\"auto\" on the Accelerator's mesh".into());
    }
    if plan.layout.cp > 1 {
        duties.push("run each step in accelerator.maybe_context_parallel(), with scaled_dot_product_attention".into());
    }
    let checkpoints = plan.zero == ZeroStage::Zero && plan.recompute == Recompute::Full;
    if checkpoints {
        duties.push("call model.gradient_checkpointing_enable()".into());
    }
    if problem.workload().adaptation.is_lora() {
        duties.push("freeze the base and train low-rank adapters".into());
    }
    let comments = with_duties("train.py, the model's own code, must:", &duties);
    let mut text = launch_script(&LIMITS, request, &[], comments);
    environment(&mut text, request);
    text.line(snippet!("export ACCELERATE_GRADIENT_ACCUMULATION_STEPS={}\n", request.accumulation()));
    let checkpointing = Snippet::fixed(if checkpoints { " --gradient_checkpointing True" } else { "" });
    let command = "{} \\\n    train.py --per_device_train_batch_size {}{} \"$@\"";
    text.line(Snippet::filled(command, &[launcher(request), plan.micro_batch.into(), checkpointing]));
    text.into_file("accelerate.sh")
}
