//! Settings of a plan as columns of the answer and as words.

use meshwright_engine::cost::Evaluation;
use meshwright_engine::plan::{CpKind, Plan, RankOrder, Recompute, ZeroStage};
use meshwright_engine::problem::Problem;
use meshwright_engine::schedule::Schedule;
use meshwright_engine::split::LayerSplit;
use meshwright_engine::stack::Dispatcher;
use meshwright_frameworks::fused_exchange_backend;

/// One setting of a plan.
pub(super) struct Setting {
    /// Head of its column.
    pub(super) name: &'static str,
    /// Its value in a table; none for plans that it does not apply to.
    pub(super) value: fn(&Plan) -> Option<String>,
    /// Its value in words; none for a launcher's default.
    words: fn(&Plan) -> Option<String>,
}

impl Setting {
    /// Its value in words, as it is launched on a problem's machine; none for a launcher's default.
    pub(super) fn in_words(&self, problem: &Problem, plan: &Plan) -> Option<String> {
        let words = (self.words)(plan)?;
        let is_fused = self.name == DISPATCHER && plan.dispatcher == Dispatcher::DeepEp;
        Some(match fused_exchange_backend(problem).filter(|_| is_fused) {
            Some(backend) => format!("{DISPATCHER} {backend}"),
            None => words,
        })
    }

    /// Plans that it applies to, where those are not all.
    fn where_applied(&self) -> &'static str {
        match self.name {
            "SP" => "TP > 1",
            "CP by" => "CP > 1",
            DISPATCHER => "EP > 1",
            "reshard" => "ZeRO 3",
            _ => "PP > 1",
        }
    }

    /// Value in words that all plans share, with the condition under which it applies where not every plan meets that; none for a
    /// launcher's default.
    pub(super) fn shared_words(&self, problem: &Problem, plans: &[&Evaluation]) -> Option<String> {
        let words = plans.iter().find_map(|evaluation| self.in_words(problem, &evaluation.plan))?;
        let applies = |evaluation: &&Evaluation| (self.value)(&evaluation.plan).is_some();
        let everywhere = plans.iter().all(applies);
        Some(if everywhere { words } else { format!("{words} where {}", self.where_applied()) })
    }

    /// Whether plans that it applies to have several values.
    pub(super) fn differs(&self, plans: &[&Evaluation]) -> bool {
        let mut values = plans.iter().filter_map(|evaluation| (self.value)(&evaluation.plan));
        let first = values.next();
        values.any(|value| Some(value) != first)
    }
}

/// Name of the setting by which tokens reach their experts.
const DISPATCHER: &str = "dispatcher";

/// Settings with a column of their own.
pub(super) const DEGREES: [Setting; 9] = [
    Setting { name: "TP", value: |plan| Some(plan.layout.tp.to_string()), words: |plan| degree("TP", plan.layout.tp) },
    Setting { name: "CP", value: |plan| Some(plan.layout.cp.to_string()), words: |plan| degree("CP", plan.layout.cp) },
    Setting { name: "PP", value: |plan| Some(plan.layout.pp.to_string()), words: |plan| degree("PP", plan.layout.pp) },
    Setting {
        name: "VPP",
        value: |plan| Some(plan.schedule.virtual_stages().to_string()),
        words: |plan| match plan.schedule.virtual_stages() {
            chunks if plan.layout.pp > 1 && chunks > 1 => Some(format!("{chunks} chunks a rank")),
            _ => None,
        },
    },
    Setting { name: "EP", value: |plan| Some(plan.layout.ep.to_string()), words: |plan| degree("EP", plan.layout.ep) },
    Setting {
        name: "ETP",
        value: |plan| Some(plan.layout.etp.to_string()),
        words: |plan| degree("ETP", plan.layout.etp),
    },
    Setting { name: "DP", value: |plan| Some(plan.layout.dp.to_string()), words: |plan| degree("DP", plan.layout.dp) },
    Setting {
        name: "mbs",
        value: |plan| Some(plan.micro_batch.to_string()),
        words: |plan| Some(format!("micro-batch {}", plan.micro_batch)),
    },
    Setting { name: "recompute", value: |plan| Some(recompute(plan)), words: |plan| Some(recomputation(plan)) },
];

