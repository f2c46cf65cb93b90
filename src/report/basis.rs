//! Basis of each term of a step: the least reliable of the figures that it depends on.

use meshwright_engine::collective::Group;
use meshwright_engine::cost::{Evaluation, Term, groups};
use meshwright_engine::gpu::{Collective, Figure, Gpu};
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::sources::Basis;
use meshwright_engine::units::Seconds;

/// Term of a step with its basis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TermBasis {
    /// The term.
    pub term: Term,
    /// Its time.
    pub time: Seconds,
    /// Its basis; none for a term of zero length.
    pub basis: Option<Basis>,
}

/// Basis of each term of a step, in the order of [`StepTime::terms`](meshwright_engine::cost::StepTime::terms).
pub fn of_terms(problem: &Problem, evaluation: &Evaluation) -> Vec<TermBasis> {
    let known = |term, time: Seconds| (time.get() > 0.0).then(|| of_term(problem, &evaluation.plan, term));
    evaluation.step.terms().into_iter().map(|(term, time)| TermBasis { term, time, basis: known(term, time) }).collect()
}

/// Basis of one term.
///
/// Terms that no sample measures directly (pipeline bubbles, stragglers, point-to-point sends) are at best as reliable as
/// the device's own curves.
fn of_term(problem: &Problem, plan: &Plan, term: Term) -> Basis {
    let gpu = &problem.cluster().gpu;
    let format = problem.workload().format;
    let weakest = |figures: &[Figure]| {
        figures.iter().map(|&figure| gpu.basis_of(figure)).reduce(Basis::combine).unwrap_or(gpu.basis)
    };
    let collectives = |ops: &[Collective], group: Group| {
        if group.ranks <= 1 {
            return Basis::Measured;
        }
        let domain = problem.cluster().scale_up.gpus;
        let inside = group.inside(domain);
        let mut figures: Vec<Figure> = if inside > 1 {
            ops.iter().map(|&op| Figure::Collective(op, curve_of(gpu, op, inside))).collect()
        } else {
            Vec::new()
        };
        if inside < group.ranks {
            figures.push(Figure::Network);
        }
        weakest(&figures)
    };
    let gather_and_scatter = [Collective::AllGather, Collective::ReduceScatter];
    let kernels = || {
        let kernel = problem.stack().attention;
        let own = gpu.attention.range(..=kernel).next_back().or_else(|| gpu.attention.range(kernel..).next());
        let mut figures = vec![Figure::Gemm(format), Figure::Sustained(format), Figure::Hbm];
        figures.extend(own.map(|(kernel, _)| Figure::Attention(*kernel)));
        weakest(&figures)
    };
    match term {
        Term::Compute | Term::Recompute => kernels(),
        Term::TpComm if plan.sequence_parallel => collectives(&gather_and_scatter, groups::tp(plan)),
        Term::TpComm => collectives(&[Collective::AllReduce], groups::tp(plan)),
        Term::CpComm => collectives(&[Collective::AllGather], groups::cp(plan)),
        Term::EpComm => collectives(&[Collective::AllToAll], Group { ranks: plan.layout.ep, stride: 1 }),
        Term::AmaxComm => collectives(&[Collective::AllReduce], groups::dp(plan, plan.layout.dense_replicas())),
        Term::DpComm => collectives(&gather_and_scatter, groups::dp(plan, plan.layout.dense_replicas())),
        Term::Host => weakest(&[Figure::Launch]),
        Term::Optimizer => weakest(&[Figure::Hbm]),
        Term::Offload => weakest(&[Figure::HostLink]),
        Term::PipelineBubble | Term::PpComm | Term::Stragglers => gpu.basis,
    }
}

/// Ranks of the curve used for a group of `ranks`: the next larger one, or else the largest.
fn curve_of(gpu: &Gpu, op: Collective, ranks: u32) -> u32 {
    let curves = gpu.collectives.get(&op).map_or(&[][..], Vec::as_slice);
    let next = curves.iter().find(|curve| curve.ranks >= ranks).or_else(|| curves.last());
    next.map_or(ranks, |curve| curve.ranks)
}

/// Basis of the whole step: that of its least reliable term of non-zero length.
pub fn of_step(problem: &Problem, evaluation: &Evaluation) -> Basis {
    let known = of_terms(problem, evaluation).into_iter().filter_map(|of| of.basis);
    known.reduce(Basis::combine).unwrap_or(problem.cluster().gpu.basis)
}
