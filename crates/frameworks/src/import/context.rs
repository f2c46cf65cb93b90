//! The surroundings of a file that is read: its name, its environment, its launcher; and the error of one that cannot be read.

use meshwright_engine::model::Model;

/// Surroundings of a file that is read.
pub struct Context<'a> {
    /// Its name, for places.
    pub file: &'a str,
    /// Variables of a script's environment.
    pub variables: &'a [(String, String)],
    /// A script's own arguments.
    pub arguments: &'a [String],
    /// Text of another file that it names, where there is one.
    pub files: &'a dyn Fn(&str) -> Option<String>,
    /// Release of Megatron core that its flags are held to; none for any one release.
    pub release: Option<&'static str>,
    /// Interpreter of Python for a configuration that is to be run; none where it is read without.
    pub python: Option<Interpreter<'a>>,
}

/// Answer of a Python program to a request on its standard input, or a sentence about why there is none.
pub type Interpreter<'a> = &'a dyn Fn(&str, &str) -> Result<String, String>;

impl<'a> Context<'a> {
    /// A file alone.
    pub const fn alone(file: &'a str) -> Self {
        Self { file, variables: &[], arguments: &[], files: &|_| None, release: None, python: None }
    }

    /// Whether the file is Python, by its name.
    pub(crate) fn is_python(&self) -> bool {
        std::path::Path::new(self.file).extension().is_some_and(|extension| extension == "py")
    }

    /// The function that the arguments behind `--` name: `--config llama3_8b`, or the name alone.
    pub(crate) fn configuration(&self) -> Option<&str> {
        self.arguments.iter().map(String::as_str).find(|word| !word.starts_with('-'))
    }
}

/// Settings of a launcher.
#[derive(Clone, Debug, Default)]
pub(crate) struct Launched {
    /// GPUs in all.
    pub world: Option<u32>,
    /// GPUs per node.
    pub gpus_per_node: Option<u32>,
    /// `CUDA_DEVICE_MAX_CONNECTIONS`.
    pub connections: Option<String>,
    /// Whether a script was read, so that a setting that it lacks is unset.
    pub in_script: bool,
    /// The model, where a recipe's name says it.
    pub model: Option<Model>,
    /// Release of Megatron core that the flags are held to.
    pub release: Option<&'static str>,
    /// Stack that prices the run, where it is not Megatron-LM's on NVIDIA's GPUs.
    pub stack: Option<&'static str>,
    /// Whether more is set elsewhere: in a file that this one builds on, or by the program.
    pub open: bool,
}

/// Error of a file that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {why}{}", if expected.is_empty() { String::new() } else { format!("\n\nhint: {expected}") })]
pub struct ImportError {
    /// File name.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Text that was read, and its error.
    pub why: String,
    /// Text that was expected.
    pub expected: String,
}
