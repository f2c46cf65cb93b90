/** Colours of terms and tenants: after Okabe and Ito, distinguishable with colour blindness, on light and dark ground. */

export const TERMS: Record<string, string> = {
    compute_s: "#2a7f9e",
    recompute_s: "#6fb7d0",
    tp_comm_s: "#d98a00",
    cp_comm_s: "#b8860b",
    ep_comm_s: "#c9567f",
    amax_comm_s: "#8c6d46",
    host_s: "#8a8f98",
    pipeline_bubble_s: "#b0b6bf",
    pp_comm_s: "#7d66b3",
    stragglers_s: "#5f6670",
    dp_comm_s: "#1a936f",
    optimizer_s: "#66b48f",
    offload_s: "#a35d3a",
};

export const TENANTS: Record<string, string> = {
    weights_gib: "#1f6f8b",
    gradients_gib: "#6fb7d0",
    optimizer_gib: "#1a936f",
    activations_gib: "#e09f3e",
    transient_gib: "#c9567f",
    caches_gib: "#b9a44c",
    fragmentation_gib: "#9aa0a8",
    context_gib: "#646b75",
};

export const PASSES: Record<string, [string, string]> = {
    F: ["forward", "#56a3c9"],
    B: ["backward", "#e09f3e"],
    I: ["input gradients", "#e09f3e"],
    W: ["weight gradients", "#1a936f"],
};

export const AFTER = "#c9567f";
