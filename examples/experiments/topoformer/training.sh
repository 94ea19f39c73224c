#!/usr/bin/env bash
# Topoformer's training: the paper's REINFORCE (one sample, greedy rollout as baseline, 8 graphs of a step, learning rate
# 1e-4) beside this project's (16 samples, each against the mean of the others), from the same random weights, on the
# same number of layered graphs of 100 to 200 ops.
# usage: examples/experiments/topoformer/training.sh FOLDER [TRAINING GRAPHS, default 3200] [TEST GRAPHS, default 20] [THEIR OPS,
#        default 500] [JOBS, default 1]
# FOLDER keeps the runs: the same command goes on where it stopped. A laptop hour: the default takes a quarter of one.
# VALIDATION=NUMBER validates on other than 24 graphs.
# Gap above approximate DP with K = 100,000.
set -euo pipefail
schedopt=${SCHEDOPT:-schedopt}
folder=${1:?a folder for the training runs} training=${2:-3200} tests=${3:-20} nodes=${4:-500} jobs=${5:-1}
mkdir -p "$folder"
train() {
  local run=$folder/$1 resume=
  cat > "$run.yaml" <<END
phases: [{nodes: [100, 200], epochs: 4, graphs: $((training / 4)), $2}]
validation_graphs: ${VALIDATION:-24}
validation_nodes: 200
END
  [[ ! -e $run/checkpoint.safetensors ]] || resume=--resume
  "$schedopt" train topoformer --config "$run.yaml" --output "$run" --jobs "$jobs" --quiet $resume >&2
}
train plain "batch: 8, learning_rate: 0.0001, decay: 0.996, samples: 1, baseline: greedy-rollout"
train leave-one-out "batch: 16, learning_rate: 0.0003, decay: 0.9, samples: 16, baseline: leave-one-out"
methods=approximate-dp:beam-size=100000,random
for run in plain leave-one-out; do
  for decode in greedy sample beam; do
    methods+=,topoformer:decode=$decode:passes=0:weights=$folder/$run/weights.safetensors
  done
done
[[ -e $folder/graphs/dataset.json ]] || "$schedopt" gen layered "$folder/graphs" --nodes "$nodes" --count "$tests" --quiet
echo "layered, $nodes ops:"
"$schedopt" compare "$folder/graphs" --quiet --jobs "$jobs" --methods "$methods"
