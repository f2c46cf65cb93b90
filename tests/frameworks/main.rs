//! Frameworks: files written, files read back, launch scripts linted.

#[path = "../random/mod.rs"]
mod random;

mod details;
mod documented;
mod emit;
mod emit_framework;
mod emit_import;
mod emit_precision;
mod hostile;
mod hybrids;
mod import;
mod import_axolotl;
mod import_bridge;
mod import_factory;
mod import_formats;
mod import_foundry;
mod import_hybrids;
mod import_nemo;
mod import_neox;
mod import_olmo;
mod import_olmo_built;
mod import_refused;
mod import_scripts;
mod import_splits;
mod import_swift;
mod import_torchtitan;
mod import_trainers;
mod lint;
mod lint_devices;
mod lint_emitted;
mod lint_replaced;
mod lint_values;
mod machines;
mod recurrences;
mod releases;
mod run_python;
mod sbatch;
mod sparse;
