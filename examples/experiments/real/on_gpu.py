"""Bytes of ten programs on a GPU, as they are and by `schedopt.optimize`, against the model of PyTorch's allocator.

usage: python examples/experiments/real/on_gpu.py [PROGRAM..., names of everyday.py, default ten] [--device cuda]
       [--seconds 480] [--each 60] [--time-limit 4] [--folder on_gpu]

`schedopt warm-up` goes before, which compiles for minutes.

A process for each program and way: eager, then by a plan. A row has, in MiB, the most allocated and reserved in three
steps after two, beside what the model says of program order and of the plan, and how many addresses and totals of the
process's memory snapshot (in the folder) the model reproduces. No process starts that could end after the seconds.
With `--device cpu` the allocator is the model alone: nothing is measured but live bytes, and there is no snapshot.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))
PROGRAMS = ("unet", "unet_training", "gpt_bf16", "gpt_training", "gpt_checkpointed_training", "inception",
            "inception_training", "two_towers", "bilstm_training", "resnet_training")  # fmt: skip
WARM, STEPS = 2, 3
MIB = 2**20


def measured(name: str, way: str, device: str, time_limit: float, snapshot: Path) -> dict[str, object]:
    """Run a program one way in this process; return a row."""
    import schedopt
    import torch
    from compile_backends import size_of, training_step
    from schedopt.core.programs.pytorch import plans
    from schedopt.core.programs.pytorch.program import as_call, call_function
    from schedopt.core.programs.pytorch.run import peak_of
    from schedopt.core.report.result import IN_INPUT_ORDER
    from torch.utils._pytree import tree_map_only

    on_cuda, results = device == "cuda", []
    if on_cuda:
        # Without frames: with them PyTorch 2.11 loses the exception by which a checkpoint stops early.
        torch.cuda.memory._record_memory_history(context=None, max_entries=10**6)
    torch.manual_seed(0)
    model, inputs = call_function(f"everyday:{name}", {})
    model = model.to(device)
    inputs = tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), inputs)
    args, kwargs = as_call(inputs)
    program = training_step(model, model) if model.training else model
    if way == "plan":
        solve = plans.solve_and_place
        plans.solve_and_place = lambda *given, **more: results.append(solve(*given, **more)) or results[-1]
        allocator = "auto" if on_cuda else "cuda:cublas_workspace:default"
        program = schedopt.optimize(program, inputs, time_limit=time_limit, allocator=allocator)

    def run(times: int) -> None:
        with torch.set_grad_enabled(model.training):
            for _ in range(times):
                program(*args, **kwargs)

    run(WARM)
    if not on_cuda:
        held = size_of([*model.parameters(), *model.buffers(), inputs])
        row = {"allocated": peak_of(lambda: run(STEPS), "cpu")[1] + held}
    else:
        torch.cuda.reset_peak_memory_stats()
        run(STEPS)
        torch.cuda.synchronize()
        row = {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
        torch.cuda.memory._dump_snapshot(str(snapshot))
        row |= replayed(snapshot)
    if result := max(results, key=lambda one: one.problem.graph.num_ops, default=None):
        row |= {"program_live": int(result.input_value), "live": result.peak_memory}
        if result.reserved is not None:
            row |= {"program_reserved": result.reserved_otherwise[IN_INPUT_ORDER], "model": result.reserved.peak}
            row |= {"allocator": result.reserved.allocator, "block": result.reserved.opening_block}
    return row


def replayed(path: Path) -> dict[str, object]:
    """Return how many addresses, and totals of reserved bytes, of a snapshot the model reproduces."""
    from schedopt.core.programs.graphs.snapshot import read_snapshot

    found = read_snapshot(str(path))
    return {
        "allocations": len(found.sizes),
        "addresses": int((found.replay.addresses == found.recorded).sum()),
        "events": len(found.events),
        "totals": int((found.replay.reserved == found.reserved).sum()),
    }


def in_fresh_process(name: str, way: str, given: argparse.Namespace) -> dict[str, object]:
    """Return the row of one way."""
    command = [sys.executable, __file__, name, "--way", way, "--device", given.device]
    command += ["--time-limit", str(given.time_limit), "--folder", str(given.folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=given.each, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"more than {given.each:g} s"}
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return {"error": (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]}
    return json.loads(lines[-1])


def line(name: str, eager: dict[str, object], plan: dict[str, object]) -> str:
    """Return a program's line of the table."""
    if error := eager.get("error") or plan.get("error"):
        return f"| {name} | {error} |"

    def size(row: dict[str, object], key: str) -> str:
        return f"{row[key] / MIB:,.1f}" if key in row else "-"

    cells = [f"{size(eager, 'allocated')} ({size(plan, 'program_live')})"]
    cells += [f"{size(eager, 'reserved')} ({size(plan, 'program_reserved')})"]
    cells += [f"{size(plan, 'allocated')} ({size(plan, 'live')})", f"{size(plan, 'reserved')} ({size(plan, 'model')})"]
    cells.append(size(plan, "block"))
    for hits, total in (("addresses", "allocations"), ("totals", "events")):
        cells.append(" ".join(f"{row[hits]:,}/{row[total]:,}" for row in (eager, plan) if hits in row) or "-")
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", default=PROGRAMS)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--each", type=float, default=60.0, help="most seconds of one process")
    parser.add_argument("--time-limit", type=float, default=4.0, help="seconds of a plan's search")
    parser.add_argument("--folder", type=Path, default=Path("on_gpu"))
    parser.add_argument("--way", choices=("eager", "plan"), help="go one way, in this process, and print JSON")
    given = parser.parse_args()
    given.folder.mkdir(exist_ok=True)
    if given.way:
        name = given.programs[0]
        snapshot = given.folder / f"{name}-{given.way}.pickle"
        print(json.dumps(measured(name, given.way, given.device, given.time_limit, snapshot)))
        return
    end = time.monotonic() + given.seconds
    columns = "allocated | reserved | by plan: allocated | reserved | block | addresses | totals"
    print(f"| program, MiB (model) | {columns} |\n|{'---|' * 8}", flush=True)
    for name in given.programs:
        if time.monotonic() + 2 * given.each > end:
            print(f"{name}: no time left")
            continue
        print(line(name, *(in_fresh_process(name, way, given) for way in ("eager", "plan"))), flush=True)


if __name__ == "__main__":
    main()
