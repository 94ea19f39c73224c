#!/usr/bin/env bash
# Topoformer tables 3 and 4: encoders, and decoders, each trained with the same small budget, on the same unseen graphs.
# usage: examples/experiments/topoformer/ablation.sh encoders|decoders FOLDER [TRAINING GRAPHS, default 12800] [TEST GRAPHS per size,
#        default 20] [SIZES, default "500 1000"] [JOBS, default 1] [K, default 100000]
# Each network imitates a search on a quarter as many graphs, of 100 to 200 ops, then learns by REINFORCE on others.
# Each has 28 heads a layer in all, except that the MLP has none.
# FOLDER keeps training runs, graphs and runs of methods: the same command goes on where it stopped, and both tables share
# them. Some laptop hours, a quarter of one for approximate DP.
# VALIDATION=NUMBER validates on other than 24 graphs.
# Gap above approximate DP with K.
# The paper trains each on graphs of 500 ops, and compares with K = 100,000 on 300 graphs of 500 and 1000 ops.
# Table 3, sample: MLP 4.41%, 0.68%; transformer 4.72, 0.85; GAT 4.19, 0.48; GAT both ways 3.55, 0.23; Topoformer on
# edges 3.67, 0.21; Topoformer 3.35, -0.01. Table 4, sample: GNN and autoregressive decoder 4.71, 1.38; Topoformer and
# autoregressive 3.33, 0.05; Topoformer and priorities 3.35, 0.09.
set -euo pipefail
schedopt=${SCHEDOPT:-schedopt}
table=${1:?encoders or decoders} folder=${2:?a folder for the training runs}
training=${3:-12800} tests=${4:-20} sizes=${5:-500 1000} jobs=${6:-1} k=${7:-100000}
case $table in
  encoders) networks="mlp transformer gat gat-bidirectional topoformer-edges topoformer" ;;
  decoders) networks="edge-transformer/autoregressive topoformer/autoregressive topoformer" ;;
  *) echo "usage: examples/experiments/topoformer/ablation.sh encoders|decoders FOLDER [...]" >&2; exit 2 ;;
esac
mkdir -p "$folder"
methods=approximate-dp:beam-size=$k,random
for network in $networks; do
  run=$folder/${network/\//-} decoder=priorities heads=28
  [[ $network != */* ]] || decoder=${network#*/}
  [[ $network != topoformer* ]] || heads=4  # for each of seven relations
  [[ $network != topoformer-edges ]] || heads=7  # of four
  mkdir -p "$run"
  cat > "$run.yaml" <<END
network: {encoder: ${network%/*}, decoder: $decoder, heads: $heads}
phases:
- {epochs: 1, graphs: $((training / 4)), nodes: [100, 200], batch: 16, learning_rate: 0.0007, reinforce: 0.0, imitation: 1.0, teacher_width: 100}
- {epochs: 4, graphs: $((training / 4)), nodes: [100, 200], batch: 16, learning_rate: 0.0005, decay: 0.7, samples: 16, baseline: leave-one-out}
validation_graphs: ${VALIDATION:-24}
validation_nodes: 200
END
  resume=
  [[ ! -e $run/checkpoint.safetensors ]] || resume=--resume
  "$schedopt" train topoformer --config "$run.yaml" --output "$run" --jobs "$jobs" --quiet $resume >&2
  for decode in greedy sample beam; do
    methods+=,topoformer:decode=$decode:passes=0:weights=$run/weights.safetensors
  done
done
for nodes in $sizes; do
  [[ -e $folder/$nodes/dataset.json ]] || "$schedopt" gen layered "$folder/$nodes" --nodes "$nodes" --count "$tests" --quiet
  echo "layered, $nodes ops:"
  "$schedopt" compare "$folder/$nodes" --quiet --jobs "$jobs" --methods "$methods" --resume "$folder/$nodes.jsonl"
done
