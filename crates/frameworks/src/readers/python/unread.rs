//! Lines of a configuration that were not read, as findings.

use super::modules::{MAIN, Modules, Spot, Unread};
use super::truth::is_class_name;
use crate::import::decisive::is_decisive;
use crate::import::finding::{Finding, Place, Severity};
use crate::readers::document::{CALLED, Document};

/// Notes the lines that depend on running the program, and a configuration that begins as another module's.
pub(super) fn note_unread(document: &Document, modules: &Modules, mut unread: Unread) {
    unread.sort_unstable();
    unread.dedup();
    let mut elsewhere = Vec::new();
    for Spot { module: number, line } in unread {
        let module = modules.module(number);
        let is_decisive = decides(&module.text, line);
        if number != MAIN && !is_decisive {
            elsewhere.push(format!("{}:{line}", module.file));
            continue;
        }
        if is_length_of_run(&module.text, line) {
            continue;
        }
        let place = Place { file: module.file.clone(), line };
        let finding = Finding::warning("not-read", "what this line sets depends on running the program").at(&place);
        let finding = finding.expected("a constant, or the setting on the command line");
        document.note(if is_decisive { Finding { level: Severity::Error, ..finding } } else { finding });
    }
    if !elsewhere.is_empty() {
        let message =
            format!("what these lines of imported files set depends on running them: {}", elsewhere.join(", "));
        let finding = Finding::warning("not-read", message);
        document.note(finding.expected("where they set what bears on time and memory, set it in this file"));
    }
    let main = modules.module(MAIN);
    if let Some(base) = document.peek(CALLED).filter(|base| !is_class_name(base)).map(str::to_owned) {
        let message = format!("`{base}` is of another module: what it sets, and is not set again here, is not read");
        let place = Place { file: main.file.clone(), line: document.place(CALLED).map_or(1, |place| place.line) };
        document.note(
            Finding::error(OTHER_MODULE, message).at(&place).expected("import the file that has it, or set it here"),
        );
    }
}

/// Parts of configurations whose keys decide the step.
const SECTIONS: &[&str] = &[
    "model",
    "train",
    "training",
    "trainer",
    "strategy",
    "parallelism",
    "ddp",
    "dist",
    "data",
    "dataset",
    "optimizer",
    "optim",
    "mixed_precision",
    "plugins",
    "comm_overlap",
    "activation_checkpoint",
    "compile",
    "quantize",
    "peft",
];

/// Notes the tables that got entries which are not known: those of a part that decides are errors.
pub(super) fn note_opened(document: &Document, opened: &[(String, u32)]) {
    for (path, line) in opened {
        let decides = path.is_empty() || path.split('.').any(|key| SECTIONS.contains(&key));
        if !decides {
            continue; // its line is named as not read
        }
        let at = if path.is_empty() { "the configuration".to_owned() } else { format!("`{path}`") };
        let message = format!("what `**` or `update` brings into {at} is not known");
        let place = Place { file: document.file().to_owned(), line: *line };
        let finding = Finding::error("not-read", message).at(&place);
        document.note(finding.expected("constants, or the settings on the command line"));
    }
}

/// Rule of a configuration that begins as another module's.
pub(crate) const OTHER_MODULE: &str = "other-module";

/// Whether a line, or what is indented below it, sets a degree, a batch, a length, a stage or a precision.
pub(super) fn decides(text: &str, line: u32) -> bool {
    let mut lines = text.lines().skip(line as usize - 1);
    let indent = |line: &str| line.len() - line.trim_start().len();
    let Some(first) = lines.next() else { return false };
    let below = lines.take_while(|next| next.trim().is_empty() || indent(next) > indent(first));
    let code = std::iter::once(first).chain(below).map(|line| line.split('#').next().unwrap_or_default());
    // An attribute whose name is not known may be any.
    if code.clone().any(|line| line.contains("setattr(")) {
        return true;
    }
    let mut set = code.flat_map(set_by);
    set.any(is_decisive)
}

/// Settings of how many steps a run has, which no step depends on.
const LENGTHS_OF_RUN: [&str; 2] = ["steps", "train_iters"];

/// Whether a line sets the number of steps of a run, and nothing else.
fn is_length_of_run(text: &str, line: u32) -> bool {
    let code = text.lines().nth(line as usize - 1).unwrap_or_default().split('#').next().unwrap_or_default();
    let set = if code.contains('=') { set_by(code) } else { Vec::new() };
    !set.is_empty() && set.iter().all(|name| LENGTHS_OF_RUN.contains(name))
}

/// Names that a line may set: those before `=` or, in a table, before `:`; of a line without either, all.
fn set_by(line: &str) -> Vec<&str> {
    let code = line.trim();
    if ["if ", "elif ", "else:"].iter().any(|word| code.starts_with(word)) {
        return Vec::new();
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let name_before = |end: usize| {
        let head =
            code[..end].trim_end_matches(['+', '-', '*', '/', '%', '|']).trim_end().trim_end_matches(['"', '\'', ']']);
        head.rsplit(|c: char| !is_part(c)).next().unwrap_or_default()
    };
    let compares = |at: usize| code[at + 1..].starts_with('=') || code[..at].ends_with(['=', '!', '<', '>']);
    let assigned = code.match_indices('=').filter(|(at, _)| !compares(*at)).map(|(at, _)| name_before(at));
    let keys = code.match_indices("\":").chain(code.match_indices("':")).map(|(at, _)| name_before(at));
    let found: Vec<&str> = assigned.chain(keys).collect();
    if found.is_empty() { code.split(|c: char| !is_part(c)).collect() } else { found }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_decides() {
        for (code, is) in [
            ("cfg.train.micro_batch_size = f()", true),
            ("x = T(a=1, global_batch_size=n)", true),
            ("cfg.env = {'tensor_parallel_size': f()}", true),
            ("cfg['micro_batch_size'] = f()", true),
            ("cfg.train.micro_batch_size *= n", true),
            ("cfg.model.pipeline_model_parallel_layout = NAME", true),
            ("if cfg.model.context_parallel_size > 1:\n    cfg.pad = 2", false),
            ("if known():\n    cfg.model.context_parallel_size = 2", true),
            ("cfg.lr = scale(global_batch_size)", false),
            ("set_batches(cfg, micro_batch_size)", true),
            ("cfg.a = b.seq_length == 4", false),
        ] {
            assert_eq!(decides(code, 1), is, "{code}");
        }
    }
}
