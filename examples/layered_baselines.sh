#!/usr/bin/env bash
# Topoformer table 1, the baselines without learning: layered graphs of 500, 1000 and 2000 ops.
# usage: examples/layered_baselines.sh [GRAPHS PER SIZE, default 20] [SEED, default 0]
# The paper: BFS / random-100 peak 1.132, 1.085, 1.061; DFS / random-100 1.057, 1.044, 1.033;
# above approximate DP (K = 100,000): random 6.86%, DFS 12.9%, BFS 20.94% at 500 ops.
set -euo pipefail
schedopt=${SCHEDOPT:-schedopt}
count=${1:-20} seed=${2:-0}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for nodes in 500 1000 2000; do
  "$schedopt" gen layered "$work/$nodes" --nodes "$nodes" --count "$count" --seed "$seed" --quiet
  echo "layered, $nodes ops, $count graphs, seed $seed: against random-100"
  "$schedopt" compare "$work/$nodes" --methods random,dfs,dfs-postorder,bfs,lpmf --reference random --jobs 2 --quiet
done
echo "layered, 500 ops: against approximate DP, K = 10,000"
"$schedopt" compare "$work/500" --reference approximate-dp --jobs 2 --quiet \
  --methods approximate-dp,random,dfs,dfs-postorder,bfs,lpmf,auto:time_limit=10s
