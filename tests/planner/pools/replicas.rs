//! Replicas on pools against one cluster and against all shares.

use super::{cluster, leaf, level, pooled, problem};
use meshwright::cluster::Cluster;
use meshwright::cost::Costs;
use meshwright::plan::Plan;
use meshwright::pools::Distribution;
use meshwright::pools::hosts::{Unlisted, hosts};
use meshwright::pools::replicas::Shares;
use meshwright::search::{Goal, SearchOptions, WhatIfs};
use meshwright::space::{Restrictions, parse_plan};
use meshwright::units::Seconds;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

/// Replicas on two halves of one cluster cost what they do on the whole: every link is the same.
#[test]
fn two_identical_pools_are_one_cluster() {
    let mut whole = cluster("dgx-h100-1k", 512);
    whole.levels = vec![level("leaf", 256), level("spine", 512)];
    let whole = problem("llama3-8b", whole, 1024).unwrap();
    let halves = pooled("llama3-8b", vec![leaf("dgx-h100-1k", 256), leaf("dgx-h100-1k", 256)], "400 Gb/s", 1024);
    for text in [
        "tp=1 pp=1 dp=512 zero=1",
        "tp=4 pp=1 dp=128 sp=on zero=1 mbs=2",
        "tp=2 cp=2 pp=2 dp=64 sp=on zero=1 order=tp-cp-ep-pp-dp",
        "tp=1 pp=8 dp=64 schedule=1f1b zero=0 recompute=full order=tp-cp-ep-pp-dp",
        "tp=2 pp=4 dp=64 sp=on schedule=interleaved vpp=2 zero=1 recompute=full order=tp-cp-ep-pp-dp",
    ] {
        let plan = parse_plan(text, &whole).unwrap();
        let one = Costs::new(&whole).evaluate_simulated(&plan);
        let equal = plan.micro_batches(1024) as u32;
        let two = Shares::new(&halves, &plan).price(&[equal, equal]).unwrap_or_else(|| panic!("{text}"));
        let (one, two) = (one.step.total(), two.step.total());
        assert!((one / two - 1.0).abs() < 1e-12, "{text}: {one} on one cluster, {two} on its halves");
    }
}

/// Experts with a pipeline inside each replica: their groups lie inside a pool, and what joins their copies crosses the link as
/// on the whole.
#[test]
fn experts_behind_a_pipeline_are_those_of_one_cluster() {
    let mut whole = cluster("dgx-h100-1k", 512);
    whole.levels = vec![level("leaf", 256), level("spine", 512)];
    let whole = problem("mixtral-8x7b", whole, 1024).unwrap();
    let halves = pooled("mixtral-8x7b", vec![leaf("dgx-h100-1k", 256), leaf("dgx-h100-1k", 256)], "400 Gb/s", 1024);
    for text in [
        "tp=8 pp=4 dp=16 ep=8 sp=on schedule=1f1b zero=1 recompute=full order=tp-cp-ep-pp-dp",
        "tp=4 pp=4 dp=32 ep=4 etp=1 sp=on schedule=interleaved vpp=2 zero=1 recompute=full order=tp-cp-ep-pp-dp",
    ] {
        let plan = parse_plan(text, &whole).unwrap();
        assert!(plan.layout.expert_replicas() > 1);
        let one = Costs::new(&whole).evaluate_simulated(&plan);
        let found = halves.ways(&plan);
        let replicas = found.iter().filter(|mixture| matches!(mixture.distribution, Distribution::Replicas { .. }));
        let two = replicas.map(|mixture| mixture.step.total()).reduce(Seconds::min).unwrap_or_else(|| panic!("{text}"));
        let one = one.step.total();
        assert!((one / two - 1.0).abs() < 1e-12, "{text}: {one} on one cluster, {two} on its halves");
    }
}

