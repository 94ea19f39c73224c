"""Send SIGINT and SIGTERM to every command at random moments; print the slowest answer and what went wrong.

python tests/bench/signals.py [MOMENTS [SEED]]
"""

import random
import signal
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from models.signals import COMMANDS, NUMBERS, interrupted, prepare


def main(moments=20, seed=0):
    """Run the campaign."""
    rng = random.Random(seed)
    failures = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        for command, words in COMMANDS.items():
            for number in NUMBERS:
                answers = [interrupted(folder, words, number, 6 * rng.random() ** 2) for _ in range(int(moments))]
                wrong = [what for what, _ in answers if what]
                failures += len(wrong)
                seconds = sorted(took for _, took in answers)
                median, most = seconds[len(seconds) // 2], seconds[-1]
                label = signal.Signals(number).name
                what = f"median {median:5.2f} s, most {most:5.2f} s, wrong {len(wrong)}"
                print(f"{command:18} {label:8} {what}", flush=True)
                for what in wrong[:2]:
                    print("   ", " ".join(what.split())[:300], flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(bool(main(*map(int, sys.argv[1:]))))
