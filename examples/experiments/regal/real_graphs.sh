#!/usr/bin/env bash
# (ours) Real graphs: how much room BRKGA leaves, and how much of it networks and list schedulers take, on
# topologies that no training saw.
# usage: examples/experiments/regal/real_graphs.sh runtime|memory FOLDER GRAPHS... [-- compare options]
# A quarter of an hour on a laptop for 180 graphs of up to 2,500 ops, of which a fifth is the test set. SET=valid takes
# the validation set. FOLDER keeps graphs and runs: the same command goes on where it stopped.
# Two devices, 5,000 evaluations, two seeds; for the makespan 10 GB/s and 5 us per transfer, with FREE=1 the paper's setting:
# transfers without time, at most 16 GiB on a device, weights that learned so. The sets are those that
# `schedopt gen augment --copies 2` with the same GRAPHS and --improvable makes for training, without the copies.
set -euo pipefail
schedopt=${SCHEDOPT:-schedopt} python=${PYTHON:-python} set=${SET:-test}
task=${1:?runtime or memory} folder=${2:?a folder for graphs and runs}
shift 2
graphs=()
while (($#)) && [[ $1 != -- ]]; do graphs+=("$1"); shift; done
(($#)) && shift
methods=brkga,regal:weights=regal-$task-real,regal:weights=regal-$task-transfers,direct,direct:decode=rule,input
case $task${FREE:+-free} in
  runtime)
    methods+=,heft,gp-dfs
    links=(--bandwidth 10GB/s --latency 5us)
    ;;
  runtime-free) methods+=,regal:weights=regal-runtime,local-search,gp-dfs links=(--memory-limit 16GiB) ;;
  memory*) methods+=,regal:weights=regal-memory links=() ;;
  *) echo "usage: examples/experiments/regal/real_graphs.sh runtime|memory FOLDER GRAPHS..." >&2; exit 2 ;;
esac
mkdir -p "$folder"
[[ -e $folder/graphs/dataset.json ]] || "$schedopt" gen augment "${graphs[@]}" --output "$folder/graphs" --copies 0 \
  --improvable "$task" --devices 2 --split 3-1-1 --overwrite
"$schedopt" compare "$folder/graphs/$set" --task "$task" --devices 2 ${links[@]+"${links[@]}"} \
  --evaluations 5000 --seed 1000 --seeds 2 --methods "$methods,auto:evaluations=2000" \
  --resume "$folder/runs.jsonl" --output "$folder/$set.csv" --quiet "$@"
echo
"$python" "$(dirname "$0")/room.py" "$folder/$set.csv"
"$python" "$(dirname "$0")/room.py" "$folder/$set.csv" --reference input
