//! Launch scripts of forks and of programs around the frameworks: what starts them, where their arguments are, what is open.

use meshwright::frameworks::{DEEPSPEED, MEGATRON_BRIDGE};
use meshwright::import::{self, Context, FileKind, ImportError, Imported, Severity};
use meshwright::model::{Ffn, Model};
use meshwright::plan::{Recompute, ZeroStage};
use meshwright::stack::{Dispatcher, Family};
use meshwright::workload::Adaptation;

const MODEL: &str =
    "--num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --vocab-size 32000 --bf16";

fn read(text: &str) -> Result<Imported, ImportError> {
    import::read(text, FileKind::Script, &Context::alone("run.sh"))
}

fn script(text: &str) -> Imported {
    read(text).unwrap_or_else(|error| panic!("{error}"))
}

fn found<'a>(imported: &'a Imported, rule: &str) -> Vec<&'a import::Finding> {
    imported.findings.iter().filter(|finding| finding.rule == rule).collect()
}

#[test]
fn a_launch_behind_two_dashes_is_the_launch() {
    let imported = script(
        "python submit.py --cluster big --num_nodes 2 -- accelerate launch --num_processes 16 --mixed_precision bf16 \\\n  \
         --use_deepspeed --zero_stage 3 tune.py --per_device_train_batch_size 2 --gradient_checkpointing",
    );
    assert_eq!((imported.kind, imported.world), ("accelerate", Some(16)));
    assert_eq!((imported.plan.zero, imported.plan.micro_batch), (ZeroStage::Three, 2));
    assert_eq!(imported.plan.recompute, Recompute::Full);
}

#[test]
fn a_vocabulary_padded_to_a_size_has_that_size() {
    let model = MODEL.replace("--vocab-size 32000", "--pad-vocab-size-to 250880");
    let imported = script(&format!("deepspeed --num_gpus 8 pretrain_gpt.py {model} --deepspeed --zero-stage 1"));
    assert_eq!(imported.model.as_ref().map(|model| model.vocab), Some(250_880));
    assert!(found(&imported, "assumed-vocabulary").is_empty(), "{:?}", imported.findings);
}

#[test]
fn arguments_that_another_script_launches_are_read() {
    let imported = script(&format!("MODEL_ARGS=({MODEL})\nBOTH=(\"${{MODEL_ARGS[@]}}\")\nNAME=big\n"));
    assert_eq!(imported.model.as_ref().map(|model| (model.layers(), model.hidden)), Some((8, 1024)));
    assert!(found(&imported, "flag-twice").is_empty(), "an array inside of another is read once");
    assert!(found(&imported, "assumed")[0].message.contains("nothing is launched"), "{:?}", imported.findings);
    assert!(read("A=(--num-layers 8)\necho done").unwrap_err().why.contains("nothing is launched"));
}

#[test]
fn loops_printf_and_the_scripts_own_folder_are_followed() {
    let parts = format!(
        "N=${{LAYERS:-8}}\narr=()\nfor ((i=0; i<N; i++)); do\n  if (( i < 3 )); then arr+=(0); else arr+=(1); fi\ndone\n\
         printf -v FREQ \"[%s]\" \"$(IFS=', '; echo \"${{arr[*]}}\")\"\n\
         MODEL_ARGS=({MODEL} --num-experts 4 --moe-layer-freq $FREQ)\n"
    );
    let files = move |name: &str| name.ends_with("models/part.sh").then(|| parts.clone());
    let text = "HERE=\"$(cd -- \"$(dirname -- \"${BASH_SOURCE[0]}\")\" &>/dev/null && pwd)\"\n\
                source \"${HERE}/models/part.sh\"\ntorchrun --nproc_per_node 8 train.py ${MODEL_ARGS[@]} --global-batch-size 8";
    let imported =
        import::read(text, FileKind::Script, &Context { files: &files, ..Context::alone("deep/run.sh") }).unwrap();
    let model = imported.model.expect("a model");
    let sparse = |layer: usize| matches!(model.kinds[model.order[layer]].ffn, Ffn::Moe(_));
    assert_eq!((0..8).map(sparse).collect::<Vec<_>>(), [false, false, false, true, true, true, true, true]);
    let endless = script(&format!("for ((i=0; i<9; )); do X=1; done\ntorchrun train.py {MODEL}"));
    assert_eq!(found(&endless, "unresolved-condition").len(), 1, "{:?}", endless.findings);
}

