# Sourced by generalise.sh and topologies.sh: sets `policies`, the methods for $task whose weights are shipped
# or in the folder WEIGHTS.
weights=${WEIGHTS:-$("$python" -c 'from schedopt.policies.networks.shipped import WEIGHTS; print(WEIGHTS)')}
policies=()
for name in "regal-$task" "regal-$task-transfers"; do
  if [[ ! -e $weights/$name.safetensors ]]; then
    echo "a policy is left out: there are no weights $name" >&2
  else
    policies+=("regal:weights=${WEIGHTS:+$weights/}$name${WEIGHTS:+.safetensors}")
  fi
done
