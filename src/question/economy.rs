//! Objective, tokens, purchase terms and market of a question.

use serde::Deserialize;

use super::error::QuestionError;
use crate::report::{Sheet, bill};
use meshwright_engine::ascending::sort_by_numbers;
use meshwright_engine::cost::{Evaluation, StepTime};
use meshwright_engine::goodput::{Goodput, Mode};
use meshwright_engine::money::{self, Bill, Market, Prices, Rate, Terms};
use meshwright_engine::problem::Problem;
use meshwright_engine::range;
use meshwright_engine::units::{BytesPerSec, Seconds, Tokens, UsdPerHour, count};
use meshwright_planner::catalog::{self, Overrides};
use meshwright_planner::search::{Control, Goal, Objective, Ranking, SearchOptions, search_for};

/// Purchase terms where none are named.
const DEFAULT_TERMS: &str = "contract";

/// Quantity to minimise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Minimised {
    /// Seconds of one step.
    #[default]
    StepTime,
    /// Days to train all tokens, interruptions included.
    TimeToTrain,
    /// Dollars to train all tokens.
    Cost,
    /// Megawatt-hours at the wall to train all tokens.
    Energy,
    /// Memory of the fullest GPU.
    Memory,
    /// Step time × GPUs in use; differs from step time with --allow-idle.
    GpuTime,
}

impl Minimised {
    /// Goal of the search; for energy, plans are found by time and ranked afterwards.
    pub const fn goal(self) -> Goal {
        match self {
            Self::StepTime | Self::TimeToTrain | Self::Cost | Self::Energy => Goal::Fastest,
            Self::Memory => Goal::Best(Objective::Memory),
            Self::GpuTime => Goal::Best(Objective::GpuTime),
        }
    }
}

/// Objective of a question, and the settings that its bill depends on.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "Objective, time and money"))]
#[serde(default, deny_unknown_fields)]
pub struct EconomyOptions {
    /// Tokens to train, such as "15.6 T"
    ///
    /// Adds days, dollars and megawatt-hours to the answer.
    #[cfg_attr(feature = "cli", arg(long, value_name = "TOKENS"))]
    pub tokens: Option<Tokens>,
    /// Quantity to minimise.
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value = "step-time"))]
    pub objective: Minimised,
    /// Purchase terms of the GPUs: contract, on-demand, reserved, spot, own.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME", default_value = DEFAULT_TERMS, hide_short_help = true))]
    pub terms: String,
    /// Price of a GPU-hour, such as "2.50 $/h" [default: the price of the terms].
    #[cfg_attr(feature = "cli", arg(long, value_name = "PRICE", hide_short_help = true))]
    pub price: Option<UsdPerHour>,
    /// Prices, power and failure rates: a name of clusters/prices/ or a TOML file.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME", default_value = catalog::defaults::MARKET, hide_short_help = true))]
    pub market: String,
    /// Checkpoint mode: sync, async, memory [default: the market's].
    #[cfg_attr(feature = "cli", arg(long, value_enum, value_name = "MODE", hide_short_help = true))]
    pub checkpoints: Option<CheckpointMode>,
    /// Total bandwidth of the checkpoint storage, such as "200 GB/s" [default: grows with the number of GPUs].
    #[cfg_attr(feature = "cli", arg(long, value_name = "BANDWIDTH", hide_short_help = true))]
    pub storage: Option<BytesPerSec>,
    /// Spare nodes [default: enough for 99 of 100 node failures].
    #[cfg_attr(feature = "cli", arg(long, value_name = "NODES", hide_short_help = true))]
    pub spares: Option<u32>,
}

/// Checkpoint mode, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum CheckpointMode {
    /// Write to storage while training waits.
    Sync,
    /// Copy to host memory, then write to storage during training.
    Async,
    /// Copy to the memory of a peer.
    Memory,
}

impl From<CheckpointMode> for Mode {
    fn from(mode: CheckpointMode) -> Self {
        match mode {
            CheckpointMode::Sync => Self::Sync,
            CheckpointMode::Async => Self::Async,
            CheckpointMode::Memory => Self::Memory,
        }
    }
}

/// Market with the purchase terms chosen from it.
pub struct Economy {
    /// Market with the user's overrides.
    pub market: Market,
    /// Purchase terms.
    pub terms: Terms,
    /// Price of a GPU-hour.
    pub rate: Rate,
    /// Number of tokens to train.
    pub tokens: Tokens,
}

impl Default for EconomyOptions {
    fn default() -> Self {
        Self {
            tokens: None,
            objective: Minimised::default(),
            terms: DEFAULT_TERMS.to_owned(),
            price: None,
            market: catalog::defaults::MARKET.to_owned(),
            checkpoints: None,
            storage: None,
            spares: None,
        }
    }
}

