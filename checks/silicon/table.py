"""Table of a run's records for reading: a line a case, its variants beside one another."""

import statistics

# Words of a record's name that tell the variants of one case apart.
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
ROWS = 145  # most lines of the table
FAILURES = 30  # most of them that are failures


def rate(record):
    """Median time, and the rate by it."""
    median = statistics.median(record["times_us"])
    if record.get("flops"):
        return f"{median:.1f} us {record['flops'] / median / 1e6:.1f} TFLOP/s"
    if record.get("bytes"):
        return f"{median:.1f} us {record['bytes'] / median / 1e3:.1f} GB/s"
    return f"{median:.1f} us"


def split_name(record):
    """Case of a record, which its variants share, and its variant."""
    words = record["name"].replace(",", "").split()
    case = " ".join(word for word in words if word not in VARIANTS)
    if record["section"] == "host" and record.get("bytes"):
        case += f" {record['bytes'] >> 20} MiB"
    return case, " ".join(word for word in words if word in VARIANTS)


def lines(records):
    """Lines of the table: timed cases, then failures."""
    cases = {}
    for record in records:
        # Grouped GEMMs are many: the first projection stands for the second.
        if record.get("times_us") and not (record["section"] == "grouped" and " down " in record["name"]):
            case, variant = split_name(record)
            cases.setdefault((record["section"], case), []).append(f"{variant} {rate(record)}".strip())
    rows = [f"{section:10} {case[:50]:50} {' | '.join(variants)}" for (section, case), variants in cases.items()]
    failed = [f"{r['section']:10} {r['name'][:50]:50} failed: {r['failed'][:90]}" for r in records if "failed" in r]
    return rows[: ROWS - min(len(failed), FAILURES)] + failed[:FAILURES]


def show(records):
    """Prints the table and counts of timed and failed records."""
    records = list(records)
    timed = sum(1 for r in records if r.get("times_us"))
    print(
        "",
        *lines(records),
        f"{timed} timed records, {sum(1 for r in records if 'failed' in r)} failed",
        sep="\n",
        flush=True,
    )
