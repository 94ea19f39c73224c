#!/usr/bin/env bash
# Topoformer table 1, the baselines without learning: layered graphs of 500, 1000 and 2000 ops.
# usage: examples/layered_baselines.sh [GRAPHS PER SIZE, default 100] [GRAPHS AGAINST DP, default 20] [SEED, default 0]
# The paper: BFS / random-100 peak 1.132, 1.085, 1.061; DFS / random-100 1.057, 1.044, 1.033;
# above approximate DP (K = 100,000): random 6.86%, DFS 12.9%, BFS 20.94% at 500 ops.
set -euo pipefail
schedopt=${SCHEDOPT:-schedopt}
count=${1:-100} few=${2:-20} seed=${3:-0}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for nodes in 500 1000 2000; do
  "$schedopt" gen layered "$work/$nodes" --nodes "$nodes" --count "$count" --seed "$seed" --jobs 2 --quiet
  echo "layered, $nodes ops, $count graphs, seed $seed: against random-100"
  "$schedopt" compare "$work/$nodes" --methods random,dfs,dfs-postorder,bfs,lpmf --reference random --jobs 2 --quiet
done
"$schedopt" gen layered "$work/few" --nodes 500 --count "$few" --seed "$seed" --quiet
echo "layered, 500 ops, $few graphs, seed $seed: against approximate DP, K = 10,000"
"$schedopt" compare "$work/few" --reference approximate-dp --quiet \
  --methods approximate-dp,random,dfs,dfs-postorder,bfs,lpmf,auto:time_limit=10s