/// Settings that share one column, named only where a plan differs from a launcher's default.
pub(super) const OTHERS: [Setting; 10] = [
    Setting { name: "ZeRO", value: |plan| Some(zero(plan)), words: |plan| Some(zero(plan)) },
    Setting {
        name: "shard",
        value: |plan| Some(plan.shard_group.map_or_else(|| "-".into(), |group| group.to_string())),
        words: |plan| plan.shard_group.map(|group| format!("shards of {group}")),
    },
    Setting {
        name: "reshard",
        value: |plan| (plan.zero == ZeroStage::Three).then(|| plan.reshard_after_forward.to_string()),
        words: |plan| (!plan.reshard_after_forward).then(|| "weights kept".into()),
    },
    Setting { name: "offload", value: |plan| Some(offload(plan).unwrap_or_default()), words: offload },
    Setting {
        name: "schedule",
        value: |plan| (plan.layout.pp > 1).then(|| schedule(plan)),
        words: |plan| (plan.layout.pp > 1).then(|| schedule(plan)),
    },
    Setting {
        name: "split",
        value: |plan| (plan.layout.pp > 1).then(|| plan.split.to_string()),
        words: |plan| match &plan.split {
            _ if plan.layout.pp == 1 => None,
            LayerSplit::Even => None,
            LayerSplit::Stages(_) => Some("listed stages".into()),
            split => Some(format!("{split} stages")),
        },
    },
    Setting {
        name: "SP",
        value: |plan| (plan.layout.tp > 1).then(|| plan.sequence_parallel.to_string()),
        words: |plan| {
            let words = if plan.sequence_parallel { "sequence parallel" } else { "no sequence parallelism" };
            (plan.layout.tp > 1).then(|| words.into())
        },
    },
    Setting {
        name: "CP by",
        value: |plan| (plan.layout.cp > 1).then(|| exchange(plan).into()),
        words: |plan| (plan.layout.cp > 1).then(|| format!("CP by {}", exchange(plan))),
    },
    Setting {
        name: DISPATCHER,
        value: |plan| (plan.layout.ep > 1).then(|| plan.dispatcher.to_string()),
        words: |plan| (plan.layout.ep > 1).then(|| format!("{DISPATCHER} {}", plan.dispatcher)),
    },
    Setting {
        name: "order",
        value: |plan| (plan.layout.pp > 1 && plan.layout.dp > 1).then(|| plan.order.to_string()),
        words: |plan| (plan.order != RankOrder::default()).then(|| "DP outside PP".into()),
    },
];

/// Words of settings, and their short forms in a table.
const BRIEF: [(&str, &str); 5] = [
    ("interleaved 1F1B", "interleaved"),
    ("cost-balanced stages", "cost-balanced"),
    (" of activations on the host", " act. on host"),
    (" of optimizer on the host", " opt. on host"),
    ("CP by ", ""),
];

/// Words of a setting, shortened for a cell.
pub(super) fn brief(words: String) -> String {
    BRIEF.iter().fold(words, |words, (long, short)| words.replace(long, short))
}

/// Every setting, degrees first.
pub(super) fn all() -> impl Iterator<Item = Setting> {
    DEGREES.into_iter().chain(OTHERS)
}

