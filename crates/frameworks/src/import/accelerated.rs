//! Launches by `accelerate launch`: its file and its options.

use super::context::{Context, ImportError, Launched};
use super::imported::Imported;
use super::launch::Launch;
use super::named::configuration;
use crate::accelerate::import as accelerate;
use crate::readers::document::{Document, Form};
use crate::readers::shell::Ran;
use crate::readers::shell::text::Text;

/// FSDP or DeepSpeed that a launch sets up for a program with a configuration of its own; none where it names neither a file nor FSDP.
///
/// # Errors
/// Those of [`of_launch`].
pub(super) fn engine(
    launch: &Launch,
    launched: &Launched,
    ran: &Ran,
    context: &Context,
) -> Result<Option<Imported>, ImportError> {
    let named = launch.options.iter().any(|(name, _)| name == "__config_file" || name == "__use_fsdp");
    named.then(|| of_launch(launch, launched, ran, context)).transpose()
}

/// Plan, workload and settings of a launch, by the file that it names and by its own options, which win.
///
/// # Errors
/// A file that is not there or does not parse.
pub(super) fn of_launch(
    launch: &Launch,
    launched: &Launched,
    ran: &Ran,
    context: &Context,
) -> Result<Imported, ImportError> {
    let option = |name: &str| {
        launch.options.iter().rfind(|(known, _)| known.trim_start_matches('_') == name).map(|(_, value)| value.clone())
    };
    let mut document = match option("config_file") {
        Some(file) => configuration(&file, Form::Yaml, ran, context)?,
        None => Document::empty(launch.line, context.file),
    };
    for (name, value) in &launch.options {
        let name = name.trim_start_matches('_');
        let path = if name.starts_with("fsdp_") {
            format!("fsdp_config.{name}")
        } else if name.starts_with("parallelism_config_") {
            format!("parallelism_config.{name}")
        } else if name.starts_with("megatron_lm_") {
            format!("megatron_lm_config.{name}")
        } else if ["zero_stage", "offload_optimizer_device", "deepspeed_config_file"].contains(&name) {
            format!("deepspeed_config.{name}")
        } else if ["num_processes", "num_machines", "mixed_precision"].contains(&name) {
            name.to_owned()
        } else {
            let kind = match name {
                "use_fsdp" => "FSDP",
                "use_deepspeed" => "DEEPSPEED",
                "use_megatron_lm" => "MEGATRON_LM",
                "multi_gpu" => "MULTI_GPU",
                _ => continue,
            };
            document.put("distributed_type", kind, launch.line);
            continue;
        };
        if value.missing().is_empty() {
            document.put(&path, &value.plain(), value.line().unwrap_or(launch.line));
        }
    }
    let written = |name: &str| ran.written.get(name).map(Text::plain).or_else(|| (context.files)(name));
    Ok(accelerate::imported_from(&document, launched, &written))
}
