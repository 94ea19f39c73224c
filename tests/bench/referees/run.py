"""References that share no code with schedopt, written from docs/concepts: do both say the same of random cases?

    python tests/bench/referees/run.py --seconds 60 --seed 1         # all, in 60 s of processor time
    python tests/bench/referees/run.py --only verify --case 1:17     # one case again

Prints a line of counts per referee, and `FAILS {}` or the cases that failed; exits 1 if any did.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from checks import REFEREES


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="of processor time, for all referees together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", metavar="NAME")
    parser.add_argument("--case", metavar="SEED:NUMBER")
    arguments = parser.parse_args()
    chosen, fails = {each: REFEREES[each] for each in REFEREES if arguments.only in ("", each.__name__)}, {}
    for referee, share in chosen.items():
        name, counts, cases, number = referee.__name__, Counter(), [], 0
        end = time.process_time() + arguments.seconds * share / sum(chosen.values())
        while number < 12 or time.process_time() < end:  # the first cases may compile kernels
            case = arguments.case or f"{arguments.seed}:{number}"
            with tempfile.TemporaryDirectory() as folder:
                try:
                    counts.update(referee(random.Random(f"{name} {case}"), Path(folder)))
                except Exception as error:  # a crash of the product is a finding, too
                    cases.append(case)
                    print(f"{name} {case}: {type(error).__name__}: {error}", flush=True)
            number += 1
            if arguments.case or len(cases) == 10:
                break
        fails |= {name: cases} if cases else {}
        print(f"{name}: {number} cases, {sum(counts.values())} comparisons: {dict(sorted(counts.items()))}", flush=True)
    print(f"FAILS {fails}")
    return int(bool(fails))


if __name__ == "__main__":
    sys.exit(main())
