//! Degrees, and how weights and experts are spread.

use super::reader::member;
use super::{at, is_object, placed};
use crate::import::context::Launched;
use crate::import::finding::Finding;
use crate::import::imported::{Imported, divides, replicas};
use crate::readers::document::{CALLED, Document};
use meshwright_engine::model::Model;
use meshwright_engine::plan::{CpKind, Layout, ZeroStage};
use meshwright_engine::stack::Dispatcher;

/// GPUs of a node where its launch is not known.
const PER_NODE: u32 = 8;

/// A degree; 1 where there is no such part.
fn degree(document: &Document, part: &str) -> u32 {
    if !is_object(document, &at(part)) {
        if document.has(&at(part)) {
            let _ = document.word(&at(part));
        }
        return 1;
    }
    let path = placed(document, part, "degree");
    document.size(&path).unwrap_or_else(|| {
        if !document.has(&path) {
            let finding = Finding::error("unread-setting", format!("`{}` lacks its degree", at(part)));
            document.note(finding.at_maybe(document.place(&at(part)).as_ref()).expected("degree=…"));
        }
        1
    })
}

/// Sets the degrees.
pub(super) fn layout(document: &Document, launched: &Launched, imported: &mut Imported) {
    let (tp, cp, pp) = (degree(document, "tp_config"), degree(document, "cp_config"), degree(document, "pp_config"));
    let dp = imported.world.map_or(1, |world| replicas(world, &[tp, cp, pp]));
    imported.plan.layout = Layout { tp, cp, pp, dp, ep: 1, etp: 1 };
    imported.plan.sequence_parallel = tp > 1;
    imported.plan.reshard_after_forward = pp == 1;
    imported.plan.dispatcher = Dispatcher::AllToAll;
    imported.plan.cp_kind = context(document);
    let place = document.place("train_module");
    divides(&mut document.findings.borrow_mut(), imported.world, &imported.plan, place.as_ref());
    data(document, launched, imported);
    experts(document, imported);
    let overlaps = document.switch(&at("tp_config.enable_async")).unwrap_or(false);
    if tp > 1 && overlaps {
        imported.settings.put("overlap.tp", ASYNC_TP, 0.0);
    }
}

/// Hidden share of tensor-parallel collectives under async TP, as of torchtitan. Source: [calibration-1-1].
const ASYNC_TP: f64 = 0.5;

/// Exchange of context parallelism: by the class method, or by the styles of the class.
fn context(document: &Document) -> CpKind {
    let class = document.word(&at(&format!("cp_config.{CALLED}"))).unwrap_or_default();
    let balancer = document.word(&at("cp_config.ring.load_balancer"));
    let ulysses = is_object(document, &at("cp_config.uly"));
    let ring = is_object(document, &at("cp_config.ring"));
    match (member(&class), balancer.as_deref().map(member)) {
        ("ulysses", _) => CpKind::AllToAll,
        _ if ulysses => CpKind::AllToAll,
        ("llama3", _) | (_, Some("llama3")) => {
            let message = "keys and values of documents are gathered: priced over whole sequences";
            let place = document.place(&at("cp_config"));
            document.note(Finding::warning("not-modelled", message).at_maybe(place.as_ref()));
            CpKind::AllGather
        }
        ("zig_zag", _) | ("", None) | (_, Some("zig_zag")) => CpKind::Ring,
        _ if ring => CpKind::Ring,
        (other, _) => {
            document.wrong(&at("cp_config"), other, "zig_zag, llama3 or ulysses");
            CpKind::Ring
        }
    }
}

