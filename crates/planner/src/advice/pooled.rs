//! Recommendation over pools of heterogeneous GPUs, by the rules of one cluster.
//!
//! A mixture is as unsafe, as unusual and as unproven as on the pool where it is most so.

use super::decline::{Doubts, Reason, is_named, reasons};
use super::domain::inside;
use super::ladder::{GivenUp, Prudence, rungs, shown_by_runs};
use super::preference::{Preference, PreferredFor, Unlike, choose};
use super::published::{PublishedPlan, published};
use super::recommend::{RIVALS, advise};
use crate::confidence::{MixtureConfidence, ceiling};
use crate::pools::{Mixture, Pooled, PooledAnswer};
use crate::search::{Control, SearchOptions, TIE};
use crate::space::{Restrictions, Unproven};
use meshwright_engine::ascending::sort_by_numbers;
use meshwright_engine::cost::{Costs, Evaluation};
use meshwright_engine::problem::Problem;
use meshwright_engine::units::Seconds;

/// The fastest mixture by the model, where another is recommended.
#[derive(Clone, Debug)]
pub struct DeclinedMixture {
    /// The mixture with its price.
    pub mixture: Mixture,
    /// Reasons, at least one.
    pub reasons: Vec<Reason>,
}

/// Ranked mixtures with a recommendation, and the plan of each pool alone.
#[derive(Clone, Debug)]
pub struct PooledAdvice {
    /// The best mixture of each layout in its plainest form, fastest first.
    pub answer: PooledAnswer,
    /// Index of the recommended mixture.
    pub recommended: usize,
    /// Advantage for which it is preferred to the fastest listed one; none where it is that one.
    pub preferred_for: Option<PreferredFor>,
    /// The fastest mixture by the model, if it is not the recommended one.
    pub fastest: Option<DeclinedMixture>,
    /// Limit that had to be given up.
    pub given_up: Option<GivenUp>,
    /// Recommended plan of each pool by itself, for the same batch.
    pub alone: Vec<Option<Evaluation>>,
}

impl PooledAdvice {
    /// The recommended mixture; none where no plan uses all pools.
    pub fn mixture(&self) -> Option<&Mixture> {
        self.answer.mixtures.get(self.recommended)
    }

    /// The mixtures, the recommended one first.
    pub fn by_preference(&self) -> Vec<Mixture> {
        let others = self.answer.mixtures.iter().enumerate().filter(|(at, _)| *at != self.recommended);
        self.mixture().into_iter().chain(others.map(|(_, mixture)| mixture)).cloned().collect()
    }
}

/// Mechanisms of a mixture that no published run has shown on the GPUs of some pool.
pub fn unproven_in(pooled: &Pooled, mixture: &Mixture) -> Vec<&'static Unproven> {
    let mut found: Vec<&'static Unproven> = Vec::new();
    for mechanism in pooled.joined().iter().flat_map(|problem| Unproven::in_plan(problem, &mixture.plan)) {
        if !found.iter().any(|known| std::ptr::eq(*known, mechanism)) {
            found.push(mechanism);
        }
    }
    found
}

/// Judges mixtures of one question.
struct Judge<'p> {
    pooled: &'p Pooled,
    /// The published layout that is nearest to each pool's view.
    published: Vec<Option<PublishedPlan>>,
    gave_up: bool,
}

impl Judge<'_> {
    fn preference(&self, mixture: &Mixture) -> Preference {
        let pools = self.pooled.joined().iter().zip(&self.published).enumerate();
        let on_pool = |(pool, (problem, published)): (usize, (&Problem, &Option<PublishedPlan>))| {
            Preference::new(problem, &mixture.evaluation(pool), self.gave_up, published.as_ref())
        };
        pools.map(on_pool).reduce(Preference::on_both).expect("there are pools")
    }

    fn doubts(&self, mixture: &Mixture) -> Doubts {
        let risk = MixtureConfidence::new(self.pooled, mixture).oom_probability;
        Doubts { risk, unproven: unproven_in(self.pooled, mixture) }
    }

    /// Settings that `mixture` needs beside or instead of those of `other`, as the pool counts them that finishes last.
    fn unlike(&self, mixture: &Mixture, other: &Mixture) -> Unlike {
        Unlike::between(&self.pooled.joined()[mixture.slowest], &mixture.plan, &other.plan)
    }

    fn decline(&self, fastest: &Mixture, recommended: &Mixture, prudence: Prudence) -> Option<DeclinedMixture> {
        if !is_named(fastest.step.total(), recommended.step.total()) {
            return None;
        }
        let plainer = || Reason::Plainer(self.unlike(fastest, recommended));
        let otherwise = || if self.preference(recommended).is_new { plainer() } else { Reason::Published };
        let reasons = reasons(self.doubts(fastest), &self.doubts(recommended), prudence, otherwise);
        Some(DeclinedMixture { mixture: fastest.clone(), reasons })
    }
}

