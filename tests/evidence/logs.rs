//! Logs of the frameworks as rows. The excerpts are ours, in the format that each framework prints.

use meshwright::runs::log::{self, LogError, LoggedRun};
use meshwright::runs::{self, PredictionStatus, Row};

fn logged(name: &str) -> LoggedRun {
    let path = format!("{}/tests/logs/{name}.log", env!("CARGO_MANIFEST_DIR"));
    log::read(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn with(row: Row, cells: &[(&str, &str)]) -> Row {
    let cells: Vec<(String, String)> = cells.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    log::fill(row, &cells).unwrap()
}

#[track_caller]
fn close(value: Option<f64>, expected: f64) {
    assert!(value.is_some_and(|value| (value / expected - 1.0).abs() < 1e-6), "{value:?} is not {expected}");
}

#[test]
fn megatron_says_its_shape_layout_time_and_memory() {
    let LoggedRun { row, steps, .. } = logged("megatron-llama3-8b");
    assert_eq!(steps, 4);
    close(row.step_time_canon_s, 14.8913);
    close(row.peak_mem_gib, 54120.75 / 1024.0);
    assert_eq!((row.layers, row.hidden, row.ffn, row.kv_heads), (Some(32.0), Some(4096.0), Some(14336.0), Some(8.0)));
    assert_eq!(
        (row.tp, row.pp, row.dp, row.vpp, row.zero_stage),
        (Some(2.0), Some(1.0), Some(4.0), Some(1.0), Some(1.0))
    );
    assert_eq!((row.dtype.as_deref(), row.recompute.as_deref()), (Some("bf16"), Some("none")));
    assert_eq!((row.year, row.outcome.as_deref()), (Some(2025.0), Some("ok")));
    assert_eq!(row.overlap.as_deref(), Some("grad-reduce, param-gather"));
    assert_eq!(log::missing(&row), ["gpu"]);
    let prediction = runs::predict(&with(row, &[("gpu", "H100")]));
    assert_eq!(prediction.status, PredictionStatus::Ok, "{}", prediction.reason);
    let seconds = prediction.step_time_s.unwrap();
    assert!((5.0..45.0).contains(&seconds), "{seconds}");
}

#[test]
fn megatron_with_experts_that_ran_out_of_memory() {
    let LoggedRun { row, steps, .. } = logged("megatron-deepseek");
    assert_eq!((steps, row.outcome.as_deref(), row.step_time_canon_s), (0, Some("oom"), None));
    assert_eq!(
        (row.experts, row.topk, row.moe_ffn, row.shared_experts),
        (Some(256.0), Some(8.0), Some(2048.0), Some(1.0))
    );
    assert_eq!(
        (row.dense_layers, row.mla, row.ep, row.etp, row.vpp),
        (Some(3.0), Some(1.0), Some(32.0), Some(1.0), Some(4.0))
    );
    assert_eq!(row.recompute.as_deref(), Some("selective(mla_up_proj+mlp)"));
    assert_eq!((row.dtype.as_deref(), row.dtype_detail.as_deref()), (Some("fp8"), Some("blockwise")));
    assert_eq!(row.notes.as_deref(), Some("MTP layer on; deepep"));
    assert!(row.overlap.as_deref().unwrap().contains("EP a2a overlap"));
    let prediction = runs::predict(&with(row, &[("gpu", "H100"), ("year", "2025")]));
    assert_eq!(prediction.status, PredictionStatus::Ok, "{}", prediction.reason);
}

#[test]
fn deepspeed_says_its_batch_rate_and_memory() {
    let LoggedRun { row, steps, .. } = logged("deepspeed-zero3");
    assert_eq!(steps, 3);
    close(row.step_time_canon_s, 4.0);
    close(row.peak_mem_gib, 38.52);
    assert_eq!((row.zero_stage, row.gpus_total, row.global_batch), (Some(3.0), Some(32.0), Some(256.0)));
    assert_eq!((row.grad_accum, row.micro_batch, row.year), (Some(4.0), Some(2.0), Some(2024.0)));
    assert!(log::missing(&row).contains(&"layers"));
    let sets = meshwright::catalog::Overrides::default();
    let row = log::of_model(&meshwright::catalog::model("llama2-13b", &sets).unwrap(), row);
    let row = with(row, &[("gpu", "A100-80GB"), ("gpus_per_node", "8")]);
    assert_eq!(log::missing(&row), [] as [&str; 0]);
    assert_eq!(runs::predict(&row).status, PredictionStatus::Ok);
}

#[test]
fn torchtitan_says_all_but_its_network() {
    let LoggedRun { row, steps, .. } = logged("torchtitan-llama3-8b");
    assert_eq!(steps, 4);
    close(row.tokens_per_s_per_gpu, 5751.0);
    close(row.step_time_canon_s, 8.0 * 8192.0 / (5751.0 * 8.0));
    close(row.peak_mem_gib, 49.05);
    assert_eq!((row.gpu.as_deref(), row.gpus_total, row.dp), (Some("H100"), Some(8.0), Some(8.0)));
    assert_eq!((row.ffn, row.kv_heads, row.zero_stage), (Some(14336.0), Some(8.0), Some(3.0)));
    assert_eq!((row.recompute.as_deref(), row.notes.as_deref()), (Some("selective op"), None));
    assert_eq!(log::missing(&row), [] as [&str; 0]);
    let prediction = runs::predict(&row);
    assert_eq!((prediction.status, prediction.stack.as_deref()), (PredictionStatus::Ok, Some("torchtitan 2025")));
}

#[test]
fn older_torchtitan_lists_its_mesh() {
    let text = "[rank0]:2024-06-12 10:00:00,000 - root - INFO - Building 2-D device mesh with ['dp', 'tp'], [4, 2]\n\
                [rank0]:2024-06-12 10:00:09,000 - root - INFO - step: 10  loss:  7.1  memory: 40.43GiB(42.56%)  wps: \
                5,762  tps: 5,762\n";
    let row = log::read(text).unwrap().row;
    assert_eq!((row.dp, row.tp, row.gpus_total, row.year), (Some(4.0), Some(2.0), Some(8.0), Some(2024.0)));
}

#[test]
fn rows_are_read_back_as_they_were_written() {
    let rows: Vec<Row> = ["megatron-llama3-8b", "torchtitan-llama3-8b"].map(|name| logged(name).row).into();
    let read = runs::read(log::to_csv(&rows).unwrap().as_bytes()).unwrap();
    let lines = (2..).map(Some);
    assert_eq!(rows.into_iter().zip(lines).map(|(row, line)| Row { line, ..row }).collect::<Vec<_>>(), read);
}

#[test]
fn what_is_no_log_is_refused() {
    assert_eq!(log::read("hello\nworld\n"), Err(LogError::Unknown));
    assert_eq!(log::read(""), Err(LogError::Unknown));
}
