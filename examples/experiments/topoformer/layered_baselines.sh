#!/usr/bin/env bash
# The orders of Topoformer table 1 that need no search, against random-100, on more graphs than table1.sh.
# usage: examples/experiments/topoformer/layered_baselines.sh [GRAPHS PER SIZE, default 100] [SEED, default 0]
# The paper: BFS / random-100 peak 1.132, 1.085, 1.061; DFS / random-100 1.057, 1.044, 1.033 at 500, 1000, 2000 ops.
set -euo pipefail
schedopt=${SCHEDOPT:-schedopt}
count=${1:-100} seed=${2:-0}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for nodes in 500 1000 2000; do
  "$schedopt" gen layered "$work/$nodes" --nodes "$nodes" --count "$count" --seed "$seed" --jobs 2 --quiet
  echo "layered, $nodes ops, $count graphs, seed $seed: against random-100"
  "$schedopt" compare "$work/$nodes" --methods random,dfs,dfs-postorder,bfs,lpmf --reference random --jobs 2 --quiet
done
