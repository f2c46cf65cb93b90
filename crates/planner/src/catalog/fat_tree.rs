//! Clusters named by a number of GPUs and their kind, `512xh100-sxm`: a fat tree of full bisection.

use std::fmt::Write;
use std::path::Path;

use toml::Value;

use super::entries::gpu_with;
use super::error::{CatalogError, EntryKind};
use super::overrides::Overrides;
use super::parts::head;
use super::read::EntryText;
use super::typed::parse_toml;
use super::{files, gpu_names};
use meshwright_engine::cluster::ClusterFile;
use meshwright_engine::suggest::nearest;

/// GPUs of one leaf if no catalogue cluster has this GPU. Source: [dgx-superpod-h100].
const LEAF: u32 = 256;
/// Leaves below one spine, with 64-port switches. Source: [dgx-superpod-h100].
const LEAVES: u32 = 8;
/// GPUs of an x86 server.
const SERVER: u32 = 8;
/// Source of such a cluster: a network that nobody has described.
const SOURCE: &str = "meshwright-estimates";

/// Number of GPUs and their kind in a name such as `512xh100-sxm`, `8xH100` or `8xours.toml`: a name of the catalogue or the path of a
/// GPU file. Nothing for other names, or where the whole name is that of a file.
pub fn counted(name: &str) -> Option<(u32, &str)> {
    let (count, gpu) = name.split_once('x')?;
    let count = count.replace('_', "").parse().ok()?;
    let is_gpu_file = || !Path::new(name).exists() && Path::new(gpu).is_file();
    let kind = gpu_names::spelt(gpu).or_else(|| is_gpu_file().then_some(gpu))?;
    Some((count, kind))
}

/// The name of that form which the user may have meant: of a GPU without a number, of both in another form (`h100-8`, `8 h100`), or of a
/// number with a GPU whose name is misspelt or incomplete.
pub fn nearest_counted(name: &str) -> Option<String> {
    if let Some(gpu) = gpu_names::spelt(name) {
        return Some(format!("{SERVER}x{gpu}"));
    }
    if let Some((count, gpu)) = in_another_form(name) {
        return Some(format!("{count}x{gpu}"));
    }
    let (count, gpu) = name.split_once('x')?;
    let count: u32 = count.replace('_', "").parse().ok()?;
    nearest(gpu, files::GPUS.iter().map(|(known, _)| *known)).map(|gpu| format!("{count}x{gpu}"))
}

/// Number of GPUs and the catalogue's name of their kind, where one stands before the other.
fn in_another_form(name: &str) -> Option<(u32, &'static str)> {
    const BETWEEN: [char; 7] = ['x', 'X', '-', ':', '*', '_', ' '];
    let digits = name.len() - name.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    let apart = [name.split_once(BETWEEN), name.rsplit_once(BETWEEN), Some(name.split_at(digits))];
    let read = |(count, gpu): (&str, &str)| {
        let gpu = gpu.trim_matches(BETWEEN);
        Some((count.trim_matches(BETWEEN).parse().ok()?, gpu_names::spelt(gpu).or_else(|| gpu_names::completed(gpu))?))
    };
    apart.into_iter().flatten().find_map(|(first, last)| read((first, last)).or_else(|| read((last, first))))
}

/// Text of the cluster file of `gpus` GPUs of one kind: leaves, eight of them below a spine, a core above all.
///
/// Nodes, hosts and leaves are those of the catalogue's cluster of that GPU, if it has one.
///
/// # Errors
///
/// The GPU does not load.
pub fn entry(gpus: u32, gpu: &str, sets: &Overrides) -> Result<EntryText, CatalogError> {
    let device = gpu_with(gpu, sets)?;
    let known = files::CLUSTERS
        .iter()
        .filter(|(_, text)| head(text).contains(gpu))
        .find_map(|(_, text)| parse_toml::<ClusterFile>(text).ok().filter(|file| file.gpu == gpu));
    let domain = device.scale_up.gpus;
    // Without a level of the catalogue, efficiency and hop latency are those that a file may leave out.
    let (leaf, transport) = match known.as_ref().and_then(|file| file.level.first()) {
        Some(level) => {
            (level.gpus, format!("efficiency = {}\nhop_latency = {}\n", level.efficiency, level.hop_latency))
        }
        None => (LEAF.max(domain), String::new()),
    };
    let gpus_per_node = known.as_ref().map_or(SERVER.min(domain), |file| file.gpus_per_node);
    let text = |value: &str| Value::from(value).to_string();
    let mut content = format!(
        "name = {}\ngpu = {}\ngpus = {gpus}\ngpus_per_node = {gpus_per_node}\nsource = \"{SOURCE}\"\n",
        text(&format!("{gpus} x {}", device.name)),
        text(gpu),
    );
    if let Some(memory) = known.and_then(|file| file.host_memory) {
        writeln!(content, "host_memory = \"{} B\"", memory.bytes().get()).expect("a text takes any line");
    }
    let spine = leaf.saturating_mul(LEAVES);
    let levels = [("leaf", leaf, domain), ("spine", spine, leaf), ("core", gpus, spine)];
    for (name, joined, _) in levels.into_iter().filter(|(_, _, below)| gpus > *below) {
        write!(
            content,
            "\n[[level]]\nname = \"{name}\"\ngpus = {joined}\n{transport}\
             bandwidth = {{ value = \"{} B/s\", source = {} }}\nassumed = {}\n",
            device.nic.value.get(),
            text(&device.nic.source),
            !device.states_nic(),
        )
        .expect("a text takes any line");
    }
    Ok(EntryText { origin: format!("{} `{gpus}x{gpu}`", EntryKind::Cluster), folder: None, content: content.into() })
}
