//! The JSON Schemas of docs/schema have exactly the keys that the program reads.
//!
//! `checks/check_schema.py` judges the files of the catalogue by them.

use std::collections::BTreeSet;

use meshwright::cluster::pools::{Link, PoolFile, PoolsFile};
use meshwright::cluster::{ClusterFile, Level};
use meshwright::goodput::checkpoint::Checkpoints;
use meshwright::goodput::failures::Failures;
use meshwright::goodput::{Conditions, Maintenance};
use meshwright::gpu::{
    AttentionCurve, AttentionOccupancy, CollectiveCurve, Copies, GemmCurve, Gpu, HostCopies, RentPrice, ScaleUp,
};
use meshwright::model::{
    Attention, AttentionMamba, DeltaNet, Indexer, KimiDelta, Layer, Mamba, Mla, Mlp, ModelFile, Moe, ShortConv,
};
use meshwright::money::{Market, Own, Site, Terms};
use meshwright::stack::{Launches, MemoryUse, ModuleHooks, Overlap, Quirks, ReleaseLimit, Stack};
use meshwright::sweep::fleet::{Offer, Period, PurchaseRequest};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Keys that a type reads: those that its refusal of an unknown one lists.
fn keys<T: DeserializeOwned>() -> BTreeSet<String> {
    let refusal = serde_json::from_str::<T>(r#"{"no such key": 1}"#).err().expect("an unknown key is refused");
    let refusal = refusal.to_string();
    let listed = refusal.split_once("expected").expect("the refusal lists the keys").1;
    listed.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn schema(name: &str) -> Value {
    let path = format!("{}/docs/schema/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Keys of a closed object of a schema; `like` and the `kind` of a variant aside.
fn listed(object: &Value) -> BTreeSet<String> {
    assert_eq!(object["additionalProperties"], false, "{object}");
    let properties = object["properties"].as_object().expect("an object has properties");
    properties.keys().filter(|key| !matches!(key.as_str(), "like" | "kind")).cloned().collect()
}

#[track_caller]
fn same<T: DeserializeOwned>(object: &Value) {
    let mut keys = keys::<T>();
    keys.remove("kind");
    assert_eq!(listed(object), keys);
}

/// The variant of a tagged definition.
fn variant<'a>(definition: &'a Value, kind: &str) -> &'a Value {
    let variants = definition["oneOf"].as_array().unwrap();
    variants.iter().find(|variant| variant["properties"]["kind"]["const"] == kind).unwrap()
}

#[test]
fn keys_of_devices() {
    let gpu = schema("gpu");
    same::<Gpu>(&gpu);
    let of = &gpu["$defs"];
    same::<GemmCurve>(&of["GemmCurve"]);
    same::<AttentionCurve>(&of["AttentionCurve"]);
    same::<AttentionOccupancy>(&of["AttentionOccupancy"]);
    same::<CollectiveCurve>(&of["CollectiveCurve"]);
    same::<ScaleUp>(&of["ScaleUp"]);
    same::<RentPrice>(&of["Price"]);
    same::<Copies>(&of["Copies"]);
    same::<HostCopies>(&of["HostCopies"]);
}

#[test]
fn keys_of_stacks() {
    let stack = schema("stack");
    same::<Stack>(&stack);
    same::<Launches>(&stack["$defs"]["Launches"]);
    same::<ModuleHooks>(&stack["$defs"]["ModuleHooks"]);
    same::<Overlap>(&stack["$defs"]["Overlap"]);
    same::<Quirks>(&stack["$defs"]["Quirks"]);
    same::<MemoryUse>(&stack["$defs"]["MemoryUse"]);
    same::<ReleaseLimit>(&stack["$defs"]["ReleaseLimit"]);
}

#[test]
fn keys_of_clusters() {
    let cluster = &schema("cluster")["$defs"];
    same::<ClusterFile>(&cluster["ClusterFile"]);
    same::<Level>(&cluster["Level"]);
    same::<PoolsFile>(&cluster["PoolsFile"]);
    same::<PoolFile>(&cluster["PoolFile"]);
    same::<Link>(&cluster["Link"]);
}

#[test]
fn keys_of_models() {
    let model = schema("model");
    same::<ModelFile>(&model);
    let of = &model["$defs"];
    same::<Layer>(&of["Layer"]);
    same::<Attention>(variant(&of["Mixer"], "attention"));
    same::<Mla>(variant(&of["Mixer"], "mla"));
    same::<Indexer>(&of["Indexer"]);
    same::<Mamba>(variant(&of["Mixer"], "mamba"));
    same::<DeltaNet>(variant(&of["Mixer"], "delta-net"));
    same::<KimiDelta>(variant(&of["Mixer"], "kimi-delta"));
    same::<ShortConv>(variant(&of["Mixer"], "short-conv"));
    let both = variant(&of["Mixer"], "attention-mamba");
    same::<AttentionMamba>(both);
    same::<Attention>(&both["properties"]["attention"]);
    same::<Mamba>(&both["properties"]["mamba"]);
    same::<Mlp>(variant(&of["Ffn"], "dense"));
    same::<Moe>(variant(&of["Ffn"], "moe"));
}

#[test]
fn keys_of_markets() {
    let market = schema("prices");
    same::<Market>(&market);
    let of = &market["$defs"];
    same::<Terms>(&of["Terms"]);
    same::<Own>(&of["Own"]);
    same::<Site>(&of["Site"]);
    same::<Conditions>(&of["Conditions"]);
    same::<Failures>(&of["Failures"]);
    same::<Maintenance>(&of["Maintenance"]);
    same::<Checkpoints>(&of["Checkpoints"]);
}

#[test]
fn keys_of_sweeps() {
    let sweep = &schema("sweep")["$defs"];
    same::<PurchaseRequest>(&sweep["PurchaseRequest"]);
    same::<Offer>(&sweep["Offer"]);
    same::<Period>(&sweep["Period"]);
}
