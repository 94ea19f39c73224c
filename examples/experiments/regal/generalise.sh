#!/usr/bin/env bash
# REGAL figure 3 and 5.3: the shipped policies with other budgets, on graphs 10 times larger, and on 4 devices.
# usage: examples/experiments/regal/generalise.sh runtime|memory FOLDER [GRAPHS, default 50] [LARGE GRAPHS, default 10]
#        [SEED OF THE GRAPHS, default 0] [JOBS, default 1] [LARGE SIZES, default 500-2000]
#        [WEIGHTS FOR 4 DEVICES, default none] [EVALUATIONS, default "1000 2500 5000 10000 20000 50000"]
# A laptop hour: examples/experiments/regal/generalise.sh runtime FOLDER 30 4
# Filtered synthetic graphs of 50 to 200 ops, as the policies were trained on, then unfiltered ones of the large sizes,
# then the first again on 4 devices, if there are weights for them: a file, or shipped ones by name. All over BRKGA with
# 5,000 evaluations. FOLDER keeps the runs, budgets.csv, large.csv and 4-devices.csv, and figure 3 of the first two,
# sweep.png: the same command goes on where it stopped. WEIGHTS=FOLDER takes regal-TASK.safetensors and
# regal-TASK-transfers.safetensors from there.
# The paper: REGAL gets better with more evaluations than it was trained for, and BRKGA 50K does not reach REGAL 5K; on
# XLA's graphs, 10 times larger than those of TensorFlow that it was trained on, 0.58% in runtime, 3.74% in peak memory.
# Its policies are for 2 devices only.
set -euo pipefail
schedopt=${SCHEDOPT:-schedopt} python=${PYTHON:-python}
task=${1:?runtime or memory} folder=${2:?a folder for the runs} count=${3:-50} large=${4:-10} seed=${5:-0}
jobs=${6:-1} sizes=${7:-500-2000} four=${8:-} budgets=${9:-1000 2500 5000 10000 20000 50000}
source "$(dirname "$0")/policies.sh"
compare() { # NAME of the runs, folder of the graphs, devices, methods
  local methods=brkga:evaluations=5000 method budget
  for method in brkga "${@:4}"; do
    for budget in $budgets; do
      [[ $method:$budget == brkga:5000 ]] || methods+=,$method:evaluations=$budget
    done
  done
  "$schedopt" compare "$2" --task "$task" --devices "$3" --seed 1000 --jobs "$jobs" --quiet --methods "$methods" \
    --resume "$folder/$1.jsonl" --output "$folder/$1.csv"
}
make_graphs() { # NAME and options
  [[ -e $folder/$1/dataset.json ]] || "$schedopt" gen synthetic "$folder/$1" "${@:2}" --seed "$seed" --overwrite \
    --jobs "$jobs" --quiet
}
mkdir -p "$folder"
make_graphs graphs --count "$count" --filter 0.18
make_graphs large-graphs --count "$large" --nodes "$sizes"
echo "graphs of 50 to 200 ops:"
compare budgets "$folder/graphs" 2 ${policies[@]+"${policies[@]}"}
echo
echo "graphs of $sizes ops:"
compare large "$folder/large-graphs" 2 ${policies[@]+"${policies[@]}"}
echo
"$python" "$(dirname "$0")/figures.py" sweep "$folder/budgets.csv" "$folder/large.csv" --output "$folder/sweep.png"
if [[ -n $four ]]; then
  echo
  echo "graphs of 50 to 200 ops, 4 devices:"
  compare 4-devices "$folder/graphs" 4 "regal:weights=$four"
fi
