//! Lists the data files of `models/` and `clusters/`, so that a new file needs no line of code.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Folder below the root, and the name of its list.
const FOLDERS: [(&str, &str); 10] = [
    ("models", "MODELS"),
    ("clusters", "CLUSTERS"),
    ("clusters/discrepancy", "DISCREPANCY"),
    ("clusters/fits", "FITS"),
    ("clusters/gpus", "GPUS"),
    ("clusters/intervals", "INTERVALS"),
    ("clusters/layouts", "LAYOUTS"),
    ("clusters/prices", "PRICES"),
    ("clusters/stacks", "STACKS"),
    ("clusters/transports", "TRANSPORTS"),
];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let is_wasm = env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|name| name == "wasm32");
    let root = Path::new(&env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../..");
    let mut code = String::new();
    for (folder, list) in FOLDERS {
        let folder = root.join(folder);
        println!("cargo::rerun-if-changed={}", folder.display());
        writeln!(code, "/// Name and text of each file of the folder, sorted by name.").expect("a string takes text");
        writeln!(code, "pub const {list}: &[(&str, &str)] = &[").expect("a string takes text");
        for path in toml_files(&folder) {
            let name = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
            let path = if is_wasm { stripped_copy(&path, &out.join(format!("{list}-{name}.toml"))) } else { path };
            writeln!(code, "    ({name:?}, include_str!({:?})),", path.display().to_string())
                .expect("a string takes text");
        }
        code.push_str("];\n");
    }
    fs::write(out.join("files.rs"), code).expect("the build folder can be written");
}

/// Prefixes of lines that the wasm32 build leaves out: comments, and of fitted constants their values without some of the runs (`folds`),
/// the number of rows (`rows`) and the value of the specification (`was`).
const OMITTED_PREFIXES: [&str; 4] = ["#", "folds = ", "rows = ", "was = "];

/// Copy of a file without the lines that a browser has no use for, or that hold nothing.
fn stripped_copy(file: &Path, copy: &Path) -> PathBuf {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let is_used = |line: &&str| {
        let line = line.trim_start();
        !line.is_empty() && !OMITTED_PREFIXES.iter().any(|start| line.starts_with(start))
    };
    let lines: Vec<&str> = text.lines().filter(is_used).collect();
    fs::write(copy, lines.join("\n")).expect("the build folder can be written");
    copy.to_owned()
}

/// TOML files of a folder without its subfolders, sorted by name.
fn toml_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a folder lists its files").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .map(|path| path.canonicalize().expect("a listed file exists"))
        .collect();
    paths.sort_by_key(|path| path.file_stem().map(ToOwned::to_owned));
    paths
}