#[test]
fn loops_fed_by_a_process_are_read_past() {
    let text = "NAMES=()\nwhile IFS= read -r name; do\n  NAMES+=(\"$name\")\ndone < <(\n  list | sort || true\n)\n";
    let imported =
        script(&format!("{text}torchrun --nproc_per_node 8 pretrain_gpt.py {MODEL} --padded-vocab-size 50304"));
    assert_eq!((imported.world, imported.model.map(|model| model.layers())), (Some(8), Some(8)));
}

/// `$'…'` is one word whose escapes are decoded; a quote among them ends nothing.
#[test]
fn words_with_escapes_are_decoded() {
    let imported = script(&format!(
        "NAME=$'it\\'s 8\\tB'\nread -r A B <<< \"x\"\nSEQ=$'2048'\n\
         torchrun --nproc_per_node 8 train.py {MODEL} --wandb-exp-name \"$NAME\" --global-batch-size $'16' --seq-length $SEQ"
    ));
    assert_eq!((imported.work.global_batch, imported.work.seq_len), (Some(16), Some(2048)), "{:?}", imported.findings);
    assert!(read("A=$'open").unwrap_err().why.contains("is not closed"));
}

#[test]
fn other_launchers_are_known() {
    let ms = script(&format!(
        "msrun --worker_num=16 --local_worker_num=8 pretrain_gpt.py {MODEL} --tensor-model-parallel-size 2"
    ));
    assert_eq!((ms.world, ms.gpus_per_node, ms.plan.layout.tp, ms.plan.layout.dp), (Some(16), Some(8), 2, 8));
    let underscores =
        script("torchrun --nproc_per_node 4 pretrain.py --num_layers 8 --hidden_size 512 --num_attention_heads 8");
    assert_eq!(underscores.model.as_ref().map(|model| model.hidden), Some(512));
    assert!(found(&underscores, "abbreviation")[0].message.contains("`--num_layers` is read as `--num-layers`"));
    let code = read("python -c 'print(1)'\npython - <<EOF\nprint(2)\nEOF").unwrap_err();
    assert!(code.why.contains("nothing is launched"), "{code}");
}

#[test]
fn swift_is_read_with_what_it_turns_on_itself() {
    let imported = script(
        "NPROC_PER_NODE=8 \\\nmegatron sft \\\n  --model Qwen/Qwen3-30B-A3B-Base --expert_model_parallel_size 4 \\\n  \
         --sequence_parallel true --overlap_grad_reduce false --micro_batch_size 2 --max_length 8192 --train_type lora",
    );
    assert_eq!((imported.kind, imported.world), ("ms-swift", Some(8)));
    assert_eq!(imported.model.as_ref().map(|model| model.name.as_str()), Some("Qwen3 30B-A3B"));
    assert_eq!((imported.plan.layout.ep, imported.plan.zero, imported.plan.micro_batch), (4, ZeroStage::One, 2));
    assert_eq!((imported.work.seq_len, imported.work.global_batch), (Some(8192), Some(16)));
    assert!(found(&imported, "adapters").iter().any(|finding| finding.message.contains("lora")));
    assert_eq!(imported.work.adaptation, Adaptation::Lora);
    assert!(imported.findings.iter().all(|finding| finding.level != Severity::Error), "{:?}", imported.findings);
    let unknown = script("NPROC_PER_NODE=8 megatron pt --model Some/Other-7B --expert_model_parallel_size 4");
    assert_eq!(unknown.plan.dispatcher, Dispatcher::AllToAll, "what is said of experts holds without the model");
    assert!(unknown.model.is_none() && found(&unknown, "unknown-model").len() == 1);
}

