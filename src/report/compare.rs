//! Comparison of two plans term by term, and sensitivity of a winner.

use super::Sheet;
use super::answer::reason;
use meshwright_engine::cost::Evaluation;
use meshwright_engine::problem::Problem;
use meshwright_engine::units::{Seconds, percent};
use meshwright_planner::advice::{Reason, USUAL_RISK};
use meshwright_planner::confidence::Confidence;
use meshwright_planner::search::{ChangedOptimum, TIE};
use meshwright_planner::space::Unproven;

/// Remark on a plan beside its price.
pub enum Remark {
    /// No remark.
    None,
    /// Settings that were chosen to complete what the user named; there is at least one.
    Filled(Vec<String>),
    /// The framework and the property of the plan that it cannot express.
    Refused(String),
}

/// Reasons against a plan that its step time does not show, each with a semicolon before it: a risk of running out of memory above
/// the usual and above the winner's, mechanisms without a published run that the winner is without. Of a faster plan without
/// such reasons, that the two are within run-to-run noise, where they are.
fn against(problem: &Problem, winner: &Evaluation, other: &Evaluation) -> String {
    let [risk, least] = [other, winner].map(|plan| Confidence::new(problem, plan).oom_probability);
    let shown = Unproven::in_plan(problem, &winner.plan);
    let unproven = Unproven::in_plan(problem, &other.plan);
    let new: Vec<&'static Unproven> =
        unproven.into_iter().filter(|new| shown.iter().all(|known| known.what != new.what)).collect();
    let reasons = (risk > USUAL_RISK.max(least)).then_some(Reason::Risk(risk));
    let reasons = reasons.into_iter().chain((!new.is_empty()).then_some(Reason::Unproven(new)));
    let mut reasons: Vec<String> = reasons.map(|of| format!("; {}", reason(&of))).collect();
    let faster = winner.step.total() / other.step.total() - 1.0;
    if reasons.is_empty() && faster > 0.0 && faster <= TIE {
        reasons.push("; the two are within run-to-run noise".to_owned());
    }
    reasons.concat()
}

/// Table of a plan against the winner, term by term, the largest differences first. `asked` is what the user named of it,
/// `remark` the reason why it is not launched or the settings that complete it, if any.
pub fn against_winner(
    problem: &Problem,
    winner: &Evaluation,
    other: &Evaluation,
    asked: &str,
    remark: &Remark,
) -> Sheet {
    let slower = other.step.total() / winner.step.total() - 1.0;
    let (total, percent_slower) = (other.step.total(), format!("({:+.1} %)", slower * 100.0));
    let against = against(problem, winner, other);
    let title = match remark {
        Remark::None => format!("Why not {asked}: it takes {total} {percent_slower}{against}"),
        Remark::Filled(settings) => {
            let settings = settings.join(" ");
            format!("Why not {asked}: it takes {total} at best {percent_slower}, completed by {settings}{against}")
        }
        Remark::Refused(why) => format!("Why not {asked}: {why}; it would take {total} {percent_slower}{against}"),
    };
    let mut sheet = Sheet::new(title, &["term", "this plan", "winner", "difference", "share of the winner's step"]);
    let mut terms: Vec<_> = other.step.terms().into_iter().zip(winner.step.terms()).collect();
    terms.sort_by(|a, b| (b.0.1.get() - b.1.1.get()).total_cmp(&(a.0.1.get() - a.1.1.get())));
    for ((term, mine), (_, theirs)) in terms {
        if mine.get() == 0.0 && theirs.get() == 0.0 {
            continue;
        }
        let difference = mine.get() - theirs.get();
        sheet.push([
            term.to_string(),
            mine.to_string(),
            theirs.to_string(),
            signed(difference),
            percent(difference / winner.step.total().get()),
        ]);
    }
    let total = other.step.total().get() - winner.step.total().get();
    sheet.push([
        "total".into(),
        other.step.total().to_string(),
        winner.step.total().to_string(),
        signed(total),
        percent(slower),
    ]);
    let (mine, theirs) = (other.footprint.peak(), winner.footprint.peak());
    sheet.push([
        "peak memory".into(),
        mine.to_string(),
        theirs.to_string(),
        format!("{:+.1} GiB", mine.as_gib() - theirs.as_gib()),
        String::new(),
    ]);
    sheet
}

fn signed(seconds: f64) -> String {
    let size = Seconds::new(seconds.abs());
    if seconds < 0.0 { format!("-{size}") } else { format!("+{size}") }
}

/// Table of the optimum after each change.
pub fn sensitivity(winner: &Evaluation, changes: &[ChangedOptimum]) -> Sheet {
    let title =
        format!("Sensitivity of the fastest plan within the same rules: {} takes {}", winner.plan, winner.step.total());
    let mut sheet = Sheet::new(title, &["change", "step time", "against it", "best plan then"]);
    for ChangedOptimum { what, best, slower } in changes {
        let (Some(best), Some(slower)) = (best, slower) else {
            sheet.push([what.clone(), "nothing runs".into(), String::new(), String::new()]);
            continue;
        };
        let plan = if best.plan == winner.plan { "the same".to_owned() } else { best.plan.to_string() };
        sheet.push([what.clone(), best.step.total().to_string(), format!("{:+.2} %", slower * 100.0), plan]);
    }
    sheet
}
