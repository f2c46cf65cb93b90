//! Programs of OLMo-core: a function that gives an `ExperimentConfig`, or the functions that `build_config` of its
//! experiments puts one together from.
//!
//! Source: [olmo-core] `script_utils.py`, `internal/experiment.py`, release 2.5.0.

use super::library::OlmoCore;
use super::tree::{holds, list, object};
use crate::import::context::{Context, ImportError};
use crate::import::finding::{Finding, Place, Severity};
use crate::readers::document::{CALLED, Document, Entries, Node, NodeValue, TableEntry, value_of};
use crate::readers::python::{Followed, FunctionSignature};

/// Arguments of a program on its launch line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arguments {
    /// Overrides `path=value` of the program's settings, with their lines.
    overrides: Vec<(String, String, u32)>,
    /// Other options, with their values.
    options: Vec<(String, Option<String>)>,
}

impl Arguments {
    /// Sorts the words of a launch line.
    pub fn of(words: &[(String, u32)]) -> Self {
        let mut found = Self::default();
        let mut words = words.iter().peekable();
        while let Some((word, line)) = words.next() {
            let bare = word.trim_start_matches('-');
            if let Some((path, value)) = bare.split_once('=').filter(|(path, _)| path.contains('.')) {
                found.overrides.push((path.replace('-', "_"), value.to_owned(), *line));
            } else if let Some((name, value)) = bare.split_once('=').filter(|_| word.starts_with("--")) {
                found.options.push((name.replace('-', "_"), Some(value.to_owned())));
            } else if word.starts_with("--") {
                let value = words.next_if(|(next, _)| !next.starts_with("--")).map(|(next, _)| next.clone());
                found.options.push((bare.replace('-', "_"), value));
            }
        }
        found
    }

    fn option(&self, name: &str) -> Option<&Option<String>> {
        self.options.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value)
    }
}

/// Options of the parser that OLMo-core's scripts share, with their defaults; the user gives the values of others.
const SHARED: &[(&str, &str)] =
    &[("name", "None"), ("sequence_length", "None"), ("dry_run", "False"), ("train_single", "False")];

/// Functions that build the parts of an experiment: the argument that names each, and its part.
const BUILDERS: &[(&str, &str)] = &[
    ("model_config_builder", "model"),
    ("train_module_config_builder", "train_module"),
    ("trainer_config_builder", "trainer"),
];

/// Arguments of `build_config` that are not passed on to the function that makes the data.
const OWN: &[&str] = &[
    "common_config_builder",
    "data_config_builder",
    "model_config_builder",
    "train_module_config_builder",
    "trainer_config_builder",
    "finalize_config",
    "tokenizer",
    "global_batch_size",
    "max_sequence_length",
    "beaker_image",
    "num_nodes",
    "beaker_workspace",
    "flight_recorder",
    "num_execution_units",
    "include_default_evals",
];

/// The configuration of a program.
///
/// # Errors
/// The line that is no Python, or a program without such a function.
pub(super) fn read(
    source: &str,
    context: &Context,
    library: &OlmoCore,
    arguments: &Arguments,
) -> Result<Document, ImportError> {
    let mut followed = Followed::new(source, context, library)?;
    let bad = |why: String, expected: &str| ImportError {
        file: context.file.into(),
        line: 1,
        why,
        expected: expected.into(),
    };
    let wanted = context.configuration();
    let offered = followed.returning("ExperimentConfig");
    let chosen = match wanted {
        Some(name) => offered.iter().find(|known| known.name == name),
        None => offered.first().filter(|_| offered.len() == 1),
    };
    let builders = followed.partials().into_iter().find(|(name, _)| name.rsplit('.').next() == Some("build_config"));
    let root = if let Some(FunctionSignature { name, positional }) = chosen {
        let options = options(&followed, arguments);
        let given = positional.iter().zip(0_u32..).map(|(parameter, place)| {
            let node = match parameter.as_str() {
                "opts" | "args" | "options" => options.clone(),
                "overrides" => list(Vec::new(), 1),
                "cli_context" | "cli" => command_line(),
                _ => Node::quoted("run", 1),
            };
            TableEntry::new(place.to_string(), 1, node)
        });
        let given: Entries = given.collect();
        followed.call(name, &given)
    } else if let Some((_, given)) = builders {
        experiment(&mut followed, &given)
    } else if offered.len() > 1 {
        let names: Vec<&str> = offered.iter().map(|known| known.name.as_str()).collect();
        let expected = format!("one of them behind `--`: -- --config {}", names.join(" | "));
        return Err(bad(format!("{} functions give an ExperimentConfig", names.len()), &expected));
    } else {
        let why = "no function here gives an `ExperimentConfig`, and none of the experiments' `build_config` is called";
        return Err(bad(why.into(), "a program that trains, with `def build_config(…) -> ExperimentConfig`"));
    };
    let root = root.filter(|root| matches!(root.value, NodeValue::Map(_)));
    let root =
        root.ok_or_else(|| bad("the `ExperimentConfig` of this program is not read".into(), "constants in it"))?;
    let (mut document, open) = followed.document(root)?;
    strictly(&document, source);
    if context.python.is_some() {
        document.note(Finding::note("assumed", "programs of OLMo-core are read, not run: --run-python has no effect"));
    }
    for (path, value, line) in &arguments.overrides {
        document.put(path, if value == "null" { "None" } else { value }, *line);
    }
    let replaced = |path: &str| arguments.overrides.iter().any(|(key, ..)| key == path);
    for (path, line) in open.iter().filter(|(path, _)| decides(path) && !replaced(path)) {
        let message = format!("`{path}` depends on running the program");
        let place = Place { file: context.file.to_owned(), line: *line };
        document.note(
            Finding::error("unread-setting", message)
                .at(&place)
                .expected("a constant, or the setting behind the program's name on its launch line"),
        );
    }
    Ok(document)
}

