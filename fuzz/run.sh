#!/usr/bin/env bash
# Builds the fuzz targets on the stable toolchain and runs each for FUZZ_SECONDS (9 unless told) from its seeds.
#   fuzz/run.sh                    every target, about two minutes
#   FUZZ_SECONDS=3600 fuzz/run.sh plan_text
# An input that panics, overflows, takes over 20 s or 4 GiB is left in fuzz/artifacts/, and the script fails.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${FUZZ_SECONDS:-9}
host=$(rustc -vV | sed -n 's/^host: //p')
all=(model cluster gpu stack market sweep_file hf_config runs_csv training_log plan_text launch_file question emitted)
[ $# -gt 0 ] || set -- "${all[@]}"

# Coverage counters of LLVM, which libFuzzer reads; `-Z sanitizer`, which needs a nightly toolchain, is not used.
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
coverage="$coverage -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing"
bins=()
for target in "$@"; do bins+=(--bin "$target"); done
RUSTFLAGS="$coverage" cargo build --quiet --release --target "$host" --target-dir ../target/fuzz "${bins[@]}"

python3 seeds.py ../target/fuzz/seeds
mkdir -p artifacts
failed=0
for target in "$@"; do
    mkdir -p "../target/fuzz/corpus/$target" "corpus/$target"
    log=../target/fuzz/$target.log
    if "../target/fuzz/$host/release/$target" "../target/fuzz/corpus/$target" "corpus/$target" "../target/fuzz/seeds/$target" \
        -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -max_len=65536 -artifact_prefix="artifacts/$target-" \
        -print_final_stats=1 >"$log" 2>&1; then
        printf '%-14s %s inputs\n' "$target" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")"
    else
        failed=1
        echo "FAILED: $target"
        grep -E "panicked|ERROR|SUMMARY" -A4 "$log" | head -20
    fi
done
exit "$failed"
