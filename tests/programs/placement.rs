//! Placement of ranks: regular strides as a special case of a mapping; placements by program and by enumeration.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::process::Command;
use std::time::Instant;

use crate::random::{Spec, SplitMix, spec};
use meshwright::catalog::{self, Overrides};
use meshwright::cluster::{Cluster, Level};
use meshwright::collective::{Axis, Dispatch, Fabric, Group, RankMapping, units};
use meshwright::cost::Costs;
use meshwright::gpu::Collective;
use meshwright::placement::{self, Grid, PlacementMethod, PlacementOptions, Unplaceable, place};
use meshwright::plan::{Plan, RankOrder};
use meshwright::problem::Problem;
use meshwright::space::{check, parse_plan};
use meshwright::stack::Dispatcher;
use meshwright::units::Bytes;

fn cluster(name: &str) -> Cluster {
    catalog::cluster(name, &Overrides::default()).unwrap()
}

/// Regular strides are the grid of one axis: every collective takes as long, to the last bit.
#[test]
fn strides_are_a_mapping_of_one_axis() {
    for name in ["h100-24576", "dgx-a100-1k", "gb200-nvl72-1152"] {
        let cluster = cluster(name);
        let inside = units(&cluster).iter().map(|gpus| *gpus.min(&cluster.gpus)).collect();
        let mapping = RankMapping::new(&cluster, vec![Axis { ranks: cluster.gpus, inside }]);
        let specification = meshwright::catalog::Overrides::specification();
        let stack = meshwright::catalog::stack("nemo-25", &specification).unwrap();
        let (mut plain, mut mapped) = (Fabric::new(&cluster, &stack), Fabric::new(&cluster, &stack));
        (plain.network_efficiency, mapped.network_efficiency) = (0.9, 0.9);
        mapped.mapping = Some(&mapping);
        for (ranks, stride) in itertools::iproduct!([2, 3, 8, 48, 96], [1, 2, 8, 12, 24]) {
            let group = Group { ranks, stride };
            if ranks * stride > cluster.gpus {
                continue;
            }
            for op in [Collective::AllReduce, Collective::AllGather, Collective::AllToAll] {
                let time = |fabric: Fabric| fabric.time(op, Bytes::new(3e8), group, 2.0);
                // Only ranks in the order of their numbers are split over parts of a large domain.
                let (own, by_mapping) = (time(plain), time(mapped));
                assert!(
                    if ranks * stride > 8 { own <= by_mapping } else { own == by_mapping },
                    "{name} {group:?} {op:?}"
                );
            }
            for dispatcher in [Dispatcher::AllToAll, Dispatcher::DeepEp] {
                let (tokens, token_bytes) = (4096.0, Bytes::new(14336.0));
                let what = Dispatch { tokens, token_bytes, top_k: 8.0, most_domains: 4.0, dispatcher };
                let (own, by_mapping) = (plain.dispatch(&what, group), mapped.dispatch(&what, group));
                assert!(if ranks * stride > 8 { own <= by_mapping } else { own == by_mapping }, "{name} {group:?}");
            }
        }
    }
}

/// A problem on as many H100 of an example network of five levels, each slower than the one below: leaves of 4 hosts, pods of 4
/// leaves at 2:1, blocks of 4 pods at 4:1, and all of them at 4:1 again.
fn tiered(question: &Spec, gpus: u32) -> Problem {
    let of = question.problem();
    let mut cluster = of.cluster().clone();
    let own = cluster.levels[0].clone();
    let level = |name: &str, gpus: u32, oversubscription: f64| Level {
        name: name.into(),
        gpus,
        oversubscription,
        ..own.clone()
    };
    cluster.levels =
        vec![level("leaf", 32, 1.0), level("pod", 128, 2.0), level("block", 512, 4.0), level("core", gpus, 16.0)];
    cluster.gpus = gpus;
    Problem::new(of.model().clone(), cluster, of.workload().clone(), of.stack().clone(), of.hbm_profile()).unwrap()
}

fn llama() -> Spec {
    spec("llama3-70b", "h100-512", "nemo-25", 2048, 8192)
}

fn deepseek() -> Spec {
    spec("deepseek-v3", "h100-512", "nemo-25", 8192, 4096)
}

