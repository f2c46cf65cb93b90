//! Settings that rows of published runs state, in the stacks that they are predicted with.

use std::fs::File;
use std::path::Path;

use meshwright::runs::{self, Row};
use meshwright::stack::Stack;

/// Row of a file below `tests/published`.
fn row(file: &str, id: &str) -> Row {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/published").join(file);
    let rows = runs::read(File::open(path).unwrap()).unwrap();
    rows.into_iter().find(|row| row.id.as_deref() == Some(id)).unwrap()
}

fn stack(row: &Row) -> Stack {
    runs::problem_of(row).unwrap().0.stack().clone()
}

#[test]
fn torchtitan_and_plain_pytorch_replay_the_graphs_that_a_row_states() {
    for (file, id) in [("sixth", "titanb200-0001"), ("sixth", "titanb200-0008"), ("eighth", "xorlgraph-0003")] {
        let stated = row(&format!("unfitted/{file}.csv"), id);
        for (cell, graphs) in [(Some("full_iteration"), true), (Some("none"), false), (None, false)] {
            let stack = stack(&Row { cuda_graph: cell.map(Into::into), ..stated.clone() });
            assert_eq!((stack.cuda_graphs, stack.graphed_experts), (graphs, graphs), "{id} {cell:?}");
        }
    }
}

#[test]
fn flash_attention_4_has_sinks() {
    let stated = row("unfitted/eighth.csv", "halo-0001");
    for (kernel, fused) in [(Some("fa4"), true), (Some("fa2"), false), (None, false)] {
        let stack = stack(&Row { attention_kernel: kernel.map(Into::into), ..stated.clone() });
        assert_eq!(stack.fused_sinks, fused, "{kernel:?}");
    }
}

#[test]
fn torchtitan_has_sinks_without_compilation_too() {
    let stated = row("unfitted/twelfth.csv", "lowman-0001");
    for notes in ["eager", "compile"] {
        assert!(stack(&Row { notes: Some(notes.into()), ..stated.clone() }).fused_sinks, "{notes}");
    }
}

#[test]
fn torchtitan_chunks_the_loss_that_a_row_says_is_in_chunks() {
    for (id, usual) in [("titanb200-0001", "eager"), ("titanb200-0008", "compile")] {
        let stated = row("unfitted/sixth.csv", id);
        for (notes, chunks) in [(format!("{usual}; loss chunks"), 8), (usual.to_owned(), 1)] {
            let stack = stack(&Row { notes: Some(notes.clone()), ..stated.clone() });
            assert_eq!(stack.memory.loss_chunks, chunks, "{id} {notes}");
        }
    }
}

#[test]
fn gradients_are_reduced_in_the_format_that_a_row_states() {
    // Megatron-Core holds gradients as it reduces them; torchtitan holds shards in fp32.
    for (id, usual, held) in [("geodesic-0001", 2.0, None), ("titanb200-0011", 4.0, Some(4.0))] {
        let stated = row("unfitted/sixth.csv", id);
        for (states, bytes) in [("grad_reduce=bf16", 2.0), ("grad_reduce=fp32", 4.0), ("", usual)] {
            let stack = stack(&Row { optimizer_states: Some(states.into()), ..stated.clone() });
            assert!((stack.reduce_bytes - bytes).abs() < 1e-12, "{id} {states}: {}", stack.reduce_bytes);
            assert_eq!(stack.gradient_bytes, held.filter(|_| !states.is_empty()), "{id} {states}");
        }
    }
}

#[test]
fn eager_torchtitan_of_2026_has_the_dispatcher_of_its_release() {
    let stated = row("unfitted/sixth.csv", "titanb200-0012");
    let [eager, before, compiled] =
        [stated.clone(), Row { year: Some(2025.0), ..stated.clone() }, Row { notes: Some("compile".into()), ..stated }]
            .map(|row| stack(&row));
    let of = |stack: &Stack| (stack.permute_traffic, stack.sorts_received_tokens, stack.memory.keeps_exchanged_tokens);
    assert_eq!(of(&eager), of(&compiled));
    assert_ne!(of(&eager), of(&before));
    assert_eq!(eager.name, before.name);
}
