//! Flags in the words of one release of Megatron core: renamed, left out where their absence means the same, or refused.

use super::written_text;
use crate::emit::flags::{FlagGroup, FlagSetting, FlagValue};
use crate::megatron::flags::{APART, Arity, FlagPair, Releases, flags};
use meshwright_planner::limits::Obstacle;

/// Substitute of a flag in an older release.
enum Former {
    /// A switch of another name.
    Switch(&'static str),
    /// Another name for the same words.
    Name(&'static str),
    /// Nothing: the release does the same without it.
    Nothing,
    /// Nothing: the release does not do it, which the note says.
    Lost(&'static str),
}

const ROUTER: &str = "the prediction is of fused routers, which Megatron core has from 0.14 on";
const GRAPHS: &str = "the prediction assumed CUDA graphs of modules, which are flags of Megatron core 0.16 and later";

/// Flags that older releases lack, each with the older flag in its place, the newest first.
///
/// Source: [megatron-lm] `megatron/training/arguments.py` and `megatron/core/transformer/transformer_config.py` of 0.12 to 0.19.
const FORMER: &[(&str, &[Former])] = &[
    ("moe-flex-dispatcher-backend", &[Former::Switch("moe-enable-deepep")]),
    ("moe-router-padding-for-quantization", &[Former::Switch("moe-router-padding-for-fp8"), Former::Nothing]),
    // Before, FSDP reads `--accumulate-allreduce-grads-in-fp32`.
    ("megatron-fsdp-main-grads-dtype", &[Former::Nothing]),
    ("flash-attention-version", &[Former::Lost("the newest FlashAttention that is installed runs: no flag chooses")]),
    ("cuda-graph-modules", &[Former::Name("cuda-graph-scope"), Former::Lost(GRAPHS)]),
    ("cuda-graph-impl", &[Former::Nothing]),
    ("moe-router-fusion", &[Former::Lost(ROUTER)]),
    // Latent attention had YaRN before there was a flag.
    ("rope-type", &[Former::Nothing]),
];

/// Puts the settings of groups into the words of a release; gives the releases that take all of them.
///
/// # Errors
/// One obstacle for each flag that the release lacks, and in whose place it has nothing.
pub(super) fn adapt<'g>(
    groups: impl Iterator<Item = &'g mut FlagGroup>,
    name: &str,
    notes: &mut Vec<String>,
) -> Result<Releases, Vec<Obstacle>> {
    let release = Releases::named(name);
    let (mut common, mut obstacles) = (Releases::all(), Vec::new());
    let groups: Vec<_> = groups.collect();
    let is = |setting: &FlagSetting, text: &str| setting.flag == text || written_text(setting)[2..] == *text;
    let has = |text: &str| groups.iter().any(|group| group.settings.iter().any(|setting| is(setting, text)));
    for FlagPair { one, other, first } in APART.iter().filter(|pair| has(pair.one) && has(pair.other)) {
        let together = Releases::since(first);
        common = common.and(together);
        if together.and(release).is_empty() {
            let why = format!("Megatron core {together} takes them together, {name} does not");
            obstacles.push(Obstacle::of_model(format!("--{one} --{other}"), why));
        }
    }
    for group in groups {
        let mut kept = Vec::with_capacity(group.settings.len());
        for setting in std::mem::take(&mut group.settings) {
            match in_release(setting, release, notes) {
                Ok(Some(setting)) => {
                    common = common.and(releases_of(&setting));
                    kept.push(setting);
                }
                Ok(None) => {}
                Err(setting) => obstacles.push(Obstacle::of_model(
                    written_text(&setting),
                    format!("it is of Megatron core {}, not of {name}", releases_of(&setting)),
                )),
            }
        }
        group.settings = kept;
    }
    if obstacles.is_empty() { Ok(common) } else { Err(obstacles) }
}

/// A setting as the release takes it; none where it is left out. The error is a setting that the release lacks.
fn in_release(
    setting: FlagSetting,
    release: Releases,
    notes: &mut Vec<String>,
) -> Result<Option<FlagSetting>, FlagSetting> {
    let takes = |setting: &FlagSetting| !releases_of(setting).and(release).is_empty();
    // Before modules are a list, the flags of CUDA graphs mean other graphs.
    let no_graphs = setting.flag.starts_with("cuda-graph-") && !lists_modules(release);
    if takes(&setting) && !no_graphs {
        return Ok(Some(setting));
    }
    let former = FORMER.iter().find(|(flag, _)| *flag == setting.flag).map_or(&[][..], |(_, former)| *former);
    for former in former {
        let renamed = match former {
            Former::Switch(flag) => FlagSetting { flag, value: FlagValue::On },
            Former::Name(flag) => FlagSetting { flag, value: setting.value.clone() },
            Former::Nothing => return Ok(None),
            Former::Lost(note) => {
                notes.push((*note).into());
                return Ok(None);
            }
        };
        if takes(&renamed) && !no_graphs {
            return Ok(Some(renamed));
        }
    }
    Err(setting)
}

/// Whether CUDA graphs of a release take a list of modules, under their present name or the former.
fn lists_modules(release: Releases) -> bool {
    let names = ["--cuda-graph-modules", "--cuda-graph-scope"];
    let forms = names.into_iter().filter_map(|name| flags().get(name)).flat_map(|flag| &flag.forms);
    forms.filter(|form| form.arity == Arity::Rest).any(|form| !form.releases.and(release).is_empty())
}

/// Releases that take a setting.
fn releases_of(setting: &FlagSetting) -> Releases {
    let words: Vec<&str> = match &setting.value {
        FlagValue::On => Vec::new(),
        FlagValue::Word(word) => vec![word],
        FlagValue::Words(words) => words.iter().map(String::as_str).collect(),
    };
    let flag = flags().get(format!("--{}", setting.flag).as_str());
    let forms = flag.map_or(&[][..], |flag| &flag.forms);
    let holds = |arity| match arity {
        Arity::Exactly(count) => words.len() == count,
        Arity::Rest => !words.is_empty(),
        Arity::Switch => words.is_empty(),
    };
    let taken = flag.map_or(Releases::none(), |flag| flag.releases_of(&words));
    forms.iter().filter(|form| holds(form.arity)).fold(Releases::none(), |all, form| all.or(form.releases)).and(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(group: &FlagGroup) -> Vec<String> {
        group.settings.iter().map(written_text).collect()
    }

    fn graphs() -> FlagGroup {
        let mut group = FlagGroup::default();
        group.set("cuda-graph-impl", "transformer_engine");
        group.list("cuda-graph-modules", ["attn", "moe_router"]);
        group.set("moe-flex-dispatcher-backend", "deepep");
        group
    }

    #[test]
    fn flags_are_renamed_and_left_out() {
        let read = |release| {
            let (mut group, mut notes) = (graphs(), Vec::new());
            let releases = adapt(std::iter::once(&mut group), release, &mut notes).unwrap();
            (texts(&group), releases.to_string(), notes.len())
        };
        let (newest, releases, notes) = read("0.20");
        assert_eq!((newest.len(), releases.as_str(), notes), (3, "0.18 and later", 0));
        let (former, releases, _) = read("0.17");
        assert_eq!(former[1], "--cuda-graph-scope attn moe_router");
        assert_eq!(releases, "0.16 and later", "the former name is kept");
        let (oldest, releases, notes) = read("0.13");
        let mut dense = FlagGroup::default();
        dense.set("cuda-graph-impl", "transformer_engine");
        dense.list("cuda-graph-modules", ["attn"]);
        adapt(std::iter::once(&mut dense), "0.15", &mut Vec::new()).unwrap();
        assert!(dense.settings.is_empty(), "one word is no list");
        assert_eq!((oldest, releases.as_str(), notes), (vec!["--moe-enable-deepep".to_owned()], "0.12 and later", 1));
    }

    #[test]
    fn what_a_release_takes_apart_alone_is_refused() {
        let both = || {
            let mut group = FlagGroup::default();
            group.on("moe-grouped-gemm");
            group.on("fp16");
            group
        };
        let refused = adapt(std::iter::once(&mut both()), "0.13", &mut Vec::new()).unwrap_err();
        assert_eq!(
            refused[0].to_string(),
            "--moe-grouped-gemm --fp16: Megatron core 0.16 and later takes them together, 0.13 does not"
        );
        let releases = adapt(std::iter::once(&mut both()), "0.17", &mut Vec::new()).unwrap();
        assert_eq!(releases.to_string(), "0.16 and later");
    }

    #[test]
    fn what_a_release_cannot_do_is_refused() {
        let mut group = FlagGroup::default();
        group.set("softmax-type", "learnable");
        let refused = adapt(std::iter::once(&mut group), "0.14", &mut Vec::new()).unwrap_err();
        assert_eq!(refused[0].what, "--softmax-type learnable");
        assert_eq!(refused[0].why, "it is of Megatron core 0.15 and later, not of 0.14");
    }
}
