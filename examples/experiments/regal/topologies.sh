#!/usr/bin/env bash
# REGAL figure 12: rewards by topology, with noisy copies of each graph (A.1.2, A.17); and figure 2 on them.
# usage: examples/experiments/regal/topologies.sh runtime|memory FOLDER COPIES GRAPHS... [-- compare options]
# A laptop hour: examples/experiments/regal/topologies.sh runtime FOLDER 19 GRAPHS..., 20 graphs of up to 500 ops.
# Each graph and its COPIES, with every tensor size and runtime times its own number from 0.5 to 1.5, two devices, 5,000
# evaluations of brkga and of each policy that is shipped. FOLDER keeps graphs, runs (runs.csv) and the figures,
# topologies.png and histogram.png: the same command goes on where it stopped. WEIGHTS=FOLDER takes
# regal-TASK.safetensors and regal-TASK-transfers.safetensors from there.
# A reward, -o_a / o_s, above -1 is better than BRKGA's. The paper: 99 copies of each of its test graphs, 5,266 in all for
# runtime; "the variance for a fixed topology is typically relatively small".
set -euo pipefail
schedopt=${SCHEDOPT:-schedopt} python=${PYTHON:-python}
task=${1:?runtime or memory} folder=${2:?a folder for graphs and runs} copies=${3:?how many copies}
shift 3
graphs=()
while (($#)) && [[ $1 != -- ]]; do graphs+=("$1"); shift; done
(($#)) && shift
source "$(dirname "$0")/policies.sh"
[[ -n ${policies[*]-} ]] || { echo "there are no weights for $task: WEIGHTS=FOLDER names others" >&2; exit 1; }
mkdir -p "$folder"
[[ -e $folder/graphs/dataset.json ]] || "$schedopt" gen augment "${graphs[@]}" --output "$folder/graphs" \
  --copies "$copies" --improvable "$task" --devices 2 --overwrite --quiet
methods=$(IFS=,; echo "brkga,${policies[*]}")
"$schedopt" compare "$folder/graphs" --task "$task" --devices 2 --seed 1000 --quiet --methods "$methods" \
  --resume "$folder/runs.jsonl" --output "$folder/runs.csv" "$@"
echo
for figure in topologies histogram; do
  "$python" "$(dirname "$0")/figures.py" "$figure" "$folder/runs.csv" --output "$folder/$figure.png"
done
