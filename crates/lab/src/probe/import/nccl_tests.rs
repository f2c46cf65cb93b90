//! Output of nccl-tests (`all_reduce_perf` and its siblings).

use std::collections::BTreeSet;

use super::{Import, SampleImportError};
use crate::probe::kernel::Kernel;
use crate::probe::sample::Sample;
use meshwright_engine::gpu::Collective;

/// Programs, with the collective that each times.
const PROGRAMS: [(&str, Collective); 4] = [
    ("all_reduce_perf", Collective::AllReduce),
    ("all_gather_perf", Collective::AllGather),
    ("reduce_scatter_perf", Collective::ReduceScatter),
    ("alltoall_perf", Collective::AllToAll),
];

/// Columns of times at the end of each line: time, algbw, busbw and wrong values, out of place and in place.
const TIMES: usize = 8;

/// Reads the out-of-place times of one run. The program is the one that the output names, or else the one that `hint` (its
/// file name) does.
///
/// # Errors
///
/// The text is not such an output, values came out wrong, or the collective is unknown.
pub fn read(text: &str, hint: &str) -> Result<Import, SampleImportError> {
    let form = |why: &str| SampleImportError::Form { what: "output of nccl-tests", why: why.to_owned() };
    let named = |text: &str| PROGRAMS.iter().find(|(program, _)| text.contains(program)).map(|(_, op)| *op);
    let Some(op) = text.lines().find_map(named).or_else(|| named(hint)) else {
        return Err(form(
            "it does not say which collective ran\n\nhint: keep the command in the log, or name the file after the \
             program: all_reduce_perf.txt, all_gather_perf.txt, reduce_scatter_perf.txt, alltoall_perf.txt",
        ));
    };
    let mut import = Import::default();
    let mut hosts = BTreeSet::new();
    let mut ranks = 0_u64;
    for (at, line) in text.lines().enumerate() {
        let place = |why: String| SampleImportError::Row { row: at + 1, why };
        if let Some((host, device)) = rank_line(line) {
            ranks += 1;
            hosts.insert(host.to_owned());
            import.device.get_or_insert_with(|| device.to_owned());
        } else if let Some(version) = line.split("nccl-library=").nth(1).or_else(|| line.split("NCCL version ").nth(1))
        {
            let version = version.split_whitespace().next().unwrap_or_default().trim_end_matches(',');
            import.driver.get_or_insert_with(|| format!("NCCL {version}"));
        } else if line.trim_start().starts_with(|c: char| c.is_ascii_digit()) {
            if ranks < 2 {
                return Err(form("before the figures there must be two or more `#  Rank … on HOST device …` lines"));
            }
            let Some((bytes, us)) = figures(line).map_err(place)? else {
                import.leave("messages of no bytes");
                continue;
            };
            let kernel = Kernel::Collective { op, ranks, nodes: hosts.len() as u64, bytes };
            import.samples.push((kernel, Sample::from_micros([us]).map_err(place)?));
        }
    }
    if import.samples.is_empty() { Err(form("there are no lines of figures")) } else { Ok(import) }
}

/// Host and device in `#  Rank  0 Group  0 Pid 1234 on  node1 device  0 [0x07] NVIDIA H100 80GB HBM3`.
fn rank_line(line: &str) -> Option<(&str, &str)> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("Rank")?;
    let (_, rest) = rest.split_once(" on ")?;
    let (host, rest) = rest.trim_start().split_once(char::is_whitespace)?;
    let (_, device) = rest.split_once(']')?;
    Some((host, device.trim()))
}

/// Bytes and out-of-place microseconds; `None` for an empty message.
fn figures(line: &str) -> Result<Option<(u64, f64)>, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    if words.len() < TIMES + 3 {
        return Err(format!("{} columns, and a line of figures has {} or more", words.len(), TIMES + 3));
    }
    let number = |word: &str| word.parse::<f64>().map_err(|_| format!("`{word}` is not a number"));
    let times = &words[words.len() - TIMES..];
    if times[3] != "N/A" && number(times[3])? != 0.0 {
        return Err(format!("{} wrong values: these links corrupt data", times[3]));
    }
    let bytes: u64 = words[0].parse().map_err(|_| format!("`{}` is not a number of bytes", words[0]))?;
    let us = number(times[0])?;
    Ok((bytes > 0).then_some((bytes, us)))
}