/// `primus-cli` starts eight ranks of one node where its environment says nothing.
#[test]
fn primus_is_read_with_the_ranks_of_its_environment() {
    let yaml = "work_group: a\nmodules:\n  pre_trainer:\n    framework: megatron\n    config: pre_trainer.yaml\n    \
    model: llama3_8B.yaml\n    \
                overrides:\n      micro_batch_size: 1\n      global_batch_size: 32\n      tensor_model_parallel_size: \
                2\n      seq_length: 8192\n";
    let beside = |name: &str| (name == "exp.yaml").then(|| yaml.to_owned());
    let of = |variables: &str| {
        let text = format!("{variables}\"$PRIMUS\"/runner/primus-cli direct -- train pretrain --config exp.yaml\n");
        let context = Context { files: &beside, ..Context::alone("train.sh") };
        import::read(&text, FileKind::Script, &context).unwrap_or_else(|error| panic!("{error}"))
    };
    let usual = of("");
    assert_eq!((usual.kind, usual.world, usual.gpus_per_node), ("primus", Some(8), Some(8)));
    assert_eq!((usual.plan.layout.tp, usual.plan.layout.dp), (2, 4));
    assert_eq!(of("export NNODES=4 GPUS_PER_NODE=4\n").world, Some(16));
    assert_eq!(of("NNODES=2 ").world, Some(16));
    assert_eq!(of("export NNODES=$1\n").world, None, "a number that is not known is none");
}

#[test]
fn programs_without_a_configuration_file_are_read_by_their_arguments() {
    let sharded = script(
        "torchrun --nproc_per_node 8 tune.py --per_device_train_batch_size 4 --bf16 True --fsdp 'full_shard auto_wrap'",
    );
    assert_eq!((sharded.family, sharded.plan.zero, sharded.plan.micro_batch), (Family::Fsdp, ZeroStage::Three, 4));
    let replicas = script("torchrun --nproc_per_node 8 tune.py --per_device_train_batch_size 4 --bf16 True");
    assert_eq!((replicas.plan.zero, replicas.work.global_batch), (ZeroStage::Zero, Some(32)));
    let named = script(
        "NPROC_PER_NODE=4 swift sft --model Qwen/Qwen3-8B --deepspeed zero3_offload --per_device_train_batch_size 1",
    );
    assert_eq!((named.kind, named.plan.zero, named.world), ("ms-swift", ZeroStage::Three, Some(4)));
    assert!(named.plan.offload.optimizer > 0.99);
    let chat =
        script("deepspeed --num_gpus 8 main.py --zero_stage 2 --offload --per_device_train_batch_size 8 --output $OUT");
    assert_eq!((chat.kind, chat.plan.zero), ("deepspeed", ZeroStage::Two));
    assert!(chat.plan.offload.optimizer > 0.99 && !found(&chat, "needs-code").is_empty(), "{:?}", chat.findings);
    let other = read("torchrun --nproc_per_node 8 train.py --lr 3").unwrap_err();
    assert!(other.why.contains("`train.py` is launched with no argument that says how it trains"), "{other}");
}

#[test]
fn what_a_fork_adds_is_a_warning() {
    let fork = script(&format!(
        "torchrun --nproc_per_node 8 train.py {MODEL} --my-own-flag --tokenizer-type MyTokenizer \
         --moe-token-dispatcher-type alltoall_seq --use-precision-aware-optimizer --load my own folder"
    ));
    let errors: Vec<_> = fork.findings.iter().filter(|finding| finding.level == Severity::Error).collect();
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(found(&fork, "unknown-value").len(), 1);
    assert_eq!(found(&fork, "stray-word")[0].message, "`own folder` follow no flag that takes them");
    let plain = script(&format!("torchrun --nproc_per_node 8 pretrain_gpt.py {MODEL} --tokenizer-type MyTokenizer"));
    assert_eq!(found(&plain, "unknown-value")[0].level, Severity::Error);
    let former = script(&format!(
        "torchrun --nproc_per_node 8 pretrain_gpt.py {MODEL} --moe-token-dispatcher-type alltoall_seq"
    ));
    assert_eq!(found(&former, "release")[0].message, "its flags are those of Megatron core up to 0.12");
}

