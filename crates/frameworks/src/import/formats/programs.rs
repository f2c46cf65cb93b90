//! Formats of Python files, by the modules that they import, and programs that a script launches and no reader knows.

use super::format::Evidence::Code;
use super::format::Outcome::{Read, Refused};
use super::format::{Format, Syntax};
use crate::import::context::ImportError;
use crate::megatron_bridge::MEGATRON_BRIDGE;
use crate::olmo_core::OLMO_CORE;
use crate::torchtitan::TORCHTITAN;

const OF_CODE: &str =
    "import the file or the launch script that sets it, or give its sizes and degrees to `meshwright explain`";

/// Formats of Python files, by the modules that they import.
pub(super) const PYTHON: &[Format] = &[
    Format {
        title: "NeMo 2's recipe",
        syntaxes: &[Syntax::Python],
        evidence: &[
            &[Code("nemo_run"), Code("run.Partial")],
            &[Code("nemo_run"), Code("from nemo"), Code("-> Partial")],
        ],
        outcome: Read(&MEGATRON_BRIDGE),
    },
    Format {
        title: "a program of NeMo, or a part of its recipes",
        syntaxes: &[Syntax::Python],
        evidence: &[&[Code("nemo_run")], &[Code("from nemo")], &[Code("import nemo")]],
        outcome: Refused("import the recipe, a function that gives a `run.Partial`"),
    },
    Format {
        title: "Megatron-Bridge's recipe",
        syntaxes: &[Syntax::Python],
        evidence: &[&[Code("megatron.bridge")]],
        outcome: Read(&MEGATRON_BRIDGE),
    },
    Format {
        title: "torchtitan's configuration",
        syntaxes: &[Syntax::Python],
        evidence: &[&[Code("from torchtitan"), Code("Trainer")], &[Code("Trainer.Config")]],
        outcome: Read(&TORCHTITAN),
    },
    Format {
        title: "OLMo-core's program",
        syntaxes: &[Syntax::Python],
        evidence: &[
            &[Code("from olmo_core"), Code("TransformerTrainModuleConfig")],
            &[Code("from olmo_core"), Code("ExperimentConfig")],
        ],
        outcome: Read(&OLMO_CORE),
    },
    Format {
        title: "a program of OLMo-core that does not train, or a part of one",
        syntaxes: &[Syntax::Python],
        evidence: &[&[Code("olmo_core")]],
        outcome: Refused("import the program that gives an `ExperimentConfig`"),
    },
    Format {
        title: "a program of MaxText or of JAX",
        syntaxes: &[Syntax::Python],
        evidence: &[&[Code("maxtext")], &[Code("MaxText")], &[Code("import jax")]],
        outcome: Refused(OF_CODE),
    },
    Format {
        title: "a program of Megatron-LM",
        syntaxes: &[Syntax::Python],
        evidence: &[&[Code("from megatron")], &[Code("import megatron")]],
        outcome: Refused(OF_CODE),
    },
    Format {
        title: "a training program",
        syntaxes: &[Syntax::Python],
        evidence: &[
            &[Code("import torch")],
            &[Code("from torch")],
            &[Code("transformers")],
            &[Code("deepspeed")],
            &[Code("accelerate")],
        ],
        outcome: Refused(OF_CODE),
    },
];

/// Programs that are known and not read: a part of the program's name or of a first argument, in lower case, and its description.
const PROGRAMS: &[(&str, &str)] = &[
    ("verl.", "verl's trainer"),
    ("verl/", "verl's trainer"),
    ("nemo_rl", "part of NeMo-RL"),
    ("run_grpo", "a program for training by rewards, such as NeMo-RL's"),
    ("run_sft.py", "a program of recipes for fine-tuning, such as NeMo-RL's"),
    ("run_dpo", "a program for training by preferences, such as NeMo-RL's"),
    ("openrlhf", "part of OpenRLHF"),
    ("swift rlhf", "ms-swift's training by preferences or rewards"),
    ("megatron rlhf", "ms-swift's training by preferences or rewards"),
    ("cli/rlhf", "ms-swift's training by preferences or rewards"),
    ("nemo_automodel", "part of NeMo Automodel"),
    ("automodel", "part of NeMo Automodel"),
    ("maxtext", "part of MaxText"),
    ("olmo_core", "part of OLMo-core"),
    ("llamafactory", "another program of LLaMA-Factory than its training"),
    ("axolotl", "axolotl without a YAML that configures a training, or another of its programs"),
    ("llmfoundry", "another program of llm-foundry than its training"),
    ("litgpt", "part of LitGPT"),
    ("levanter", "part of Levanter"),
    ("torchtune", "part of torchtune"),
    ("pytest", "a test runner"),
    ("unittest", "a test runner"),
];

/// Refuses a program that is known and not read.
///
/// # Errors
/// The program by its name.
pub(crate) fn refuse_program(program: &str, file: &str, line: u32) -> Result<(), ImportError> {
    let name = program.to_lowercase();
    let Some((_, what)) = PROGRAMS.iter().find(|(part, _)| name.contains(part)) else { return Ok(()) };
    let why = format!("`{program}` is not read: it is {what}");
    Err(ImportError { file: file.into(), line, why, expected: OF_CODE.into() })
}
