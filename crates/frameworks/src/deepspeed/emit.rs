//! DeepSpeed: its JSON, and a script with the launcher line and a list of the model code's duties.
//!
//! Keys: [deepspeed] `deepspeed/runtime/config.py`, `zero/config.py`, release 0.19.8. Unknown keys are ignored there, so none is
//! written.

use serde_json::{Map, Value, json};

use super::limits::LIMITS;
use crate::emit::launcher::{environment, launch_script, own_code_duties, torchrun, with_duties};
use crate::emit::request::{EmittedFile, Program, Request};
use crate::emit::snippet::snippet;
use crate::rules::bytes_are;
use meshwright_engine::plan::{Layout, Recompute, ZeroStage};
use meshwright_planner::limits::Obstacle;

/// The JSON and the launch script.
#[allow(clippy::unnecessary_wraps)] // as every framework returns its files
pub(crate) fn files(request: &Request) -> Result<Vec<EmittedFile>, Vec<Obstacle>> {
    Ok(vec![script(request), config(request, Program::Own)])
}

/// Name of the JSON.
pub(crate) const CONFIG: &str = "ds_config.json";

/// The JSON of a plan.
pub(crate) fn config(request: &Request, program: Program) -> EmittedFile {
    let (problem, plan) = (request.costs.problem, &request.evaluation.plan);
    let (workload, Layout { tp, cp, pp, dp, ep, .. }) = (problem.workload(), plan.layout);
    let mut config = Map::new();
    let mut set = |key: &str, value: Value| config.insert(key.to_owned(), value);
    // The `Trainer` counts ranks that share a sequence as replicas, and takes another batch for a mistake.
    if tp == 1 && !(program == Program::Trainer && cp > 1) {
        // Beside AutoTP, DeepSpeed multiplies micro-batch and accumulation by all ranks, not by the replicas, and refuses
        // another batch: without one it takes that product.
        set("train_batch_size", workload.global_batch.into());
    }
    set("train_micro_batch_size_per_gpu", plan.micro_batch.into());
    set("gradient_accumulation_steps", request.accumulation().into());
    set("gradient_clipping", json!(1.0));
    let half = workload.half.name();
    set(half, json!({ "enabled": true }));
    let gradients = if bytes_are(workload.recipe.gradient, 4.0) { "fp32" } else { half };
    set("data_types", json!({ "grad_accum_dtype": gradients }));
    if program == Program::Own {
        set(
            "optimizer",
            json!({ "type": "AdamW", "params": { "lr": 3e-4, "betas": [0.9, 0.95], "weight_decay": 0.1 } }),
        );
    }
    set("zero_optimization", zero(request));
    if tp > 1 {
        set("tensor_parallel", json!({ "autotp_size": tp }));
    }
    if cp > 1 && program == Program::Own {
        set("sequence_parallel_size", cp.into());
        set("data_parallel_size", dp.into());
    }
    if ep > 1 {
        set("expert_parallel", json!({ "enabled": true, "autoep_size": ep }));
    }
    if pp > 1 {
        let interval = u32::from(plan.recompute == Recompute::Full);
        set("pipeline", json!({ "stages": pp, "partition": "uniform", "activation_checkpoint_interval": interval }));
    }
    if plan.recompute == Recompute::Full && program == Program::Own {
        set("activation_checkpointing", json!({ "cpu_checkpointing": plan.offload.activations > 0.0 }));
    }
    set("steps_per_print", 10.into());
    let text = serde_json::to_string_pretty(&config).expect("maps of strings and numbers have a JSON form");
    EmittedFile { name: CONFIG.into(), text: text + "\n" }
}

fn zero(request: &Request) -> Value {
    let (stack, plan) = (request.costs.problem.stack(), &request.evaluation.plan);
    let mut zero = Map::new();
    zero.insert("stage".into(), u8::from(plan.zero).into());
    if plan.zero >= ZeroStage::One {
        zero.insert("overlap_comm".into(), stack.overlap.dp.into());
        zero.insert("contiguous_gradients".into(), true.into());
    }
    if let Some(bucket) = stack.bucket {
        zero.insert("reduce_bucket_size".into(), ((bucket.get() / stack.reduce_bytes).round() as u64).into());
    }
    if plan.zero == ZeroStage::Three {
        zero.insert("stage3_gather_16bit_weights_on_model_save".into(), true.into());
    }
    if plan.offload.optimizer > 0.0 {
        let mut offload = json!({ "device": "cpu", "pin_memory": true });
        if plan.zero == ZeroStage::Three {
            offload["ratio"] = json!(plan.offload.optimizer);
        }
        zero.insert("offload_optimizer".into(), offload);
    }
    Value::Object(zero)
}

fn script(request: &Request) -> EmittedFile {
    let (problem, plan) = (request.costs.problem, &request.evaluation.plan);
    let Layout { tp, cp, pp, ep, .. } = plan.layout;
    let mut duties = own_code_duties(request);
    if pp > 1 {
        duties.push(format!(
            "be a PipelineModule(num_stages={pp}, partition_method=\"uniform\") and call engine.train_batch()"
        ));
    }
    if tp > 1 {
        duties.push(format!("have layers that AutoTP knows, cut into {tp} (Hugging Face models are)"));
    }
    if cp > 1 {
        duties.push(format!(
            "give each of {cp} ranks its part of the sequence and wrap attention in DistributedAttention"
        ));
    }
    if ep > 1 {
        duties.push(format!("have experts that AutoEP knows, spread over {ep} ranks"));
    }
    match plan.recompute {
        Recompute::Full if pp == 1 => duties.push("run every layer through deepspeed.checkpointing.checkpoint".into()),
        Recompute::Full
        | Recompute::None
        | Recompute::PerOp
        | Recompute::EveryOther
        | Recompute::FirstLayers(_)
        | Recompute::Selective(_) => {}
    }
    if problem.workload().adaptation.is_lora() {
        duties.push("freeze the base and train low-rank adapters".into());
    }
    let whose = "The JSON sets batch, sharding and formats. train.py, the model's own code, must:";
    let mut text = launch_script(&LIMITS, request, &[], with_duties(whose, &duties));
    environment(&mut text, request);
    torchrun(&mut text, request, snippet!("train.py --deepspeed --deepspeed_config {} \"$@\"", CONFIG));
    text.into_file("deepspeed.sh")
}
