#!/usr/bin/env bash
# REGAL table 4 and figure 4b, GAS, the decoder of A.8, and plain REINFORCE: networks trained with one small budget.
# usage: examples/experiments/regal/ablation.sh runtime|memory FOLDER [TABLES, default "actions rounds networks training"]
#        [TRAINING GRAPHS, default 200] [VALIDATION GRAPHS, default 16] [TEST GRAPHS, default 40] [STEPS, default 12]
#        [JOBS, default 1] [EVALUATIONS, default 5000]
# Each network imitates a teacher (policies/regal/teachers.py) for 15 STEPS of 16 graphs, then learns for 2 epochs of STEPS
# by REINFORCE with 8 samples of each of 4 graphs, the leave-one-out baseline, and the EVALUATIONS that are left after the
# 400 for features. All train on the same filtered synthetic graphs, and are compared on the same unseen ones. FOLDER keeps graphs, training
# runs and, as TABLE.csv, the comparisons: the same command goes on where it stopped.
# - actions: placement, scheduling, both, both and crossover, both and transfers (ours).
# - rounds: T = 0, 1, 2, 4, 16, drawn into FOLDER/rounds.png.
# - networks: regal, gas, and the autoregressive decoder.
# - training: as above; imitation alone; leave-one-out alone; and as the paper trains, reinforce: the baseline network, one
#   sample of each of 4 graphs, 1,000 evaluations, learning rate 1e-4, for as many evaluations.
# One run may be named in place of a table: placement, scheduling, both, crossover, transfers, rounds-T, gas,
# autoregressive, imitation, leave-one-out, reinforce.
# A laptop hour: examples/experiments/regal/ablation.sh runtime FOLDER "actions training"; all tables take two.
# The paper trains 100,000 steps, 2 to 3 days on 10 cores. Table 4, peak memory of TensorFlow's graphs, improvement over
# BRKGA 5K on the test set: placement -0.2%, scheduling 3.65%, both 3.56%. Figure 4b: T > 0 is better than T = 0, and
# overall better as T grows. GAS: 0.16% where REGAL has 3.56% (synthetic, runtime: 0.80% and 4.81%). A.8: autoregressive
# "did not perform as well".
set -euo pipefail
schedopt=${SCHEDOPT:-schedopt} python=${PYTHON:-python}
task=${1:?runtime or memory} folder=${2:?a folder for the training runs} tables=${3:-actions rounds networks training}
training=${4:-200} validation=${5:-16} tests=${6:-40} steps=${7:-12} jobs=${8:-1} evaluations=${9:-5000}
case $task in
  runtime) teacher=cut-and-time ;;
  memory) teacher=cut-and-order ;;
  *) echo "usage: examples/experiments/regal/ablation.sh runtime|memory FOLDER [...]" >&2; exit 2 ;;
esac
runs_of() {
  case $1 in
    actions) echo "placement scheduling both crossover transfers" ;;
    rounds) echo "rounds-0 rounds-1 rounds-2 rounds-4 both" ;;
    networks) echo "both gas autoregressive" ;;
    training) echo "both imitation leave-one-out reinforce" ;;
    placement | scheduling | both | crossover | transfers | rounds-* | gas | autoregressive) echo "$1" ;;
    imitation | leave-one-out | reinforce) echo "$1" ;;
    *) echo "there is no table $1: actions, rounds, networks, training, or the name of one run" >&2; exit 2 ;;
  esac
}
write_config() { # RUN
  local actions="placement: 4, scheduling: 16" rounds=16 more="" phases=""
  case $1 in
    placement) actions="placement: 4, scheduling: 0" ;;
    scheduling) actions="placement: 0, scheduling: 16" ;;
    crossover) actions+=", crossover: 4" ;;
    transfers) actions+=", transfers: 16" ;;
    rounds-*) rounds=${1#rounds-} ;;
    autoregressive) more=", decoder: autoregressive" ;;
    gas) more=", encoder: lstm" ;;
  esac
  local imitation="graphs: 16, learning_rate: 0.002, reward: 0.0, imitation: 1.0"
  if [[ $1 != leave-one-out && $1 != reinforce ]]; then
    local at=0 cut
    for cut in 4 16 64; do
      phases+="- {epochs: 1, steps: $((steps * 5)), $imitation, teacher: $teacher-$cut}"$'\n'
    done
  fi
  case $1 in
    imitation) ;;
    reinforce)
      phases="- {epochs: 2, steps: $((steps * 8 * (evaluations - 400) / 1000)), graphs: 4, samples: 1, evaluations: 1000, learning_rate: 0.0001}" ;;
    *)
      phases+="- {epochs: 2, steps: $steps, graphs: 4, samples: 8, evaluations: $((evaluations - 400)), learning_rate: 0.0001, decay: 0.5, "
      phases+="baseline: leave-one-out}" ;;
  esac
  cat > "$folder/$1.yaml" <<END_OF_CONFIG
seed: 0
network: {task: $task, devices: 2, actions: {$actions}, rounds: $rounds, update: residual, normalise: true, taken: most-likely$more}
validation_evaluations: $evaluations
phases:
$phases
END_OF_CONFIG
}
make_graphs() { # NAME COUNT SEED
  [[ -e $folder/$1/dataset.json ]] || "$schedopt" gen synthetic "$folder/$1" --count "$2" --seed "$3" --filter 0.18 \
    --overwrite --jobs "$jobs" --quiet
}
mkdir -p "$folder"
runs=
for table in $tables; do
  of_table=$(runs_of "$table")
  runs+=" $of_table"
done
for run in $runs; do write_config "$run"; done
make_graphs train "$training" 1
make_graphs valid "$validation" 2
make_graphs test "$tests" 0
for run in $runs; do
  resume=
  [[ ! -e $folder/$run/checkpoint.safetensors ]] || resume=--resume
  method=regal
  [[ $run != gas ]] || method=gas
  "$schedopt" train "$method" "$folder/train" --validation "$folder/valid" --config "$folder/$run.yaml" \
    --output "$folder/$run" --jobs "$jobs" --quiet $resume >&2
done
for table in $tables; do
  methods=brkga
  for run in $(runs_of "$table"); do
    method=regal
    [[ $run != gas ]] || method=gas
    methods+=,$method:weights=$folder/$run/weights.safetensors
  done
  echo "$table:"
  "$schedopt" compare "$folder/test" --task "$task" --devices 2 --seed 1000 --jobs "$jobs" --quiet --methods "$methods" \
    --evaluations "$evaluations" --resume "$folder/$table.jsonl" --output "$folder/$table.csv"
  if [[ $table == rounds ]]; then
    "$python" "$(dirname "$0")/figures.py" rounds --measure most_likely_improvement_percent \
      "$folder"/rounds-{0,1,2,4} "$folder/both" --output "$folder/rounds.png"
  fi
  echo
done
