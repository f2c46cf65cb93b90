//! Modules that CUDA graphs hold.

use serde::{Deserialize, Serialize};

/// Modules whose kernels the CUDA graphs of a layer hold beside the router (`--cuda-graph-modules`). Source: [megatron-cuda-graphs].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct GraphScope {
    /// Whether they hold attention and recurrent mixers (`attn`, `mamba`).
    pub attention: bool,
    /// Whether they hold the MLP of layers without experts (`mlp`).
    pub mlp: bool,
}

impl GraphScope {
    /// Scope of a list of modules, in Megatron core's words; all of a layer where it names none.
    pub fn of_modules(modules: &[&str]) -> Self {
        let holds = |names: &[&str]| modules.iter().any(|module| names.contains(module));
        let whole = !holds(&["attn", "mamba", "mlp", "moe", "moe_router", "moe_preprocess"]);
        Self { attention: whole || holds(&["attn", "mamba"]), mlp: whole || holds(&["mlp"]) }
    }
}

impl Default for GraphScope {
    fn default() -> Self {
        Self { attention: true, mlp: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_that_are_not_listed_are_launched() {
        let scope = |attention, mlp| GraphScope { attention, mlp };
        for (modules, expected) in [
            (&["attn", "moe_router"][..], scope(true, false)),
            (&["mamba", "moe_router"], scope(true, false)),
            (&["moe_router", "moe_preprocess"], scope(false, false)),
            (&["attn", "mlp"], scope(true, true)),
            (&["full"], GraphScope::default()),
            (&[], GraphScope::default()),
        ] {
            assert_eq!(GraphScope::of_modules(modules), expected, "{modules:?}");
        }
    }
}
