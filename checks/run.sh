#!/usr/bin/env bash
# Asks the frameworks' own code whether it would run the files that `meshwright emit` writes.
#
#   SEED=7 bash checks/run.sh                                              checks/cases.tsv, and 60 plans that checks/draw.py draws
#   SEED=7 DRAW=megatron=40,torchtitan=10 CASES=none bash checks/run.sh    those of these frameworks, and nothing else
#
# Where checks/environment.sh cannot make the frameworks' environment, it says so and skips. $MESHWRIGHT is the binary, else one is built.
set -euo pipefail
cd "$(dirname "$0")/.."

. checks/environment.sh

# nanotron's wheel (0.4 of March 2024) knows neither context parallelism nor today's models: its source is asked, from $NANOTRON (a
# checkout's src folder) or from where it is kept.
revision=2411b022a75fb7f7561a1bb4166706da5e1b76de
nanotron=${NANOTRON:-$home/nanotron-$revision/src}
if [ ! -d "$nanotron" ]; then
    mkdir -p "$home/fetched"
    if curl -sfL --max-time 120 "https://codeload.github.com/huggingface/nanotron/tar.gz/$revision" | tar xz -C "$home/fetched" 2> /dev/null; then
        mv "$home/fetched/nanotron-$revision" "$home/"
    fi
fi
. checks/sources.sh # $neox, $foundry, $composer, $megablocks, $olmo with $olmo_needs, $swift
only=megatron,megatron-bridge,deepspeed,accelerate,torchtitan,axolotl,llama-factory
more=()
if [ -d "$nanotron" ]; then
    only=$only,nanotron
    more=(--nanotron "$nanotron")
else
    echo "SKIPPED: nanotron's source cannot be fetched; no file for nanotron was judged by its own code"
fi

if [ -d "$neox" ]; then
    only=$only,gpt-neox
    more+=(--gpt-neox "$neox")
else
    echo "SKIPPED: GPT-NeoX's source cannot be fetched; no file for GPT-NeoX was judged by its own code"
fi
if [ -d "$swift" ]; then
    only=$only,ms-swift
    more+=(--ms-swift "$swift")
else
    echo "SKIPPED: ms-swift's source cannot be fetched; no file for ms-swift was judged by its own code"
fi
if [ -d "$foundry" ] && [ -d "$composer" ] && [ -d "$megablocks" ]; then
    only=$only,llm-foundry
    more+=(--llm-foundry "$foundry" --composer "$composer" --megablocks "$megablocks")
else
    echo "SKIPPED: the source of llm-foundry, Composer or MegaBlocks cannot be fetched; no file for llm-foundry was judged by its own code"
fi

if [ -d "$olmo" ] && [ -d "$olmo_needs" ]; then
    only=$only,olmo-core
    more+=(--olmo-core "$olmo" --olmo-core-needs "$olmo_needs")
else
    echo "SKIPPED: OLMo-core's source, or what it needs of the Python registry, cannot be fetched; no file for OLMo-core was judged by its own code"
fi

if [ -d "$primus" ] && [ -d "$primus_megatron" ]; then
    only=$only,primus
    more+=(--primus "$primus" --primus-megatron "$primus_megatron")
else
    echo "SKIPPED: the source of Primus or of its Megatron-LM cannot be fetched; no file for Primus was judged by its own code"
fi

[ -n "${MESHWRIGHT:-}" ] || cargo build
binary=${MESHWRIGHT:-${CARGO_TARGET_DIR:-target}/debug/meshwright}
export PATH="$home/bin:$PATH" OMP_NUM_THREADS=1
# Kernels made at run time for AMX die of an illegal instruction on virtual machines that show it and do not allow it.
export ONEDNN_MAX_CPU_ISA=AVX2
# Beside the plans that were chosen, with $SEED some that nobody chose.
mkdir -p target/emitted
: > target/emitted/drawn.tsv
if [ -n "${SEED:-}" ]; then
    python3 checks/draw.py --meshwright "$binary" --seed "$SEED" ${DRAW:+--each "$DRAW"} > target/emitted/drawn.tsv
fi
cases=(--cases target/emitted/drawn.tsv)
[ "${CASES:-}" = none ] || cases+=(--cases checks/cases.tsv)
"$home/bin/python" -W ignore checks/operators.py
exec timeout --foreground "${SECONDS_AT_MOST:-2400}" "$home/bin/python" -W ignore checks/emitted.py --meshwright "$binary" --out target/emitted "${cases[@]}" --only "$only" "${more[@]}" 2> >(grep -v -i "warn" >&2)
