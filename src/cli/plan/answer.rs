//! Answer of `plan` in each output format.

use anyhow::Result;

use crate::cli::format::OutputFormat;
use crate::cli::plan_args::Args;
use crate::cli::{output, placed, refined};
use crate::question::{Minimised, PlanAnswer, PlanQuestion};
use crate::report::answer::{
    AnswerRows, TERMS_SHOWN, covered, describe, figures, intervals, recommended, sentences, shared, table as rows,
};
use crate::report::json::Priced;
use crate::report::{Sheet, compare, csv, plans, table, why};
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_planner::advice::Advice;
use meshwright_planner::confidence::Confidence;

/// Most sentences below the table.
const MOST_SENTENCES: usize = 6;

/// The answer in the format that the arguments name.
pub fn text(args: &Args, question: &PlanQuestion, answer: &PlanAnswer) -> Result<String> {
    match args.format {
        OutputFormat::Json => Ok(answer.document(question)?.text()?),
        OutputFormat::Csv => {
            let rows = answer.found.ranking.evaluations.iter();
            let rows = rows.map(|evaluation| serde_json::to_value(Priced::new(&answer.problem, evaluation)));
            Ok(csv::render_objects(&rows.collect::<Result<Vec<_>, _>>()?)?)
        }
        OutputFormat::Table | OutputFormat::Markdown => Screen { args, answer }.report(),
    }
}

/// Answer as text for people.
struct Screen<'a> {
    args: &'a Args,
    answer: &'a PlanAnswer,
}

impl Screen<'_> {
    fn report(&self) -> Result<String> {
        let Self { args, answer } = *self;
        let PlanAnswer { problem, found, .. } = answer;
        let format = args.format;
        let sheet = if let Some(advice) = &found.advice {
            self.at_a_glance(advice)?
        } else if format == OutputFormat::Table && !args.wide {
            self.by_objective()
        } else {
            let why = why::paragraph(problem, &found.ranking);
            let why = self.prose(covered(&found.ranking).into_iter().chain([why]).collect::<Vec<_>>().join(" "));
            format!("{}\n{why}\n", output::sheets(&[plans::ranked(problem, &found.ranking)], format)?)
        };
        let changed = match &answer.changed {
            Some((optimum, changes)) => {
                format!("\n{}", output::sheets(&[compare::sensitivity(optimum, changes)], format)?)
            }
            None => String::new(),
        };
        let bills = match &answer.economy {
            Some(economy) => {
                let (bills, interruptions) = economy.sheet(problem, &found.ranking);
                format!("\n{}\n{}\n", output::sheets(&[bills], format)?, self.prose(interruptions))
            }
            None => String::new(),
        };
        let refined = refined::text(&args.plans.refine, problem, &answer.refined, format)?;
        let placed = placed::text(&args.plans.place, problem, &answer.placed, format)?;
        Ok(format!("{sheet}{changed}{refined}{placed}{bills}"))
    }

    /// Prose, wrapped where it is not Markdown.
    fn prose(&self, text: String) -> String {
        if self.args.format == OutputFormat::Table { table::wrapped(&text) } else { text }
    }

    /// The question, the plan to launch, a line for each rival, at most six sentences.
    fn at_a_glance(&self, advice: &Advice) -> Result<String> {
        if self.args.format == OutputFormat::Markdown {
            return self.markdown_at_a_glance(advice);
        }
        let PlanAnswer { problem, .. } = self.answer;
        let rows = if self.args.wide {
            table::render(&Sheet { title: String::new(), ..plans::ranked(problem, &advice.ranking) })
        } else {
            lines(problem, advice.into())
        };
        let heading = table::wrapped(&problem.heading());
        let recommended = table::labelled("Recommended", &paragraphs(problem, advice));
        let plan = table::labelled("--plan", &[format!("\"{}\"", launched(advice))]);
        let sentences = table::wrapped(&self.sentences(advice));
        let fastest = declined(advice).map_or_else(String::new, |plan| {
            let arguments = self.answer.arguments_of(&self.args.problem, plan);
            format!("\n{}\n", table::labelled("Fastest  --plan", &[arguments]))
        });
        Ok(format!("{heading}\n\n{recommended}\n{plan}\n\n{}\n\n{sentences}\n{fastest}", rows.trim_end()))
    }

    /// The question, the best plan by the objective, and a line for each plan of the ranking.
    fn by_objective(&self) -> String {
        let Self { args, answer: PlanAnswer { problem, found, .. } } = *self;
        let heading = table::wrapped(&problem.heading());
        let Some(first) = found.best() else { return format!("{heading}\n") };
        let label = match args.plans.economy.objective {
            _ if args.plans.pareto => "Fastest",
            Minimised::Memory => "Least memory",
            Minimised::GpuTime => "Least GPU time",
            Minimised::Energy => "Least energy",
            Minimised::StepTime | Minimised::TimeToTrain | Minimised::Cost => "First",
        };
        let words = table::labelled(label, &[describe(problem, &first.plan), figures(problem, first)]);
        let plan = table::labelled("--plan", &[format!("\"{}\"", first.plan)]);
        let rows = lines(problem, (&found.ranking).into());
        let sure = intervals(problem, first, &Confidence::new(problem, first));
        let sentences =
            table::wrapped(&covered(&found.ranking).into_iter().chain([sure]).collect::<Vec<_>>().join(" "));
        format!("{heading}\n\n{words}\n{plan}\n\n{}\n\n{sentences}\n", rows.trim_end())
    }

    /// Markdown of the parts of [`Self::at_a_glance`].
    fn markdown_at_a_glance(&self, advice: &Advice) -> Result<String> {
        let Self { args, answer: PlanAnswer { problem, .. } } = *self;
        let sheet =
            if args.wide { plans::ranked(problem, &advice.ranking) } else { rows(problem, advice, TERMS_SHOWN) };
        let rows = output::sheets(&[Sheet { title: String::new(), ..sheet }], args.format)?;
        let recommended = paragraphs(problem, advice).join("; ");
        let head = format!("## {}\n\n**Recommended**: {recommended}", problem.heading());
        let (plan, shared, sentences) = (launched(advice), shared(problem, advice), self.sentences(advice));
        let fastest =
            declined(advice).map_or_else(String::new, |plan| format!("\n**Fastest by the model**: `{plan}`\n"));
        Ok(format!("{head}\n\n`{plan}`\n\n{rows}\nAll plans: {shared}.\n\n{sentences}\n{fastest}"))
    }

    /// Sentences below the table.
    fn sentences(&self, advice: &Advice) -> String {
        let Self { args, answer: PlanAnswer { problem, risk, refined, placed, options, .. } } = *self;
        let mut all = sentences(problem, advice, options.restrictions.limits(), *risk);
        all.extend(refined::sentence(&advice.ranking, refined));
        all.extend(placed::hint(&args.plans.place, placed));
        all.truncate(MOST_SENTENCES);
        all.join(" ")
    }
}

