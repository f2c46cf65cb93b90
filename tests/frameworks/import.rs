//! Launch files of every framework, read: what they say, what they leave open, what is wrong with them.

use meshwright::frameworks::MEGATRON;
use meshwright::import::{self, Context, FileKind, Imported, Severity};
use meshwright::model::{Ffn, Model};
use meshwright::plan::{CpKind, Recompute, ZeroStage};
use meshwright::schedule::Schedule;
use meshwright::stack::Dispatcher;

fn script(text: &str) -> Imported {
    import::read(text, FileKind::Script, &Context::alone("run.sh")).unwrap_or_else(|error| panic!("{error}"))
}

fn rules(imported: &Imported, level: Severity) -> Vec<&'static str> {
    imported.findings.iter().filter(|finding| finding.level == level).map(|finding| finding.rule).collect()
}

/// A launch as they are written: arrays, defaults, arithmetic, a conditional, comments between the flags.
const LLAMA: &str = r#"#!/bin/bash
#SBATCH --nodes=16
#SBATCH --gpus-per-node=8
export CUDA_DEVICE_MAX_CONNECTIONS=1
NNODES=${SLURM_NNODES:-1}
GPUS=8
TP=${TP:-8}
PP=4
WORLD=$((NNODES * GPUS))
LAUNCH=(
  --nnodes $NNODES      # one task a node
  --nproc_per_node "$GPUS"
)
MODEL="--num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 \
  --num-attention-heads 64 --group-query-attention --num-query-groups 8 \
  --swiglu --normalization RMSNorm --disable-bias-linear --position-embedding-type rope \
  --untie-embeddings-and-output-weights --attention-dropout 0 --hidden-dropout 0.0"
ARGS=(
  --tensor-model-parallel-size $TP
  --pipeline-model-parallel-size ${PP}
  # --context-parallel-size 2
  --num-layers-per-virtual-pipeline-stage 5
  --sequence-parallel
  --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --tp-comm-overlap
  --micro-batch-size 1 --global-batch-size $((WORLD * 8))
  --seq-length 8192 --max-position-embeddings 8192
  --bf16 --cross-entropy-loss-fusion --vocab-size 128256
)
if [[ "$TP" -gt 4 && -z "$FAST" ]]; then
  ARGS+=(--recompute-granularity selective --recompute-modules layernorm core_attn)
fi
torchrun ${LAUNCH[@]} pretrain_gpt.py $MODEL "${ARGS[@]}" --lr 1e-4 --train-iters 9 --tokenizer-type NullTokenizer 2>&1 | tee log.txt
"#;

#[test]
fn a_script_is_followed_to_its_launch() {
    let imported = script(LLAMA);
    let plan = imported.plan.clone();
    assert_eq!(imported.model.as_ref().and_then(import::known::name_of), Some("llama3-70b"));
    assert_eq!((imported.world, imported.gpus_per_node), (Some(128), Some(8)));
    assert_eq!((plan.layout.tp, plan.layout.pp, plan.layout.cp, plan.layout.dp), (8, 4, 1, 4));
    assert_eq!(plan.schedule, Schedule::Interleaved { virtual_stages: 4 });
    assert_eq!((plan.zero, plan.sequence_parallel), (ZeroStage::One, true));
    let Recompute::Selective(modules) = plan.recompute else { panic!("{:?}", plan.recompute) };
    assert!(modules.layernorm && modules.core_attn && !modules.mlp);
    assert_eq!((imported.work.global_batch, imported.work.seq_len), (Some(1024), Some(8192)));
    assert!(rules(&imported, Severity::Error).is_empty(), "{:?}", imported.findings);
    assert_eq!(imported.places["tp"].line, 19, "the flag's own line, inside of its array");
    assert_eq!(imported.without_effect, ["--lr", "--tokenizer-type", "--train-iters"]);
    assert!(imported.unknown.is_empty());
}

