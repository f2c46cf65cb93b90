//! Which layers each stage holds, as launch files say it: layouts, first and last stages, layers that the ends stand for.

use meshwright::frameworks::{MEGATRON_BRIDGE, TORCHTITAN};
use meshwright::import::{self, Context, FileKind, Imported, Severity};
use meshwright::schedule::Schedule;

fn read(text: &str, kind: FileKind) -> Imported {
    import::read(text, kind, &Context::alone("run.sh")).unwrap_or_else(|error| panic!("{error}"))
}

/// A launch of Megatron-LM with so many layers on 8 stages, and these flags.
fn megatron(layers: u32, flags: &str) -> Imported {
    let text = format!(
        "torchrun --nnodes 4 --nproc_per_node 8 pretrain_gpt.py --lr 3e-4 --train-iters 9 --tokenizer-type \
        NullTokenizer --num-layers {layers} --hidden-size 4096 --ffn-hidden-size 14336 \
         --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 64 \
         --pipeline-model-parallel-size 8 --bf16 --vocab-size 32000 {flags}"
    );
    read(&text, FileKind::Script)
}

fn errors(imported: &Imported) -> Vec<String> {
    let errors = imported.findings.iter().filter(|finding| finding.level == Severity::Error);
    errors.map(|finding| format!("{}: {} ({})", finding.rule, finding.message, finding.expected)).collect()
}

#[test]
fn megatrons_flags_say_what_each_stage_holds() {
    let interleaved = |virtual_stages| Schedule::Interleaved { virtual_stages };
    for (layers, flags, split, schedule) in [
        (32, "", "even", Schedule::OneFOneB),
        (
            30,
            "--decoder-first-pipeline-num-layers 3 --decoder-last-pipeline-num-layers 3",
            "first-3+last-3",
            Schedule::OneFOneB,
        ),
        (31, "--decoder-last-pipeline-num-layers 3", "last-3", Schedule::OneFOneB),
        (
            60,
            "--decoder-first-pipeline-num-layers 4 --num-virtual-stages-per-pipeline-rank 2",
            "first-4",
            interleaved(2),
        ),
        (30, "--pipeline-model-parallel-layout 'Et*3|(t*4|)*6t*3L'", "even", Schedule::OneFOneB),
        (30, "--pipeline-model-parallel-layout 'Et*2|(t*4|)*6,ttttL'", "first-2", Schedule::OneFOneB),
        (32, "--pipeline-model-parallel-layout 'Et*3|(t*2|)*14tL'", "Et*3|(t*2|)*14tL", interleaved(2)),
        (31, "--account-for-loss-in-pipeline-split", "even", Schedule::OneFOneB),
        (31, "--account-for-embedding-in-pipeline-split", "first-3", Schedule::OneFOneB),
        (
            62,
            "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split \
             --num-virtual-stages-per-pipeline-rank 4",
            "even",
            interleaved(4),
        ),
    ] {
        let imported = megatron(layers, flags);
        assert_eq!((imported.plan.split.to_string().as_str(), imported.plan.schedule), (split, schedule), "{flags}");
        assert!(errors(&imported).is_empty(), "{flags}: {:?}", errors(&imported));
    }
}

#[test]
fn what_megatron_would_refuse_of_a_split_is_named() {
    for (flags, named) in [
        ("--pipeline-model-parallel-layout 'Et*4|x|L'", "`x` is no letter"),
        ("--pipeline-model-parallel-layout 'Et*4|t*28L'", "a multiple of 8 stages, 2 found"),
        ("--pipeline-model-parallel-layout 't*4|(t*4|)*6t*4L'", "`E` comes first"),
        (
            "--pipeline-model-parallel-layout 'Et*4|(t*4|)*6t*4L' --decoder-first-pipeline-num-layers 4",
            "given together",
        ),
        ("--decoder-first-pipeline-num-layers 4 --account-for-loss-in-pipeline-split", "given together"),
    ] {
        let imported = megatron(32, flags);
        assert!(errors(&imported).iter().any(|error| error.contains(named)), "{flags}: {:?}", errors(&imported));
    }
}

/// torchtitan spreads L + 2 layers, the first stages taking what is over.
#[test]
fn torchtitans_own_split_is_read() {
    let of = |keys: &str| {
        let text = format!(
            "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[parallelism]\npipeline_parallel_degree = 4\n{keys}\n"
        );
        read(&text, FileKind::Of(&TORCHTITAN))
    };
    let split = |keys: &str| of(keys).plan.split.to_string();
    assert_eq!(split(""), "Et*8|t*9|t*8|t*7L");
    let less = "pipeline_parallel_first_stage_less_layers = 0\npipeline_parallel_last_stage_less_layers = 0";
    assert_eq!(split(less), "even");
    let less = "pipeline_parallel_first_stage_less_layers = 3\npipeline_parallel_last_stage_less_layers = 1";
    assert_eq!(split(less), "first-6+last-8");
    let part = |first: &str, layers: std::ops::Range<u32>, last: &str| {
        let names: Vec<String> = layers.map(|layer| format!("\"layers.{layer}\"")).collect();
        format!("[{first}{}{last}]", names.join(", "))
    };
    let parts = [
        part("\"tok_embeddings\", ", 0..10, ""),
        part("", 10..20, ""),
        part("", 20..30, ""),
        part("", 30..32, ", \"norm\", \"output\""),
    ];
    assert_eq!(split(&format!("module_fqns_per_model_part = [{}]", parts.join(", "))), "last-2");
    let wrong = of(&format!("module_fqns_per_model_part = [{}]", parts[..3].join(", ")));
    assert!(errors(&wrong).iter().any(|error| error.contains("a multiple of 4 stages")), "{:?}", errors(&wrong));
    let wrong = of("pipeline_parallel_first_stage_less_layers = 30");
    assert!(errors(&wrong).iter().any(|error| error.contains("leave 15")), "{:?}", errors(&wrong));
}

#[test]
fn bridge_and_nemo_say_it_in_lists_and_keys() {
    let nemo = "trainer:\n  num_nodes: 4\n  devices: 8\nmodel:\n  micro_batch_size: 1\n  global_batch_size: 64\n  \
                encoder_seq_length: 4096\n  num_layers: 30\n  hidden_size: 4096\n  ffn_hidden_size: 14336\n  \
                num_attention_heads: 32\n  pipeline_model_parallel_size: 8\n  ";
    let keys = "num_layers_in_first_pipeline_stage: 2\n  num_layers_in_last_pipeline_stage: 4\n";
    assert_eq!(read(&format!("{nemo}{keys}"), FileKind::Of(&MEGATRON_BRIDGE)).plan.split.to_string(), "first-2+last-4");
    let list = "pipeline_model_parallel_layout: [[embedding, decoder], [decoder, decoder], [decoder], [decoder], \
                [decoder], [decoder], [decoder, decoder], [decoder, loss]]\n";
    let text = format!("{nemo}{list}").replace("num_layers: 30", "num_layers: 10");
    assert_eq!(read(&text, FileKind::Of(&MEGATRON_BRIDGE)).plan.split.to_string(), "Et|t*2|(t|)*4t*2|tL");
}
