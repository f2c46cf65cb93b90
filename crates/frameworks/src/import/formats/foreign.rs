//! Formats of YAML, JSON and TOML that are refused before any reader is asked: those of other trainers, and of programs
//! that do not train.

use super::format::Evidence::{Key, Says, Table};
use super::format::Outcome::Refused;
use super::format::{Format, Syntax};

/// Syntax of most.
pub(super) const YAML: &[Syntax] = &[Syntax::Yaml];
/// Syntax of those that may be JSON.
pub(super) const YAML_JSON: &[Syntax] = &[Syntax::Yaml, Syntax::Json];
/// Way out of a format whose sizes and degrees can be given by hand.
pub(super) const PLAN: &str = "give its sizes and degrees to `meshwright explain MODEL CLUSTER --plan \"tp=… pp=…\"`";
/// Remedy for a file of a program that does not train.
pub(super) const NO_TRAINING: &str = "import the file that configures the training";
/// Way out of a program on Hugging Face's `Trainer`.
pub(super) const TRAINER: &str =
    "import the DeepSpeed JSON or the Accelerate YAML that it names, with --model, --global-batch and --seq-len";

/// Formats that are refused first.
pub(super) const FOREIGN: &[Format] = &[
    // Not training at all.
    Format {
        title: "a manifest of Kubernetes",
        syntaxes: YAML_JSON,
        evidence: &[&[Key("apiVersion"), Key("kind")]],
        outcome: Refused(NO_TRAINING),
    },
    Format {
        title: "a workflow of continuous integration",
        syntaxes: YAML,
        evidence: &[&[Table("jobs"), Key("on")], &[Table("jobs"), Key("true")], &[Key("stages"), Key("include")]],
        outcome: Refused(NO_TRAINING),
    },
    Format {
        title: "a job of SkyPilot",
        syntaxes: YAML,
        evidence: &[&[Table("resources"), Key("run")]],
        outcome: Refused("import what it runs"),
    },
    Format {
        title: "a project's manifest",
        syntaxes: &[Syntax::Toml, Syntax::Json],
        evidence: &[&[Table("project")], &[Table("build-system")], &[Table("tool")], &[Table("package")]],
        outcome: Refused(NO_TRAINING),
    },
    Format {
        title: "a Hugging Face model's config.json",
        syntaxes: &[Syntax::Json],
        evidence: &[&[Key("model_type")], &[Key("architectures")]],
        outcome: Refused(
            "it is a model, not a plan: give the file in the place of MODEL, as in `meshwright plan config.json CLUSTER`",
        ),
    },
    // Other trainers.
    Format {
        title: "verl's configuration",
        syntaxes: YAML,
        evidence: &[
            &[Key("actor_rollout_ref")],
            &[Key("data.micro_batch_size_per_gpu"), Key("model")],
            &[Key("rollout_n")],
            &[Key("ppo_mini_batch_size")],
            &[Says("*._target_", "verl.")],
            &[Says("_target_", "verl.")],
        ],
        outcome: Refused("reinforcement learning is not priced; its trainer's degrees: `meshwright explain --plan`"),
    },
    Format {
        title: "NeMo-RL's configuration",
        syntaxes: YAML,
        evidence: &[
            &[Table("policy"), Key("cluster")],
            &[Table("policy"), Key("defaults")],
            &[Table("policy"), Key("checkpointing")],
            &[Key("policy.megatron_cfg")],
            &[Key("policy.dtensor_cfg")],
            &[Table("grpo")],
            &[Table("dpo")],
            &[Key("defaults"), Table("cluster")],
            &[Key("defaults"), Table("checkpointing")],
            &[Key("defaults"), Table("data_plane")],
        ],
        outcome: Refused("reinforcement learning is not priced; its trainer's degrees: `meshwright explain --plan`"),
    },
    Format {
        title: "OpenRLHF's or TRL's configuration",
        syntaxes: YAML,
        evidence: &[&[Key("actor_num_nodes")], &[Key("dataset_name"), Key("model_name_or_path")]],
        outcome: Refused(TRAINER),
    },
    Format {
        title: "NeMo Automodel's configuration",
        syntaxes: YAML,
        evidence: &[
            &[Key("step_scheduler")],
            &[Says("recipe", "Recipe")],
            &[Says("recipe._target_", "nemo_automodel")],
            &[Says("model._target_", "nemo_automodel")],
            &[Says("model._target_", "NeMoAuto")],
            &[Says("*._target_", "nemo_automodel")],
        ],
        outcome: Refused(PLAN),
    },
    Format {
        title: "torchtune's configuration",
        syntaxes: YAML,
        evidence: &[&[Key("model._component_")], &[Key("tokenizer._component_")]],
        outcome: Refused(PLAN),
    },
];
