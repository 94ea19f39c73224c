#!/usr/bin/env bash
# Two devices, filtered synthetic graphs (REGAL A.1.4), free transfers: makespan, then peak memory.
# usage: examples/two_devices.sh [GRAPHS, default 30] [SEED, default 0] [JOBS, default 1]
# BRKGA as in the paper and with the lazy decoder, and auto, all at 5,000 evaluations; then auto in one second.
# The last is timed: more jobs than idle cores make it worse.
set -euo pipefail
schedopt=${SCHEDOPT:-schedopt}
count=${1:-30} seed=${2:-0} jobs=${3:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$schedopt" gen synthetic "$work/graphs" --count "$count" --seed "$seed" --filter 0.18 --jobs 2 --quiet
for task in runtime memory; do
  "$schedopt" compare "$work/graphs" --task "$task" --devices 2 --seed 1000 --jobs "$jobs" --quiet \
    --methods brkga:evaluations=5000,brkga:decoder=lazy:evaluations=5000,auto:evaluations=5000,auto:time-limit=1s \
    --reference brkga:evaluations=5000
done
