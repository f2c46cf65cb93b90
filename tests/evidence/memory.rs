//! Memory against PyTorch frameworks' own steps on fake tensors, and against what XLA assigns to MaxText's
//! (`tests/memory/`, remade by `checks/memory.sh`).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use crate::random::spec;
use meshwright::cost::{Costs, Footprint};
use meshwright::model::{Attention, Ffn, Mixer, Mlp, Model, Moe, QkNorm};
use meshwright::plan::Plan;
use meshwright::problem::Problem;
use meshwright::space::parse_plan;
use meshwright::workload::{Recipe, recipe};

const GIB: f64 = (1_u64 << 30) as f64;

/// Errors that a framework's predictions keep within: the mean, the worst, and the share of configurations within 5 %.
struct Bar {
    framework: &'static str,
    allocated: (f64, f64, f64),
    reserved: (f64, f64),
}

/// One step of a framework, as its own code ran it on fake tensors.
#[derive(Debug)]
struct Configuration {
    framework: &'static str,
    model: String,
    plan: String,
    /// Peaks in GiB.
    allocated: f64,
    reserved: f64,
    kept: f64,
}

impl Configuration {
    /// Settings of the plan, with those that the oracle leaves at their defaults.
    fn settings(&self) -> BTreeMap<&str, &str> {
        let usual = [
            ("tp", "1"),
            ("dp", "8"),
            ("mbs", "1"),
            ("seq", "8192"),
            ("accum", "1"),
            ("ac", "none"),
            ("loss", "chunked"),
        ];
        let own = self.plan.split_whitespace().map(|item| item.split_once('=').unwrap());
        usual.into_iter().chain(own).collect()
    }

    /// The stack that is its framework, and what its release does besides.
    fn problem(&self) -> Problem {
        let settings = self.settings();
        let of = |key: &str| settings[key].parse::<u32>().unwrap();
        let (stack, more): (_, &[&str]) = match self.framework {
            // torchtitan 0.3, which has a table of rotary embeddings in each layer.
            "torchtitan" => ("torchtitan-eager", &["stack.memory.rotary_tables=true"]),
            "accelerate" => ("fsdp-eager-2023", &[]),
            "deepspeed" => ("deepspeed-2024", &[]),
            _ => ("simumax-2025", &[]),
        };
        let (gpus, batch) = (of("tp") * of("dp"), of("dp") * of("mbs") * of("accum"));
        let mut spec =
            more.iter().fold(spec("llama3-8b", "h100-512", stack, batch, of("seq")), |spec, set| spec.set(*set));
        spec = spec.gpus(gpus);
        if self.framework == "torchtitan" && settings["loss"] == "chunked" {
            spec = spec.set("stack.memory.loss_chunks=8");
        }
        if settings.get("optimizer") != Some(&"foreach") {
            spec = spec.set("stack.memory.updates_at_once=false");
        }
        if settings.contains_key("drop_output") {
            spec = spec.set("stack.memory.keeps_outputs=true");
        }
        let problem = spec.problem();
        let mut bytes = recipe(problem.stack().usual_recipe(problem.workload().format)).unwrap();
        if settings.get("params") == Some(&"bf16") {
            bytes = Recipe { weight: 2.0, gradient: 2.0, master: 0.0, state: 4.0 };
        }
        let mut model = model(&self.model);
        if let Some(layers) = settings.get("layers") {
            model.order.truncate(layers.parse().unwrap());
        }
        if let (Some(kv_heads), Mixer::Attention(attention)) = (settings.get("kv_heads"), &mut model.kinds[0].mixer) {
            attention.kv_heads = kv_heads.parse().unwrap();
        }
        let problem = problem.changed(|_, workload, _| workload.recipe = bytes).unwrap();
        let (cluster, workload) = (problem.cluster().clone(), problem.workload().clone());
        Problem::new(model, cluster, workload, problem.stack().clone(), problem.hbm_profile()).unwrap()
    }

