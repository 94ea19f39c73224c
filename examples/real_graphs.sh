#!/usr/bin/env bash
# Peak memory of real graphs on one device: `auto` against the program order, every schedule checked.
# usage: examples/real_graphs.sh FOLDER... [-- solve options, default --time-limit 5s]
# For each folder: mean and best improvement over the input order, and how many results are proven optimal.
set -euo pipefail
schedopt=${SCHEDOPT:-schedopt}
folders=()
while (($#)) && [[ $1 != -- ]]; do folders+=("$1"); shift; done
(($#)) && shift
options=("${@:---time-limit=5s}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for folder in "${folders[@]}"; do
  worse=0 failed=0
  : >"$work/rows"
  while IFS= read -r graph; do
    "$schedopt" solve "$graph" --quiet --output "$work/auto.json" "${options[@]}" >/dev/null
    "$schedopt" check "$graph" "$work/auto.json" --quiet >/dev/null || failed=$((failed + 1))
    "$schedopt" solve "$graph" --quiet --method input --output "$work/input.json" >/dev/null
    peak() { sed -n 's/^ "peak_memory": \([0-9]*\),$/\1/p' "$1"; }
    bound=$(sed -n 's/^ "lower_bound": \([0-9]*\),$/\1/p' "$work/auto.json")
    status=$(sed -n 's/^ "status": "\(.*\)",$/\1/p' "$work/auto.json")
    echo "$(peak "$work/input.json") $(peak "$work/auto.json") $bound $status $(basename "$graph")" >>"$work/rows"
  done < <(find -L "$folder" -name '*.pb' -o -name '*.pbtxt' -o -name '*.gz' | sort)
  awk -v folder="$(basename "$folder")" -v failed="$failed" '
    { gain = 100 * (1 - $2 / $1); total += gain; if (gain > best) { best = gain; name = $5 }
      worse += $2 > $1; optimal += $4 == "optimal"; gap += $2 / $3 - 1 }
    END { printf "%-10s %3d graphs  mean -%.2f%%  best -%.2f%% (%s)  proven optimal %d  mean gap to bound %.2f%%  worse than input %d  failed check %d\n",
          folder, NR, total / NR, best, name, optimal, 100 * gap / NR, worse, failed }' "$work/rows"
  if [[ -n ${ROWS:-} ]]; then cp "$work/rows" "$ROWS-$(basename "$folder").txt"; fi
done