/// Questions with plans whose ranks spread in many ways.
fn questions() -> Vec<(Problem, &'static str)> {
    let mixtral = spec("mixtral-8x7b", "h100-512", "nemo-25", 1024, 4096);
    vec![
        (tiered(&llama(), 2048), "tp=4 pp=8 mbs=1 sp=on"),
        (tiered(&llama(), 2048), "tp=4 cp=2 pp=4 mbs=1 sp=on order=tp-cp-ep-pp-dp"),
        (tiered(&llama(), 1536), "tp=8 pp=4 mbs=1 sp=on"),
        (tiered(&llama(), 1024), "tp=2 cp=4 pp=4 mbs=1 sp=on zero=1 shard=16"),
        (tiered(&deepseek(), 2048), "tp=1 pp=16 ep=64 mbs=1"),
        (tiered(&deepseek(), 1024), "tp=2 pp=8 ep=32 mbs=1 sp=on"),
        (tiered(&mixtral, 1024), "tp=4 pp=4 ep=8 etp=1 mbs=1 sp=on"),
    ]
}

fn plan(problem: &Problem, text: &str) -> Plan {
    parse_plan(text, problem).unwrap_or_else(|why| panic!("{text}: {why}"))
}

/// Every placement with the sum of what its spreads cost, the least first.
fn least(grid: &Grid, extra: &[Vec<f64>]) -> (f64, usize) {
    let (mut least, mut count) = (f64::INFINITY, 0);
    let _ = grid.each(|chosen| {
        let sum: f64 = chosen.iter().zip(extra).map(|(&at, extra)| extra[at]).sum();
        least = least.min(sum);
        count += 1;
        ControlFlow::Continue(())
    });
    (least, count)
}

/// The program against every placement there is, at random costs and at the model's own.
#[test]
fn the_program_finds_what_enumeration_finds() {
    let mut numbers = SplitMix::new(7);
    for (problem, text) in questions() {
        let plan = plan(&problem, text);
        let costs = Costs::new(&problem);
        let grid = Grid::new(problem.cluster(), &plan).unwrap();
        let mut first = None;
        let _ = grid.each(|chosen| {
            first = Some(chosen.to_vec());
            ControlFlow::Break(())
        });
        let own = placement::extra(&costs, &plan, &grid, &first.unwrap());
        let mut random = || -> Vec<Vec<f64>> {
            let mut number = |_: &Vec<u32>| numbers.below(1000) as f64;
            grid.spreads.iter().map(|all| all.iter().map(&mut number).collect()).collect()
        };
        for extra in [own, random(), random()] {
            let (wanted, count) = least(&grid, &extra);
            let chosen = placement::choose(&grid, &extra).unwrap_or_else(|| panic!("{text}: nothing of {count}"));
            let sum: f64 = chosen.iter().zip(&extra).map(|(&at, extra)| extra[at]).sum();
            assert!((sum - wanted).abs() <= 1e-9 * wanted.abs().max(1.0), "{text}: {sum} against {wanted}");
        }
    }
}

/// Placed by the program as fast as the fastest of all placements, each priced wholly, and never slower than a rank order.
#[test]
fn placements_are_never_slower_than_rank_orders() {
    for (problem, text) in questions() {
        let plan = plan(&problem, text);
        let costs = Costs::new(&problem);
        let by = |enumerated: usize| {
            place(&costs, &plan, &PlacementOptions { enumerated, ..PlacementOptions::default() }).unwrap()
        };
        let (all, program) = (by(usize::MAX), by(0));
        assert!(
            matches!(all.found, PlacementMethod::Enumerated(_)) && matches!(program.found, PlacementMethod::Program(_)),
            "{text}"
        );
        assert!(all.step <= all.in_order && program.step <= program.in_order, "{text}");
        let replica = plan.layout.tp * plan.layout.cp;
        for order in [RankOrder::PipelineOutermost, RankOrder::DataOutermost] {
            if let Some(mapping) =
                placement::in_order(problem.cluster(), &plan, order).filter(|_| replica.is_multiple_of(8))
            {
                assert!(all.step <= placement::simulated_step(&costs, &plan, &mapping), "{text} {order}");
            }
        }
        assert!(program.step.get() >= all.step.get() * (1.0 - 1e-9), "{text}: enumeration missed one");
        assert!(program.step.get() <= all.step.get() * (1.0 + 1e-3), "{text}: {:?} {:?}", program.step, all.step);
    }
}

