"""Twenty training steps, each in the ways that people save memory today, next to `schedopt.optimize`.

usage: python examples/experiments/real/beside.py [MODEL..., default twenty of everyday.py and optimize_memory.py]
       [--runs N, default 5] [--time-limit SECONDS of a plan's search, default 3; of processor time, as all]

A step is forward, backward, AdamW and dropping the gradients, one thread, random weights; a model without a loss trains
on the sum of its results' means. A process per model, in which every round runs a step of each way in turn:

- eager; *hooks*: an AdamW per parameter, which `register_post_accumulate_grad_hook` calls in the backward pass,
- *checkpoint*: each outermost block of a list of blocks under `torch.utils.checkpoint`,
- *functorch*: `torch.compile(backend="aot_eager")` with `torch._functorch.config.activation_memory_budget = 0.5`,
- *optimize*: `schedopt.optimize(step, inputs, allocator="cuda")`, and the same with checkpoint's reserved bytes as
  `memory_limit`.

A cell has live and reserved MiB, and the time of a step as a ratio to eager's in the same round (median). *Live* counts
every allocation of PyTorch's CPU allocator in three steps after two, and what the caller holds: parameters, buffers,
inputs, AdamW's state. *Reserved* is simulated: the allocations held, then those of the steps, in their order, by
the model of PyTorch's CUDA allocator with default options; of optimize's opening block first.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER.parent / "recompute"), str(FOLDER)]
MODELS = (
    "everyday:unet_training",
    "everyday:gpt_training",
    "everyday:gpt_bf16",
    "everyday:gpt_autocast_training",
    "everyday:gpt_checkpointed_training",
    "everyday:inception_training",
    "everyday:two_towers",
    "everyday:bilstm_training",
    "everyday:densenet",
    "everyday:hrnet",
    "everyday:resnet_training",
    "everyday:vit_training",
    "everyday:t5",
    "everyday:llama",
    "everyday:gpt2_training",
    "everyday:bert_training",
    "everyday:ddpm_training",
    "optimize_memory:gpt",
    "optimize_memory:mlp",
    "optimize_memory:convolutions",
)
WAYS = ("eager", "hooks", "checkpoint", "functorch", "optimize", "optimize, limit")
WARM, STEPS = 2, 3
MIB = 2**20


def main() -> None:
    """Print the table, and to standard error why a cell is empty."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--time-limit", type=float, default=3.0)
    parser.add_argument("--here", action="store_true", help="measure one model in this process, and print JSON")
    given = parser.parse_args()
    if given.here:
        print(json.dumps(measured(given.models[0], given.runs, given.time_limit)))
        return
    print(f"| step | held | {' | '.join(WAYS)} |\n|{'---|' * (len(WAYS) + 2)}", flush=True)
    for model in given.models:
        name = model.removeprefix("everyday:").removesuffix("_training").replace("optimize_memory:", "small ")
        command = [sys.executable, __file__, model, "--here", "--runs", given.runs, "--time-limit", given.time_limit]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            print(name, (done.stderr.strip().splitlines() or ["it ended without a word"])[-1], file=sys.stderr)
            continue
        rows = json.loads(done.stdout.splitlines()[-1])
        print(f"| {name} | {rows['held'] / MIB:,.1f} | {' | '.join(cell(rows[way]) for way in WAYS)} |", flush=True)
        reasons = (f"{name}, {way}: {rows[way]['why']}" for way in WAYS if "why" in rows[way])
        print("", *reasons, sep="\n", file=sys.stderr, flush=True)


def cell(row: dict[str, Any]) -> str:
    """Return a cell of the table."""
    return f"{row['live'] / MIB:,.1f}, {row['reserved'] / MIB:,.0f}, {row['ratio']:.2f}" if "ratio" in row else "-"


def measured(name: str, runs: int, time_limit: float) -> dict[str, Any]:
    """Run a model's step in all ways in this process; return their numbers, and the bytes that are always held."""
    time.monotonic = time.perf_counter = time.process_time  # of limits and rounds: other work does not count
    import torch
    from programs import in_rounds
    from schedopt.core.programs.pytorch.program import as_call, call_function

    torch.set_num_threads(1)
    model, inputs = call_function(name, {})
    model.train()
    args, kwargs = as_call(inputs)
    rows: dict[str, Any] = {}
    steps = {}
    for way in WAYS:
        blocks: list[int] = []
        try:
            step, held = prepared(way, copy.deepcopy(model), args, kwargs, time_limit, rows, blocks)
            for _ in range(WARM):
                step()
            rows[way] = memory_of(step, held(), max(blocks, default=0))
            steps[way] = step
        except Exception as error:  # of PyTorch's own ways, too: the table says that it failed, and why
            rows[way] = {"why": " ".join(f"{type(error).__name__}: {error}".split())[:200]}
    rows["held"] = sum(held().values())
    seconds = in_rounds(steps, runs)
    for way in steps:
        pairs = zip(seconds[way], seconds["eager"], strict=True)
        rows[way]["ratio"] = statistics.median(one / other for one, other in pairs)
    return rows


