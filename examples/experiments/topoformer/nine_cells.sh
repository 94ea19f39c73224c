#!/usr/bin/env bash
# Topoformer table 1, the learned rows alone: its decoders, as in the paper (passes=0) and tightened, against approximate
# DP with K = 100,000.
# usage: examples/experiments/topoformer/nine_cells.sh FOLDER [OPS:GRAPHS, default "500:50 1000:20 2000:10"] [K, default 100000]
#        [WEIGHTS, default the shipped ones] [SEED, default 0]
# FOLDER keeps graphs and runs (OPS.jsonl, OPS.csv): the same command goes on where it stopped, and other weights, or more
# graphs, add their runs alone. K = 10,000 and random are beside them, so that the baseline's strength shows; K of less
# than 10,000 is alone.
# The paper, gap above K = 100,000 at 500, 1000, 2000 ops: random 6.86%, 2.62%, 0.31%; greedy 4.32%, 0.48%, -1.47%,
# sample 3.49%, 0.03%, -1.68%, beam search 3.21%, 0.08%, -1.66%.
# A laptop hour: 500:50 1000:20 2000:5; K = 100,000 takes 10 s per graph of 500 ops, a minute of 1000, minutes of 2000.
set -euo pipefail
schedopt=${SCHEDOPT:-schedopt}
folder=${1:?a folder that keeps graphs and runs} cells=${2:-500:50 1000:20 2000:10} k=${3:-100000} weights=${4:-} seed=${5:-0}
methods=approximate-dp:beam-size=$k
((k <= 10000)) || methods+=,approximate-dp:beam-size=10000
methods+=,random
for decode in greedy sample beam; do
  for passes in :passes=0 ""; do methods+=,topoformer:decode=$decode$passes${weights:+:weights=$weights}; done
done
methods+=,topoformer:decode=two-way${weights:+:weights=$weights}
mkdir -p "$folder"
for cell in $cells; do
  nodes=${cell%:*} count=${cell#*:}
  graphs=$folder/$nodes-$count
  [[ -e $graphs/dataset.json ]] || "$schedopt" gen layered "$graphs" --nodes "$nodes" --count "$count" --seed "$seed" --quiet
  echo "layered, $nodes ops, $count graphs of seed $seed:"
  "$schedopt" compare "$graphs" --seed "$seed" --quiet --methods "$methods" --resume "$folder/$nodes.jsonl" \
    --output "$folder/$nodes.csv"
  echo
done
