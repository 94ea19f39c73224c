#!/usr/bin/env bash
# Makespan of imported training steps on the three shipped machines, without and with a memory limit: every method.
# usage: examples/experiments/machines/training_steps.sh OUT [SECONDS, default 3] [LIMIT, default 60%] [GRAPH...]
# The graphs are steps of real/models.py: by default those that lie in examples/graphs. A table and OUT/*.csv per
# machine and limit, a share of the input order's peak that no device exceeds. What is finished is in OUT/*.jsonl and
# not run again. Methods that search have SECONDS each; improvements are over HEFT. The weights of regal and gas are for
# two devices, so they sit out the phone.
set -euo pipefail
schedopt=${SCHEDOPT:-schedopt}
out=${1:?usage: training_steps.sh OUT [SECONDS] [LIMIT] [GRAPH...]}
seconds=${2:-3} limit=${3:-60%}
here=$(cd "$(dirname "$0")/../.." && pwd)
graphs=("${@:4}")
((${#graphs[@]})) || graphs=("$here"/graphs/{gpt2-sgd,bert-adam,swin-tiny-sgd,bilstm-sgd}.pb.gz)
mkdir -p "$out"
built=heft,peft,cpop,input,dfs,gp-dfs
searching=(random brkga brkga:decoder=lazy local-search annealing auto)
for memory in none "$limit"; do
  for machine in two-gpus gpu-and-cpu phone; do
    methods=$built
    for method in "${searching[@]}"; do methods+=,$method:time_limit=${seconds}s; done
    [[ $machine == phone ]] || methods+=,regal:time_limit=${seconds}s,gas:time_limit=${seconds}s
    limited=()
    [[ $memory == none ]] || limited=(--memory-limit "$memory")
    echo "$machine, limit $memory:"
    name=$out/$machine-${memory%\%}
    $schedopt compare "${graphs[@]}" --task runtime --machine "$here/machines/$machine.yaml" "${limited[@]}" \
      --methods "$methods" --quiet --resume "$name.jsonl" --output "$name.csv"
    echo
  done
done
