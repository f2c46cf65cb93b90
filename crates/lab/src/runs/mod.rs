//! Published runs: mapping of a row to a problem and a plan, and to a prediction.
//!
//! Rules use the properties of a run, never its name, source or measurements. They are listed in `docs/runs.md`.

mod cell;
mod differences;
pub mod log;
mod map_attention;
mod map_cluster;
mod map_documents;
mod map_model;
mod map_plan;
mod map_stack;
mod predict;
mod problem;
mod refusal;
mod release;
mod row;
mod stream;

pub use differences::{differences, is_of_least_policy};
pub(crate) use predict::{Figures, figures_with};
pub use predict::{Prediction, PredictionStatus, predict, predict_all, predict_all_with};
pub use problem::{is_generic, mixers_of, network_rate_of, problem_of, problem_with};
pub use refusal::Refusal;
pub use row::{Row, RunsError};
pub use stream::{Rows, read, rows};

#[cfg(test)]
mod tests {
    use super::*;
    use meshwright_engine::gpu::AttentionKernel;
    use meshwright_engine::stack::Dispatcher;
    use std::cmp::Ordering;

    fn row() -> Row {
        Row {
            framework: Some("NeMo/Megatron-Core".into()),
            gpu: Some("H100".into()),
            gated_mlp: Some(1.0),
            layers: Some(32.0),
            hidden: Some(4096.0),
            ffn: Some(14336.0),
            heads: Some(32.0),
            kv_heads: Some(8.0),
            vocab: Some(128_256.0),
            seq_len: Some(8192.0),
            gpus_total: Some(8.0),
            tp: Some(1.0),
            pp: Some(1.0),
            dp: Some(8.0),
            global_batch: Some(128.0),
            ..Row::default()
        }
    }

    fn status(change: impl Fn(&mut Row)) -> PredictionStatus {
        let mut row = row();
        change(&mut row);
        predict(&row).status
    }

    #[test]
    fn what_is_unknown_is_unsupported() {
        assert_eq!(status(|_| {}), PredictionStatus::Ok);
        assert_eq!(status(|row| row.layers = None), PredictionStatus::Unsupported);
        assert_eq!(status(|row| row.global_batch = None), PredictionStatus::Unsupported);
        assert_eq!(status(|row| row.gpu = Some("Abacus".into())), PredictionStatus::Unsupported);
        assert_eq!(status(|row| row.dtype = Some("nvfp4".into())), PredictionStatus::Unsupported);
        assert_eq!(status(|row| row.tp = None), PredictionStatus::Unsupported);
    }

    #[test]
    fn what_cannot_be_is_invalid() {
        assert_eq!(status(|row| row.dp = Some(4.0)), PredictionStatus::Invalid);
        assert_eq!(status(|row| row.global_batch = Some(4.0)), PredictionStatus::Invalid);
        for wrong in [0.0, -1.0, 1.5, 1e18, f64::INFINITY] {
            assert_eq!(status(|row| row.hidden = Some(wrong)), PredictionStatus::Invalid, "{wrong}");
            assert_eq!(status(|row| row.tp = Some(wrong)), PredictionStatus::Invalid, "{wrong}");
            assert_eq!(status(|row| row.micro_batch = Some(wrong)), PredictionStatus::Invalid, "{wrong}");
        }
        assert_eq!(status(|row| row.heads = Some(8192.0)), PredictionStatus::Invalid);
        assert_eq!(status(|row| row.ep = Some(64.0)), PredictionStatus::Ok, "a dense model has no experts to split");
        assert_eq!(
            status(|row| (row.tp, row.dp, row.gpus_total) = (Some(1e6), Some(1.0), Some(1e6))),
            PredictionStatus::Ok
        );
    }

    #[test]
    fn a_stated_attention_kernel_replaces_that_of_the_stack() {
        let kernel = |stated: &str| {
            let row = Row { attention_kernel: Some(stated.into()), ..row() };
            problem_of(&row).unwrap().0.stack().attention
        };
        assert_eq!(kernel("fa1"), AttentionKernel::Fa1);
        assert_eq!(kernel("fa2"), AttentionKernel::Fa2);
        assert_eq!(kernel("te"), kernel(""), "Transformer Engine chooses by shape");
    }

