//! Answer of `plan` in each output format.

use anyhow::Result;

use super::found::Found;
use crate::cli::economy::Economy;
use crate::cli::format::OutputFormat;
use crate::cli::plan_args::Args;
use crate::cli::{output, refined};
use crate::report::answer::{TERMS_SHOWN, recommended, sentences, shared, table as rows};
use crate::report::json::{Answer, Priced};
use crate::report::{Sheet, compare, csv, json, placed, plans, table, why};
use meshwright_engine::cost::Evaluation;
use meshwright_engine::problem::Problem;
use meshwright_frameworks::Framework;
use meshwright_planner::advice::Advice;
use meshwright_planner::refine::ranking::RefinedEntry;
use meshwright_planner::search::ChangedOptimum;

/// Most sentences below the table.
const MOST_SENTENCES: usize = 6;

/// PlanAnswer of an answer, computed before any of it is written.
pub struct PlanAnswer<'a> {
    /// Arguments of the command.
    pub args: &'a Args,
    /// Problem as asked.
    pub problem: &'a Problem,
    /// Framework that the user named.
    pub framework: Option<&'static Framework>,
    /// Accepted risk of running out of memory.
    pub risk: f64,
    /// Plans and recommendation.
    pub found: &'a Found,
    /// Refined stages of the best plans.
    pub refined: &'a [RefinedEntry],
    /// Optimum with what changes it.
    pub changed: Option<(&'a Evaluation, Vec<ChangedOptimum>)>,
    /// Dollars and days, if tokens were given.
    pub economy: Option<&'a Economy>,
    /// Orders of hosts.
    pub placed: &'a [placed::Entry],
}

impl PlanAnswer<'_> {
    /// The answer in the format that the arguments name.
    pub fn text(&self) -> Result<String> {
        match self.args.format {
            OutputFormat::Json => self.document(),
            OutputFormat::Csv => {
                let rows = self.found.ranking.evaluations.iter();
                let rows = rows.map(|evaluation| serde_json::to_value(Priced::new(self.problem, evaluation)));
                Ok(csv::render_objects(&rows.collect::<Result<Vec<_>, _>>()?)?)
            }
            OutputFormat::Table | OutputFormat::Markdown => self.report(),
        }
    }

    fn document(&self) -> Result<String> {
        let Self { args, problem, found, .. } = *self;
        let bills = self.economy.map_or_else(|| Ok(Vec::new()), |economy| economy.bills(problem, &found.ranking))?;
        let answer = Answer { advice: found.advice.as_ref(), bills: &bills, refined: self.refined };
        let document = json::ranking(problem, &found.ranking, &answer)?;
        let document = json::with_arguments(&document, &args.problem.resolved(problem, self.framework))?;
        let document = args.place.json(problem, self.placed, document)?;
        let Some((optimum, changes)) = &self.changed else { return Ok(document) };
        let told: Vec<json::Sensitivity> = changes.iter().map(json::Sensitivity::new).collect();
        let document = json::with(&document, "sensitivity_of", &Priced::new(problem, optimum))?;
        Ok(json::with(&document, "sensitivity", &told)?)
    }

    fn report(&self) -> Result<String> {
        let Self { args, problem, found, .. } = *self;
        let format = args.format;
        let sheet = if let Some(advice) = &found.advice {
            self.at_a_glance(advice)?
        } else {
            let why = self.prose(why::paragraph(problem, &found.ranking));
            format!("{}\n{why}\n", output::sheets(&[plans::ranked(problem, &found.ranking)], format)?)
        };
        let changed = match &self.changed {
            Some((optimum, changes)) => {
                format!("\n{}", output::sheets(&[compare::sensitivity(optimum, changes)], format)?)
            }
            None => String::new(),
        };
        let bills = match self.economy {
            Some(economy) => {
                let (bills, interruptions) = economy.sheet(problem, &found.ranking);
                format!("\n{}\n{}\n", output::sheets(&[bills], format)?, self.prose(interruptions))
            }
            None => String::new(),
        };
        let refined = args.refine.text(problem, self.refined, format)?;
        let placed = args.place.text(problem, self.placed, format)?;
        Ok(format!("{sheet}{changed}{refined}{placed}{bills}"))
    }

    /// Prose, wrapped where it is not Markdown.
    fn prose(&self, text: String) -> String {
        if self.args.format == OutputFormat::Table { table::wrapped(&text) } else { text }
    }

    /// The question, the plan to launch, a line for each rival, at most six sentences.
    fn at_a_glance(&self, advice: &Advice) -> Result<String> {
        let Self { args, problem, risk, .. } = *self;
        let paragraphs = recommended(problem, advice).map_or_else(Vec::new, Vec::from);
        let plan = advice.plan().map_or_else(String::new, |plan| plan.plan.to_string());
        let mut said = sentences(problem, advice, risk);
        said.extend(refined::sentence(&advice.ranking, self.refined));
        said.extend(args.place.sentence(self.placed));
        said.truncate(MOST_SENTENCES);
        let (shared, said) = (shared(advice), said.join(" "));
        if args.format == OutputFormat::Markdown {
            let sheet =
                if args.wide { plans::ranked(problem, &advice.ranking) } else { rows(problem, advice, TERMS_SHOWN) };
            let rows = output::sheets(&[Sheet { title: String::new(), ..sheet }], args.format)?;
            let head = format!("## {}\n\n**Recommended**: {}", problem.heading(), paragraphs.join("; "));
            return Ok(format!("{head}\n\n`{plan}`\n\n{rows}\nAll plans: {shared}.\n\n{said}\n"));
        }
        let rows = if args.wide {
            table::render(&Sheet { title: String::new(), ..plans::ranked(problem, &advice.ranking) })
        } else {
            let all = if shared.is_empty() { String::new() } else { table::labelled(" all:", &[shared]) };
            format!("{}\n{all}", table::lines_or_records(&fitting(problem, advice)))
        };
        let heading = table::wrapped(&problem.heading());
        let recommended = table::labelled("Recommended", &paragraphs);
        let plan = table::labelled("--plan", &[format!("\"{plan}\"")]);
        Ok(format!("{heading}\n\n{recommended}\n{plan}\n\n{}\n\n{}\n", rows.trim_end(), table::wrapped(&said)))
    }
}

/// Rows with as many terms of the step as the terminal is wide enough for; at the narrowest without MFU, which the step gives.
fn fitting(problem: &Problem, advice: &Advice) -> Sheet {
    let most = usize::from(table::width());
    let fits = |sheet: &Sheet| table::plain_lines(sheet).iter().all(|line| line.chars().count() <= most);
    let sheets = (0..=TERMS_SHOWN).rev().map(|terms| rows(problem, advice, terms));
    let narrowest = || rows(problem, advice, 0).without("MFU");
    sheets.chain([narrowest()]).find(fits).unwrap_or_else(narrowest)
}
