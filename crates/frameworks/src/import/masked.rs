//! Import of a followed script, without the values of files that it sources.

use super::context::ImportError;
use super::imported::Imported;
use crate::megatron::flags::flags;
use crate::readers::shell::Hidden;

/// Whether a word is one that flags take, or `true` and the like.
fn is_setting(word: &str) -> bool {
    let known = ["true", "false", "none", "null"];
    known.iter().any(|known| known.eq_ignore_ascii_case(word))
        || flags().values().any(|flag| flag.choices.iter().any(|choice| choice.eq_ignore_ascii_case(word)))
}

/// A script that was read, or why it was not, with every hidden value masked; numbers, and words that settings take, stay.
pub(super) fn masked(read: Result<Imported, ImportError>, hidden: &Hidden) -> Result<Imported, ImportError> {
    let hidden = hidden.without(&is_setting);
    let mask = |text: &mut String| *text = hidden.masked(text);
    match read {
        Ok(mut imported) => {
            for finding in &mut imported.findings {
                mask(&mut finding.message);
                mask(&mut finding.expected);
            }
            for unknown in &mut imported.unknown {
                mask(&mut unknown.name);
                unknown.values.iter_mut().for_each(mask);
            }
            imported.without_effect.iter_mut().for_each(mask);
            imported.model.iter_mut().for_each(|model| mask(&mut model.name));
            Ok(imported)
        }
        Err(mut error) => {
            mask(&mut error.why);
            mask(&mut error.expected);
            Err(error)
        }
    }
}