/// Where units are whole parts of the grid, hosts in rank order are priced as they are without a mapping; only sends
/// between stages, of which some cross farther than the first, cost more.
#[test]
fn rank_orders_are_placements() {
    let mut compared = 0;
    for (problem, text) in questions() {
        let costs = Costs::new(&problem);
        for order in [RankOrder::PipelineOutermost, RankOrder::DataOutermost] {
            let plan = Plan { order, ..plan(&problem, text) };
            // Expert groups wider than tp·cp are neighbours in no grid that has replicas outermost.
            let wide = plan.layout.ep * plan.layout.etp > plan.layout.tp * plan.layout.cp;
            if !check(&costs, &plan).is_empty() || wide && order == RankOrder::DataOutermost {
                continue;
            }
            let Some(mapping) = placement::in_order(problem.cluster(), &plan, order) else { continue };
            let plain = costs.evaluate(&plan).step;
            let mapped = costs.mapped(&mapping).evaluate(&Plan { order: RankOrder::default(), ..plan }).step;
            assert!(mapped.pp_comm >= plain.pp_comm, "{text} {order}");
            let terms = |step: meshwright::cost::StepTime| (step.compute, step.tp_comm, step.ep_comm, step.amax_comm);
            assert_eq!(terms(plain), terms(mapped), "{text} {order}");
            // Replicas a pipeline apart count as far where cp lies between them (`cost::groups::dp`).
            if order == RankOrder::PipelineOutermost || plan.layout.cp == 1 {
                assert_eq!((plain.dp_comm, plain.cp_comm), (mapped.dp_comm, mapped.cp_comm), "{text} {order}");
            }
            compared += 1;
        }
    }
    assert!(compared > 4, "{compared}");
}

/// Where no level is slower than the one below it, no order of hosts is better; a host is never torn apart.
#[test]
fn what_cannot_be_placed_is_said() {
    let refused = |question: Spec, text: &str| {
        let problem = question.problem();
        Grid::new(problem.cluster(), &plan(&problem, text)).map(|_| ()).unwrap_err()
    };
    assert_eq!(refused(llama(), "tp=8 pp=4 mbs=1 sp=on"), Unplaceable::Equidistant);
    assert_eq!(refused(llama().gpus(8), "tp=8 mbs=1 sp=on"), Unplaceable::OneHost);
    let crooked = tiered(&llama(), 1536);
    let plan = plan(&crooked, "tp=1 cp=3 pp=4 mbs=1");
    assert_eq!(Grid::new(crooked.cluster(), &plan).unwrap_err(), Unplaceable::IndivisibleHost(8));
}

/// The list of hosts holds every host once at the most, and the ranks on it are those of the mapping: counted one by
/// one in every unit.
#[test]
fn host_lists_are_the_placements() {
    let mut moved = 0;
    for (problem, text) in questions() {
        let cluster = problem.cluster();
        let costs = Costs::new(&problem);
        let placed = place(&costs, &plan(&problem, text), &PlacementOptions::default()).unwrap();
        let plan = placed.plan;
        let Some(mapping) = placed.mapping else { continue };
        moved += 1;
        let hosts = placement::host_order(cluster, &plan, &mapping).unwrap();
        assert_eq!(hosts.iter().collect::<BTreeSet<_>>().len(), hosts.len(), "{text}");
        let layout = plan.layout;
        let replica = layout.tp * layout.cp;
        // The place of a rank in tp-cp-ep-dp-pp, whatever its own order.
        let counted = |rank: u32| match plan.order {
            RankOrder::PipelineOutermost => rank,
            RankOrder::DataOutermost => {
                let (stage, copy) = (rank / replica % layout.pp, rank / replica / layout.pp);
                rank % replica + replica * (copy + layout.dp * stage)
            }
        };
        let mut stride = 1;
        for axis in mapping.axes() {
            for (unit, &gpus) in units(cluster).iter().enumerate() {
                let mut together = BTreeMap::new();
                for rank in 0..layout.world_size() {
                    let gpu = hosts[(rank / 8) as usize] * 8 + rank % 8;
                    let at = counted(rank);
                    let others = (at % stride, at / (stride * axis.ranks));
                    *together.entry((others, gpu / gpus)).or_insert(0) += 1;
                }
                let inside = axis.inside[unit];
                assert!(together.values().all(|ranks| ranks % inside == 0), "{text}: {axis:?} in {gpus}");
            }
            stride *= axis.ranks;
        }
    }
    assert!(moved >= 4, "of {moved} questions only is the rank order not the best");
}