/// A launcher starts as many processes on every host: what it cannot list is named.
#[test]
fn hosts_that_no_launcher_lists_are_refused() {
    let listed = |clusters: Vec<Cluster>| {
        let gpus: u32 = clusters.iter().map(|cluster| cluster.gpus).sum();
        let pooled = pooled("llama3-8b", clusters, "400 Gb/s", gpus);
        let plan = parse_plan(&format!("tp=1 pp=1 dp={gpus} zero=1 recompute=full"), &pooled.joined()[0]).unwrap();
        hosts(&pooled, &pooled.ways(&plan)[0])
    };
    let whole = listed(vec![leaf("dgx-h100-1k", 16), leaf("h200-1k", 8)]).unwrap();
    assert_eq!(whole.iter().map(|of| (of.pool, of.first, of.nodes)).collect::<Vec<_>>(), [(0, 0, 2), (1, 2, 1)]);
    let part = listed(vec![leaf("dgx-h100-1k", 16), leaf("h200-1k", 12)]).unwrap_err();
    assert_eq!(part, Unlisted::PartOfAHost("pool-1".into(), 12, 8));
    let mut small = leaf("dgx-h100-1k", 8);
    (small.gpus_per_node, small.scale_up.gpus) = (4, 4);
    let other = listed(vec![leaf("dgx-h100-1k", 16), small]).unwrap_err();
    assert_eq!(other, Unlisted::UnlikeHosts("pool-0".into(), 8, "pool-1".into(), 4));
}

/// The best shares are those of trying every one.
#[test]
fn shares_are_those_of_trying_all() {
    let slow_b200 = vec![leaf("hgx-b200-512", 16), leaf("dgx-h100-1k", 16)];
    let three = vec![leaf("dgx-h100-1k", 8), leaf("h200-1k", 16), leaf("hgx-b200-512", 8)];
    let mut tried = 0;
    for (clusters, batch) in [(slow_b200.clone(), 96), (slow_b200, 50), (three, 48)] {
        let sizes: Vec<u32> = clusters.iter().map(|cluster| cluster.gpus).collect();
        let pooled = pooled("llama3-8b", clusters, "100 Gb/s", batch);
        for text in [
            "tp=8 pp=1 sp=on zero=1",
            "tp=4 pp=2 sp=on zero=1 schedule=1f1b order=tp-cp-ep-pp-dp",
            "tp=4 pp=2 sp=on zero=1 schedule=interleaved vpp=2 order=tp-cp-ep-pp-dp",
            "tp=2 pp=4 sp=on zero=0 schedule=1f1b recompute=full order=tp-cp-ep-pp-dp",
        ] {
            let plan = parse_plan(text, &pooled.joined()[0]).unwrap();
            let replicas: Vec<u32> = sizes.iter().map(|gpus| gpus / 8).collect();
            let mut shares = Shares::new(&pooled, &plan);
            let mut least: Option<f64> = None;
            let mut all = vec![(Vec::new(), batch)];
            for &count in &replicas {
                all = all
                    .into_iter()
                    .flat_map(|(taken, left)| {
                        (1..=left / count).map(move |n| {
                            let mut taken: Vec<u32> = taken.clone();
                            taken.push(n);
                            (taken, left - n * count)
                        })
                    })
                    .collect();
            }
            for (taken, _) in all.into_iter().filter(|(_, left)| *left == 0) {
                if let Some(mixture) = shares.price(&taken) {
                    let step = mixture.step.total().get();
                    least = Some(least.map_or(step, |known: f64| known.min(step)));
                }
            }
            let best = Shares::new(&pooled, &plan).best(batch).map(|best| best.step.total().get());
            assert_eq!(best, least, "{text}, batch {batch}");
            tried += usize::from(best.is_some());
        }
    }
    assert!(tried >= 6, "only {tried} cases run at all");
}

/// A search that is ended at any question answers with mixtures of the whole search or slower ones, and says so.
#[test]
fn a_search_that_is_ended_is_partial() {
    let halves = pooled("llama3-8b", vec![leaf("dgx-h100-64", 32), leaf("dgx-h100-64", 32)], "400 Gb/s", 1024);
    let options = SearchOptions { top: 3, restrictions: Restrictions::default() };
    let questions = AtomicU64::new(0);
    let whole = halves.answer(&options, &|_, _| {
        questions.fetch_add(1, Ordering::Relaxed);
        ControlFlow::Continue(())
    });
    assert!(!whole.is_partial);
    let best = whole.mixtures[0].step.total();
    let all = questions.into_inner();
    assert!(all > 10, "asked {all} times");
    for most in [0, 1, all / 4, all / 2] {
        let left = AtomicU64::new(most);
        let partial = halves.answer(&options, &|_, _| {
            let take = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            take.map_or(ControlFlow::Break(()), |_| ControlFlow::Continue(()))
        });
        assert!(partial.is_partial, "ended after {most} of {all} questions");
        assert!(partial.mixtures.iter().all(|mixture| mixture.step.total() >= best * (1.0 - 1e-12)));
        if most == 0 {
            assert!(partial.mixtures.is_empty() && partial.priced == 0, "{} mixtures", partial.priced);
        }
    }
}