#[test]
fn the_environment_is_empty_until_it_is_given() {
    let variables = [("TP".to_owned(), "4".to_owned()), ("FAST".to_owned(), "1".to_owned())];
    let context = Context { variables: &variables, ..Context::alone("run.sh") };
    let imported = import::read(LLAMA, FileKind::Script, &context).unwrap();
    assert_eq!((imported.plan.layout.tp, imported.plan.layout.dp), (4, 8));
    assert_eq!(imported.plan.recompute, Recompute::None);
    let assumed = script(LLAMA);
    let note = assumed.findings.iter().find(|finding| finding.rule == "assumed-unset").unwrap();
    assert!(note.message.contains("$TP") && note.message.contains("$FAST"), "{note}");
}

const SHORT: &str = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --micro-batch-size 1 --bf16 \
                     --vocab-size 32000 --max-position-embeddings 4096 ";

fn arguments(more: &str) -> Imported {
    import::read(&format!("{SHORT}{more}"), FileKind::Of(&MEGATRON), &Context::alone("args.txt")).unwrap()
}

#[test]
fn experts_and_context_are_read() {
    let more = "--num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 14336 --swiglu --expert-model-parallel-size 8 \
                --tensor-model-parallel-size 2 --sequence-parallel --context-parallel-size 4 --cp-comm-type a2a \
                --moe-token-dispatcher-type flex --moe-layer-freq ([0]*2+[1]*30) --fp8-format hybrid --fp8-recipe blockwise \
                --use-precision-aware-optimizer --use-distributed-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16";
    let imported = arguments(more);
    let model = imported.model.as_ref().unwrap();
    assert_eq!((model.experts(), model.kind_counts()), (8, vec![2, 30]));
    assert_eq!((imported.plan.layout.ep, imported.plan.layout.etp), (8, 2), "experts take tp where nothing is said");
    assert_eq!((imported.plan.cp_kind, imported.plan.dispatcher), (CpKind::AllToAll, Dispatcher::DeepEp));
    assert_eq!(imported.work.format.to_string(), "fp8-block");
    assert!((imported.work.recipe.total() - 14.0).abs() < 1e-9, "{:?}", imported.work.recipe);
}

#[test]
fn what_megatron_refuses_is_named() {
    for (more, rule, words) in [
        ("--bf16 --fp16", "contradiction", "--fp16"),
        ("--overlap-param-gather", "contradiction", "--use-distributed-optimizer"),
        ("--recompute-granularity full", "contradiction", "--recompute-method"),
        ("--recompute-granularity selective --recompute-method uniform", "contradiction", "full"),
        ("--pipeline-model-parallel-size 3", "does-not-divide", "32 layers"),
        (
            "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 3",
            "does-not-divide",
            "chunks of 3",
        ),
        ("--num-attention-heads x", "wrong-value", "whole number"),
        ("--moe-token-dispatcher-type ring", "unknown-value", "alltoall"),
        ("--tensor-model-parallel-size $TP", "unresolved-variable", "--var TP=VALUE"),
        ("--use-torch-fsdp2 --pipeline-model-parallel-size 2", "contradiction", "pipeline"),
        ("--num-query-groups 8", "contradiction", "--group-query-attention"),
        ("--global-batch-size", "missing-value", "no value"),
    ] {
        let imported = arguments(more);
        let found = imported.findings.iter().find(|f| f.level == Severity::Error && f.rule == rule);
        let found = found.unwrap_or_else(|| panic!("{more}: {:?}", imported.findings));
        assert!(found.to_string().contains(words), "{more}: {found}");
        assert!(found.to_string().starts_with("args.txt:1") || rule == "does-not-divide", "{found}");
    }
    assert!(rules(&arguments(""), Severity::Error).is_empty(), "{:?}", arguments("").findings);
}

