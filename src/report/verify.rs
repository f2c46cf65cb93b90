//! Report of a verification: the machine, the plans by measured step time, their kernels.

use super::Sheet;
use meshwright_engine::units::{Bytes, percent, significant};
use meshwright_lab::probe::Samples;
use meshwright_lab::probe::checked::{Checked, LayerMemory, LayerRun, Term};
use meshwright_lab::probe::parts::Part;
use meshwright_lab::probe::verify::{Verdict, Verification};

/// Sheets of a report, with the verdict in the title of the first.
pub fn report(heading: &str, samples: &Samples, verification: &Verification) -> Vec<Sheet> {
    let machine = &samples.machine;
    let mut of = Sheet::new(format!("{heading}: {}", verification.verdict), &["what", "on what"]);
    of.push(["figures".into(), format!("{}, {} kernels", samples.basis, samples.of.len())]);
    of.push(["device".into(), machine.device.clone()]);
    of.push(["driver".into(), machine.driver.clone()]);
    of.push(["day".into(), machine.date.clone()]);
    of.push(["host".into(), machine.host.clone()]);
    let allocated = verification.plans.iter().any(|plan| !plan.layers.is_empty());
    let left = if allocated { "the whole step's peak memory" } else { "memory" };
    of.push(["not measured".into(), format!("communication between GPUs, stages waiting for each other, {left}")]);
    if verification.step_clocks < 1.0 {
        let share = significant(verification.step_clocks);
        of.push(["step times".into(), format!("at {share} of the clocks that were measured on one GPU, as runs keep")]);
    }
    let memory = allocated.then(|| memory(verification));
    let run = verification.plans.iter().any(|plan| !plan.runs.is_empty());
    std::iter::once(of)
        .chain([ranking(verification)])
        .chain(run.then(|| runs(verification)))
        .chain(memory)
        .chain(verification.plans.iter().flat_map(|plan| [terms(plan), passes(plan)]))
        .collect()
}

/// Table of the allocated memory of one layer of each kind.
fn memory(verification: &Verification) -> Sheet {
    let columns = ["plan", "layer kind", "allocated GiB", "predicted GiB", "error"];
    let mut sheet = Sheet::new("Memory of one layer on one rank: states, and activations of one micro-batch", &columns);
    for plan in &verification.plans {
        for layer in &plan.layers {
            let LayerMemory { kind, predicted_bytes, allocated_bytes } = *layer;
            sheet.push([
                plan.plan.clone(),
                kind.to_string(),
                significant(Bytes::new(allocated_bytes).as_gib()),
                significant(Bytes::new(predicted_bytes).as_gib()),
                percent(layer.error()),
            ]);
        }
    }
    sheet
}

/// Table of the layers that were timed as one run.
fn runs(verification: &Verification) -> Sheet {
    let columns = [
        "plan",
        "layer kind",
        "kernels",
        "one run",
        "each alone",
        "predicted",
        "error before",
        "calibrated",
        "error after",
    ];
    let title = "Kernels of one layer as one run, forward and backward, against the sum of their times";
    let mut sheet = Sheet::new(title, &columns);
    for plan in &verification.plans {
        for run in &plan.runs {
            let LayerRun { kind, kernels, predicted_s, calibrated_s, alone_s, together_s } = *run;
            sheet.push([
                plan.plan.clone(),
                kind.to_string(),
                kernels.to_string(),
                together_s.to_string(),
                alone_s.map_or_else(|| "-".into(), |time| time.to_string()),
                predicted_s.to_string(),
                percent(run.error_before()),
                calibrated_s.to_string(),
                percent(run.error_after()),
            ]);
        }
    }
    sheet
}