#[test]
fn flags_are_held_to_a_release() {
    let text =
        format!("torchrun --nproc_per_node 8 pretrain_gpt.py {MODEL} --pipeline-model-parallel-layout 'Et*16|t*16L'");
    let read = |release| {
        let context = Context { release: Some(release), ..Context::alone("run.sh") };
        import::read(&text, FileKind::Script, &context).unwrap()
    };
    let wrong = read("0.12");
    let wrong = found(&wrong, "release");
    assert_eq!((wrong.len(), wrong[0].level), (1, Severity::Error));
    assert!(wrong[0].message.ends_with("is of Megatron core 0.13 and later, not of 0.12"), "{}", wrong[0].message);
    assert!(found(&read("0.13"), "release").is_empty());
}

#[test]
fn settings_of_other_yaml_files_are_read() {
    let yaml = |text: &str| {
        import::read(text, FileKind::Of(&MEGATRON_BRIDGE), &Context::alone("plan.yaml"))
            .unwrap_or_else(|error| panic!("{error}"))
    };
    let primus = yaml(
        "work: ${TEAM:me}\nmodules:\n  pre_trainer:\n    framework: megatron\n    config: base.yaml\n    model: \
        llama3_8B.yaml\n    \
         overrides:\n      micro_batch_size: 2\n      global_batch_size: 16\n      seq_length: ${LENGTH:8192}\n      \
         tensor_model_parallel_size: 4\n      recompute_num_layers: 0\n      overlap_param_gather: true\n",
    );
    assert_eq!(primus.model.as_ref().map(|model| model.name.as_str()), Some("Llama 3 8B"));
    assert_eq!(primus.stack, "megatron-rocm-2025");
    assert_eq!((primus.plan.layout.tp, primus.plan.micro_batch, primus.work.seq_len), (4, 2, Some(8192)));
    assert!(primus.findings.iter().all(|finding| finding.level != Severity::Error), "{:?}", primus.findings);
    assert!(primus.findings.iter().any(|finding| finding.message.contains("`base.yaml` is not read")));
    let chosen = yaml(
        "modules:\n  pre_trainer:\n    model: ${MODEL:gpt_oss_20B}.yaml\n    overrides:\n      micro_batch_size: 2\n",
    );
    assert_eq!(chosen.model.map(|model| model.name).as_deref(), Some("GPT-OSS 20B"));
    let own = yaml(
        "language_model:\n  num_layers: 24\n  hidden_size: 1024\n  num_attention_heads: 16\n  ffn_hidden_size: null\n\
         model_parallel:\n  tensor_model_parallel_size: 2\nmicro_batch_size: 2\nseq_length: 1024\n",
    );
    assert_eq!(own.model.as_ref().map(Model::layers), Some(24));
    assert_eq!((own.plan.layout.tp, own.plan.micro_batch, own.work.seq_len), (2, 2, Some(1024)));
    let listed = yaml(
        "model:\n  num_layers: 8\n  hidden_size: 512\n  num_attention_heads: 8\n  num_experts: 4\n  \
        moe_layer_freq: \"[0]+[1]*7\"\n",
    );
    assert_eq!(listed.model.map(|model| model.order.len()), Some(8));
    assert!(import::kind_of("rl.yaml", "trainer:\n  fsdp_config:\n    param_offload: true\n").is_err());
    assert_eq!(import::kind_of("ds.conf", "{\n \"zero_optimization\": {\"stage\": 3}}"), Ok(FileKind::Of(&DEEPSPEED)));
}