/// Parts of the train module that bear on no step.
const APART: &[&str] = &[
    "train_module.optim.",
    "train_module.scheduler",
    "train_module.max_grad_norm",
    "train_module.z_loss_multiplier",
    "train_module.state_dict",
    "train_module.load_key_mapping",
    "train_module.label_ignore_index",
    "model.init_",
    "model.embedding_init_std",
];

/// Whether a setting bears on the step.
fn decides(path: &str) -> bool {
    let whole = path.is_empty() || ["model", "train_module", "data_loader", "dataset"].contains(&path);
    let part = path.starts_with("model.") || path.starts_with("train_module.");
    let sized = ["dataset.sequence_length", "data_loader.global_batch_size"].contains(&path);
    whole || sized || (part && !APART.iter().any(|apart| path.starts_with(apart)))
}

/// Names of settings that affect the training, in lines that are not read.
const DECISIVE: &[&str] = &[
    "_config.",
    "ac_config",
    "dp_config",
    "tp_config",
    "cp_config",
    "ep_config",
    "pp_config",
    "float8_config",
    "compile_model",
    "train_module",
    "batch",
    "sequence_length",
    "degree",
    "replicas",
    "dtype",
    "block",
    "n_layers",
    "d_model",
];

/// Makes errors of lines that were not read and that set what decides, and one note of the others: what is not known in
/// a part of the configuration that decides is named by its path.
fn strictly(document: &Document, source: &str) {
    let lines: Vec<&str> = source.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let sets = |line: &&str| {
        let code = line.split('#').next().unwrap_or_default().trim();
        let target = code.split_once('=').map_or(code, |(target, _)| target);
        !code.starts_with('.') && DECISIVE.iter().any(|word| target.contains(word))
    };
    let (mut left, mut others): (Vec<Finding>, Vec<u32>) = (Vec::new(), Vec::new());
    for mut finding in document.findings.take() {
        let own = |place: &&Place| finding.rule == "not-read" && place.file == document.file();
        let place = finding.place.as_ref().filter(own).map(|place| place.line);
        let at = place.and_then(|line| (line as usize).checked_sub(1)).filter(|at| *at < lines.len());
        let (Some(at), Some(line)) = (at, place) else {
            left.push(finding);
            continue;
        };
        let opens = lines[at].trim_end().ends_with(':');
        let below = lines[at + 1..].iter();
        let below = below.take_while(|line| line.trim().is_empty() || indent(line) > indent(lines[at]));
        if std::iter::once(&lines[at]).chain(below.filter(|_| opens)).any(sets) {
            finding.level = Severity::Error;
            left.push(finding);
        } else {
            others.push(line);
        }
    }
    if let Some(first) = others.first() {
        let all: Vec<String> = others.iter().map(ToString::to_string).collect();
        let message =
            format!("what lines {} set depends on running the program: data, evaluation or folders", all.join(", "));
        let place = Place { file: document.file().to_owned(), line: *first };
        left.push(Finding::note("not-read", message).at(&place));
    }
    *document.findings.borrow_mut() = left;
}

/// The command line's own object.
fn command_line() -> Node {
    object(
        "CliContext",
        [
            ("overrides", list(Vec::new(), 1)),
            ("run_name", Node::quoted("run", 1)),
            ("script", Node::quoted("script", 1)),
        ],
        1,
    )
}

