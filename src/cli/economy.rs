//! The flags that make a bill: tokens, terms, market.

use anyhow::{Result, anyhow, bail};
use clap::ValueEnum;

use crate::report::{Sheet, bill};
use meshwright_engine::cost::{Evaluation, StepTime};
use meshwright_engine::goodput::{Goodput, Mode};
use meshwright_engine::money::{self, Bill, Market, Rate, Terms};
use meshwright_engine::problem::Problem;
use meshwright_engine::units::{BytesPerSec, Seconds, Tokens, UsdPerHour, count};
use meshwright_planner::catalog::{self, Overrides};
use meshwright_planner::search::{Goal, Objective as Least, Options, Ranking, search};

/// What is to be as small as can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Objective {
    /// Seconds of one step.
    #[default]
    StepTime,
    /// Days until the tokens are trained, interruptions and all.
    TimeToTrain,
    /// Dollars for the tokens.
    Cost,
    /// Megawatt-hours at the wall for the tokens.
    Energy,
    /// Memory of the fullest GPU.
    Memory,
    /// Step time times the GPUs in use: what matters where --allow-idle leaves some to others.
    GpuTime,
}

impl Objective {
    /// What the search is to rank by; energy ranks what the search by time found.
    pub const fn goal(self) -> Goal {
        match self {
            Self::StepTime | Self::TimeToTrain | Self::Cost | Self::Energy => Goal::Fastest,
            Self::Memory => Goal::Best(Least::Memory),
            Self::GpuTime => Goal::Best(Least::GpuTime),
        }
    }
}

/// Flags of a bill.
#[derive(Debug, clap::Args)]
pub struct EconomyArgs {
    /// Tokens to train: "15.6 T". With them the answer has days, dollars and megawatt-hours.
    #[arg(long, value_name = "TOKENS")]
    pub tokens: Option<Tokens>,
    /// What the first plan has least of.
    #[arg(long, value_enum, default_value = "step-time")]
    pub objective: Objective,
    /// How the GPUs are had: contract, on-demand, reserved, spot, own.
    #[arg(long, value_name = "NAME", default_value = "contract")]
    pub terms: String,
    /// Price of a GPU-hour, such as "2.50 $/h" [default: that of the terms].
    #[arg(long, value_name = "PRICE")]
    pub price: Option<UsdPerHour>,
    /// Prices, power and failures: a name of clusters/prices/ or a TOML file.
    #[arg(long, value_name = "NAME", default_value = catalog::defaults::MARKET)]
    pub market: String,
    /// Where checkpoints go: sync, async, memory [default: that of the market].
    #[arg(long, value_enum, value_name = "MODE")]
    pub checkpoints: Option<CheckpointMode>,
    /// Bandwidth of the whole storage, such as "200 GB/s" [default: grows with the GPUs].
    #[arg(long, value_name = "BANDWIDTH")]
    pub storage: Option<BytesPerSec>,
    /// Nodes that stand by [default: enough for 99 of 100 breakages].
    #[arg(long, value_name = "NODES")]
    pub spares: Option<u32>,
}

/// Where checkpoints go, on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CheckpointMode {
    /// To storage, while training waits.
    Sync,
    /// To host memory, then to storage beside training.
    Async,
    /// To a peer's memory.
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

/// A market, and the terms chosen from it.
pub struct Economy {
    /// With what the user set.
    pub market: Market,
    /// The terms.
    pub terms: Terms,
    /// Price of a GPU-hour.
    pub rate: Rate,
    /// To train.
    pub tokens: Tokens,
}