/// Paragraphs about the recommended plan; none where no plan runs.
fn paragraphs(problem: &Problem, advice: &Advice) -> Vec<String> {
    recommended(problem, advice).map_or_else(Vec::new, Vec::from)
}

/// Text of the plan to launch; empty where no plan runs.
fn launched(advice: &Advice) -> String {
    advice.plan().map_or_else(String::new, |plan| plan.plan.to_string())
}

/// The plan that is fastest by the model, where another is recommended.
fn declined(advice: &Advice) -> Option<&Plan> {
    advice.fastest.as_ref().map(|declined| &declined.evaluation.plan)
}

/// One line for each plan, and below them the settings that all plans have in common.
fn lines(problem: &Problem, plans: AnswerRows) -> String {
    let shared = shared(problem, plans);
    let all = if shared.is_empty() { String::new() } else { table::labelled(" all:", &[shared]) };
    format!("{}\n{all}", table::lines_or_records(&fitting(problem, plans)))
}

/// Rows with as many terms of the step as the terminal is wide enough for; at the narrowest without MFU, which the step gives.
fn fitting(problem: &Problem, plans: AnswerRows) -> Sheet {
    let most = usize::from(table::width());
    let fits = |sheet: &Sheet| table::plain_lines(sheet).iter().all(|line| line.chars().count() <= most);
    let sheets = (0..=TERMS_SHOWN).rev().map(|terms| rows(problem, plans, terms));
    let narrowest = || rows(problem, plans, 0).without("MFU");
    sheets.chain([narrowest()]).find(fits).unwrap_or_else(narrowest)
}
