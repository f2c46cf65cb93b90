//! Configurations that a launch names, and the overrides of its command line.

use super::context::{Context, ImportError};
use super::formats::refuse_foreign;
use super::launch::Launch;
use crate::readers::document::{self, Document, Form};
use crate::readers::shell::Ran;
use crate::readers::shell::text::{Text, readable};

/// Whether a name is that of a YAML.
pub(super) fn is_yaml(name: &str) -> bool {
    let extension = std::path::Path::new(name).extension();
    extension.is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// The YAML that is a program's first argument, with the overrides after it: `--key value`, `--key=value`, `key=value`.
pub(super) fn own_yaml(launch: &Launch, ran: &Ran, context: &Context) -> Option<Result<Document, ImportError>> {
    let file = launch.arguments.first().filter(|word| is_yaml(&word.plain()))?;
    Some(configuration(file, Form::Yaml, ran, context).map(|mut document| {
        overridden(&mut document, launch, 1);
        document
    }))
}

/// The settings among a program's arguments, without a file.
pub(super) fn own_settings(launch: &Launch, context: &Context) -> Document {
    let mut document = Document::empty(launch.line, context.file);
    overridden(&mut document, launch, 0);
    document
}

/// Puts the arguments of a program from one on into its configuration; those behind `--` are the launcher's.
fn overridden(document: &mut Document, launch: &Launch, from: usize) {
    let mut words = launch.arguments.iter().skip(from).take_while(|word| word.plain() != "--").peekable();
    while let Some(word) = words.next() {
        let text = word.plain();
        let Some((name, value)) =
            text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())).or_else(|| {
                let name = text.strip_prefix("--")?;
                let next = words.next_if(|next| !next.plain().starts_with("--"));
                Some((name.to_owned(), next.map_or_else(|| "true".into(), Text::plain)))
            })
        else {
            continue;
        };
        let path = name.trim_start_matches('-').replace('-', "_").replace("__", ".");
        document.put(&path, &value, word.line().unwrap_or(launch.line));
    }
}

/// A configuration that a launch names: written by the script itself, or beside it.
pub(super) fn configuration(file: &Text, form: Form, ran: &Ran, context: &Context) -> Result<Document, ImportError> {
    let name = file.plain();
    let line = file.line().unwrap_or(1).max(1);
    let written = ran.written.get(&name).map(Text::plain);
    let text = written.clone().or_else(|| (context.files)(&readable(&name)));
    let Some(text) = text else {
        let why = format!("`{}`, which the launch names, was not found", readable(&name));
        let expected =
            "the file beside the script; import it on its own; or give --var where its name is not resolved".to_owned();
        return Err(ImportError { file: context.file.into(), line, why, expected });
    };
    let shown = if written.is_some() { context.file.to_owned() } else { readable(&name) };
    let missing = crate::readers::shell::text::names(&text);
    if let Some(missing) = missing.first() {
        let why = format!("`{}` is written with {missing}, which is not resolved", readable(&name));
        let expected = format!("give --var {}=VALUE", missing.trim_start_matches('$'));
        return Err(ImportError { file: context.file.into(), line, why, expected });
    }
    let inner = Context { files: context.files, ..Context::alone(&shown) };
    let document = document::parse(&text, form, &inner)?;
    if form == Form::Yaml {
        refuse_foreign(&document, &shown)?;
    }
    Ok(document)
}
