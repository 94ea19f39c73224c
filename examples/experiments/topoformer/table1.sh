#!/usr/bin/env bash
# Topoformer table 1: peak memory of layered graphs, against approximate DP.
# usage: examples/experiments/topoformer/table1.sh [GRAPHS OF 500 OPS, default 20] [OF 1000 AND 2000 OPS, default 10]
#        [K AT 500 OPS, default 100000] [K AT 1000 AND 2000 OPS, default 100000] [SECONDS OF DEPTH-FIRST DP, default 60]
#        [SECONDS OF SEARCH, default 10] [SEED, default 0] [JOBS, default 1] [SIZES, default "500 1000 2000"]
#        [FOLDER that keeps the runs, SIZE.csv, for figures.py]
# A laptop hour: examples/experiments/topoformer/table1.sh 10 5 100000 20000 20
# Improvements are over approximate DP with the K of the size; K = 10,000 is a row too if smaller. Order search and auto run for
# the seconds given, auto for one as well: more jobs than idle cores make them worse.
# The paper, gap above approximate DP (K = 100,000) at 500, 1000, 2000 ops: random 6.86%, 2.62%, 0.31%; depth first
# 12.9%, 7.1%, 3.57%; breadth first 20.94%, 11.31%, 6.42%; depth-first DP (an hour) 5.76%, 3.84%, 2.40%; Topoformer's
# greedy 4.32%, 0.48%, -1.47%, sample 3.49%, 0.03%, -1.68%, beam search 3.21%, 0.08%, -1.66%. Its approximate DP takes
# 265, 1561 and 8829 s.
set -euo pipefail
schedopt=${SCHEDOPT:-schedopt}
small_count=${1:-20} large_count=${2:-10} small_k=${3:-100000} large_k=${4:-100000}
depth_first=${5:-60} seconds=${6:-10} seed=${7:-0} jobs=${8:-1} sizes=${9:-500 1000 2000} folder=${10:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[[ -z $folder ]] || mkdir -p "$folder"
baselines=random,dfs,dfs-postorder,bfs,lpmf,depth-first-dp:time-limit=${depth_first}s
learned=topoformer:decode=greedy:passes=0,topoformer:decode=sample:passes=0,topoformer:decode=beam:passes=0
learned+=,topoformer:decode=two-way
searches=order-search:time-limit=${seconds}s,auto:time-limit=1s,auto:time-limit=${seconds}s
for nodes in $sizes; do
  k=$((nodes == 500 ? small_k : large_k)) count=$((nodes == 500 ? small_count : large_count))
  beams=approximate-dp:beam-size=$k
  ((k <= 10000)) || beams+=,approximate-dp:beam-size=10000
  "$schedopt" gen layered "$work/$nodes" --nodes "$nodes" --count "$count" --seed "$seed" --quiet
  echo "layered, $nodes ops, generated with seed $seed:"
  "$schedopt" compare "$work/$nodes" --seed "$seed" --jobs "$jobs" --quiet --methods "$beams,$baselines,$learned,$searches" \
    ${folder:+--output "$folder/$nodes.csv"}
  echo
done
