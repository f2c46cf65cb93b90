/** Documents of the engine, as far as the page reads them. A key that is a quantity ends in its unit. */

export interface Priced {
    plan: string;
    tp: number; cp: number; pp: number; vpp: number; dp: number; ep: number; etp: number;
    zero: number;
    micro_batch: number;
    micro_batches: number;
    schedule: string;
    recompute: string;
    step_time_s: number; step_time_p05_s: number; step_time_p95_s: number;
    mfu: number;
    tokens_per_s_per_gpu: number;
    tflops_per_gpu: number;
    peak_mem_gib: number; peak_mem_p05_gib: number; peak_mem_p95_gib: number;
    oom_probability: number;
    interval_class: string;
    interval_runs: number;
    headroom_gib: number;
    basis: string;
    terms: Record<string, number>;
    terms_basis: Record<string, string>;
    memory: Record<string, number>;
}

export interface Bill {
    days: number; effective: number; gpu_hours: number;
    cost_usd: number; cost_low_usd: number; cost_high_usd: number;
    electricity_usd: number; storage_usd: number;
    energy_mwh: number; co2_kg: number;
    between_failures_h: number; checkpoint_interval_s: number; checkpoint_pause_s: number; restart_s: number;
    spare_nodes: number;
    losses: Record<string, number>;
}

export interface Changed { what: string; step_time_s: number | null; slower: number | null; plan: string | null }

export interface Problem {
    model: string; cluster: string; gpu: string; gpus: number;
    global_batch: number; seq_len: number; precision: string; stack: string;
    hbm_gib: number; hbm_budget_gib: number;
}

export interface PlanDocument {
    problem: Problem;
    recommended?: {
        rank: number;
        given_up: "risk" | "proof" | null;
        p_best: number[];
        fastest: Priced | null;
        fastest_declined_for: string[];
    };
    plans: Priced[];
    considered: number;
    evaluated: number;
    rejected: Record<string, number>;
    nearest_miss: { plan: string; reason: string } | null;
    bills?: Bill[];
    refined?: { plan: string; step_time_s?: number }[];
    sensitivity?: Changed[];
    sensitivity_of?: Priced;
}

export interface Explanation {
    problem: Problem;
    runs: boolean;
    reasons: { rule: string; reason: string }[];
    prediction: Priced | null;
    ranks: { rank: number; peak_mem_gib: number; memory: Record<string, number> }[];
}

export interface Timeline {
    ranks: number;
    makespan_s: number; send_s: number; after_s: number; bubble_s: number;
    /** Activations that one pass of a rank leaves until its backward, by rank. */
    kept_gib: number[];
    rank: number[]; pass: string[]; micro_batch: number[]; chunk: number[]; start_s: number[]; end_s: number[];
}

export interface Network {
    domain: number; domain_gbps: number; node: number; gpus: number;
    levels: { name: string; gpus: number; gbps: number; oversubscription: number }[];
    groups: { group: string; ranks: number; stride: number; inside_domain: number; level: string | null; gbps: number; term: string }[];
}

export interface Kernels {
    peak_flops: number | null;
    hbm_bytes_per_s: number;
    calls: { kind: "gemm" | "attention" | "stream"; label: string; flop: number; bytes: number; time_s: number }[];
}

/** Reply to `picture`: `explanation` is the text of a document. */
export interface Picture { explanation: string; timeline: Timeline | null; groups: Network; kernels: Kernels }

/** Reply to `plan`, whose document is text, and to `live`; where no plan runs, `live` tells a rejected plan of each rule, as `rule: reason`. */
export interface Noted<Document = string> { document: Document; notes: string[]; examples: string[] }

export interface ModelEntry {
    name: string; title: string; parameters: number; active: number; layers: number; hidden: number; seq_len: number; experts: number;
}

export interface ClusterEntry {
    name: string; title: string; gpu: string; gpu_file: string | null; gpus: number; gpus_per_node: number; domain: number;
    hbm_gb: number; nic_gbps: number; peak_tflops: number | null; hbm_tbps: number;
}

export interface Catalogue {
    models: ModelEntry[];
    clusters: ClusterEntry[];
    stacks: string[];
    frameworks: string[];
    terms: string[];
    version: string;
}

export interface LaunchFiles { files: { name: string; text: string }[]; notes: string[] }

export interface Finding { rule: string; level: "error" | "warning" | "note"; line?: number; message: string; expected?: string }

/** Document of `lint`. */
export interface LintDocument {
    file: string;
    kind: string;
    framework: string;
    ok: boolean;
    problem: Problem | null;
    prediction: Priced | null;
    best: Priced | null;
    findings: Finding[];
}

/** Reply to `rows`: logs as rows of a runs file. */
export interface LogRows {
    csv: string;
    logs: {
        file: string; framework: string | null; steps: number; step_s: number | null; missing: string[];
        predicted_s: number | null; predicted_p05_s: number | null; predicted_p95_s: number | null; reason: string | null;
    }[];
}

/** Document of `validate`. */
export interface Scores {
    runs: number;
    time: { by: string; class: string; timed: number; mean_ape?: number; median_ape?: number; bias?: number; inside: number | null }[];
    unpredicted: { reason: string; runs: number }[];
    points: { id: string; set: string; moe: boolean; measured_s: number; predicted_s: number; error: number }[];
}

/** Reply to `timed`: plans by what is believed of them, fastest first. */
export interface Timed {
    plans: { plan: string; status: string; measured_s: number | null; from: string | null; predicted_s: number; median_s: number; p05_s: number; p95_s: number; best: number; runs: number }[];
    next: string | null;
    decided: boolean;
    within: number;
    loss: number;
}
