#!/usr/bin/env bash
# REGAL table 1, and the times of table 3: two devices, free transfers, filtered synthetic graphs (A.1.4).
# usage: examples/experiments/regal/table1.sh runtime|memory FOLDER [GRAPHS, default 200] [SEEDS, default 3]
#        [CP-SAT GRAPHS, default 12] [CP-SAT SECONDS, default 60] [SEED OF THE GRAPHS, default 0] [JOBS, default 1]
# A laptop hour: examples/experiments/regal/table1.sh runtime FOLDER
# Every search has the paper's 5,000 evaluations, brkga also 10,000 and 50,000, with the first seed. CP-SAT runs on the
# first graphs, once, from the best of 1,000 evaluations of auto; as many CP-SAT GRAPHS as GRAPHS are all of them. Then
# table1.py adds the teacher and prints the table in Markdown, with the paper's numbers. FOLDER keeps graphs and runs:
# graphs/, TASK.csv, for figures.py too, TASK-budgets.csv, TASK-cp-sat.csv and TASK-teacher.csv. The same command goes on
# where it stopped. A method whose weights are not shipped is left out; WEIGHTS=FOLDER takes regal-TASK.safetensors,
# regal-TASK-transfers.safetensors and gas-TASK.safetensors from there.
# The paper's columns are in table1.py: synthetic graphs for the makespan, and for the peak TensorFlow's graphs, which are
# not public. REGAL matches or beats BRKGA 5K on 87.4% of TensorFlow's graphs (memory 88.9%); the worst regression there is
# 24.0% (17.9%). For one seed's improvement it gives a standard deviation over seeds below 0.1 percentage points (A.10).
set -euo pipefail
schedopt=${SCHEDOPT:-schedopt} python=${PYTHON:-python}
task=${1:?runtime or memory} folder=${2:?a folder for graphs and runs} count=${3:-200} seeds=${4:-3}
few=${5:-12} seconds=${6:-60} seed=${7:-0} jobs=${8:-1}
weights=${WEIGHTS:-$("$python" -c 'from schedopt.policies.networks.shipped import WEIGHTS; print(WEIGHTS)')}
methods=brkga,brkga-tuned,gp-dfs,local-search,random:evaluations=5000,auto:evaluations=5000,brkga:decoder=lazy
for learned in regal/regal-$task idrs/regal-$task gas/gas-$task regal/regal-$task-transfers; do
  method=${learned%/*} name=${learned#*/}
  if [[ ! -e $weights/$name.safetensors ]]; then
    echo "$method is left out: there are no weights $name" >&2
    continue
  elif [[ -n ${WEIGHTS:-} ]]; then
    method+=:weights=$weights/$name.safetensors
  elif [[ $name == *-transfers ]]; then
    method+=:weights=$name
  fi
  methods+=,$method
  [[ $learned != "regal/regal-$task" ]] || methods+=,$method:actions=sample
done
mkdir -p "$folder/few"
common=(--task "$task" --devices 2 --seed 1000 --jobs "$jobs" --resume "$folder/$task.jsonl" --quiet)
[[ -e $folder/graphs/dataset.json ]] || "$schedopt" gen synthetic "$folder/graphs" --count "$count" --seed "$seed" \
  --filter 0.18 --jobs "$jobs" --overwrite --quiet
"$schedopt" compare "$folder/graphs" "${common[@]}" --seeds "$seeds" --methods "$methods" --output "$folder/$task.csv"
"$schedopt" compare "$folder/graphs" "${common[@]}" --methods brkga,brkga:evaluations=10000,brkga:evaluations=50000 \
  --output "$folder/$task-budgets.csv"
if ((few)); then
  rm -f "$folder"/few/*
  find "$folder/graphs" -name '*.pb.gz' | sort | head -n "$few" | xargs -I{} cp {} "$folder/few"
  echo
  echo "CP-SAT, ${seconds} s:"
  "$schedopt" compare "$folder/few" "${common[@]}" --methods "cp-sat:time-limit=${seconds}s" \
    --output "$folder/$task-cp-sat.csv"
fi
echo
"$python" "$(dirname "$0")/table1.py" "$task" "$folder" --seeds "$seeds"
