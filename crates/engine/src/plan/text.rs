//! Text form of a plan and its parser: `tp=8 cp=1 pp=16 vpp=8 zero=1 mbs=1`.

use std::fmt;

use super::{CpKind, Layout, Modules, Plan, RankOrder, Recompute, ZeroStage};
use crate::problem::Problem;
use crate::range;
use crate::schedule::Schedule;
use crate::split::nanotron;
use crate::stack::{Dispatcher, Family};
use crate::suggest;
use crate::units::thousands;

/// Keys of a plan's text, for hints.
pub const KEYS: [&str; 20] = [
    "tp",
    "cp",
    "pp",
    "dp",
    "ep",
    "etp",
    "sp",
    "cp-kind",
    "schedule",
    "vpp",
    "split",
    "zero",
    "shard",
    "reshard",
    "mbs",
    "recompute",
    "offload-optimizer",
    "offload-activations",
    "dispatcher",
    "order",
];

impl fmt::Display for CpKind {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Self::Ring => "p2p",
            Self::AllGather => "allgather",
            Self::AllToAll => "a2a",
            Self::Hierarchical => "a2a+p2p",
        })
    }
}

impl fmt::Display for RankOrder {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Self::PipelineOutermost => "tp-cp-ep-dp-pp",
            Self::DataOutermost => "tp-cp-ep-pp-dp",
        })
    }
}

impl fmt::Display for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Self::AllToAll => "alltoall",
            Self::DeepEp => "deepep",
        })
    }
}

impl fmt::Display for Recompute {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Selective(modules) if *modules == Modules::default() => f.write_str("none"),
            Self::PerOp => f.write_str("per-op"),
            Self::EveryOther => f.write_str("every-other"),
            Self::FirstLayers(n) => write!(f, "first-{n}"),
            Self::Full => f.write_str("full"),
            Self::Selective(modules) => {
                let named: Vec<&str> =
                    modules.named().into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect();
                f.write_str(&named.join("+"))
            }
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Layout { tp, cp, pp, dp, ep, etp } = self.layout;
        write!(f, "tp={tp} cp={cp} pp={pp} dp={dp}")?;
        if ep > 1 || etp > 1 {
            write!(f, " ep={ep} etp={etp} dispatcher={}", self.dispatcher)?;
        }
        if tp > 1 {
            write!(f, " sp={}", if self.sequence_parallel { "on" } else { "off" })?;
        }
        if cp > 1 {
            write!(f, " cp-kind={}", self.cp_kind)?;
        }
        if pp > 1 {
            write!(f, " schedule={}", self.schedule.name())?;
            if self.schedule.takes_chunks() {
                write!(f, " vpp={}", self.schedule.virtual_stages())?;
            }
            write!(f, " split={}", self.split)?; // an even split too: stacks differ in the split that a plan without one has
        }
        write!(f, " zero={}", u8::from(self.zero))?;
        if let Some(group) = self.shard_group {
            write!(f, " shard={group}")?;
        }
        if self.zero == ZeroStage::Three && !self.reshard_after_forward {
            write!(f, " reshard=off")?;
        }
        write!(f, " mbs={} recompute={}", self.micro_batch, self.recompute)?;
        if self.offload.optimizer > 0.0 {
            write!(f, " offload-optimizer={}", self.offload.optimizer)?;
        }
        if self.offload.activations > 0.0 {
            write!(f, " offload-activations={}", self.offload.activations)?;
        }
        if self.order != RankOrder::default() {
            write!(f, " order={}", self.order)?;
        }
        Ok(())
    }
}

