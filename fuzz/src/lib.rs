//! Functions under fuzzing, one for each reader: no input panics, hangs, or yields a number that is not finite.

mod prices;
mod questions;

use std::collections::BTreeMap;

use meshwright::catalog::{self, Overrides};
use meshwright::emit::{Request, emit as emitted_files};
use meshwright::frameworks::FRAMEWORKS;
use meshwright::import::{self, Context};
use meshwright::lint;
use meshwright::plan::text::parse_plan;
use meshwright::sweep::Sweep;
use meshwright::{cost::Costs, runs, space};

pub use questions::question;

/// Longest text that is tried: longer ones take time and reach nothing new.
const LONGEST: usize = 1 << 16;

fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok().filter(|text| text.len() <= LONGEST)
}

/// Overrides that read `text` in place of the file `name`.
fn in_place_of(name: &str, text: &str) -> Overrides {
    Overrides::default().with_texts(BTreeMap::from([(name.to_owned(), text.to_owned())]))
}

pub fn model(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Ok(model) = catalog::model("fuzz.toml", &in_place_of("fuzz.toml", text)) {
        assert!(model.parameters().total < 10_u64.pow(16));
        prices::of(model, prices::cluster(), prices::stack());
    }
}

pub fn hf_config(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Ok(model) = catalog::hf::from_config(text, "fuzz/config.json") {
        assert!(model.parameters().total < 10_u64.pow(16));
        prices::of(model, prices::cluster(), prices::stack());
    }
}

pub fn cluster(data: &[u8]) {
    let Some(text) = text(data) else { return };
    match catalog::machine("fuzz.toml", &in_place_of("fuzz.toml", text)) {
        Ok(catalog::ClusterOrPools::Cluster(cluster)) => prices::of(prices::model(), *cluster, prices::stack()),
        Ok(catalog::ClusterOrPools::Pools(pools)) => assert!(pools.gpus() > 0 && pools.check().is_ok()),
        Err(why) => assert!(!why.to_string().is_empty()),
    }
}

pub fn gpu(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Ok(gpu) = catalog::gpu_with("fuzz.toml", &in_place_of("fuzz.toml", text)) {
        let mut cluster = prices::cluster();
        cluster.scale_up = gpu.scale_up.clone();
        cluster.gpu = gpu;
        prices::of(prices::model(), cluster, prices::stack());
    }
}

pub fn stack(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Ok(stack) = catalog::stack("fuzz.toml", &in_place_of("fuzz.toml", text)) {
        prices::of(prices::model(), prices::cluster(), stack);
    }
}

pub fn market(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let Ok(market) = catalog::market("fuzz.toml", &in_place_of("fuzz.toml", text)) else { return };
    for terms in market.terms.values() {
        let goodput = market.conditions(terms).goodput(prices::problem());
        let parts = goodput.losses.parts();
        assert!(goodput.effective.is_finite() && parts.iter().all(|(_, share)| share.is_finite()), "{goodput:?}");
        assert!((0.0..=1.0).contains(&goodput.effective), "{goodput:?}");
    }
}

pub fn sweep_file(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Ok(sweep) = Sweep::parse(text, "fuzz.toml") {
        let options = sweep.options();
        assert!(options > 0 && sweep.machines() <= options);
        for option in [0, options - 1] {
            assert!(sweep.option(option).is_some_and(|choice| !sweep.label(&choice).is_empty()));
        }
    }
}

pub fn runs_csv(data: &[u8]) {
    if data.len() > LONGEST {
        return;
    }
    let Ok(rows) = runs::read(data) else { return };
    for row in rows.iter().take(4) {
        if let Ok((problem, plan)) = runs::problem_of(row) {
            prices::finite(&Costs::new(&problem).evaluate(&plan));
        }
        let _ = runs::predict(row);
    }
}

pub fn training_log(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Ok(run) = runs::log::read(text) {
        let _ = runs::log::missing(&run.row);
        let csv = runs::log::to_csv(std::slice::from_ref(&run.row)).expect("every row has a line");
        assert!(csv.lines().count() >= 2 && runs::read(csv.as_bytes()).is_ok(), "{csv}");
        let _ = runs::predict(&run.row);
    }
}

pub fn plan_text(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let (which, text) = text.split_at_checked(1).unwrap_or(("", text));
    let costs = prices::costs_of_number(which.bytes().next().unwrap_or_default());
    let problem = costs.problem;
    let Ok(plan) = parse_plan(text, problem) else { return };
    let printed = plan.to_string();
    let again = parse_plan(&printed, problem).unwrap_or_else(|why| panic!("{printed}: {why}"));
    assert_eq!(again.to_string(), printed, "{text}");
    if space::check(costs, &plan).iter().all(space::Rejection::is_of_memory) {
        let first = costs.evaluate_simulated(&plan);
        prices::finite(&first);
        // Plans that are equal have one price.
        if again != plan {
            let second = costs.evaluate_simulated(&again);
            assert_eq!(first.step, second.step, "{printed}");
            assert_eq!(first.footprint, second.footprint, "{printed}");
        }
    }
}

pub fn launch_file(data: &[u8]) {
    const NAMES: [&str; 5] = ["run.sh", "train.py", "config.yaml", "config.toml", "config.json"];
    let Some(text) = text(data) else { return };
    let (which, text) = text.split_at_checked(1).unwrap_or(("", text));
    let name = NAMES[usize::from(which.bytes().next().unwrap_or_default()) % NAMES.len()];
    let beside = |_: &str| Some("--num-layers 4\nhidden_size: 64\n".to_owned());
    let context = Context { files: &beside, ..Context::alone(name) };
    let Ok(imported) = import::kind_of(name, text).and_then(|kind| import::read(text, kind, &context)) else { return };
    let gpus = imported.world.unwrap_or(8).clamp(1, 1 << 20);
    let plan = imported.on(gpus);
    let _ = imported.batch_on(gpus);
    if let Some(problem) = prices::imported(&imported, gpus) {
        let report = lint::lint(&problem, &imported, &plan, lint::Depth::Checks);
        assert!(report.findings.iter().all(|finding| !finding.message.is_empty()));
    }
}

pub fn emitted(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let (which, name) = text.split_at_checked(1).unwrap_or(("", text));
    let problem = prices::named(name);
    let Some(problem) = problem else { return };
    let costs = Costs::new(&problem);
    let framework = FRAMEWORKS[usize::from(which.bytes().next().unwrap_or_default()) % FRAMEWORKS.len()];
    let plain = parse_plan("tp=2 pp=1 sp=on", &problem).expect("a plan of the test's own");
    let Some(plan) = framework.limits.nearest(&problem, &plain) else { return };
    let evaluation = costs.evaluate(&plan);
    let Ok(files) = emitted_files(framework, &Request::new(&costs, &evaluation)) else { return };
    let beside = |name: &str| files.iter().find(|file| file.name == name).map(|file| file.text.clone());
    let context = Context { files: &beside, ..Context::alone(&files[0].name) };
    let read = import::kind_of(&files[0].name, &files[0].text).and_then(|kind| import::read(&files[0].text, kind, &context));
    let read = read.unwrap_or_else(|why| panic!("{framework}: {name:?}: {why}\n{}", files[0].text));
    assert!(read.unknown.is_empty(), "{framework}: {name:?}: {:?}", read.unknown);
    assert_eq!(read.on(problem.cluster().gpus).to_string(), plan.to_string(), "{framework}: {name:?}");
}
