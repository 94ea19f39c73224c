"""Read mutated TFLite files: each is read, or refused in one sentence, soon.

Not run by default: `python tests/bench/mutated_tflite.py --files 100000` prints how many were read, what the others
were refused for, and the longest time that one took. It fails if one is neither, or takes more than a second.
"""

import argparse
import collections
import re
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from models.tflite_models import branches, control_flow, mutated, random_model, stateful, with_variables
from schedopt.core.errors import SchedoptError
from schedopt.core.programs.tflite.importer import graph_of
from schedopt.core.programs.tflite.program import parse_program

LONGEST = 1.0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--models", nargs="*", default=[], help="TFLite files to mutate beside those that are built here"
    )
    arguments = parser.parse_args()
    makers = [branches, control_flow, stateful, with_variables, lambda: random_model(1, ops=30)]
    originals = [make().build() for make in makers] + [Path(path).read_bytes() for path in arguments.models]
    random = np.random.default_rng(arguments.seed)
    outcomes, longest = collections.Counter(), 0.0
    for number in range(arguments.files):
        data = mutated(originals[number % len(originals)], random)
        begin = time.monotonic()
        try:
            graph_of(parse_program(data, "m.tflite"))
            outcomes["read"] += 1
        except SchedoptError as error:
            assert "\n" not in str(error), error
            outcomes[re.sub(r"'.*?'|[\d,]+", "_", str(error).partition(": ")[2])[:60]] += 1
        taken = time.monotonic() - begin
        longest = max(longest, taken)
        assert taken < LONGEST, f"file {number} takes {taken:.1f} s"
    for outcome, count in outcomes.most_common(40):
        print(f"{count:8,}  {outcome}")
    print(
        f"{arguments.files:,} files of {len(originals)} models, seed {arguments.seed}; longest {1000 * longest:.0f} ms"
    )


if __name__ == "__main__":
    main()