/// Parses a recomputation: `none`, `full`, `per-op`, `every-other`, `first-N`, or modules joined by `+`.
///
/// # Errors
///
/// Names the unknown word.
pub fn parse_recompute(text: &str) -> Result<Recompute, String> {
    match text {
        "none" => return Ok(Recompute::None),
        "full" => return Ok(Recompute::Full),
        "per-op" => return Ok(Recompute::PerOp),
        "every-other" => return Ok(Recompute::EveryOther),
        _ => {}
    }
    if let Some(n) = text.strip_prefix("first-") {
        return number(n, "recompute").map(Recompute::FirstLayers);
    }
    let mut modules = Modules::default();
    for name in text.split(['+', ',']) {
        match name {
            "core_attn" => modules.core_attn = true,
            "layernorm" => modules.layernorm = true,
            "act" | "moe_act" => modules.act = true,
            "mla_up_proj" => modules.mla_up_proj = true,
            "mlp" => modules.mlp = true,
            "moe" => modules.moe = true,
            _ => {
                return Err(format!(
                    "recompute={text}: `{name}` is not a recomputation\n\nhint: none, full, per-op, every-other, \
                    first-N, or \
                     modules joined by +: core_attn, layernorm, act, mla_up_proj, mlp, moe"
                ));
            }
        }
    }
    Ok(Recompute::Selective(modules))
}

/// Whole number above 0: a degree, or a count of sequences or layers.
fn number(text: &str, key: &str) -> Result<u32, String> {
    let number: Option<u32> = text.parse().ok().filter(|n| *n > 0);
    let number = number.ok_or_else(|| format!("{key}={text}: `{text}` is not a whole number above 0"))?;
    let range = if key == "recompute" || key == "vpp" { range::LAYERS } else { range::GPUS };
    range.check(key, f64::from(number)).map_err(|why| why.to_string())?;
    Ok(number)
}

fn share(text: &str, key: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|x| (0.0..=1.0).contains(x))
        .ok_or_else(|| format!("{key}={text}: `{text}` is not a share between 0 and 1"))
}

fn switch(text: &str, key: &str) -> Result<bool, String> {
    match text {
        "on" | "true" | "1" | "yes" => Ok(true),
        "off" | "false" | "0" | "no" => Ok(false),
        _ => Err(format!("{key}={text}: `{text}` is not on or off")),
    }
}

fn one_of<T: Copy>(text: &str, key: &str, known: &[(&str, T)]) -> Result<T, String> {
    known.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        format!("{key}={text}: `{text}` is not one of: {}", names.join(", "))
    })
}

/// Default plan: one GPU per degree except data parallelism; keys that a text omits have its values.
pub fn plain_plan(problem: &Problem) -> Plan {
    Plan {
        split: problem.stack().split.clone(),
        dispatcher: problem.stack().dispatcher,
        ..Plan::of_layout(Layout::data_parallel(problem.cluster().gpus))
    }
}

/// Largest product of degrees.
const MOST_RANKS: u128 = range::GPUS.most() as u128;

