#!/usr/bin/env bash
# BRKGA 1K, 5K and 10K on filtered synthetic graphs (REGAL A.1.4), makespan on two devices, free transfers.
# usage: examples/experiments/regal/brkga_budget.sh [GRAPHS, default 30] [SEED, default 0] [SEEDS PER GRAPH, default 1]
# The paper's filtered set improves by 20% on average from 1K to 10K.
set -euo pipefail
schedopt=${SCHEDOPT:-schedopt}
count=${1:-30} seed=${2:-0} seeds=${3:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$schedopt" gen synthetic "$work/graphs" --count "$count" --seed "$seed" --filter 0.18 --jobs 2 --quiet
"$schedopt" compare "$work/graphs" --task runtime --seed 1000 --seeds "$seeds" --jobs 2 --quiet \
  --methods brkga:evaluations=1000,brkga:evaluations=5000,brkga:evaluations=10000 \
  --reference brkga:evaluations=1000
