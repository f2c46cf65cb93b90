"""Table of a run's records for reading: a line a case, its variants beside one another."""

import statistics

VARIANTS = {
    "forward",
    "backward",
    "dgrad",
    "wgrad",
    "bmm",
    "F.grouped_mm",
    "update",
    "step",
    "tensor",
    "row",
    "block",
    "fast",
    "eager",
    "compiled",
}
ROWS = 145


def rate(record):
    """Median time, and the rate by it."""
    median = statistics.median(record["times_us"])
    if record.get("flops"):
        return f"{median:.1f} us {record['flops'] / median / 1e6:.1f} TFLOP/s"
    if record.get("bytes"):
        return f"{median:.1f} us {record['bytes'] / median / 1e3:.1f} GB/s"
    return f"{median:.1f} us"


def lines(records):
    cases = {}
    for r in records:
        # Grouped GEMMs are many: the first projection stands for the second.
        if r.get("times_us") and not (r["section"] == "grouped" and " down " in r["name"]):
            words = r["name"].replace(",", "").split()
            case = " ".join(word for word in words if word not in VARIANTS)
            if r["section"] == "host":
                case += f" {r['bytes'] >> 20} MiB" if r.get("bytes") else ""
            variant = " ".join(word for word in words if word in VARIANTS)
            cases.setdefault((r["section"], case), []).append(f"{variant} {rate(r)}".strip())
    failed = [f"{r['section']:10} {r['name'][:50]:50} failed: {r['failed'][:90]}" for r in records if "failed" in r]
    rows = [f"{section:10} {case[:50]:50} {' | '.join(variants)}" for (section, case), variants in cases.items()]
    return rows[: ROWS - min(len(failed), 30)] + failed[:30]


def show(records):
    records = list(records)
    timed = sum(1 for r in records if r.get("times_us"))
    print(
        "",
        *lines(records),
        f"{timed} timed records, {sum(1 for r in records if 'failed' in r)} failed",
        sep="\n",
        flush=True,
    )
