//! A plan written as text reads back as itself; what is no plan is named, and nothing panics.

use crate::random::{SplitMix, listed_split, plans, seeded, spec, specs, split_with_ends};
use meshwright::catalog;
use meshwright::cost::Costs;
use meshwright::plan::text::KEYS;
use meshwright::plan::{Modules, Offload, Plan, Recompute, ZeroStage};
use meshwright::space::{Restrictions, check, parse_plan, plain_plan};
use meshwright::split::LayerSplit;
use proptest::prelude::*;

#[test]
fn plans_of_the_space_read_back() {
    for (index, spec) in specs().iter().enumerate() {
        let problem = spec.problem();
        for plan in plans(&problem, 200, 70 + index as u64) {
            assert_eq!(parse_plan(&plan.to_string(), &problem), Ok(plan.clone()), "{spec:?} {plan}");
        }
    }
}

/// Stacks differ in what they take an open split for, nanotron by its own code: a printed plan leaves none open.
#[test]
fn an_even_plan_reads_back_on_every_stack() {
    for stack in catalog::stack_names() {
        let problem = spec("llama3-8b", "dgx-h100-64", stack, 128, 8192).problem();
        for text in ["tp=2 pp=2 split=even", "tp=1 pp=4 split=even mbs=2", "pp=2 vpp=2 schedule=interleaved split=even"]
        {
            let plan = parse_plan(text, &problem).unwrap();
            assert_eq!(plan.split, LayerSplit::Even, "{stack}");
            assert_eq!(parse_plan(&plan.to_string(), &problem), Ok(plan.clone()), "{stack}: {plan}");
        }
    }
}

/// Plans with values beyond those of the search read back too: arbitrary splits, shard groups and offloaded shares.
#[test]
fn plans_beyond_the_space_read_back() {
    let problem = spec("deepseek-v3", "h800-2048", "deepseek-v3", 15360, 4096).problem();
    let (costs, mut numbers) = (Costs::new(&problem), SplitMix::new(9));
    for plan in plans(&problem, 500, 90) {
        let flag = |numbers: &mut SplitMix| numbers.below(2) == 1;
        let modules = Modules {
            core_attn: flag(&mut numbers),
            layernorm: true,
            act: flag(&mut numbers),
            mla_up_proj: flag(&mut numbers),
            mlp: flag(&mut numbers),
            moe: flag(&mut numbers),
        };
        let recompute = [
            Recompute::PerOp,
            Recompute::EveryOther,
            Recompute::FirstLayers(1 + numbers.below(9) as u32),
            Recompute::Selective(modules),
        ][numbers.below(4)];
        let share = |numbers: &mut SplitMix| numbers.below(1001) as f64 / 1000.0;
        let plan = Plan {
            recompute,
            split: match numbers.below(4) {
                0 if plan.layout.pp > 1 => LayerSplit::CostBalanced,
                1 if plan.layout.pp > 1 => split_with_ends(&costs, &plan, &mut numbers),
                2 if plan.layout.pp > 1 => listed_split(&costs, &plan, &mut numbers),
                _ => LayerSplit::Even,
            },
            shard_group: flag(&mut numbers)
                .then(|| 1 + numbers.below(64) as u32)
                .filter(|group| *group != plan.layout.dense_replicas()),
            reshard_after_forward: plan.zero != ZeroStage::Three || flag(&mut numbers),
            offload: Offload { optimizer: share(&mut numbers), activations: share(&mut numbers) },
            ..plan
        };
        assert_eq!(parse_plan(&plan.to_string(), &problem), Ok(plan.clone()), "{plan}");
    }
}