/// How weights are sharded and copied.
fn data(document: &Document, launched: &Launched, imported: &mut Imported) {
    let path = at("dp_config");
    let Layout { tp, cp, pp, .. } = imported.plan.layout;
    let replicas = imported.plan.layout.dense_replicas();
    if !is_object(document, &path) {
        let _ = document.word(&path);
        if imported.world != Some(1) {
            let message = "without `dp_config` GPUs do not exchange gradients";
            document.note(Finding::error("missing-flag", message).at_maybe(document.place("train_module").as_ref()));
        }
        return;
    }
    let name_path = placed(document, "dp_config", "name");
    let name = document.word(&name_path).unwrap_or_default();
    let (copies, shard) = (document.size(&at("dp_config.num_replicas")), document.size(&at("dp_config.shard_degree")));
    // With one replica nothing is sharded.
    let sharded = if imported.world.is_some() && replicas == 1 { ZeroStage::Zero } else { ZeroStage::Three };
    match member(&name) {
        "ddp" => imported.plan.zero = ZeroStage::Zero,
        "fsdp" => imported.plan.zero = sharded,
        "hsdp" => {
            imported.plan.zero = sharded;
            let dp = imported.plan.layout.dp;
            let contradicts = match (copies, shard) {
                (Some(copies), Some(shard)) => u64::from(copies) * u64::from(shard) != u64::from(dp),
                (Some(degree), None) | (None, Some(degree)) => !dp.is_multiple_of(degree),
                (None, None) => false,
            };
            if imported.world.is_some() && contradicts {
                let message = format!("shards and copies do not multiply to the {dp} data-parallel ranks");
                document.note(Finding::error("world-size", message).at_maybe(document.place(&path).as_ref()));
            }
            let group = match (copies, shard) {
                (_, Some(shard)) => Some(shard.saturating_mul(cp)),
                (Some(copies), None) => {
                    imported.shard_groups = (copies > 1).then_some(copies);
                    imported.world.map(|_| replicas / copies.max(1))
                }
                (None, None) => {
                    let each = launched.gpus_per_node.unwrap_or(PER_NODE);
                    if launched.gpus_per_node.is_none() {
                        let message = format!("a shard group is a node here: {each} GPUs");
                        let expected = "`shard_degree`, or a launch line with --nproc-per-node";
                        let finding = Finding::note("assumed", message).at_maybe(document.place(&path).as_ref());
                        document.note(finding.expected(expected));
                    }
                    let own = each.min(imported.world.unwrap_or(each));
                    if own < tp * cp * pp {
                        let message = "HSDP without a degree has a shard group on each node, and no node holds one";
                        let place = document.place(&path);
                        document.note(Finding::error("world-size", message).at_maybe(place.as_ref()));
                    }
                    Some((own / (tp * cp * pp)).max(1).saturating_mul(cp))
                }
            };
            let whole = |group: &u32| imported.world.is_some() && *group >= replicas;
            imported.plan.shard_group = group.filter(|group| *group > 1 && !whole(group));
            if group == Some(1) {
                imported.plan.zero = ZeroStage::Zero; // copies, each on its own
            }
        }
        other => document.wrong(&name_path, other, "fsdp, hsdp or ddp"),
    }
    let reduced = document.word(&at("dp_config.reduce_dtype"));
    let narrow = reduced.as_deref().map(member).is_some_and(|word| word == "bfloat16");
    imported.settings.put("reduce_bytes", if narrow { 2.0 } else { 4.0 }, 4.0);
}

/// Experts over the ranks of tensor parallelism, or of one shard group.
fn experts(document: &Document, imported: &mut Imported) {
    let has = imported.model.as_ref().is_some_and(Model::is_moe);
    let tp = imported.plan.layout.tp;
    let path = at("ep_config");
    if !is_object(document, &path) {
        let _ = document.word(&path);
        imported.plan.layout.ep = if has { tp } else { 1 };
        return;
    }
    let place = document.place(&path);
    let refused = if tp > 1 {
        Some("`ep_config` beside `tp_config` is refused")
    } else if imported.model.is_some() && !has {
        Some("`ep_config` of a model without experts is refused")
    } else {
        None
    };
    if let Some(why) = refused {
        document.note(Finding::error("contradiction", why).at_maybe(place.as_ref()));
        return;
    }
    let degree = placed(document, "ep_config", "degree");
    let whole = imported.plan.shard_group.or(imported.world.map(|_| imported.plan.layout.dense_replicas()));
    let ep = if document.peek(&degree).is_some_and(|word| word.starts_with('-')) {
        let _ = document.word(&degree);
        whole
    } else {
        document.size(&degree)
    };
    let Some(ep) = ep else {
        let message = "experts are on all GPUs of a shard group, and how many those are is not known";
        let finding = Finding::error("unresolved-value", message).at_maybe(place.as_ref());
        document.note(finding.expected("a launch line, or `degree` as a number"));
        return;
    };
    if whole.is_some_and(|whole| whole != ep) {
        let message = format!("`ep_config` over {ep} ranks is not HSDP's shard degree, and is refused");
        document.note(Finding::error("contradiction", message).at_maybe(place.as_ref()));
    }
    imported.plan.layout.ep = ep;
}