/// Parses a plan. Defaults: dp is the quotient of the GPUs and the other degrees, sequence parallelism is on if tp > 1, etp
/// is 1, ZeRO 1, micro-batch 1, no recomputation; `vpp` above 1 interleaves; layers are split as in the stack, under
/// nanotron as by its own code. A shard group of all replicas is normalised to none.
///
/// # Errors
///
/// Names the key that is unknown, repeated, or has an invalid value.
pub fn parse_plan(text: &str, problem: &Problem) -> Result<Plan, String> {
    let mut plan = plain_plan(problem);
    let (mut dp, mut sp, mut schedule, mut vpp) = (None, None, None, 1);
    let mut seen: Vec<&str> = Vec::new();
    for item in text.split(|c: char| c.is_whitespace() || c == ',').filter(|item| !item.is_empty()) {
        let (key, value) = item.split_once('=').ok_or_else(|| format!("`{item}` is not key=value"))?;
        if seen.contains(&key) {
            return Err(format!("`{key}` is written twice"));
        }
        seen.push(key);
        match key {
            "tp" => plan.layout.tp = number(value, key)?,
            "cp" => plan.layout.cp = number(value, key)?,
            "pp" => plan.layout.pp = number(value, key)?,
            "dp" => dp = Some(number(value, key)?),
            "ep" => plan.layout.ep = number(value, key)?,
            "etp" => plan.layout.etp = number(value, key)?,
            "sp" => sp = Some(switch(value, key)?),
            "cp-kind" => {
                plan.cp_kind = one_of(value, key, &CP_KINDS)?;
            }
            "schedule" => schedule = Some(value),
            "vpp" => vpp = number(value, key)?,
            "split" => {
                plan.split = value.parse().map_err(|why| format!("{key}={value}: {why}"))?;
            }
            "zero" => plan.zero = one_of(value, key, &ZERO)?,
            "shard" => plan.shard_group = Some(number(value, key)?),
            "reshard" => plan.reshard_after_forward = switch(value, key)?,
            "mbs" | "micro-batch" => plan.micro_batch = number(value, key)?,
            "recompute" => plan.recompute = parse_recompute(value)?,
            "offload-optimizer" => plan.offload.optimizer = share(value, key)?,
            "offload-activations" => plan.offload.activations = share(value, key)?,
            "dispatcher" => plan.dispatcher = one_of(value, key, &DISPATCHERS)?,
            "order" => plan.order = one_of(value, key, &ORDERS)?,
            _ => return Err(format!("a plan has no `{key}`{}", suggest::keys_hint(key, KEYS))),
        }
    }
    let name = schedule.unwrap_or("1f1b");
    plan.schedule = Schedule::named(name, vpp)
        .ok_or_else(|| format!("schedule={name}: not one of: {}", Schedule::names().join(", ")))?;
    plan.sequence_parallel = sp.unwrap_or(plan.layout.tp > 1);
    if plan.layout.pp > 1 && !seen.contains(&"split") && problem.stack().family == Family::Nanotron {
        plan.split = nanotron::own_split(problem.model(), plan.layout.pp).unwrap_or(plan.split);
    }
    let Layout { tp, cp, pp, .. } = plan.layout;
    let others = u128::from(tp) * u128::from(cp) * u128::from(pp);
    plan.layout.dp = match dp {
        Some(dp) => dp,
        None => ((u128::from(problem.cluster().gpus) / others).max(1)) as u32,
    };
    let Layout { dp, ep, etp, .. } = plan.layout;
    for (what, product) in [
        ("tp·cp·pp·dp", others * u128::from(dp)),
        ("ep·etp", u128::from(ep) * u128::from(etp)),
        ("pp·vpp", u128::from(pp) * u128::from(plan.schedule.virtual_stages())),
    ] {
        if product > MOST_RANKS {
            return Err(format!("{what} is {}, and may be {} at most", thousands(product), thousands(MOST_RANKS)));
        }
    }
    plan.shard_group = plan.shard_group.filter(|&group| group != plan.layout.dense_replicas());
    Ok(plan)
}

/// Names of the exchanges of context parallelism (`--cp-comm-type`).
pub const CP_KINDS: [(&str, CpKind); 4] = [
    ("p2p", CpKind::Ring),
    ("allgather", CpKind::AllGather),
    ("a2a", CpKind::AllToAll),
    ("a2a+p2p", CpKind::Hierarchical),
];
/// Names of the ZeRO stages.
pub const ZERO: [(&str, ZeroStage); 4] =
    [("0", ZeroStage::Zero), ("1", ZeroStage::One), ("2", ZeroStage::Two), ("3", ZeroStage::Three)];
/// Names of the dispatchers; a plan's text has the first of those for one. HybridEP is DeepEP's kernel in racks that NVLink joins.
pub const DISPATCHERS: [(&str, Dispatcher); 3] =
    [("alltoall", Dispatcher::AllToAll), ("deepep", Dispatcher::DeepEp), ("hybridep", Dispatcher::DeepEp)];
/// Names of the rank orders.
pub const ORDERS: [(&str, RankOrder); 2] =
    [("tp-cp-ep-dp-pp", RankOrder::PipelineOutermost), ("tp-cp-ep-pp-dp", RankOrder::DataOutermost)];