const HYBRID: &str = "--hidden-size 1024 --ffn-hidden-size 4096 --num-attention-heads 16 --group-query-attention \
--num-query-groups 4 --normalization RMSNorm --disable-bias-linear --position-embedding-type none --seq-length 4096 \
                      --vocab-size 32000 --mamba-num-heads 32 --mamba-state-dim 64 --bf16";

#[test]
fn hybrids_are_read_letter_by_letter() {
    let read = |more: &str| {
        import::read(&format!("{HYBRID} {more}"), FileKind::Of(&MEGATRON), &Context::alone("args.txt")).unwrap()
    };
    let staged = read("--hybrid-layer-pattern 'M-M*|M-ME|M-M*|M-ME' --num-experts 8 --pipeline-model-parallel-size 2");
    let model = staged.model.as_ref().unwrap();
    assert_eq!((model.layers(), model.kind_counts()), (16, vec![8, 4, 2, 2]));
    assert_eq!(staged.plan.schedule, Schedule::Interleaved { virtual_stages: 2 });
    assert_eq!((staged.plan.split.to_string().as_str(), staged.plan.layout.pp), ("even", 2));
    let uneven = read("--hybrid-layer-pattern 'M-M*M|-M*' --pipeline-model-parallel-size 2");
    assert_eq!(uneven.plan.split.to_string(), "first-5");
    let old = read("--hybrid-override-pattern M-M*M- --is-hybrid-model --num-layers 6");
    assert_eq!(old.model.as_ref().map(Model::layers), Some(6));
    let predicted = read("--hybrid-layer-pattern M-M*/MM");
    assert!(rules(&predicted, Severity::Warning).contains(&"not-modelled"), "{:?}", predicted.findings);
    for (more, rule, words) in [
        ("--hybrid-layer-pattern M-X*", "wrong-value", "one a layer"),
        ("--hybrid-layer-pattern M-ME", "missing-flag", "--num-experts"),
        ("--is-hybrid-model --hybrid-attention-ratio 0.1 --num-layers 8", "not-modelled", "ratios"),
        (
            "--hybrid-layer-pattern 'M-M*|M-|M*' --pipeline-model-parallel-size 2",
            "wrong-value",
            "a multiple of 2 stages",
        ),
    ] {
        let imported = read(more);
        let found = imported.findings.iter().find(|f| f.level == Severity::Error && f.rule == rule);
        assert!(found.is_some_and(|f| f.to_string().contains(words)), "{more}: {:?}", imported.findings);
    }
}

#[test]
fn recomputation_under_its_older_names_is_read() {
    let old = arguments("--activations-checkpoint-method uniform --activations-checkpoint-num-layers 1");
    assert_eq!(old.plan.recompute, Recompute::Full);
    assert!(old.unknown.is_empty() && rules(&old, Severity::Warning).contains(&"deprecated"), "{:?}", old.findings);
}

#[test]
fn unknown_flags_are_listed_with_their_values() {
    let imported = arguments("--my-own-flag 3 4 --swigl");
    let names: Vec<(&str, usize)> = imported.unknown.iter().map(|u| (u.name.as_str(), u.values.len())).collect();
    assert_eq!(names, [("--my-own-flag", 2)], "`--swigl` is an abbreviation");
    assert!(rules(&imported, Severity::Note).contains(&"abbreviation"));
}

#[test]
fn scripts_that_are_none_say_where() {
    for (text, line, words) in [
        ("A=(1 2\ntorchrun x.py", 1, "not closed"),
        ("if true; then\necho a\n", 1, "`fi` expected"),
        ("x=\"abc\ntorchrun a.py --num-layers 1", 1, "not closed"),
        ("echo nothing", 1, "nothing is launched"),
        ("torchrun --nproc_per_node 8 a.py --num-layers 2\n", 1, ""),
        ("for i in 1 2; do echo $i", 1, "`done` expected"),
        ("case $X in a) echo", 1, "case"),
        ("torchrun x.py )", 1, ""),
    ] {
        match import::read(text, FileKind::Script, &Context::alone("bad.sh")) {
            Err(error) => assert!(error.line >= line && error.to_string().contains(words), "{text}: {error}"),
            Ok(imported) => assert!(words.is_empty() && !imported.findings.is_empty(), "{text}"),
        }
    }
    let broken = "torchrun --nproc_per_node 8 pretrain_gpt.py \\\n  --num-layers 4 \\ \n  --hidden-size 512\n";
    let imported = script(broken);
    let found = imported.findings.iter().find(|finding| finding.rule == "broken-continuation").unwrap();
    assert_eq!(found.place.as_ref().unwrap().line, 3);
}

