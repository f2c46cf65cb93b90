//! Start of ms-swift's commands, which start `torchrun` themselves.

use crate::emit::language::Shell;
use crate::emit::launcher::{FIRST, NODE, Nodes, PORT, RequiredVariable, environment};
use crate::emit::request::Request;
use crate::emit::snippet::{Snippet, snippet};
use crate::emit::text::Lines;

/// Variables of a run.
pub(crate) const VARIABLES: &[RequiredVariable] = &[
    ("MODEL", "the model: its name in the hub, or a folder"),
    ("DATASET", "a dataset of the hub, or a file"),
    ("OUTPUT", "a folder for checkpoints"),
];

/// The environment, and variables from which its commands start the processes.
pub(crate) fn processes(request: &Request, text: &mut Lines<Shell>) {
    let Nodes { count: nodes, gpus_each } = Nodes::of_request(request);
    environment(text, request);
    text.comments(["From these its command starts torchrun."]);
    text.line(snippet!("export NPROC_PER_NODE={}", gpus_each));
    if nodes > 1 {
        text.line(snippet!("export NNODES={}", nodes));
        for (name, value) in [("NODE_RANK", NODE), ("MASTER_ADDR", FIRST), ("MASTER_PORT", PORT)] {
            text.line(snippet!("export {}={}", Snippet::fixed(name), Snippet::fixed(value)));
        }
    }
    text.fixed("");
}
