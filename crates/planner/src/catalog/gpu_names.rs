//! Devices of the catalogue by the names that tables, drivers and logs give them (`names` in a device's file).

use std::collections::BTreeMap;
use std::sync::OnceLock;

use meshwright_engine::gpu::GpuNames;
use meshwright_engine::suggest;
use serde::Deserialize;

use super::files::GPUS;
use super::parts::head;
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
    let names = |text: &str| parse_toml::<Named>(head(text)).expect("tests read every built-in device").names;
    ALL.get_or_init(|| GPUS.iter().map(|(name, text)| (*name, names(text))).collect())
}

/// The device that a table calls `column`: by its name in the catalogue, in tables or of its driver.
pub fn in_runs(column: &str) -> Option<&'static str> {
    spelt(column).or_else(|| in_driver(column))
}

/// The device of a name in the catalogue or in tables, whatever the case of letters, the separators and the vendor
/// before it (`rtx4090`).
pub(super) fn spelt(text: &str) -> Option<&'static str> {
    static SPELT: OnceLock<BTreeMap<String, &'static str>> = OnceLock::new();
    let names_of = |(name, names): &'static (&'static str, GpuNames)| {
        std::iter::once(*name).chain(names.runs.iter().map(String::as_str)).map(|spelt| (letters(spelt), *name))
    };
    SPELT.get_or_init(|| all().iter().flat_map(names_of).collect()).get(&letters(text)).copied()
}

/// The last device, by name, of those whose catalogue names begin with `text`, or else end with it, whatever the case of letters and the
/// separators: of `A100` and `mi300` the larger one.
pub(super) fn completed(text: &str) -> Option<&'static str> {
    let part = Some(letters(text)).filter(|part| part.len() > 1)?;
    let last = |is: fn(&str, &str) -> bool| GPUS.iter().map(|(name, _)| *name).rfind(|name| is(&letters(name), &part));
    last(|name, part| name.starts_with(part)).or_else(|| last(|name, part| name.ends_with(part)))
}

/// Letters and digits of a name in lower case, without a vendor at its head.
fn letters(name: &str) -> String {
    let bare = suggest::letters(name);
    let vendor = ["nvidia", "amdinstinct", "amd", "intel"].into_iter().find_map(|vendor| bare.strip_prefix(vendor));
    vendor.map_or(bare.clone(), str::to_owned)
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
    fn names_that_differ_in_spelling_alone_belong_to_one_device() {
        let spelt = all().iter().flat_map(|(name, names)| {
            let own = std::iter::once(letters(name)).chain(names.runs.iter().map(|n| letters(n)));
            own.collect::<std::collections::BTreeSet<_>>()
        });
        let mut spelt: Vec<String> = spelt.collect();
        let count = spelt.len();
        spelt.sort();
        spelt.dedup();
        assert_eq!(spelt.len(), count, "{spelt:?}");
        for (text, name) in [
            ("h100", "h100-sxm"),
            ("NVIDIA A100-SXM4-80GB", "a100-80-sxm"),
            ("RTX-4090", "rtx-4090"),
            ("AMD Instinct MI300X", "mi300x"),
            ("TPU v5p", "tpu-v5p"),
            ("Gaudi 3", "gaudi3"),
        ] {
            assert_eq!(in_runs(text), Some(name), "{text}");
        }
        assert_eq!(in_runs("A100"), None, "40 or 80 GB");
    }

    #[test]
    fn names_stand_before_the_first_table() {
        for (name, text) in GPUS {
            let whole: Named = parse_toml(text).unwrap();
            let found = all().iter().find(|(known, _)| known == name).unwrap();
            assert_eq!(found.1, whole.names, "{name}");
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