/// Delayed scaling is Megatron's default recipe, and all ranks of a stage agree on its maxima; scaling at once needs none.
#[test]
fn delayed_scaling_waits_for_maxima() {
    let waits = |more: &str| {
        let settings = serde_json::to_string(&arguments(more).settings).unwrap();
        settings.contains("\"stack.amax_reduction=all\"")
    };
    assert!(waits("--fp8-format hybrid"));
    assert!(waits("--fp8-format hybrid --fp8-recipe delayed"));
    assert!(!waits("--fp8-format hybrid --fp8-recipe tensorwise"));
    assert!(!waits("--fp8-format e4m3 --fp8-recipe mxfp8"));
    assert!(!waits(""));
}

fn of_words(words: &str) -> Imported {
    let sizes =
        "--num-layers 8 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 --micro-batch-size 1 --bf16";
    let text = format!("{sizes} {words}");
    import::read(&text, FileKind::Of(&MEGATRON), &Context::alone("args.txt")).unwrap()
}

fn experts(imported: &Imported) -> Vec<u32> {
    let model = imported.model.as_ref().unwrap();
    let top_k = |at: &usize| if let Ffn::Moe(moe) = &model.kinds[*at].ffn { moe.top_k } else { 0 };
    model.order.iter().map(top_k).collect()
}

#[test]
fn defaults_are_those_of_the_fork() {
    assert_eq!(experts(&of_words("--num-experts 8")), [2; 8]);
    assert_eq!(
        experts(&of_words("--num-experts 8 --deepspeed")),
        [0, 1, 0, 1, 0, 1, 0, 1],
        "top-1 in every second layer"
    );
    assert_eq!(experts(&of_words("--num-experts 8 --deepspeed --topk 2 --expert-interval 1")), [2; 8]);
    let script = "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-30B-A3B --tensor_model_parallel_size 2 \
                  --expert_model_parallel_size 4 --sequence_parallel true --max_length 2048 --micro_batch_size 1";
    let swift = import::read(script, FileKind::Script, &Context::alone("sft.sh")).unwrap();
    assert_eq!((swift.plan.layout.tp, swift.plan.layout.ep, swift.plan.layout.etp), (2, 4, 1));
}

#[test]
fn vocabularies_follow_the_tokenizer() {
    let vocabulary = |words: &str| of_words(words).model.unwrap().vocab;
    assert_eq!(vocabulary("--vocab-file data/gpt2-vocab.json --merge-file data/gpt2-merges.txt"), 50_257);
    assert_eq!(vocabulary("--tokenizer-type Llama2Tokenizer"), 32_000);
    let large = "--num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 --group-query-attention \
                 --num-query-groups 8 --swiglu --normalization RMSNorm --disable-bias-linear --position-embedding-type rope \
                 --untie-embeddings-and-output-weights --seq-length 8192 --micro-batch-size 1 --bf16";
    let of = |words: &str| {
        let text = format!("{large} {words}");
        let read = import::read(&text, FileKind::Of(&MEGATRON), &Context::alone("a.txt")).unwrap();
        read.model.unwrap().vocab
    };
    assert_eq!(of("--tokenizer-type HuggingFaceTokenizer"), 128_256, "Llama 3 70B");
    assert_eq!(of("--tokenizer-type Llama2Tokenizer"), 32_000, "Llama 2 70B");
}