/// All settings of a plan in words, degrees first: `TP 8 · PP 16, 8 chunks a rank · DP 96, ZeRO 1 · micro-batch 1`.
pub fn describe(problem: &Problem, plan: &Plan) -> String {
    let groups: [&[&str]; 8] = [
        &["TP", "SP"],
        &["CP", "CP by"],
        &["PP", "VPP", "schedule", "split"],
        &["EP", "ETP", DISPATCHER],
        &["DP", "ZeRO", "shard", "reshard", "order"],
        &["mbs"],
        &["recompute"],
        &["offload"],
    ];
    let words = |names: &[&str]| {
        let settings = all().filter(|setting| names.contains(&setting.name));
        settings.filter_map(|setting| setting.in_words(problem, plan)).collect::<Vec<_>>().join(", ")
    };
    groups.into_iter().map(words).filter(|group| !group.is_empty()).collect::<Vec<_>>().join(" · ")
}

/// Degrees of a plan in words: `TP 8 · CP 2 · PP 16 · DP 96`.
pub(super) fn degrees(plan: &Plan) -> String {
    let degrees = DEGREES.into_iter().filter(|setting| setting.name.ends_with('P') && setting.name != "VPP");
    degrees.filter_map(|setting| (setting.words)(plan)).collect::<Vec<_>>().join(" · ")
}

/// Degrees of a plan in words; of one with the degrees of `other`, the settings that differ: `micro-batch 4 · full
/// recomputation`. All settings where it only lacks what the other has.
pub(super) fn unlike(problem: &Problem, plan: &Plan, other: &Plan) -> String {
    let own = degrees(plan);
    if own != degrees(other) {
        return own;
    }
    let differing = all().filter(|setting| (setting.value)(plan) != (setting.value)(other));
    let words: Vec<String> = differing.filter_map(|setting| setting.in_words(problem, plan)).collect();
    if words.is_empty() { describe(problem, plan) } else { words.join(" · ") }
}

/// Words of a degree, unless it is 1.
fn degree(name: &str, degree: u32) -> Option<String> {
    (degree > 1).then(|| format!("{name} {degree}"))
}

fn schedule(plan: &Plan) -> String {
    match plan.schedule {
        Schedule::OneFOneB => "1F1B".into(),
        Schedule::Interleaved { .. } => "interleaved 1F1B".into(),
        other => other.name().into(),
    }
}

fn zero(plan: &Plan) -> String {
    if plan.zero == ZeroStage::Zero { "no ZeRO".into() } else { format!("ZeRO {}", u8::from(plan.zero)) }
}

/// Exchange of context parallelism by its usual name.
const fn exchange(plan: &Plan) -> &'static str {
    match plan.cp_kind {
        CpKind::Ring => "ring",
        CpKind::AllGather => "all-gather",
        CpKind::AllToAll => "all-to-all",
        CpKind::Hierarchical => "all-to-all and ring",
    }
}

/// Recomputed modules by short names.
fn recompute(plan: &Plan) -> String {
    match plan.recompute {
        Recompute::None => "-".into(),
        Recompute::Selective(_) => {
            let modules = plan.recompute.to_string();
            modules.replace("layernorm", "ln").replace("mla_up_proj", "mla").replace("core_attn", "attn")
        }
        other => other.to_string(),
    }
}

fn recomputation(plan: &Plan) -> String {
    match plan.recompute {
        Recompute::None => "no recomputation".into(),
        Recompute::Full => "full recomputation".into(),
        Recompute::PerOp => "per-op recomputation".into(),
        Recompute::EveryOther => "every other layer recomputed".into(),
        Recompute::FirstLayers(1) => "first layer of each chunk recomputed".into(),
        Recompute::FirstLayers(n) => format!("first {n} layers of each chunk recomputed"),
        Recompute::Selective(_) => format!("{} recomputed", plan.recompute.to_string().replace('+', ", ")),
    }
}

fn offload(plan: &Plan) -> Option<String> {
    let shares = [(plan.offload.activations, "activations"), (plan.offload.optimizer, "optimizer")];
    let used = shares.into_iter().filter(|(share, _)| *share > 0.0);
    let used: Vec<String> = used.map(|(share, of)| format!("{:.0} % of {of} on the host", share * 100.0)).collect();
    (!used.is_empty()).then(|| used.join(", "))
}
