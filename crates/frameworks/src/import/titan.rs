//! Launches of torchtitan: `--job.config_file` of older releases, `--module` and `--config` of 0.3, and settings over them.

use super::context::{Context, ImportError, Launched};
use super::finding::{Finding, Place};
use super::imported::Imported;
use super::launch::Launch;
use super::named::configuration;
use crate::readers::document::{Document, Form};
use crate::readers::shell::Ran;
use crate::readers::shell::text::Text;
use crate::torchtitan::import::{self as torchtitan, Written};

/// Plan, workload and settings of a launch of torchtitan: its file, or the registry's function that it names, with the
/// settings behind it.
///
/// # Errors
/// A file that is not there, or does not parse.
pub(super) fn of_launch(
    launch: &Launch,
    launched: &Launched,
    ran: &Ran,
    context: &Context,
) -> Result<Imported, ImportError> {
    let file = launch.argument(&["--job.config_file", "--job.config-file"]);
    let empty = || Document::empty(launch.line, context.file);
    let (module, config) = (launch.argument(&["--module"]), launch.argument(&["--config"]));
    let mut document = match (&file, &module, &config) {
        (Some(file), ..) => configuration(file, Form::Toml, ran, context)?,
        (None, Some(module), Some(config)) => registered(&module.plain(), &config.plain(), launch, context)?,
        (None, ..) => empty(),
    };
    let mut words = launch.arguments.iter().peekable();
    while let Some(word) = words.next() {
        let text = word.plain();
        let Some(name) = text.strip_prefix("--").filter(|name| name.contains('.') && !name.starts_with("job.config"))
        else {
            continue;
        };
        let line = word.line().unwrap_or(launch.line);
        let (name, value) = if let Some((name, value)) = name.split_once('=') {
            (name.to_owned(), value.to_owned())
        } else {
            let next = words.next_if(|next| !next.plain().starts_with("--"));
            (name.to_owned(), next.map_or_else(|| "true".into(), Text::plain))
        };
        let path = name.replace('-', "_");
        match path.rsplit_once(".no_") {
            Some((section, key)) => document.put(&format!("{section}.{key}"), "false", line),
            None => document.put(&path, &value, line),
        }
    }
    let written = if module.is_some() && file.is_none() { Written::Python } else { Written::Toml };
    Ok(torchtitan::imported_from(&document, written, launched))
}

/// The document that `--module` and `--config` name: a Python file beside the script, one of torchtitan's own, or at least a model.
fn registered(module: &str, config: &str, launch: &Launch, context: &Context) -> Result<Document, ImportError> {
    let path = module.replace('.', "/");
    let beside = [
        format!("{path}.py"),
        format!("{path}/config_registry.py"),
        format!("torchtitan/models/{path}/config_registry.py"),
    ];
    if let Some((name, text)) = beside.into_iter().find_map(|name| (context.files)(&name).map(|text| (name, text))) {
        let inner = Context { files: context.files, ..Context::alone(&name) };
        return torchtitan::of_python(&text, Some(config), &inner);
    }
    let mut document = Document::empty(launch.line, context.file);
    let flavor = config.strip_prefix(&format!("{module}_")).unwrap_or(config).replace('_', "-");
    document.put("model.name", module, launch.line);
    document.put("model.flavor", &flavor, launch.line);
    let place = Place { file: context.file.to_owned(), line: launch.line };
    if torchtitan::fill_from_registry(&mut document, config, launch.line) {
        let message = format!("`{config}` is read as release 0.3.0 of torchtitan has it");
        document.note(Finding::note("assumed", message).at(&place).expected("the Python file beside the script"));
    } else {
        let message = format!("the Python file of `{config}` was not found: only the command line is read");
        let expected = "the file beside the script, or what it sets as --section.key value";
        document.note(Finding::warning("not-read", message).at(&place).expected(expected));
    }
    Ok(document)
}