/// Table of the plans by measured step time.
fn ranking(verification: &Verification) -> Sheet {
    let columns = [
        "#",
        "predicted #",
        "plan",
        "predicted step",
        "with measured kernels",
        "change",
        "kernels before",
        "after",
        "peak GiB",
    ];
    let mut sheet =
        Sheet::new("Ranking with measured kernels; error of the kernels before and after calibration", &columns);
    for plan in &verification.plans {
        let Checked {
            plan: name,
            place_before,
            place_after,
            predicted_s,
            measured_s,
            slowest_s: _,
            terms: _,
            parts: _,
            peak_bytes,
            layers: _,
            runs: _,
        } = plan;
        let error = |of: fn(&Term) -> f64| plan.total().map_or_else(String::new, |total| percent(of(total)));
        sheet.push([
            place_after.to_string(),
            place_before.to_string(),
            name.clone(),
            predicted_s.to_string(),
            measured_s.to_string(),
            percent(*measured_s / *predicted_s - 1.0),
            error(Term::error_before),
            error(Term::error_after),
            significant(Bytes::new(*peak_bytes).as_gib()),
        ]);
    }
    sheet
}

/// Table of one plan's kernels: a layer of each kind, embedding and loss, and the update, once each.
fn terms(plan: &Checked) -> Sheet {
    let columns = ["kernels", "measured", "predicted", "error before", "calibrated", "error after", "share measured"];
    let mut sheet = Sheet::new(plan.plan.clone(), &columns);
    for term in &plan.terms {
        let Term { name, predicted_s, calibrated_s, measured_s, covered, bounded, bounded_s, at_most_s } = term;
        if *bounded > 0.0 {
            let held = if bounded_s <= at_most_s { "holds" } else { "too slow" };
            sheet.push([
                format!("{name}, by the probe's own attention"),
                format!("at most {at_most_s}"),
                "-".into(),
                "-".into(),
                bounded_s.to_string(),
                held.into(),
                format!("{} bounded", percent(*bounded)),
            ]);
        }
        if measured_s.get() <= 0.0 {
            sheet.push([name.clone(), "-".into(), "-".into(), "-".into(), "-".into(), "-".into(), percent(*covered)]);
            continue;
        }
        sheet.push([
            name.clone(),
            measured_s.to_string(),
            predicted_s.to_string(),
            percent(term.error_before()),
            calibrated_s.to_string(),
            percent(term.error_after()),
            percent(*covered),
        ]);
    }
    sheet
}

/// Table of one plan's layers, pass by pass, and its update.
fn passes(plan: &Checked) -> Sheet {
    let columns = ["layer", "measured", "predicted", "error before", "calibrated", "error after", "share measured"];
    let mut sheet = Sheet::new(
        "One layer of each kind for one micro-batch, and the update of the rank's shard, with measured kernels",
        &columns,
    );
    for part in &plan.parts {
        let Part { layer, name, predicted_s, calibrated_s, measured_s, covered } = part;
        let what = layer.map_or_else(|| (*name).to_owned(), |kind| format!("kind {kind} {name}"));
        sheet.push([
            what,
            measured_s.to_string(),
            predicted_s.to_string(),
            percent(part.error_before()),
            calibrated_s.to_string(),
            percent(part.error_after()),
            percent(*covered),
        ]);
    }
    sheet
}

/// Verdict as a sentence.
pub fn in_words(verification: &Verification) -> String {
    match verification.verdict {
        Verdict::Confirmed => {
            "confirmed: the predicted winner wins (or ties within 3 %), and calibrated kernel times are \
                               within 5 % of measured"
                .into()
        }
        Verdict::Overturned => {
            let best = verification.plans.first().map_or("another plan", |plan| &plan.plan);
            format!(
                "overturned: with measured kernels {best} wins\n\nhint: calibrate from these samples and plan again"
            )
        }
        Verdict::Inaccurate => {
            "inaccurate: the predicted winner wins, but calibrated times of the kernels, or of a layer as one run, \
            deviate by over 5 % from the measured ones, or a layer's memory by over 2 %: the curves or formulas do \
            not fit"
                .into()
        }
        Verdict::Inconclusive => {
            "inconclusive: less than 90 % of the kernel time was measured or bounded, the winner depends on the \
            speed of attention, or the samples are the model's own\n\nhint: the lines `left …` say what was not \
            measured, and why"
                .into()
        }
    }
}
