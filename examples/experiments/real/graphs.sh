#!/usr/bin/env bash
# Peak memory of real graphs on one device: `auto` against the program order, a table per folder.
# usage: examples/experiments/real/graphs.sh FOLDER... [-- compare options, default --time-limit 10s]
# Improvement over the input order, gap to the lower bound, wins, ties and losses, and graphs proven optimal; a
# graph takes the time limit only if it is not. More options: --jobs 2, --per-graph, --output runs.csv, --resume FILE.
# A laptop hour: 200 graphs with --time-limit 10s take half of it; with 1s a few minutes.
set -euo pipefail
schedopt=${SCHEDOPT:-schedopt}
folders=()
while (($#)) && [[ $1 != -- ]]; do folders+=("$1"); shift; done
(($#)) && shift
((${#folders[@]})) || { echo "usage: examples/experiments/real/graphs.sh FOLDER... [-- compare options]" >&2; exit 2; }
options=("${@:---time-limit=10s}")
for folder in "${folders[@]}"; do
  echo "$(basename "$folder"):"
  "$schedopt" compare "$folder" --methods input,auto --quiet "${options[@]}"
  echo
done
