//! Comparison of two plans term by term, and sensitivity of a winner.

use super::Sheet;
use meshwright_engine::cost::Evaluation;
use meshwright_engine::units::{Seconds, percent};
use meshwright_planner::search::ChangedOptimum;

/// Remark on a plan beside its price.
pub enum Remark {
    /// No remark.
    None,
    /// Settings that were chosen to complete what the user named; there is at least one.
    Filled(Vec<String>),
    /// The framework and the property of the plan that it cannot express.
    Refused(String),
}

/// Table of a plan against the winner, term by term, the largest differences first. `asked` is what the user named of it,
/// `remark` the reason why it is not launched or the settings that complete it, if any.
pub fn against_winner(winner: &Evaluation, other: &Evaluation, asked: &str, remark: &Remark) -> Sheet {
    let slower = other.step.total() / winner.step.total() - 1.0;
    let (total, percent_slower) = (other.step.total(), format!("({:+.1} %)", slower * 100.0));
    let title = match remark {
        Remark::None => format!("Why not {asked}: it takes {total} {percent_slower}"),
        Remark::Filled(settings) => {
            format!("Why not {asked}: it takes {total} at best {percent_slower}, completed by {}", settings.join(" "))
        }
        Remark::Refused(why) => format!("Why not {asked}: {why}; it would take {total} {percent_slower}"),
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
    let (mine, theirs) = (other.footprint.device(), winner.footprint.device());
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
    let title = format!("Sensitivity: {} takes {}", winner.plan, winner.step.total());
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