#[test]
fn replicas_of_a_sharded_optimizer_are_counted_on_the_cluster() {
    let text = "def config():\n    cfg = _pretrain_common()\n    cfg.model.num_layers = 8\n    \
    cfg.model.tensor_model_parallel_size = 2\n    \
                cfg.ddp.use_distributed_optimizer = True\n    cfg.ddp.num_distributed_optimizer_instances = 4\n    return cfg\n";
    let imported = import::read(text, FileKind::Of(&MEGATRON_BRIDGE), &Context::alone("bridge.py"))
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((imported.world, imported.plan.shard_group), (None, None));
    assert_eq!(imported.on(64).shard_group, Some(8), "32 replicas in four groups");
    assert_eq!(imported.on(6).shard_group, None, "three replicas are no four groups");
}

/// Megatron-DeepSpeed asks for one queue with sequence parallelism alone: with DeepSpeed, gradients do not hide behind GEMMs.
#[test]
fn deepspeeds_fork_asks_for_one_queue_with_sequence_parallelism_alone() {
    let launch = |more: &str| {
        let script = format!(
            "deepspeed --num_gpus 8 pretrain_gpt.py --tensor-model-parallel-size 4 --num-layers 24 --hidden-size 2048 \
             --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 8 \
             --vocab-size 50304 --bf16 {more}\n"
        );
        let imported = read(&script).unwrap();
        (imported.findings.iter().any(|finding| finding.rule == "connections"), imported.plan.zero)
    };
    // With bf16, stage 0 shards the optimizer's states; without DeepSpeed it does not.
    assert_eq!(launch("--deepspeed --zero-stage 0"), (false, ZeroStage::One));
    assert_eq!(launch("--deepspeed --zero-stage 0 --sequence-parallel"), (true, ZeroStage::One));
    assert_eq!(launch(""), (true, ZeroStage::Zero));
}

/// Expert exchange beside another micro-batch is hidden as far as runs show: all of it under a graph of the whole iteration.
#[test]
fn expert_exchange_is_hidden_as_measured() {
    let settings = |flags: &str| {
        let imported = script(&format!(
            "torchrun --nnodes 2 --nproc_per_node 8 pretrain_gpt.py {MODEL} --num-experts 16 --moe-router-topk 2 \
             --expert-model-parallel-size 8 --overlap-moe-expert-parallel-comm {flags}"
        ));
        imported.settings.items().to_vec()
    };
    let (launched, graphed) = (settings(""), settings("--cuda-graph-impl local --cuda-graph-scope full_iteration"));
    assert!(launched.contains(&"stack.overlap.ep=0.3655".to_owned()), "{launched:?}");
    assert!(graphed.contains(&"stack.overlap.ep=1".to_owned()), "{graphed:?}");
    assert!(graphed.contains(&"stack.graphed_experts=true".to_owned()), "{graphed:?}");
    assert!(!graphed.iter().any(|set| set.contains("graph_scope")), "{graphed:?}");
    let of_router = settings("--cuda-graph-impl transformer_engine --cuda-graph-modules moe_router");
    assert!(of_router.contains(&"stack.graph_scope.attention=false".to_owned()), "{of_router:?}");
}

/// Megatron-FSDP's own format of main gradients needs no precision-aware optimizer; that of the optimizer does.
#[test]
fn gradients_of_megatron_fsdp_have_a_format_of_their_own() {
    let rejected = |flags: &str| {
        let fsdp =
            "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params --use-distributed-optimizer";
        let imported = script(&format!("torchrun --nproc_per_node 8 pretrain_gpt.py {MODEL} {fsdp} {flags}"));
        !found(&imported, "contradiction").is_empty()
    };
    assert!(!rejected("--megatron-fsdp-main-grads-dtype bf16"));
    assert!(rejected("--main-grads-dtype bf16"));
}