/// A pool that is about twice as fast takes about twice the micro-batches, and the framework of the stack, which takes equal
/// ones, is told what that would gain.
#[test]
fn the_faster_pool_takes_more() {
    let clusters = vec![leaf("hgx-b200-512", 64), leaf("dgx-h100-1k", 64)];
    let pooled = pooled("llama3-8b", clusters, "400 Gb/s", 1024);
    let mut restrictions = Restrictions::default();
    restrictions.fix("zero=1").unwrap();
    restrictions.fix("pp=1").unwrap();
    let answer = pooled.answer(&SearchOptions { top: 3, restrictions }, &|_, _| ControlFlow::Continue(()));
    let best = answer.mixtures.first().expect("a plan");
    let Distribution::Replicas { shares } = &best.distribution else { panic!("one stage needs no pipeline") };
    assert_eq!(shares[0].micro_batches, shares[1].micro_batches, "Megatron-Core takes equal numbers");
    let beyond = answer.beyond.expect("unequal shares are faster");
    let Distribution::Replicas { shares } = &beyond.distribution else { panic!("only shares are beyond a framework") };
    let ratio = f64::from(shares[0].micro_batches) / f64::from(shares[1].micro_batches);
    assert!((1.6..3.0).contains(&ratio), "{shares:?}");
    let taken: u32 = shares.iter().map(|share| share.replicas * share.micro_batches).sum();
    assert_eq!(taken * beyond.plan.micro_batch, 1024);
    assert!(beyond.step.total() < best.step.total());
}

/// A search under a ceiling finds what it finds without one, but for what is over it.
#[test]
fn a_ceiling_leaves_out_what_is_over_it() {
    let problem = problem("llama3-8b", leaf("dgx-h100-1k", 64), 128).unwrap();
    let costs = Costs::new(&problem);
    let options = SearchOptions { top: 12, restrictions: Restrictions::default() };
    let all = WhatIfs::new(&costs).ask(&options, Goal::Fastest).evaluations;
    for at in [0, 4, 11] {
        let ceiling = all[at].step.total();
        let within = WhatIfs::new(&costs).fastest_within(&options, ceiling).evaluations;
        let expected: Vec<_> = all.iter().filter(|known| known.step.total() <= ceiling).cloned().collect();
        assert_eq!(within, expected);
    }
    let none = WhatIfs::new(&costs).fastest_within(&options, all[0].step.total() * 0.999).evaluations;
    assert_eq!(none, []);
}

/// The pool with less memory sets what its replicas may hold.
#[test]
fn every_pool_has_its_own_ceiling() {
    let clusters = vec![leaf("dgx-h100-1k", 8), leaf("h200-1k", 8)];
    let both = pooled("llama3-8b", clusters, "400 Gb/s", 128);
    let fits = |pool: usize, plan: &Plan| {
        both.joined()[pool].hbm_budget() >= Costs::new(&both.joined()[pool]).fullest(plan).peak()
    };
    let plans = [1, 2, 4, 8]
        .map(|mbs| parse_plan(&format!("tp=1 pp=1 dp=16 zero=1 mbs={mbs} recompute=none"), &both.joined()[0]).unwrap());
    let only_large = plans.iter().find(|plan| !fits(0, plan) && fits(1, plan)).expect("one that needs over 80 GB");
    let only_large_shares = Shares::new(&both, only_large).price(&[1, 1]);
    assert!(only_large_shares.is_none(), "half of its ranks are too small");
    let small = plans.iter().find(|plan| fits(0, plan)).expect("one that fits in 80 GB");
    assert!(Shares::new(&both, small).price(&[1, 1]).is_some());
}
