//! Training frameworks: writes plans as launch files, reads launch files as plans, and checks them against a cluster.
//!
//! Entry points: [`FRAMEWORKS`] for the table, [`emit`](mod@emit), [`import`], [`lint`]. `README.md` says how a framework is added.

mod accelerate;
mod axolotl;
mod decoder;
mod deepspeed;
mod details;
pub mod emit;
mod framework;
mod gpt_neox;
pub mod graphs;
mod header_question;
mod hugging_face;
pub mod import;
pub mod lint;
mod llama_factory;
mod llm_foundry;
mod maxtext;
pub mod megatron;
mod megatron_bridge;
mod ms_swift;
mod nanotron;
mod olmo_core;
mod primus;
mod readers;
mod rules;
mod scaling;
mod sizes;
mod table;
mod torchtitan;

pub use accelerate::ACCELERATE;
pub use axolotl::AXOLOTL;
pub use deepspeed::DEEPSPEED;
pub use framework::{Framework, SettingsReader, UnknownRelease};
pub use gpt_neox::GPT_NEOX;
pub use llama_factory::LLAMA_FACTORY;
pub use llm_foundry::LLM_FOUNDRY;
pub use maxtext::MAXTEXT;
pub use megatron::MEGATRON;
pub use megatron_bridge::MEGATRON_BRIDGE;
pub use ms_swift::MS_SWIFT;
pub use nanotron::NANOTRON;
pub use olmo_core::OLMO_CORE;
pub use primus::PRIMUS;
pub use rules::fused_exchange_backend;
pub use sizes::{SharedMixer, Sizes};
pub use table::{
    FRAMEWORKS, files_refusal, framework_of, keep_launchable, keep_settings, launchable, name_list, named, names,
    of_family, of_stack, of_stack_on_all, refusal, release_refusal,
};
pub use torchtitan::TORCHTITAN;
