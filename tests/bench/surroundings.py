"""Signals, threads and long runs: does anything go wrong around a result?

python tests/bench/surroundings.py commands --each 20     # SIGINT, Ctrl-C and SIGTERM at random moments of commands
python tests/bench/surroundings.py calls --each 200       # both signals at random points of calls in Python
python tests/bench/surroundings.py threads --each 20      # planning and calling from several threads
python tests/bench/surroundings.py growth --each 1000     # bytes that stay, from a tenth of the calls to all
"""

import argparse
import logging
import random
import signal
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from models.signals import COMMANDS, WAYS, interrupted, prepare

CALLS = {"step": 20_000, "model": 300_000, "optimize": 150_000, "solve": 3_000, "cp-sat": 30_000}  # points of each


def commands(names, each, rng, seconds):
    """Yield what is wrong with each command, and how long its answers took."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        for command in names or COMMANDS:
            for way in WAYS:
                answers = [interrupted(folder, COMMANDS[command], way, seconds * rng.random()) for _ in range(each)]
                took = sorted(took for _, took in answers)
                times = f"median {took[each // 2]:.2f} s, most {took[-1]:.2f} s, {sum(t > 1 for t in took)} above 1 s"
                yield f"{command}, {way}", each, [what for what, _ in answers if what], times


def calls(names, each, rng, seconds):
    """Yield what is wrong with each call."""
    from models.surroundings import NUMBERS, Interrupted

    for name in names or CALLS:
        call = Interrupted(name)
        found = [call.wrong_after(NUMBERS[at % 2], rng.randrange(1, CALLS[name])) for at in range(each)]
        yield name, each, [", ".join(wrong) for wrong in found if wrong], ""


def threads(names, each, rng, seconds):
    """Yield what is wrong with threads."""
    from models.surroundings import THREADS

    for name in names or THREADS:
        yield name, each, [what for _ in range(each) for what in THREADS[name]()], ""


def growth(names, each, rng, seconds):
    """Yield how much stays of each call: of `optimize` no Python object, and no more bytes than of `make_fx`."""
    from models.surroundings import GROWING
    from models.surroundings import growth as grown

    most = 2048.0
    for name in names or GROWING:
        stays, blocks = grown(name, each // 10, each)
        most = max(most, stays) if name == "make_fx" else most
        wrong = ["grows"] * (stays > most or (blocks > 8 and name != "make_fx"))
        yield name, each, wrong, f"{stays:,.0f} bytes and {blocks:,.1f} blocks of Python a call stay"


def main():
    """Run a campaign; exit code 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("commands", "calls", "threads", "growth"))
    parser.add_argument("--each", type=int, default=20)
    parser.add_argument("--only", default="", help="Names, with commas between.")
    parser.add_argument("--seconds", type=float, default=8, help="The last moment of a signal to a command.")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also in the background, where shells have it ignored
    warnings.simplefilter("ignore")
    logging.getLogger("schedopt").setLevel(logging.ERROR)
    names = [name for name in given.only.split(",") if name]
    failures = 0
    for name, number, wrong, times in globals()[given.what](
        names, given.each, random.Random(given.seed), given.seconds
    ):
        failures += len(wrong)
        print(f"{name}: {number} tried, {len(wrong)} wrong; {times}", flush=True)
        for what, count in Counter(" ".join(one.split())[:300] for one in wrong).most_common(4):
            print(f"   {count} x {what}", flush=True)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
