#!/usr/bin/env bash
# Topoformer table 2: peak memory of real graphs whose topology no training saw, by number of ops.
# usage: examples/experiments/topoformer/table2.sh FOLDER GRAPHS... [-- compare options]
# The graphs are split 3-1-1 by topology into train, valid and test. The shipped weights, which saw layered graphs alone,
# are compared with weights trained further on the training graphs of up to 1000 ops. FOLDER keeps the graphs, the training
# run and the runs as BAND.csv, for figures.py (figure 3): the same command goes on where it stopped. EPOCHS=0 leaves the
# training out, and compares the shipped weights alone.
# Approximate DP keeps K = 100,000 states as in the paper, above 1000 ops 10,000; depth-first DP has 20 s for an hour.
# The paper trains on 92 graphs of its own for 500 epochs; gap above approximate DP (K = 100,000) at 200-500, 500-700 and
# 700-1000 ops: depth-first DP 62%, 103%, 51%, random 469%, 376%, 116%, depth first 506%, 395%, 123%, breadth first 349%,
# 150%, -36%, greedy -18%, -51%, -69%, sample -22%, -41%, -61%, beam -20%, -57%, -73%.
# A laptop hour: 200 graphs take less than one.
set -euo pipefail
schedopt=${SCHEDOPT:-schedopt} python=${PYTHON:-python} epochs=${EPOCHS:-20}
folder=${1:?a folder to work in}
shift
graphs=()
while (($#)) && [[ $1 != -- ]]; do graphs+=("$1"); shift; done
(($#)) && shift
mkdir -p "$folder"
if [[ ! -e $folder/graphs/dataset.json ]]; then
  "$schedopt" gen augment "${graphs[@]}" --output "$folder/graphs" --copies 0 --split 3-1-1 --overwrite --quiet
fi
"$python" - "$folder" <<'END'
import shutil
import sys
from pathlib import Path
from schedopt.core.files.costgraph import read_graph

BANDS = {"small": (1, 199), "200-500": (200, 500), "500-700": (501, 700), "700-1000": (701, 1000), "large": (1001, 10**9)}
folder = Path(sys.argv[1])
for part in ("train", "valid", "test"):
    for path in sorted((folder / "graphs" / part).iterdir()):
        ops = read_graph(path).num_ops
        if part == "test":
            target = folder / next(band for band, (low, high) in BANDS.items() if low <= ops <= high)
        elif ops > 1000:
            continue
        else:
            target = folder / part
        target.mkdir(exist_ok=True)
        shutil.copy(path, target)
END
methods=input,depth-first-dp:time-limit=20s,random,dfs,bfs,topoformer,topoformer:decode=beam
weights=(topoformer-layered)
if ((epochs)); then
  run=$folder/run
  cat > "$folder/config.yaml" <<END
seed: 0
start: topoformer-layered
phases:
- {epochs: $epochs, graphs: $(find "$folder/train" -type f | wc -l), batch: 4, learning_rate: 0.0002, decay: 0.95, samples: 16, baseline: leave-one-out}
END
  resume=
  [[ ! -e $run/checkpoint.safetensors ]] || resume=--resume
  "$schedopt" train topoformer "$folder/train" --validation "$folder/valid" --config "$folder/config.yaml" --output "$run" $resume --quiet >&2
  weights+=("$run/weights.safetensors")
fi
for of in "${weights[@]}"; do
  for decode in greedy sample beam; do methods+=,topoformer:decode=$decode:passes=0:weights=$of; done
done
methods+=,auto:time-limit=1s
for band in small 200-500 500-700 700-1000 large; do
  [[ -d $folder/$band ]] || continue
  dp=approximate-dp:beam-size=100000
  [[ $band != large ]] || dp=approximate-dp:beam-size=10000
  echo "test graphs, $band ops:"
  for reference in $dp input; do
    "$schedopt" compare "$folder/$band" --quiet --methods "$dp,$methods" --reference "$reference" \
      --resume "$folder/$band.jsonl" --output "$folder/$band.csv" "$@"
  done
done