/// The list of hosts is written beside Megatron's script, in the rank order that it is for, and its plan reads back.
#[test]
fn the_list_of_hosts_is_written() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("host-order");
    let run = |arguments: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_meshwright")).args(arguments).output().unwrap();
        let (text, talk) = (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap());
        assert!(out.status.success(), "{arguments:?}: {talk}");
        text
    };
    let question = ["deepseek-v3", "h100-24576", "--set", "cluster.gpus=6144"];
    let fixed = ["--fix", "tp=4", "--fix", "cp=2", "--fix", "pp=2", "--fix", "ep=256", "--no-refine"];
    let emitted = ["--emit", "megatron", "--force", "--out", folder.to_str().unwrap(), "--place", "1", "--top", "1"];
    let table = run(&[&["plan"], &question[..], &fixed, &emitted].concat());
    assert!(table.contains("with reordered hosts"), "{table}");
    let list = std::fs::read_to_string(folder.join("host-order.txt")).unwrap();
    let hosts: BTreeSet<u32> = list.lines().filter_map(|line| line.parse().ok()).collect();
    assert_eq!(hosts, (0..768).collect(), "every host once");
    let plan = list.lines().find_map(|line| line.strip_prefix("# plan: ")).unwrap();
    let script = std::fs::read_to_string(folder.join("megatron.sh")).unwrap();
    let says = |flag: &str| script.contains(flag);
    assert!(says("--expert-model-parallel-size 256") && !says("--use-tp-pp-dp-mapping"), "{plan}");
    let explained = run(&[&["explain"], &question[..], &["--plan", plan, "--place"]].concat());
    assert!(explained.contains("with reordered hosts"), "{explained}");
}

/// The figures of docs/placement.md: `cargo test --test programs -- --ignored --nocapture figures`.
#[test]
#[ignore = "prints figures"]
fn figures() {
    let deep = |gpus: u32, text: &'static str| {
        let of = tiered(&Spec { global_batch: 8192, ..llama() }, gpus);
        let mut cluster = of.cluster().clone();
        let wider = Level { name: "site".into(), gpus, oversubscription: 32.0, ..cluster.levels[3].clone() };
        cluster.levels[3].gpus = 4096;
        cluster.levels.push(wider);
        let (model, stack) = (of.model().clone(), of.stack().clone());
        (Problem::new(model, cluster, of.workload().clone(), stack, of.hbm_profile()).unwrap(), text)
    };
    let mut all = questions();
    all.push(deep(32768, "tp=2 cp=4 pp=16 mbs=1 sp=on"));
    all.push(deep(32768, "tp=2 cp=4 pp=16 mbs=1 sp=on zero=1 shard=64"));
    all.push(deep(65536, "tp=4 cp=8 pp=16 mbs=1 sp=on zero=1 shard=64"));
    for (problem, text) in all {
        let plan = plan(&problem, text);
        let costs = Costs::new(&problem);
        for enumerated in [usize::MAX, 0] {
            let start = Instant::now();
            let placed = place(&costs, &plan, &PlacementOptions { enumerated, ..PlacementOptions::default() }).unwrap();
            let (before, after) = (placed.in_order.get(), placed.step.get());
            let gain = placed.gain() * 100.0;
            println!(
                "{} GPUs, {text}: {:?}, {before:.4} s to {after:.4} s ({gain:.2} %), {:?}",
                problem.cluster().gpus,
                placed.found,
                start.elapsed()
            );
        }
    }
}