impl EconomyArgs {
    /// The economy of a problem; none where no tokens are asked for.
    pub fn economy(&self, problem: &Problem, sets: &Overrides) -> Result<Option<Economy>> {
        let Some(tokens) = self.tokens else {
            if matches!(self.objective, Objective::Cost | Objective::Energy) {
                bail!(
                    "--objective needs --tokens, such as --tokens \"15 T\": dollars and energy are for so many tokens"
                );
            }
            return Ok(None);
        };
        if tokens.get() <= 0.0 {
            bail!("--tokens must be above 0");
        }
        let mut market = catalog::market(&self.market, sets)?;
        if let Some(mode) = self.checkpoints {
            market.conditions.checkpoints.mode = mode.into();
        }
        if let Some(storage) = self.storage {
            if storage.get() <= 0.0 {
                bail!("--storage must be above 0");
            }
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

/// The terms of that name.
pub fn terms(market: &Market, name: &str) -> Result<Terms> {
    market.terms.get(name).cloned().ok_or_else(|| {
        let names: Vec<&str> = market.terms.keys().map(String::as_str).collect();
        let near = catalog::nearest(name, names.iter().copied());
        let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        anyhow!("{} has no terms `{name}`{near}\n\nhint: there are: {}", market.name, names.join(", "))
    })
}

impl Economy {
    /// Goodput and bill of a priced plan.
    pub fn bill(&self, problem: &Problem, evaluation: &Evaluation) -> (Goodput, Bill) {
        let goodput = self.market.conditions(&self.terms).goodput(problem);
        let step = (&evaluation.step, &goodput);
        (goodput, money::bill(problem, (&self.market, &self.terms), self.rate, step, self.tokens))
    }

    /// The bills of a ranking as a sheet, and what interrupts them.
    pub fn sheet(&self, problem: &Problem, ranking: &Ranking) -> (Sheet, String) {
        let bills: Vec<_> = ranking.evaluations.iter().map(|evaluation| self.bill(problem, evaluation)).collect();
        let title = format!("{} tokens, {}, {} an hour", count(self.tokens.get()), self.market.name, self.rate.usual);
        let interruptions = bills.first().map_or_else(String::new, |(goodput, _)| bill::interruptions(goodput));
        (bill::sheet(title, &bills), interruptions)
    }

    /// The bills of a ranking for programs.
    pub fn bills(&self, problem: &Problem, ranking: &Ranking) -> serde_json::Result<Vec<serde_json::Value>> {
        let priced = ranking.evaluations.iter().map(|evaluation| self.bill(problem, evaluation));
        priced.map(|(goodput, paid)| serde_json::to_value(bill::Document::new(&goodput, &paid))).collect()
    }
}

/// Layouts looked at for energy, at most: past them the answer is the best found.
const MOST_LAYOUTS: usize = 4096;

/// The ranking for an objective; for energy also whether it is proved.
///
/// On all GPUs of a cluster the fastest step is also the soonest and the cheapest run: neither goodput nor price depends on the
/// plan. Energy does: a device that waits draws less. The fastest plans of all layouts are ranked by it until no slower one can
/// have less, for a step of time T takes at least the energy of T at rest:
///
/// ```text
/// E(plan) ≥ E(idle tensor cores)·T(plan)
/// ```
pub fn rank(
    objective: Objective,
    economy: Option<&Economy>,
    problem: &Problem,
    options: &Options,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> (Ranking, bool) {
    let (Objective::Energy, Some(economy)) = (objective, economy) else {
        return (search(problem, options, progress), true);
    };
    let joules = |e: &Evaluation| economy.bill(problem, e).1.energy.get();
    let mut top = options.top.max(64);
    loop {
        let mut ranking = search(problem, &Options { top, ..options.clone() }, progress);
        let exhausted = ranking.evaluations.len() < top;
        let last = ranking.evaluations.last().copied();
        ranking.evaluations.sort_by(|a, b| joules(a).total_cmp(&joules(b))); // stable: ties stay by step time
        let at_rest = |e: &Evaluation| {
            let step = StepTime {
                compute: Seconds::ZERO,
                recompute: Seconds::ZERO,
                host: e.step.total(),
                ..StepTime::default()
            };
            joules(&Evaluation { step, ..*e })
        };
        let wanted = ranking.evaluations.get(options.top - 1).or(ranking.evaluations.last()).map(joules);
        let proved = exhausted || last.as_ref().zip(wanted).is_some_and(|(last, wanted)| at_rest(last) >= wanted);
        if proved || top >= MOST_LAYOUTS {
            ranking.evaluations.truncate(options.top);
            return (ranking, proved);
        }
        top *= 4;
    }
}