def prepared(
    way: str, model: Any, args: Any, kwargs: Any, time_limit: float, rows: dict[str, Any], blocks: list[int]
) -> tuple[Callable[[], Any], Callable[[], dict[int, int]]]:
    """Return the step of a way, and a function of the storages that it always holds; opening blocks go to `blocks`."""
    import schedopt
    import torch
    from programs import with_checkpoints
    from schedopt.core.programs.pytorch import plans
    from torch._functorch import config

    call = model
    if way == "checkpoint":
        before = {id(module): module.forward for module in model.modules()}
        with_checkpoints(model)
        if all(module.forward == before[id(module)] for module in model.modules()):
            raise LookupError("it has no list of blocks")
        if getattr(model, "checkpointed", False):
            raise LookupError("its blocks are checkpointed as it is")
    elif way == "functorch":
        call = torch.compile(model, backend="aot_eager")
    step, optimizers = step_of(model, call, args, kwargs, with_hooks=way == "hooks")
    with config.patch(activation_memory_budget=0.5 if way == "functorch" else 1.0, enable_autograd_cache=False):
        step()  # compiles, and makes the optimizer's state
    if way.startswith("optimize"):
        options = {"allocator": "cuda", "time_limit": time_limit}
        if way != "optimize":
            if "reserved" not in rows["checkpoint"]:
                raise LookupError("there is no peak of checkpoint")
            options["memory_limit"] = rows["checkpoint"]["reserved"]
        solve = plans.solve_and_place

        def solved(*given: Any, **more: Any) -> Any:
            result = solve(*given, **more)
            blocks.append(result.reserved.opening_block if result.reserved else 0)
            return result

        plans.solve_and_place = solved
        try:
            step = schedopt.optimize(step, (), **options)
        finally:
            plans.solve_and_place = solve

    def held() -> dict[int, int]:
        tensors = [*model.parameters(), *model.buffers(), *torch.utils._pytree.tree_leaves((args, kwargs))]
        tensors += [value for each in optimizers for state in each.state.values() for value in state.values()]
        storages = [tensor.untyped_storage() for tensor in tensors if isinstance(tensor, torch.Tensor)]
        return {storage.data_ptr(): storage.nbytes() for storage in storages}

    return step, held


def step_of(model: Any, call: Any, args: Any, kwargs: Any, with_hooks: bool) -> tuple[Callable[[], Any], list[Any]]:
    """Return a training step with AdamW, and its optimizers: one, or one per parameter, called by its hook."""
    import torch
    from compile_backends import loss_of

    if not with_hooks:
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)

        def step() -> Any:
            loss = loss_of(call(*args, **kwargs))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        return step, [optimizer]
    own = {parameter: torch.optim.AdamW([parameter], foreach=False) for parameter in model.parameters()}

    def update(parameter: Any) -> None:
        own[parameter].step()
        own[parameter].zero_grad()

    for parameter in own:
        parameter.register_post_accumulate_grad_hook(update)

    def hooked_step() -> Any:
        loss = loss_of(call(*args, **kwargs))
        loss.backward()
        return loss.detach()

    return hooked_step, list(own.values())


def memory_of(step: Callable[[], Any], held: dict[int, int], block: int) -> dict[str, int]:
    """Run some steps; return the most live bytes, and the most that the model of CUDA's allocator reserves for them."""
    import numpy as np
    import torch
    from schedopt.core.model.allocators import Allocator
    from torch._C._profiler import _EventType

    def allocations(nodes: Iterable[Any]) -> Iterator[tuple[int, int, int]]:
        for node in nodes:
            if node.tag == _EventType.Allocation:
                yield node.start_time_ns, node.extra_fields.ptr, node.extra_fields.alloc_size
            yield from allocations(node.children)

    gc.collect()
    with torch.autograd.profiler.profile(use_kineto=True, profile_memory=True) as profiler:
        for _ in range(STEPS):
            step()
    changes = sorted(allocations(profiler.kineto_results.experimental_event_tree()), key=lambda change: change[0])
    sizes = list(held.values())
    events, alive = list(range(len(sizes))), dict(zip(held, range(len(sizes)), strict=True))
    sizes.append(block)
    events += [len(events), ~len(events)] * bool(block)
    live = most = sum(held.values())
    for _, address, size in changes:
        if size > 0:
            alive[address] = len(sizes)
            events.append(len(sizes))
            sizes.append(size)
        elif address in alive:
            events.append(~alive.pop(address))
        else:  # it was there before, and nobody's
            continue
        live += size
        most = max(most, live)
    runs = [Allocator().replay(np.array(events), np.array(sizes), is_downwards=way) for way in (False, True)]
    return {"live": most, "reserved": max(run.peak for run in runs)}


if __name__ == "__main__":
    main()