impl EconomyOptions {
    /// Economy of a problem; `None` unless the number of tokens is given.
    ///
    /// # Errors
    ///
    /// The market or its terms are unknown, a figure is outside its range, or the objective needs the number of tokens.
    pub fn economy(&self, problem: &Problem, sets: &Overrides) -> Result<Option<Economy>, QuestionError> {
        let Some(tokens) = self.tokens else {
            if matches!(self.objective, Minimised::Cost | Minimised::Energy) {
                return Err(QuestionError::refused(
                    "--objective needs --tokens, such as --tokens \"15 T\": dollars and energy depend on the number \
                    of tokens",
                ));
            }
            if self.price.is_some() {
                return Err(QuestionError::refused(
                    "--price needs --tokens, such as --tokens \"15 T\": a bill is of a whole run",
                ));
            }
            return Ok(None);
        };
        range::check([
            ("--tokens", tokens.get(), range::TOKENS),
            ("--price", self.price.map_or(0.0, UsdPerHour::get), range::RENT),
            ("--storage", self.storage.map_or(range::STORAGE.least(), BytesPerSec::get), range::STORAGE),
            ("--spares", f64::from(self.spares.unwrap_or_default()), range::COUNT),
        ])?;
        let mut market = catalog::market(&self.market, sets)?;
        if let Some(mode) = self.checkpoints {
            market.conditions.checkpoints.mode = mode.into();
        }
        if let Some(storage) = self.storage {
            market.conditions.checkpoints.storage = Some(storage);
        }
        if let Some(spares) = self.spares {
            market.conditions.spares = Some(spares);
        }
        let terms = terms(&market, &self.terms)?;
        let rate = money::rate(&market, &terms, problem.cluster(), self.price)?;
        Ok(Some(Economy { market, terms, rate, tokens }))
    }
}

/// Purchase terms by name.
///
/// # Errors
///
/// The market has no terms of the name; the text lists those it has.
pub fn terms(market: &Market, name: &str) -> Result<Terms, QuestionError> {
    market.terms_named(name).cloned().map_err(QuestionError::refused)
}

impl Economy {
    /// Goodput and bill of an evaluated plan.
    pub fn bill(&self, problem: &Problem, evaluation: &Evaluation) -> (Goodput, Bill) {
        let goodput = self.market.conditions(&self.terms).goodput(problem);
        let prices = Prices { market: &self.market, terms: &self.terms, rate: self.rate };
        let bill = money::bill(problem, prices, &evaluation.step, &goodput, self.tokens);
        (goodput, bill)
    }

    /// Bills of a ranking as a sheet, with a sentence about interruptions.
    pub fn sheet(&self, problem: &Problem, ranking: &Ranking) -> (Sheet, String) {
        let bills: Vec<_> = ranking.evaluations.iter().map(|evaluation| self.bill(problem, evaluation)).collect();
        let title = format!("{} tokens, {}, {} a GPU", count(self.tokens.get()), self.market.name, self.rate.usual);
        let interruptions = bills.first().map_or_else(String::new, |(goodput, _)| bill::interruptions(goodput));
        (bill::sheet(title, &bills), interruptions)
    }

    /// Bills of a ranking as JSON.
    ///
    /// # Errors
    ///
    /// A value has no JSON form.
    pub fn bills(&self, problem: &Problem, ranking: &Ranking) -> serde_json::Result<Vec<serde_json::Value>> {
        let priced = ranking.evaluations.iter().map(|evaluation| self.bill(problem, evaluation));
        priced.map(|(goodput, paid)| serde_json::to_value(bill::BillDocument::new(&goodput, &paid))).collect()
    }
}

/// Number of layouts ranked by energy at first; as long as the answer is not proved, four times as many are.
const FIRST_LAYOUTS: usize = 64;
/// Largest number of layouts ranked by energy; beyond it the answer is not proved optimal.
const MOST_LAYOUTS: usize = 4096;

/// Ranking by energy, and whether a ranking by energy is proved.
///
/// On all GPUs of a cluster, the plan with the fastest step also finishes first and costs least, since neither goodput nor
/// price depends on the plan. Energy does depend on it: an idle device draws less power. The fastest plans of all layouts
/// are ranked by energy until a lower bound excludes the rest: a step of time T takes at least the energy of T at idle:
///
/// ```text
/// E(plan) ≥ E(idle tensor cores)·T(plan)
/// ```
pub(super) fn rank_by_energy(
    economy: &Economy,
    problem: &Problem,
    options: &SearchOptions,
    control: &Control,
) -> (Ranking, bool) {
    let joules = |e: &Evaluation| economy.bill(problem, e).1.energy.get();
    let mut top = options.top.max(FIRST_LAYOUTS);
    loop {
        let mut ranking = search_for(problem, &SearchOptions { top, ..options.clone() }, Goal::Fastest, control);
        let exhausted = ranking.evaluations.len() < top;
        let last = ranking.evaluations.last().cloned();
        sort_by_numbers(&mut ranking.evaluations, |evaluation| [joules(evaluation)]); // stable: ties stay by step time
        let at_rest = |e: &Evaluation| {
            let step = StepTime {
                compute: Seconds::ZERO,
                recompute: Seconds::ZERO,
                host: e.step.total(),
                ..StepTime::default()
            };
            joules(&Evaluation { step, ..e.clone() })
        };
        let wanted = ranking.evaluations.get(options.top - 1).or(ranking.evaluations.last()).map(joules);
        let proved = exhausted || last.as_ref().zip(wanted).is_some_and(|(last, wanted)| at_rest(last) >= wanted);
        let stopped = !ranking.certificate.proof.is_complete();
        if proved || stopped || top >= MOST_LAYOUTS {
            ranking.evaluations.truncate(options.top);
            return (ranking, proved && !stopped);
        }
        top *= 4;
    }
}