    fn plan(&self, problem: &Problem) -> Plan {
        let settings = self.settings();
        let zero = match self.framework {
            "megatron" => "1",
            "deepspeed" => settings.get("zero").copied().unwrap_or("2"),
            "accelerate" if settings["dp"] == "1" => "0",
            _ => "3",
        };
        let recompute = match settings["ac"] {
            "selective" => "per-op",
            other => other,
        };
        let [tp, dp, mbs] = ["tp", "dp", "mbs"].map(|key| settings[key]);
        let sp = if tp == "1" { "off" } else { "on" };
        let text = format!("tp={tp} dp={dp} mbs={mbs} zero={zero} recompute={recompute} sp={sp}");
        parse_plan(&text, problem).unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    fn predicted(&self) -> Footprint {
        let problem = self.problem();
        let costs = Costs::new(&problem);
        costs.fullest(&self.plan(&problem))
    }
}

fn read(name: &str) -> csv::Reader<std::fs::File> {
    csv::Reader::from_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/memory").join(name)).unwrap()
}

/// Models that the oracle builds, by name.
static MODELS: LazyLock<BTreeMap<String, Model>> = LazyLock::new(|| {
    let llama = spec("llama3-8b", "dgx-h100-64", "nemo-25", 64, 8192).problem().model().clone();
    let row = |record: csv::Result<csv::StringRecord>| {
        let record = record.unwrap();
        let of = |at: usize| record[at].parse::<u32>().unwrap();
        let mut model = Model { hidden: of(1), vocab: of(7), tied_embeddings: of(8) == 1, ..llama.clone() };
        model.order = vec![0; of(3) as usize];
        let Mixer::Attention(attention) = &llama.kinds[0].mixer else { unreachable!("Llama has attention") };
        let qk_norm = if of(12) == 1 { QkNorm::PerHead } else { QkNorm::None };
        let attention = Attention { heads: of(4), kv_heads: of(5), head_dim: of(6), qk_norm, ..attention.clone() };
        model.kinds[0].mixer = Mixer::Attention(attention);
        model.kinds[0].ffn = if of(9) > 0 {
            let mixture = spec("qwen3-30b-a3b", "dgx-h100-64", "nemo-25", 64, 4096).problem();
            let moe = mixture.model().kinds[0].moe().unwrap().clone();
            Ffn::Moe(Moe { experts: of(9), top_k: of(10), intermediate: of(11), ..moe })
        } else {
            Ffn::Dense(Mlp { intermediate: of(2), gated: true, bias: false })
        };
        (record[0].to_owned(), model)
    };
    read("models.csv").records().map(row).collect()
});

fn model(name: &str) -> Model {
    MODELS[name].clone()
}

fn configurations(framework: &'static str) -> Vec<Configuration> {
    let row = |record: csv::Result<BTreeMap<String, String>>| {
        let record = record.unwrap();
        let gib = |key: &str| record[key].parse().unwrap();
        Configuration {
            framework,
            model: record["model"].clone(),
            plan: record["plan"].clone(),
            allocated: gib("allocated_gib"),
            reserved: gib("reserved_gib"),
            kept: gib("kept_gib"),
        }
    };
    read(&format!("{framework}.csv")).deserialize().map(row).collect()
}

fn mean(errors: &[f64]) -> f64 {
    errors.iter().map(|error| error.abs()).sum::<f64>() / errors.len() as f64
}

fn worst(errors: &[f64]) -> f64 {
    errors.iter().map(|error| error.abs()).fold(0.0, f64::max)
}

#[test]
fn peaks_are_those_of_the_frameworks_own_code() {
    let bars = [
        Bar { framework: "torchtitan", allocated: (0.02, 0.17, 0.94), reserved: (0.05, 0.20) },
        Bar { framework: "accelerate", allocated: (0.01, 0.05, 1.0), reserved: (0.05, 0.12) },
        Bar { framework: "megatron", allocated: (0.01, 0.05, 1.0), reserved: (0.04, 0.08) },
        // Its buckets and the copies of its update are not in the model.
        Bar { framework: "deepspeed", allocated: (0.12, 0.25, 0.5), reserved: (0.14, 0.32) },
    ];
    let mut missed = Vec::new();
    for Bar { framework, allocated, reserved } in bars {
        let (mut of_allocated, mut of_reserved) = (Vec::new(), Vec::new());
        for configuration in configurations(framework) {
            let footprint = configuration.predicted();
            let [peak, held, kept] =
                [footprint.allocated(), footprint.reserved(), footprint.activations].map(|b| b.get() / GIB);
            of_allocated.push(peak / configuration.allocated - 1.0);
            of_reserved.push(held / configuration.reserved - 1.0);
            println!(
                "{framework:10} {:13} {:58} allocated {:6.2} {peak:6.2} {:+5.1} %  reserved {:6.2} {held:6.2} {:+5.1} \
                %  kept {:5.2} {kept:5.2}",
                configuration.model,
                configuration.plan,
                configuration.allocated,
                100.0 * of_allocated.last().unwrap(),
                configuration.reserved,
                100.0 * of_reserved.last().unwrap(),
                configuration.kept
            );
        }
        let near = of_allocated.iter().filter(|error| error.abs() <= 0.05).count() as f64 / of_allocated.len() as f64;
        let line = format!(
            "{framework}: {} configurations, allocated {:.2} % (worst {:.1} %, {:.0} % within 5 %), reserved {:.1} % \
            (worst {:.1} %)",
            of_allocated.len(),
            100.0 * mean(&of_allocated),
            100.0 * worst(&of_allocated),
            100.0 * near,
            100.0 * mean(&of_reserved),
            100.0 * worst(&of_reserved)
        );
        println!("{line}");
        let holds = mean(&of_allocated) <= allocated.0 && worst(&of_allocated) <= allocated.1 && near >= allocated.2;
        if !holds || mean(&of_reserved) > reserved.0 || worst(&of_reserved) > reserved.1 {
            missed.push(line);
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

/// One step of MaxText, as XLA compiled it for a TPU.
struct Assigned {
    model: String,
    plan: String,
    gib: f64,
}

impl Assigned {
    /// Memory of the rank that needs the most, in GiB.
    fn predicted(&self) -> f64 {
        let usual = [("tp", "1"), ("accum", "1"), ("layers", "0")];
        let own = self.plan.split_whitespace().map(|item| item.split_once('=').unwrap());
        let settings: BTreeMap<&str, &str> = usual.into_iter().chain(own).collect();
        let of = |key: &str| settings[key].parse::<u32>().unwrap();
        let batch = of("dp") * of("mbs") * of("accum");
        let spec = spec("llama3-8b", "tpu-v5p-1024", "jax-2025", batch, of("seq")).gpus(of("tp") * of("dp"));
        let problem = spec.problem();
        let mut model = model(&self.model);
        if of("layers") > 0 {
            model.order.truncate(of("layers") as usize);
        }
        let (cluster, workload) = (problem.cluster().clone(), problem.workload().clone());
        let problem = Problem::new(model, cluster, workload, problem.stack().clone(), problem.hbm_profile()).unwrap();
        let recompute = match settings["remat"] {
            "minimal_with_context" => "none",
            "minimal" => "per-op",
            "save_dot_except_mlp" => "core_attn+mlp",
            policy => policy,
        };
        let [tp, dp, mbs] = ["tp", "dp", "mbs"].map(|key| settings[key]);
        let sp = if tp == "1" { "off" } else { "on" };
        let text = format!("tp={tp} dp={dp} mbs={mbs} zero=3 recompute={recompute} sp={sp}");
        let plan = parse_plan(&text, &problem).unwrap_or_else(|why| panic!("{text}: {why}"));
        Costs::new(&problem).fullest(&plan).allocated().get() / GIB
    }
}

#[test]
fn peaks_are_those_that_xla_assigns() {
    let row = |record: csv::Result<BTreeMap<String, String>>| {
        let record = record.unwrap();
        let [model, plan] = ["model", "plan"].map(|key| record[key].clone());
        Assigned { model, plan, gib: record["assigned_gib"].parse().unwrap() }
    };
    let all: Vec<Assigned> = read("maxtext.csv").deserialize().map(row).collect();
    let error = |step: &Assigned| {
        let predicted = step.predicted();
        let error = predicted / step.gib - 1.0;
        println!("{:12} {:58} {:6.2} {predicted:6.2} {:+5.1} %", step.model, step.plan, step.gib, 100.0 * error);
        error
    };
    let errors: Vec<f64> = all.iter().map(error).collect();
    let near = errors.iter().filter(|error| error.abs() <= 0.03).count() as f64 / errors.len() as f64;
    let (mean, worst) = (mean(&errors), worst(&errors));
    // The worst does not fit by this formula, and XLA orders its step anew until it does.
    assert!(mean <= 0.03 && worst <= 0.14 && near >= 0.75, "mean {mean:.4}, worst {worst:.3}, {near:.2} within 3 %");
}
