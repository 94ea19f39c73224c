#!/usr/bin/env bash
# Makespan on four and eight devices, 10 GB/s and 5 us per transfer, under a memory limit that binds.
# usage: examples/experiments/regal/many_devices.sh [SYNTHETIC GRAPHS, default 30] [SECONDS OF AUTO, default 10] [SEED OF THE GRAPHS, default 0]
#        [JOBS, default 1] [FOLDER...]
# A laptop hour: examples/experiments/regal/many_devices.sh 20 5 0 1 FOLDER
# For the synthetic graphs (REGAL A.1.4) and for each folder a table per number of devices. The limit is a share of
# the peak of the graph's input order on one device: 50% on four devices, 45% on eight. What exceeds it is counted
# below the table, with the graphs that no method fits into it. Improvements are over BRKGA at 5,000 evaluations.
set -euo pipefail
schedopt=${SCHEDOPT:-schedopt}
count=${1:-30} seconds=${2:-10} seed=${3:-0} jobs=${4:-1}
folders=("${@:5}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$schedopt" gen synthetic "$work/synthetic" --count "$count" --seed "$seed" --quiet
for folder in "$work/synthetic" "${folders[@]}"; do
  for setting in "4 50%" "8 45%"; do
    read -r devices limit <<<"$setting"
    echo "$(basename "$folder"):"
    "$schedopt" compare "$folder" --task runtime --devices "$devices" --bandwidth 10GB/s --latency 5us --quiet \
      --memory-limit "$limit" --seed 1000 --jobs "$jobs" \
      --methods brkga,brkga:decoder=lazy,gp-dfs,local-search,auto:evaluations=5000,auto:time-limit="$seconds"s
    echo
  done
done