#[test]
fn what_is_wrong_is_named() {
    let problem = spec("llama3-8b", "dgx-h100-64", "nemo-25", 128, 8192).problem();
    for (text, named) in [
        ("tp", "`tp`"),
        ("tp=", "tp"),
        ("tp=0", "tp"),
        ("tp=-1", "tp"),
        ("tp=1.5", "tp"),
        ("tp=99999999999", "tp"),
        ("tp=2 tp=2", "`tp` is written twice"),
        ("ttp=2", "`ttp`"),
        ("shedule=1f1b", "did you mean `schedule`"),
        ("schedule=2f2b", "2f2b"),
        ("vpp=0", "vpp"),
        ("zero=4", "zero"),
        ("sp=maybe", "sp"),
        ("cp-kind=ring", "cp-kind"),
        ("recompute=", "recompute"),
        ("recompute=all", "`all`"),
        ("recompute=first-x", "recompute"),
        ("offload-optimizer=2", "offload-optimizer"),
        ("offload-activations=nan", "offload-activations"),
        ("order=pp", "order"),
        ("dispatcher=mail", "dispatcher"),
        ("split=odd", "split=odd"),
        ("split=Et|x|L", "`x` is no letter"),
        ("split=Et|tt", "`L` comes last"),
        ("split=first-0", "first-N"),
        ("tp=65536 cp=65536", "1,048,576 at most"),
        ("tp=65536 cp=65536 pp=65536 dp=65536", "1,048,576 at most"),
        ("ep=65536 etp=65536", "ep·etp"),
        ("pp=65536 schedule=interleaved vpp=512", "pp·vpp"),
        ("pp=2 schedule=interleaved vpp=65536", "`vpp` is 65,536, and must be from 1 to 512"),
        ("mbs=4294967295", "`mbs` is 4,294,967,295, and must be from 1 to 1,048,576"),
        ("tp=4294967295 cp=4294967295 pp=4294967295", "`tp` is 4,294,967,295"),
    ] {
        let error = parse_plan(text, &problem).expect_err(text);
        assert!(error.contains(named), "{text}: {error}");
    }
    assert_eq!(parse_plan("", &problem).unwrap().layout.world_size(), problem.cluster().gpus);
    assert_eq!(parse_plan(" \t,\n", &problem), parse_plan("", &problem));
    assert_eq!(plain_plan(&problem).micro_batch, 1);
}

proptest! {
    #![proptest_config(seeded(3000))]

    #[test]
    fn any_text_is_a_plan_or_an_error(text in any::<String>()) {
        let problem = spec("llama3-8b", "dgx-h100-8", "nemo-25", 32, 8192).problem();
        if let Err(error) = parse_plan(&text, &problem) {
            prop_assert!(!error.is_empty());
        }
        let mut restrictions = Restrictions::default();
        let _ = (restrictions.fix(&text), restrictions.forbid(&text));
    }

    #[test]
    fn any_values_of_known_keys_are_a_plan_or_an_error(
        items in prop::collection::vec((0..KEYS.len(), any::<i64>(), "[a-z0-9+.=-]{0,8}", 0_u8..3), 0..6),
    ) {
        let problem = spec("llama3-8b", "dgx-h100-8", "nemo-25", 32, 8192).problem();
        let value = |number: i64, word: &str, kind| match kind {
            0 => number.to_string(),
            1 => number.rem_euclid(9).to_string(),
            _ => word.to_owned(),
        };
        let text: Vec<String> =
            items.iter().map(|(key, number, word, kind)| format!("{}={}", KEYS[*key], value(*number, word, *kind))).collect();
        match parse_plan(&text.join(" "), &problem) {
            Ok(plan) => {
                // what is read can be written, and is then read as the same text
                let again = parse_plan(&plan.to_string(), &problem).expect("what was written can be read");
                prop_assert_eq!(again.to_string(), plan.to_string());
                let costs = Costs::new(&problem);
                if check(&costs, &plan).is_empty() {
                    prop_assert!(costs.evaluate(&plan).step.total().get().is_finite());
                }
            }
            Err(error) => prop_assert!(KEYS.iter().any(|key| error.contains(key)), "{}", error),
        }
    }
}

/// A shard group of all replicas is what no shard group is.
#[test]
fn all_replicas_are_no_group() {
    let problem = spec("llama3-8b", "dgx-h100-64", "nemo-25", 128, 8192).problem();
    let read = |text: &str| parse_plan(text, &problem).unwrap();
    assert_eq!(read("tp=2 zero=3 shard=32"), read("tp=2 zero=3"));
    assert_eq!(read("tp=2 zero=3 shard=16").shard_group, Some(16));
}
