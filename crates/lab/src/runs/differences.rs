//! Differences between a row of runs and a plan of a problem.

use super::cell::text;
use super::map_plan::{leaves_policy_open, policy_of};
use super::release::Release;
use super::row::Row;
use meshwright_engine::plan::{Plan, Recompute};
use meshwright_engine::problem::Problem;

/// Recomputation by how much of a layer runs twice: nothing, a part, all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Nothing,
    Part,
    All,
}

const fn kind_of(recompute: Recompute) -> Kind {
    match recompute {
        Recompute::None => Kind::Nothing,
        Recompute::Selective(_) | Recompute::PerOp | Recompute::EveryOther => Kind::Part,
        Recompute::FirstLayers(_) | Recompute::Full => Kind::All,
    }
}

/// Recomputation that a row states, in its own words, with the kinds that it may be: by JAX's checkpoint policy where it names
/// one. Under JAX `none` without a policy may be the least policy too, as which it is priced.
fn stated_recompute(row: &Row) -> Option<(&str, &'static [Kind])> {
    let release = Release::of(row);
    if let Some(recompute) = policy_of(row, release) {
        let kinds: &[Kind] = match kind_of(recompute) {
            Kind::Nothing => &[Kind::Nothing],
            Kind::Part => &[Kind::Part],
            Kind::All => &[Kind::All],
        };
        return Some((text(row.recompute_modules.as_ref()), kinds));
    }
    let kinds: &[Kind] = match text(row.recompute.as_ref()) {
        "" => return None,
        "none" if leaves_policy_open(row, release) => &[Kind::Nothing, Kind::Part],
        "none" => &[Kind::Nothing],
        full if full.starts_with("full") => &[Kind::All],
        _ => &[Kind::Part],
    };
    Some((text(row.recompute.as_ref()), kinds))
}

/// Whether a row of JAX says that nothing is recomputed and names no checkpoint policy: it is read as the least of recipes.
pub fn is_of_least_policy(row: &Row) -> bool {
    text(row.recompute.as_ref()) == "none" && leaves_policy_open(row, Release::of(row))
}

/// Differences between a row and the plan of a problem; cells that are blank say nothing.
pub fn differences(row: &Row, problem: &Problem, plan: &Plan) -> Vec<String> {
    let (model, workload, layout) = (problem.model(), problem.workload(), plan.layout);
    let number = |name: &str, stated: Option<f64>, planned: u32| {
        let stated = stated.filter(|stated| (stated - f64::from(planned)).abs() > 1e-9)?;
        Some(format!("{name} {stated} instead of {planned}"))
    };
    let zero = row.zero_stage.filter(|_| layout.dp > 1);
    let recompute = stated_recompute(row).and_then(|(stated, kinds)| {
        (!kinds.contains(&kind_of(plan.recompute))).then(|| format!("recompute {stated} instead of {}", plan.recompute))
    });
    [
        number("layers", row.layers, model.layers()),
        number("hidden", row.hidden, model.hidden),
        number("GPUs", row.gpus_total, layout.world_size()),
        number("sequence length", row.seq_len, workload.seq_len),
        number("global batch", row.global_batch, workload.global_batch),
        number("tp", row.tp, layout.tp),
        number("cp", row.cp, layout.cp),
        number("pp", row.pp, layout.pp),
        number("vpp", row.vpp.filter(|_| layout.pp > 1), plan.schedule.virtual_stages()),
        number("ep", row.ep.filter(|_| model.is_moe()), layout.ep),
        number("etp", row.etp.filter(|_| model.is_moe()), layout.etp),
        number("sp", row.sp.filter(|_| layout.tp > 1), u32::from(plan.sequence_parallel)),
        number("zero", zero, u32::from(u8::from(plan.zero))),
        number("micro-batch", row.micro_batch, plan.micro_batch),
        recompute,
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use meshwright_engine::plan::Modules;

    #[test]
    fn recomputation_is_compared_by_the_policy_of_jax() {
        let row = |framework: &str, stated: &str, policy: &str| Row {
            framework: Some(framework.into()),
            recompute: Some(stated.into()),
            recompute_modules: Some(policy.into()),
            ..Row::default()
        };
        let part = Recompute::Selective(Modules::ATTENTION_AND_MLP);
        let all = [Recompute::None, Recompute::PerOp, part, Recompute::Full];
        let accepted = |row: &Row| {
            let kinds = stated_recompute(row).map_or(&[][..], |(_, kinds)| kinds);
            all.map(|recompute| kinds.contains(&kind_of(recompute)))
        };
        for (framework, stated, policy, expected) in [
            ("MaxText", "none", "", [true, true, true, false]),
            ("MaxText", "none", "minimal", [false, true, true, false]),
            ("MaxText", "none", "minimal_with_context", [true, false, false, false]),
            ("MaxText", "none", "none", [false, false, false, true]),
            ("Paxml (JAX)", "", "save_nothing", [false, false, false, true]),
            ("NeMo", "none", "minimal", [true, false, false, false]),
            ("NeMo", "selective(mlp)", "", [false, true, true, false]),
            ("NeMo", "full", "", [false, false, false, true]),
        ] {
            assert_eq!(accepted(&row(framework, stated, policy)), expected, "{framework} {stated} {policy}");
        }
        assert!(stated_recompute(&row("MaxText", "", "a policy of tomorrow")).is_none());
        assert!(is_of_least_policy(&row("MaxText", "none", "")) && !is_of_least_policy(&row("NeMo", "none", "")));
    }
}
