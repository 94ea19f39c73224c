#!/usr/bin/env bash
# Topoformer table 1, the learned rows alone: greedy, samples and beam against approximate DP with K = 100,000.
# usage: examples/experiments/topoformer/nine_cells.sh FOLDER [GRAPHS OF 500 OPS, default 50] [OF 1000, default 20] [OF 2000, default 10]
#        [WEIGHTS, default the shipped ones] [SEED, default 0]
# FOLDER keeps graphs and runs (SIZE.jsonl): the same command goes on where it stopped, and other weights, or more graphs,
# add their runs alone. random and K = 10,000 are beside them, so that the baseline's strength shows.
# The paper, gap above K = 100,000 at 500, 1000, 2000 ops: random 6.86%, 2.62%, 0.31%; greedy 4.32%, 0.48%, -1.47%,
# sample 3.49%, 0.03%, -1.68%, beam search 3.21%, 0.08%, -1.66%.
# A laptop hour: all of it; K = 100,000 takes 10 s per graph of 500 ops and minutes per graph of 2000.
set -euo pipefail
schedopt=${SCHEDOPT:-schedopt}
folder=${1:?a folder that keeps graphs and runs} weights=${5:-} seed=${6:-0}
declare -A counts=([500]=${2:-50} [1000]=${3:-20} [2000]=${4:-10})
methods=approximate-dp:beam-size=100000,approximate-dp:beam-size=10000,random
for decode in greedy sample beam; do methods+=,topoformer:decode=$decode${weights:+:weights=$weights}; done
mkdir -p "$folder"
for nodes in 500 1000 2000; do
  ((counts[$nodes])) || continue
  graphs=$folder/$nodes-${counts[$nodes]}
  [[ -e $graphs/dataset.json ]] || "$schedopt" gen layered "$graphs" --nodes "$nodes" --count "${counts[$nodes]}" --seed "$seed" --quiet
  echo "layered, $nodes ops, ${counts[$nodes]} graphs of seed $seed:"
  "$schedopt" compare "$graphs" --seed "$seed" --quiet --methods "$methods" --resume "$folder/$nodes.jsonl" \
    --output "$folder/$nodes.csv"
  echo
done
