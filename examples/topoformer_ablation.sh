#!/usr/bin/env bash
# Topoformer tables 3 and 4: encoders, and decoders, each trained with the same small budget, on the same unseen graphs.
# usage: examples/topoformer_ablation.sh encoders|decoders FOLDER [TRAINING GRAPHS, default 4000] [THEIR OPS, default 200]
#        [TEST GRAPHS per size, default 20] [SIZES, default "200 500 1000"] [JOBS, default 1] [WIDTH, default 128]
#        [SAMPLES AND BEAM WIDTH, default 16]
# FOLDER keeps the training runs: the same command goes on where it stopped. Gap above approximate DP with K = 10,000.
# The paper trains each for days on graphs of 500 ops, and compares with K = 100,000 on 300 graphs of 500 and 1000 ops.
# Table 3, sample: MLP 4.41%, 0.68%; transformer 4.72, 0.85; GAT 4.19, 0.48; GAT both ways 3.55, 0.23; Topoformer on
# edges 3.67, 0.21; Topoformer 3.35, -0.01. Table 4, sample: GNN and autoregressive decoder 4.71, 1.38; Topoformer and
# autoregressive 3.33, 0.05; Topoformer and priorities 3.35, 0.09.
set -euo pipefail
schedopt=${SCHEDOPT:-schedopt}
table=${1:?encoders or decoders} folder=${2:?a folder for the training runs}
training=${3:-4000} ops=${4:-200} tests=${5:-20} sizes=${6:-200 500 1000} jobs=${7:-1} width=${8:-128} count=${9:-16}
case $table in
  encoders) networks="mlp transformer gat gat-bidirectional topoformer-edges topoformer" ;;
  decoders) networks="edge-transformer/autoregressive topoformer/autoregressive topoformer" ;;
  *) echo "usage: examples/topoformer_ablation.sh encoders|decoders FOLDER [...]" >&2; exit 2 ;;
esac
mkdir -p "$folder"
methods=approximate-dp:beam-size=10000,random
for network in $networks; do
  run=$folder/${network/\//-}
  decoder=priorities
  [[ $network != */* ]] || decoder=${network#*/}
  mkdir -p "$run"
  cat > "$run.yaml" <<END
network: {encoder: ${network%/*}, decoder: $decoder, width: $width}
phases:
- {epochs: 8, graphs: $((training / 8)), nodes: [$ops, $ops], batch: 8, learning_rate: 0.0007, decay: 0.8, reinforce: 0.0, imitation: 1.0, teacher_width: 100}
validation_nodes: $ops
END
  resume=
  [[ ! -e $run/checkpoint.safetensors ]] || resume=--resume
  "$schedopt" train topoformer --config "$run.yaml" --output "$run" --jobs "$jobs" --quiet $resume
  for decode in greedy sample beam; do
    methods+=,topoformer:decode=$decode:width=$count:weights=$run/weights.safetensors
  done
done
for nodes in $sizes; do
  [[ -e $folder/$nodes/dataset.json ]] || "$schedopt" gen layered "$folder/$nodes" --nodes "$nodes" --count "$tests" --quiet
  echo "layered, $nodes ops:"
  "$schedopt" compare "$folder/$nodes" --quiet --jobs "$jobs" --methods "$methods"
done
