//! Formats of YAML, JSON and TOML, by their keys.

use super::foreign::{NO_TRAINING, PLAN, TRAINER, YAML, YAML_JSON};
use super::format::Evidence::{Key, Says, Table};
use super::format::Outcome::{Read, Refused};
use super::format::{Format, Syntax};
use crate::accelerate::ACCELERATE;
use crate::axolotl::AXOLOTL;
use crate::deepspeed::DEEPSPEED;
use crate::gpt_neox::GPT_NEOX;
use crate::llama_factory::LLAMA_FACTORY;
use crate::llm_foundry::LLM_FOUNDRY;
use crate::maxtext::MAXTEXT;
use crate::megatron_bridge::MEGATRON_BRIDGE;
use crate::ms_swift::MS_SWIFT;
use crate::nanotron::NANOTRON;
use crate::primus::PRIMUS;
use crate::torchtitan::TORCHTITAN;

/// Formats of documents, specific ones first.
pub(super) const DOCUMENTS: &[Format] = &[
    Format {
        title: "axolotl's configuration of reinforcement learning",
        syntaxes: YAML,
        evidence: &[
            &[Key("base_model"), Says("rl", "grpo")],
            &[Key("base_model"), Says("rl", "gdpo")],
            &[Key("base_model"), Says("rl", "ebft")],
        ],
        outcome: Refused("reinforcement learning is not priced; its trainer's degrees: `meshwright explain --plan`"),
    },
    Format {
        title: "axolotl's configuration",
        syntaxes: YAML,
        evidence: &[
            &[Key("base_model"), Key("micro_batch_size")],
            &[Key("base_model"), Key("datasets")],
            &[Key("base_model"), Key("sequence_len")],
        ],
        outcome: Read(&AXOLOTL),
    },
    Format {
        title: "LLaMA-Factory's configuration of its version 1",
        syntaxes: YAML_JSON,
        evidence: &[
            &[Key("model"), Key("dist_config")],
            &[Key("model"), Key("train_dataset")],
            &[Key("model"), Key("sample_backend")],
        ],
        outcome: Refused(PLAN),
    },
    Format {
        title: "LLaMA-Factory's configuration of Megatron core or of KTransformers",
        syntaxes: YAML_JSON,
        evidence: &[
            &[Key("model_name_or_path"), Key("tensor_model_parallel_size")],
            &[Key("model_name_or_path"), Key("pipeline_model_parallel_size")],
            &[Key("model_name_or_path"), Key("expert_model_parallel_size")],
            &[Key("model_name_or_path"), Says("use_kt", "true")],
        ],
        outcome: Refused(PLAN),
    },
    Format {
        title: "LLaMA-Factory's configuration",
        syntaxes: YAML_JSON,
        evidence: &[
            &[Key("finetuning_type"), Key("do_train")],
            &[Key("model_name_or_path"), Key("do_train"), Key("template")],
            &[Key("model_name_or_path"), Key("do_train"), Key("cutoff_len")],
            &[Key("finetuning_type"), Key("per_device_train_batch_size")],
        ],
        outcome: Read(&LLAMA_FACTORY),
    },
    Format {
        title: "LLaMA-Factory's configuration of a program that does not train",
        syntaxes: YAML_JSON,
        evidence: &[
            &[Key("finetuning_type")],
            &[Key("model_name_or_path"), Key("stage")],
            &[Key("model_name_or_path"), Key("template")],
        ],
        outcome: Refused(NO_TRAINING),
    },
    Format {
        title: "ms-swift's configuration of training by preferences or rewards",
        syntaxes: YAML_JSON,
        evidence: &[&[Key("rlhf_type")]],
        outcome: Refused("reinforcement learning is not priced; its trainer's degrees: `meshwright explain --plan`"),
    },
    Format {
        title: "ms-swift's configuration",
        syntaxes: YAML_JSON,
        evidence: &[
            &[Key("model"), Key("tuner_type")],
            &[Key("model"), Key("train_type")],
            &[Key("model"), Key("dataset"), Key("micro_batch_size")],
            &[Key("model"), Key("dataset"), Key("per_device_train_batch_size")],
            &[Key("model"), Key("load_from_cache_file")],
        ],
        outcome: Read(&MS_SWIFT),
    },
    Format {
        title: "a configuration of Hugging Face's Trainer",
        syntaxes: YAML_JSON,
        evidence: &[&[Key("model_name_or_path")], &[Key("per_device_train_batch_size")]],
        outcome: Refused(TRAINER),
    },
    Format {
        title: "llm-foundry's configuration",
        syntaxes: YAML,
        evidence: &[
            &[Key("train_loader"), Key("model.name")],
            &[Key("train_loader"), Key("device_train_microbatch_size")],
            &[Key("parameters.train_loader"), Key("parameters.model.name")],
        ],
        outcome: Read(&LLM_FOUNDRY),
    },
    Format {
        title: "a job of the MosaicML platform",
        syntaxes: YAML,
        evidence: &[&[Key("compute"), Key("image"), Key("command")]],
        outcome: Refused("import what it runs"),
    },
    Format {
        title: "a configuration of llm-foundry and Composer that does not train",
        syntaxes: YAML,
        evidence: &[
            &[Key("device_train_microbatch_size")],
            &[Key("train_loader")],
            &[Key("model.name"), Key("max_seq_len")],
            &[Key("models"), Key("max_seq_len")],
            &[Key("icl_tasks")],
            &[Key("eval_gauntlet")],
        ],
        outcome: Refused(NO_TRAINING),
    },
    Format {
        title: "a configuration of OLMo",
        syntaxes: YAML,
        evidence: &[&[Key("model.d_model"), Key("model.n_layers")], &[Key("device_train_batch_size")]],
        outcome: Refused(PLAN),
    },
    Format {
        title: "MaxText's whole configuration",
        syntaxes: YAML,
        evidence: &[&[
            Key("base_config"),
            Key("decoder_block"),
            Key("base_emb_dim"),
            Key("ici_fsdp_parallelism"),
            Key("per_device_batch_size"),
        ]],
        outcome: Read(&MAXTEXT),
    },
    Format {
        title: "MaxText's configuration",
        syntaxes: YAML,
        evidence: &[
            &[Key("base_config")],
            &[Key("base_emb_dim")],
            &[Key("ici_fsdp_parallelism")],
            &[Key("ici_tensor_parallelism")],
            &[Key("per_device_batch_size")],
            &[Key("logical_axis_rules")],
            &[Key("mesh_axes")],
        ],
        outcome: Refused(PLAN),
    },
    Format {
        title: "a configuration of Levanter",
        syntaxes: YAML,
        evidence: &[&[Key("trainer.train_batch_size"), Key("model.type")], &[Key("trainer.mp")]],
        outcome: Refused(PLAN),
    },
    Format {
        title: "a configuration of Primus for another backend than Megatron",
        syntaxes: YAML,
        evidence: &[
            &[Says("modules.*.framework", "maxtext")],
            &[Says("modules.*.framework", "torchtitan")],
            &[Says("modules.*.framework", "automodel")],
            &[Says("modules.*.framework", "diffusion")],
            &[Says("modules.*.framework", "bridge")],
            &[Says("modules.*.framework", "hummingbird")],
        ],
        outcome: Refused("of Primus, modules with `framework: megatron` are read"),
    },
    Format {
        title: "Primus' configuration",
        syntaxes: YAML,
        evidence: &[&[Says("modules.*.framework", "megatron")]],
        outcome: Read(&PRIMUS),
    },
    Format {
        title: "a part of a Primus configuration",
        syntaxes: YAML,
        evidence: &[
            &[Key("extends")],
            &[Key("modules")],
            &[Key("recipe"), Key("flavor")],
            &[Table("job"), Table("model")],
        ],
        outcome: Refused("import the experiment that names it under `modules`"),
    },
    Format {
        title: "a test of Megatron-LM's inference",
        syntaxes: YAML,
        evidence: &[&[Key("MODEL_ARGS"), Says("MODE", "inference")]],
        outcome: Refused(NO_TRAINING),
    },
    Format {
        title: "Megatron-LM's recipe",
        syntaxes: YAML,
        evidence: &[&[Table("MODEL_ARGS")]],
        outcome: Read(&MEGATRON_BRIDGE),
    },
    Format {
        title: "FlagScale's configuration",
        syntaxes: YAML,
        evidence: &[
            &[Key("system.tensor_model_parallel_size")],
            &[Key("system.pipeline_model_parallel_size")],
            &[Table("system"), Key("model.num_layers")],
        ],
        outcome: Read(&MEGATRON_BRIDGE),
    },
    Format {
        title: "nanotron's configuration",
        syntaxes: YAML,
        evidence: &[&[Key("parallelism.dp"), Table("tokens")], &[Key("parallelism.tp"), Table("tokens")]],
        outcome: Read(&NANOTRON),
    },
    Format {
        title: "Accelerate's configuration",
        syntaxes: YAML_JSON,
        evidence: &[
            &[Key("distributed_type")],
            &[Key("compute_environment")],
            &[Key("fsdp_config.fsdp_version")],
            &[Key("fsdp_config.fsdp_sharding_strategy")],
        ],
        outcome: Read(&ACCELERATE),
    },
    Format {
        title: "GPT-NeoX's configuration",
        syntaxes: YAML_JSON,
        evidence: &[
            &[Key("pipe_parallel_size")],
            &[Key("pipe-parallel-size")],
            &[Key("model_parallel_size"), Key("num_layers")],
            &[Key("model-parallel-size"), Key("num-layers")],
            &[Key("train_micro_batch_size_per_gpu"), Key("num_layers")],
            &[Key("pos_emb"), Key("num_layers")],
            &[Key("checkpoint_factor")],
            &[Key("data_path"), Key("vocab_file")],
            &[Key("data-path"), Key("vocab-file")],
            &[Key("text_gen_type")],
            &[Key("text-gen-type")],
            &[Key("user_script"), Key("deepspeed_slurm")],
            &[Key("wandb_project"), Key("use_wandb")],
        ],
        outcome: Read(&GPT_NEOX),
    },
    Format {
        title: "DeepSpeed's configuration",
        syntaxes: &[Syntax::Json],
        evidence: &[
            &[Key("zero_optimization")],
            &[Key("train_batch_size")],
            &[Key("train_micro_batch_size_per_gpu")],
            &[Key("bf16.enabled")],
            &[Key("fp16.enabled")],
        ],
        outcome: Read(&DEEPSPEED),
    },
    Format {
        title: "NeMo's configuration",
        syntaxes: YAML,
        evidence: &[
            &[Table("trainer"), Key("model.tensor_model_parallel_size")],
            &[Table("trainer"), Key("model.micro_batch_size"), Key("model.num_layers")],
            &[Table("trainer"), Key("model.megatron_amp_O2")],
            &[Table("trainer"), Key("model.encoder_seq_length")],
        ],
        outcome: Read(&MEGATRON_BRIDGE),
    },
    Format {
        title: "NeMo's configuration of a program that is no training of a GPT",
        syntaxes: YAML,
        evidence: &[
            &[Table("trainer"), Table("model")],
            &[Key("trainer.strategy.tensor_model_parallel_size")],
            &[Key("trainer"), Key("gpt_model_file")],
            &[Key("gpt_model_file")],
            &[Key("exp_manager")],
            &[Key("qkv_fprop")],
            &[Key("fc1_fprop")],
        ],
        outcome: Refused(NO_TRAINING),
    },
    Format {
        title: "Megatron-Bridge's settings",
        syntaxes: YAML,
        evidence: &[
            &[Key("train.global_batch_size")],
            &[Key("train.micro_batch_size")],
            &[Table("model"), Table("train")],
            &[Key("model.tensor_model_parallel_size")],
            &[Key("model.pipeline_model_parallel_size")],
            &[Key("model.num_layers"), Key("model.hidden_size")],
            &[Key("mixed_precision"), Table("model")],
        ],
        outcome: Read(&MEGATRON_BRIDGE),
    },
    Format {
        title: "Megatron-LM's YAML of arguments",
        syntaxes: YAML,
        evidence: &[
            &[Table("language_model"), Table("model_parallel")],
            &[Table("language_model"), Key("micro_batch_size")],
            &[Key("tensor_model_parallel_size")],
            &[Key("num_layers"), Key("hidden_size"), Key("micro_batch_size")],
        ],
        outcome: Read(&MEGATRON_BRIDGE),
    },
    Format {
        title: "torchtitan's configuration",
        syntaxes: &[Syntax::Toml],
        evidence: &[
            &[Table("parallelism")],
            &[Table("training")],
            &[Table("activation_checkpoint")],
            &[Key("model.flavor")],
        ],
        outcome: Read(&TORCHTITAN),
    },
];