/// Options of a program's parser: as the launch line gives them, else their defaults.
fn options(followed: &Followed, arguments: &Arguments) -> Node {
    let word_of = |value: &str| {
        if value.parse::<f64>().is_ok() { Node::bare(value, 1) } else { Node::quoted(value, 1) }
    };
    let mut found: Vec<(String, Node)> =
        SHARED.iter().map(|(name, value)| ((*name).to_owned(), Node::bare(*value, 1))).collect();
    for call in followed.calls_of("add_argument") {
        let get = |key: &str| value_of(&call, key);
        let names = call.iter().filter(|entry| entry.key.parse::<u32>().is_ok());
        let mut flag = names.filter_map(|entry| {
            if let NodeValue::Scalar { text, quoted: true } = &entry.value.value { Some(text) } else { None }
        });
        let Some(flag) = flag.rfind(|name| name.starts_with("--")) else { continue };
        let name = flag.trim_start_matches('-').replace('-', "_");
        let switch = get("action")
            .is_some_and(|node| matches!(&node.value, NodeValue::Scalar { text, .. } if text == "store_true"));
        let required = get("required").and_then(holds) == Some(true);
        let usual = match get("default") {
            Some(node) => node.clone(),
            None if switch => Node::bare("False", 1),
            None if required => continue,
            None => Node::bare("None", 1),
        };
        found.retain(|(known, _)| *known != name);
        found.push((name, usual));
    }
    for (name, value) in &mut found {
        if let Some(given) = arguments.option(name) {
            *value = given.as_deref().map_or_else(|| Node::bare("True", 1), word_of);
        }
    }
    object("Namespace", found, 1)
}

/// `build_config` of its experiments, away from Beaker: `launch` is None there.
fn experiment(followed: &mut Followed, given: &Entries) -> Option<Node> {
    let get = |key: &str| value_of(given, key).cloned();
    let name_of = |key: &str| match get(key)?.value {
        NodeValue::Scalar { text: name, quoted: false } => Some(name),
        NodeValue::Scalar { .. } | NodeValue::Map(_) | NodeValue::List(_) => None,
    };
    let dolma = || object("TokenizerConfig", [("vocab_size", Node::bare("100278", 1))], 1);
    let mut common = vec![
        ("run_name", Node::quoted("run", 1)),
        ("launch", Node::bare("None", 1)),
        ("tokenizer", get("tokenizer").unwrap_or_else(dolma)),
        ("max_sequence_length", get("max_sequence_length").unwrap_or_else(|| Node::bare("4096", 1))),
    ];
    common.extend(get("global_batch_size").map(|node| ("global_batch_size", node)));
    let common = match name_of("common_config_builder") {
        None => object("CommonComponents", common, 1),
        Some(name) => {
            let own = common
                .into_iter()
                .filter(|(key, _)| ["tokenizer", "max_sequence_length", "global_batch_size"].contains(key));
            let mut all: Entries = vec![TableEntry::new("0", 1, command_line())];
            all.extend(own.map(|(key, node)| TableEntry::new(key, 1, node)));
            followed.call(&name, &all)?
        }
    };
    let field = |key: &str| super::tree::field(&common, key).cloned();
    let mut parts: Vec<(String, Node)> = Vec::new();
    let mut all: Entries = vec![TableEntry::new("0", 1, common.clone())];
    if let Some(name) = name_of("data_config_builder") {
        all.extend(given.iter().filter(|entry| !OWN.contains(&entry.key.as_str()) && entry.key != CALLED).cloned());
        let data = followed.call(&name, &all)?;
        for key in ["dataset", "data_loader"] {
            parts.extend(super::tree::field(&data, key).map(|node| (key.to_owned(), node.clone())));
        }
    } else {
        let length = field("max_sequence_length").map(|node| ("sequence_length", node));
        let batch = field("global_batch_size").map(|node| ("global_batch_size", node));
        parts.push(("dataset".into(), object("NumpyFSLDatasetConfig", length, 1)));
        parts.push(("data_loader".into(), object("NumpyDataLoaderConfig", batch, 1)));
    }
    for (key, part) in BUILDERS {
        let given = name_of(key).and_then(|name| followed.call(&name, &vec![TableEntry::new("0", 1, common.clone())]));
        // What trains is asked for by name where it is missing.
        parts.extend(given.map(|node| ((*part).to_owned(), node)));
    }
    let config = object("ExperimentConfig", parts, 1);
    match name_of("finalize_config") {
        Some(name) => followed.object_after_call(&name, config),
        None => Some(config),
    }
}
