#!/usr/bin/env bash
# Builds the fuzz targets on the stable toolchain and runs each for FUZZ_SECONDS (9 unless told) from its seeds.
#   fuzz/run.sh                    every target, about two minutes
#   FUZZ_SECONDS=3600 fuzz/run.sh plan_text
#   FUZZ_SECONDS=4000 FUZZ_JOBS=2 fuzz/run.sh    a night on two cores
# FUZZ_SEED names the mutations (a random one unless told). An input that panics, overflows, takes over 20 s or 4 GiB is left in
# fuzz/artifacts/, and the script fails. docs/endurance.md has the totals.
set -euo pipefail
cd "$(dirname "$0")"
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
one() {
    local target=$1 log=../target/fuzz/$1.log
    mkdir -p "../target/fuzz/corpus/$target" "corpus/$target"
    local status=0
    # One thread: libFuzzer follows one, and others would only be waited for.
    RAYON_NUM_THREADS=1 "../target/fuzz/$host/release/$target" "../target/fuzz/corpus/$target" "corpus/$target" \
        "../target/fuzz/seeds/$target" -max_total_time="${FUZZ_SECONDS:-9}" -timeout=20 -rss_limit_mb=4096 -max_len=65536 \
        -seed="${FUZZ_SEED:-0}" -artifact_prefix="artifacts/$target-" -print_final_stats=1 >"$log" 2>&1 || status=1
    stat() { sed -n "s/^$1: *//p" "$log" | head -1; }
    # CPU seconds of what this shell has waited for, which other work on the machine does not change.
    local inputs cpu
    inputs=$(stat stat::number_of_executed_units)
    times >"$log.times" # in a pipe it would be that of another shell
    cpu=$(awk 'NR == 2 { gsub(/[ms]/, " "); print $1 * 60 + $2 + $3 * 60 + $4 }' "$log.times")
    awk -v target="$target" -v inputs="${inputs:-0}" -v cpu="$cpu" -v seed="$(stat 'INFO: Seed')" \
        'BEGIN { printf "%-14s %9d inputs, %6.0f a second of CPU, seed %s\n", target, inputs, inputs / cpu, seed }'
    if [ "$status" -ne 0 ]; then
        echo "FAILED: $target"
        grep -E "panicked|ERROR|SUMMARY" -A4 "$log" | head -20
    fi
    return "$status"
}
export -f one
export host
printf '%s\n' "$@" | xargs -P "${FUZZ_JOBS:-1}" -I{} bash -c 'one {}'