    #[test]
    fn padded_batches_of_transformers_run_no_flash_kernel() {
        let kernel = |framework: &str, year: f64, change: &dyn Fn(&mut Row)| {
            let mut row = Row { framework: Some(framework.into()), year: Some(year), ..row() };
            change(&mut row);
            problem_of(&row).unwrap().0.stack().attention
        };
        for framework in ["HF Transformers (PyTorch, eager)", "HF Trainer (PyTorch DDP)", "DeepSpeed (HF Transformers)"]
        {
            assert_eq!(kernel(framework, 2024.0, &|_| {}), AttentionKernel::Efficient, "{framework}");
            assert_eq!(kernel(framework, 2023.0, &|_| {}), AttentionKernel::Unfused, "{framework}");
            let stated = |row: &mut Row| row.attention_kernel = Some("torch_sdpa".into());
            assert_eq!(kernel(framework, 2024.0, &stated), AttentionKernel::Fa2, "{framework}");
            let split = |row: &mut Row| (row.cp, row.dp) = (Some(2.0), Some(4.0));
            assert_eq!(kernel(framework, 2024.0, &split), AttentionKernel::Fa2, "{framework}");
        }
        for framework in ["XTuner (HF Transformers)", "HF Transformers fork", "torchtune"] {
            assert_eq!(kernel(framework, 2024.0, &|_| {}), AttentionKernel::Fa2, "{framework}");
        }
    }

    #[test]
    fn a_stated_dispatcher_holds_for_any_framework() {
        let dispatcher = |framework: &str, stated: &str, network: &str, ep: Option<f64>| {
            let row = Row {
                ep,
                framework: Some(framework.into()),
                dispatcher: Some(stated.into()),
                interconnect_inter: Some(network.into()),
                ..row()
            };
            problem_of(&row).unwrap().1.dispatcher
        };
        for framework in ["torchtitan (FSDP2)", "PyTorch FSDP", "NeMo/Megatron-Core"] {
            assert_eq!(dispatcher(framework, "deepep", "8x400Gb IB", None), Dispatcher::DeepEp, "{framework}");
            assert_eq!(dispatcher(framework, "alltoall", "8x400Gb IB", None), Dispatcher::AllToAll, "{framework}");
            for (ep, sent) in [(16.0, Dispatcher::AllToAll), (8.0, Dispatcher::DeepEp)] {
                let on_efa = dispatcher(framework, "deepep", "EFA 3200Gbps per node", Some(ep));
                assert_eq!(on_efa, sent, "{framework} {ep}");
            }
        }
    }

    #[test]
    fn fused_norms_leave_rotary_embeddings_to_pytorch() {
        let step = |fused: &str| {
            let row = Row {
                framework: Some("PyTorch FSDP".into()),
                year: Some(2023.0),
                fused_kernels: Some(fused.into()),
                ..row()
            };
            predict(&row).step_time_s.unwrap()
        };
        let (none, norms, both) = (step(""), step("norm_fusion"), step("norm_fusion+rope_fusion"));
        assert!(both < norms && norms < none, "{both} {norms} {none}");
        assert!((step("rope_fusion") - none).abs() < 1e-12, "nothing is known of rotary embeddings alone");
    }

    #[test]
    fn nodes_of_four_gpus_end_their_domain() {
        let domain = |gpu: &str, per_node: f64| {
            let row = Row { gpu: Some(gpu.into()), gpus_per_node: Some(per_node), ..row() };
            problem_of(&row).unwrap().0.cluster().scale_up.gpus
        };
        assert_eq!([domain("H100", 8.0), domain("H100", 4.0), domain("GB200", 4.0)], [8, 4, 72]);
    }

    #[test]
    fn a_checkpoint_without_early_stop_takes_longer() {
        let step = |framework: &str, year: f64, notes: &str| {
            let row = Row {
                framework: Some(framework.into()),
                year: Some(year),
                recompute: Some("full".into()),
                attention_kernel: Some("fa2".into()),
                notes: Some(notes.into()),
                ..row()
            };
            predict(&row).step_time_s.unwrap()
        };
        let (stopped, whole) = (step("PyTorch FSDP", 2024.0, ""), step("PyTorch FSDP", 2024.0, "no early stop"));
        let longer = whole / stopped - 1.0;
        assert!((0.03..0.09).contains(&longer), "{longer}: the last matmul of a forward that is a quarter of the step");
        assert_eq!(step("PyTorch FSDP", 2022.0, "").total_cmp(&whole), Ordering::Equal, "before PyTorch 2.1");
        assert_eq!(
            step("HF Trainer (PyTorch FSDP, eager)", 2025.0, "").total_cmp(&whole),
            Ordering::Equal,
            "re-entrant"
        );
        assert_eq!(step("Paddle (PyTorch FSDP)", 2024.0, "").total_cmp(&whole), Ordering::Equal, "Paddle");
        let transformers_5 = step("HF Trainer (PyTorch FSDP, eager)", 2026.0, "");
        assert_eq!(transformers_5.total_cmp(&step("PyTorch FSDP", 2026.0, "")), Ordering::Equal, "not re-entrant");
    }

    #[test]
    fn a_blank_degree_of_data_parallelism_is_what_the_others_leave() {
        let (_, plan) = problem_of(&Row { dp: None, ..row() }).unwrap();
        assert_eq!(plan.layout.dp, 8);
    }
}