/// Mixtures that keep the limits of prudence, as far as any does.
struct PrudentMixtures {
    /// The pools, under the memory ceilings of the accepted risk unless that was given up.
    pooled: Pooled,
    restrictions: Restrictions,
    answer: PooledAnswer,
    given_up: Option<GivenUp>,
}

/// Searches of a question over pools, in turn until one finds a mixture.
///
/// Layouts are the best of each pool's view, where those with mechanisms that no run has shown push others out: where these are let
/// in, plans without them are searched for as well.
fn search_prudently(
    pooled: &Pooled,
    options: &SearchOptions,
    prudence: Prudence,
    control: &Control,
) -> PrudentMixtures {
    let limited = pooled.under_ceilings(|problem| ceiling(problem, prudence.risk));
    let mut rungs = rungs(pooled.joined(), &options.restrictions, prudence).into_iter().peekable();
    loop {
        let rung = rungs.next().expect("the last search is the answer");
        let within = if rung.keeps_risk { &limited } else { pooled };
        let under = |restrictions: &Restrictions| {
            within.answer(&SearchOptions { restrictions: restrictions.clone(), ..options.clone() }, control)
        };
        let mut answer = under(&rung.restrictions);
        if prudence.exotic {
            answer = answer.with(under(&shown_by_runs(pooled.joined(), &rung.restrictions)), options.top);
        }
        if !answer.mixtures.is_empty() || answer.is_partial || rungs.peek().is_none() {
            let (pooled, restrictions) = (within.clone(), rung.restrictions);
            return PrudentMixtures { pooled, restrictions, answer, given_up: rung.given_up };
        }
    }
}

/// Finds the mixture to launch and its rivals, by the rules of [`advise`], and the plan of each pool alone, which keeps its entry of
/// `alone`.
///
/// Every mixture is one that the framework of the restrictions can express on the GPUs of all pools. Searches call `control`, and
/// when it breaks, the answer is the best so far.
pub fn advise_pools(
    pooled: &Pooled,
    options: &SearchOptions,
    alone: &[Restrictions],
    prudence: Prudence,
    control: &Control,
) -> PooledAdvice {
    let wide = SearchOptions { top: options.top.max(RIVALS.most), ..options.clone() };
    let PrudentMixtures { pooled: searched, restrictions, mut answer, given_up } =
        search_prudently(pooled, &wide, prudence, control);
    let each = pooled.separate().iter().zip(alone).map(|(problem, restrictions)| {
        let options = SearchOptions { top: 1, restrictions: restrictions.clone() };
        advise(problem, &options, prudence, control).plan().cloned()
    });
    let alone = each.collect();
    let Some(first) = answer.mixtures.first().cloned() else {
        return PooledAdvice { answer, recommended: 0, preferred_for: None, fastest: None, given_up: None, alone };
    };
    let of_view = |problem| published(&Costs::new(problem));
    let published = pooled.joined().iter().map(of_view).collect();
    let judge = Judge { pooled, published, gave_up: given_up.is_some() };
    for mixture in &mut answer.mixtures {
        if let Some(plain) = searched.plainer(&restrictions, mixture) {
            *mixture = plain;
        }
    }
    let most = first.step.total() * if given_up == Some(GivenUp::Risk) { f64::INFINITY } else { 1.0 + TIE };
    let domain = pooled.joined().iter().map(|problem| problem.cluster().scale_up.gpus).min().unwrap_or(1);
    let near = answer.mixtures.iter().filter(|mixture| mixture.step.total() <= most);
    if let Some(restrictions) = inside(&restrictions, domain, near.map(|mixture| mixture.plan.layout.tp > domain)) {
        let found = searched.answer(&SearchOptions { top: 1, restrictions }, control).mixtures;
        answer.mixtures.extend(found.into_iter().filter(|mixture| mixture.step.total() <= most));
    }
    sort_by_numbers(&mut answer.mixtures, |mixture| [mixture.step.total().get()]);
    let ranked: Vec<(Preference, Seconds)> =
        answer.mixtures.iter().map(|mixture| (judge.preference(mixture), mixture.step.total())).collect();
    let chosen = choose(&ranked, most, judge.gave_up);
    let recommended = answer.mixtures[chosen].clone();
    let by_model = match given_up {
        Some(GivenUp::Proof) => Some(first),
        None | Some(GivenUp::Risk) => {
            let options = SearchOptions { top: 1, ..options.clone() };
            pooled.answer(&options, control).mixtures.into_iter().next()
        }
    };
    let fastest = by_model.and_then(|fastest| judge.decline(&fastest, &recommended, prudence));
    let preferred_for = (chosen > 0).then(|| {
        let unlike = || judge.unlike(&answer.mixtures[0], &recommended);
        PreferredFor::between(&ranked[chosen].0, &ranked[0].0, unlike)
    });
    answer.mixtures.truncate(options.top);
    if chosen >= options.top {
        *answer.mixtures.last_mut().expect("`top` is at least one") = recommended;
    }
    let recommended = chosen.min(options.top - 1);
    PooledAdvice { answer, recommended, preferred_for, fastest, given_up, alone }
}
