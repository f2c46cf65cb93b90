//! Files that frameworks read, and the scripts that launch them → model, workload, plan.
//!
//! Nothing is guessed in silence: a setting that a file leaves open is a [`Finding`], a flag that no release knows is
//! [`Unknown`], one without effect on time or memory here is named in [`Imported::without_effect`].

mod accelerated;
pub(crate) mod adapters;
pub(crate) mod context;
pub(crate) mod decisive;
pub(crate) mod finding;
pub(crate) mod formats;
pub(crate) mod imported;
mod kind;
pub mod known;
pub(crate) mod launch;
mod masked;
mod named;
mod scripts;
mod titan;
mod trainer;

pub use context::{Context, ImportError, Interpreter};
pub use finding::{DOCUMENTS, Finding, Place, Severity};
pub use formats::kind_of;
pub use imported::{Adapters, Imported, ImportedWorkload, StackSettings, Unknown};
pub use kind::FileKind;

use std::path::Path;

use crate::gpt_neox::emit::PROGRAM;
use crate::header_question::{HeaderQuestion, script_of_job};
use crate::table::FRAMEWORKS;

/// A text with the given variables in the places of `${NAME}`, `${NAME:default}` and `${oc.env:NAME,default}`.
fn substituted(text: &str, variables: &[(String, String)]) -> String {
    let mut text = text.to_owned();
    for (name, value) in variables {
        for (start, ends) in [(format!("${{{name}"), [":", "}"]), (format!("${{oc.env:{name}"), [",", "}"])] {
            let mut at = 0;
            while let Some(found) = text[at..].find(&start).map(|found| at + found) {
                let rest = &text[found + start.len()..];
                at = found + start.len();
                if let Some(end) = rest.find('}').filter(|_| ends.iter().any(|end| rest.starts_with(end))) {
                    text.replace_range(found..=(found + start.len() + end), value);
                    at = found + value.len();
                }
            }
        }
    }
    text
}

/// Reads a file.
///
/// # Errors
/// A file that does not parse, or holds nothing that launches training; everything less is a [`Finding`].
pub fn read(text: &str, kind: FileKind, context: &Context) -> Result<Imported, ImportError> {
    let mut imported = match kind {
        FileKind::Script => scripts::read(text, context),
        FileKind::Of(framework) if context.is_python() => (framework.reader.read)(text, context),
        FileKind::Of(framework) => (framework.reader.read)(&substituted(text, context.variables), context),
    }?;
    let of_script = || HeaderQuestion::of(&(context.files)(script_of_job(text)?)?);
    if let Some(question) = HeaderQuestion::of(text).or_else(of_script) {
        question.complete(&mut imported);
    }
    decisive::refuse_unread(&mut imported);
    Ok(imported)
}

/// Files that `emit` writes and that do not say all of a plan: the script beside them and what it names do.
const PARTS: [&str; 5] = ["ds_config.json", "fsdp_config.json", "accelerate.yaml", "llama_factory.yaml", PROGRAM];

/// The script that launches a part of an emitted plan, by its name, with its text: `deepspeed.sh` for `ds_config.json`; none for
/// other files, and where no emitted script beside it names the file. `beside` gives texts of the files of its folder.
pub fn launcher_of(name: &str, beside: &dyn Fn(&str) -> Option<String>) -> Option<(String, String)> {
    let part = PARTS.into_iter().find(|part| *part == name)?;
    FRAMEWORKS.iter().map(|framework| framework.script()).find_map(|script| {
        let text = beside(&script)?;
        let settings = Path::new(&script).with_extension("yaml").to_str().and_then(beside).unwrap_or_default();
        let launches = HeaderQuestion::of(&text).is_some() && (text.contains(part) || settings.contains(part));
        launches.then_some((script, text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_settings_are_given_from_outside() {
        let variables = [("TP".to_owned(), "4".to_owned()), ("T".to_owned(), "1".to_owned())];
        let text = "a: ${TP:1}\nb: ${oc.env:TP,2}\nc: ${TP}\nd: ${TPX:3}\ne: ${T:";
        assert_eq!(substituted(text, &variables), "a: 4\nb: 4\nc: 4\nd: ${TPX:3}\ne: ${T:");
    }
}
