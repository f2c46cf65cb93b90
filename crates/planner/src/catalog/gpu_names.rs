//! Devices of the catalogue by the names that tables, drivers and logs give them (`names` in a device's file).

use std::sync::OnceLock;

use meshwright_engine::gpu::GpuNames;
use serde::Deserialize;

use super::files::GPUS;
use super::typed::parse_toml;

/// The part of a device's file that names it.
#[derive(Deserialize)]
struct Named {
    #[serde(default)]
    names: GpuNames,
}

/// Catalogue name and other names of every built-in device.
fn all() -> &'static [(&'static str, GpuNames)] {
    static ALL: OnceLock<Vec<(&'static str, GpuNames)>> = OnceLock::new();
    let names = |text: &str| parse_toml::<Named>(text).expect("tests read every built-in device").names;
    ALL.get_or_init(|| GPUS.iter().map(|(name, text)| (*name, names(text))).collect())
}

/// The device that a table calls `column`, by its own name or one of the catalogue.
pub fn in_runs(column: &str) -> Option<&'static str> {
    let named = |(name, names): &&(&'static str, GpuNames)| *name == column || names.runs.iter().any(|n| n == column);
    all().iter().find(named).map(|(name, _)| *name)
}

/// The device that a user calls `text`, by its name in the catalogue or in tables, in any case of letters.
pub(super) fn ignoring_case(text: &str) -> Option<&'static str> {
    let same = |name: &str| name.eq_ignore_ascii_case(text);
    all().iter().find(|(name, names)| same(name) || names.runs.iter().any(|n| same(n))).map(|(name, _)| *name)
}

/// The name in tables of a device of the catalogue.
pub fn for_runs(catalogue_name: &str) -> Option<&'static str> {
    let (_, names) = all().iter().find(|(name, _)| *name == catalogue_name)?;
    names.runs.first().map(String::as_str)
}

/// The device that a driver calls `text`: the one with the longest part of a name in it.
pub fn in_driver(text: &str) -> Option<&'static str> {
    longest(text, |names| &names.driver)
}

/// The device that a log calls `text`: the one with the longest part of a name in it.
pub fn in_log(text: &str) -> Option<&'static str> {
    longest(text, |names| &names.log)
}

fn longest(text: &str, parts: impl Fn(&'static GpuNames) -> &'static [String]) -> Option<&'static str> {
    let length = |names| parts(names).iter().filter(|part| text.contains(part.as_str())).map(String::len).max();
    let found = all().iter().filter_map(|(name, names)| Some((length(names)?, *name)));
    found.max_by_key(|(length, _)| *length).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_belongs_to_one_device() {
        for list in [|n: &'static GpuNames| &n.runs, |n: &'static GpuNames| &n.driver, |n: &'static GpuNames| &n.log] {
            let mut names: Vec<&String> = all().iter().flat_map(|(_, names)| list(names)).collect();
            let count = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count, "a name stands in two files: {names:?}");
        }
    }

    #[test]
    fn the_longest_part_decides() {
        assert_eq!(in_driver("NVIDIA H100 80GB HBM3"), Some("h100-sxm"));
        assert_eq!(in_driver("NVIDIA GB200"), Some("gb200"));
        assert_eq!(in_driver("NVIDIA A100-SXM4-40GB"), Some("a100-40-sxm"));
        assert_eq!(in_driver("NVIDIA GeForce RTX 4090"), Some("rtx-4090"));
        assert_eq!(in_driver("NVIDIA GeForce GTX 1080"), None);
        assert_eq!(in_log("NVIDIA H100"), Some("h100-sxm"));
        assert_eq!(for_runs("h100-sxm"), Some("H100"));
        assert_eq!(in_runs("H100-80GB"), Some("h100-sxm"));
        assert_eq!(in_runs("h100-sxm"), Some("h100-sxm"));
        assert_eq!(in_runs("H1000"), None);
    }
}
