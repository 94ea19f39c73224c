"""Signals to Python calls, calls of several threads, and long runs: what each may leave behind is nothing."""

import copy
import ctypes
import gc
import itertools
import logging
import os
import pickle
import signal
import sys
import threading
import warnings
from pathlib import Path

import schedopt
import torch
from schedopt.core.programs.pytorch.recorder import Deferred
from schedopt.core.programs.pytorch.torch_internals import current_modes
from schedopt.core.programs.pytorch.tracing import RECORDING
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

NUMBERS = (signal.SIGINT, signal.SIGTERM)


class Trained:
    """A model with its optimizer, its step, and plans of both."""

    def __init__(self):
        self.model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 8))
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def step(self, x):
        loss = nn.functional.cross_entropy(self.model(x), torch.arange(len(x)) % 8)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def planned(self, function=None, **options):
        return schedopt.optimize(function or self.step, (torch.ones(6, 8),), evaluations=5, **options)

    def state(self):
        return pytree.tree_leaves(copy.deepcopy([self.model.state_dict(), self.optimizer.state_dict()]))

    def left(self):
        """Return what no step of eager leaves."""
        entries = self.optimizer.state.values()
        held = [*self.model.parameters(), *(one.grad for one in self.model.parameters())]
        held += [value for entry in entries for value in entry.values()]
        wrong = ["a tensor without values"] * any(isinstance(one, Deferred) for one in held)
        return wrong + ["half a state"] * any(len(entry) != 3 for entry in entries)


class Interrupted:
    """A call to be interrupted, which is made anew where a signal has left something."""

    def __init__(self, what):
        self.what, self.sizes = what, itertools.count(7)
        self.trained = Trained()
        if what == "step":
            self.planned = self.trained.planned()
        elif what == "model":
            self.planned = torch.no_grad()(self.trained.planned(self.trained.model.eval(), plan_limit=10**6))
        else:
            self.trained.step(torch.ones(3, 8))
        self()  # an interrupted import is another matter

    def __call__(self):
        if self.what == "optimize":
            self.trained.planned()
        elif self.what == "solve":
            schedopt.solve(graph(300), evaluations=10**6)
        elif self.what == "cp-sat":
            schedopt.solve(graph(40), "cp-sat", devices=2, time_limit=2)
        else:
            self.planned(torch.ones(next(self.sizes) if self.what == "model" else 6, 8))

    def wrong_after(self, number, at):
        """Call until a signal comes, which is as the signal itself at the `at`th point where Python looks for one."""
        if self.what == "step" and at % 2:
            self.trained.optimizer.state.clear()  # the first step
        handlers, before, state = [signal.signal(one, _raise) for one in NUMBERS], _around(), self.trained.state()
        point, sent = itertools.count(1), []

        def look(frame, event, arg):
            if event in ("call", "c_return") and next(point) == at:
                sys.setprofile(None)
                sent.append(f"the signal is lost: {frame.f_code.co_name}")
                signal.getsignal(number)(number, frame)

        try:
            sys.setprofile(look)
            while next(point) < at:
                self()
            wrong = sent
        except KeyboardInterrupt:
            wrong = []
        except BaseException as error:
            wrong = [f"{type(error).__name__}: {str(error)[:100]}"]
        sys.setprofile(None)
        after = _around()
        wrong += [f"{name}: {was} is {after[name]}" for name, was in before.items() if after[name] != was]
        for one, handler in zip(NUMBERS, handlers, strict=True):
            signal.signal(one, handler)
        torch.set_grad_enabled(True)  # an optimizer of eager leaves it off at some points, too
        wrong += self.trained.left()
        try:
            if self.what != "step" and not all(map(_is_same, self.trained.state(), state)):
                wrong.append("the state is another")
            self()
        except Exception as error:
            wrong.append(f"the next call: {type(error).__name__}: {str(error)[:100]}")
        if wrong:
            self.__init__(self.what)
        return wrong


def _raise(number, frame):
    raise KeyboardInterrupt


def _is_same(one, other):
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def _around():
    """Return what a call must leave as it was."""
    return {
        "modes": (torch._C._len_torch_function_stack(), current_modes(), RECORDING.recorder, RECORDING.depth),
        "autograd": (torch.is_inference_mode_enabled(), torch._C._is_multithreading_enabled()),
        "output": (logging.root.manager.disable, sys.stdout, sys.stderr, list(warnings.filters)),
        "handlers": [signal.getsignal(number) for number in NUMBERS],
        "random numbers": torch.get_rng_state().tolist(),
    }


def graph(ops):
    """Return a graph with edges of every length."""
    builder = schedopt.GraphBuilder("g")
    for op in range(ops):
        reads = [(before, 0) for before in {(op * 7) % 13, op - 1, op // 2} if 0 <= before < op]
        builder.add_op(f"op{op}", inputs=reads, outputs=[1 + op % 17], runtime=1.0 + op % 5)
    return builder.build()


def in_threads(count, work):
    """Call a function with its number in so many threads at once; return their errors."""
    wrong, barrier = [], threading.Barrier(count)

    def run(number):
        barrier.wait()
        try:
            work(number)
        except BaseException as error:
            wrong.append(f"{type(error).__name__}: {str(error)[:100]}")

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


def planning():
    """Plan in two threads."""
    return in_threads(2, lambda number: Trained().planned()(torch.ones(6, 8)))


def others_tensors():
    """Do planned steps next to a thread that reads tensors of its own."""
    step, own, ended = Trained().planned(), torch.arange(3.0), threading.Event()

    def work(number):
        try:
            for length in range(6 * (not number), 60):
                step(torch.ones(1 + length % 9, 8))
        finally:
            ended.set()

    def read(number):
        while not ended.is_set():
            assert own.tolist() == pickle.loads(pickle.dumps(own)).numpy().tolist() == [0, 1, 2]
            assert (copy.deepcopy(own) * 2).sum().item() == 6

    return in_threads(3, lambda number: read(number) if number else work(number))


def eight_callers():
    """Call one planned model from eight threads with lengths that it has no plans for."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.BatchNorm1d(8)).eval()
    planned = schedopt.optimize(model, (torch.ones(2, 8),), evaluations=5, plan_limit=100)

    @torch.no_grad()
    def work(number):
        for length in range(1, 7):
            x = torch.full((length, 8), number + 0.5)
            assert torch.equal(planned(x), model(x))

    return in_threads(8, work)


def within_a_profiler():
    """Plan within the user's own profiler, which keeps his events."""
    with torch.autograd.profiler.profile() as profiler:
        torch.ones(3).cos()
        Trained().planned()
        torch.ones(3).sin()
    names = [event.name for event in profiler.function_events]
    return [f"{names.count(name)} of {name}" for name in ("aten::cos", "aten::sin") if names.count(name) != 1]


THREADS = {one.__name__: one for one in (planning, others_tensors, eight_callers, within_a_profiler)}


def growing(what):
    """Return a call whose repetition must not take memory."""
    trained, lengths = Trained(), itertools.cycle(range(2, 40))
    if what == "steps":
        step = trained.planned(plan_limit=3)
        return lambda: step(torch.ones(next(lengths), 8))
    if what == "models":
        model = torch.no_grad()(schedopt.optimize(trained.model.eval(), (torch.ones(2, 8),), evaluations=5))
        return lambda: model(torch.ones(2 + next(lengths) % 6, 8))
    if what == "make_fx":  # PyTorch alone traces new code
        return lambda: make_fx(Trained().model)(torch.ones(6, 8))
    if what == "optimize":
        return lambda: Trained().planned()(torch.ones(6, 8))
    small = graph(60)
    return lambda: schedopt.solve(small, devices=1 + next(lengths) % 2, evaluations=50)


def growth(what, first, last):
    """Return the bytes that each call between the first and the last ones leaves resident, and Python's blocks."""
    call, resident = growing(what), []
    for number in range(1, last + 1):
        call()
        if number in (first, last):
            gc.collect()
            ctypes.CDLL(None).malloc_trim(0)
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            resident.append((pages * os.sysconf("SC_PAGE_SIZE"), sys.getallocatedblocks()))
    return [(after - before) / (last - first) for before, after in zip(*resident, strict=True)]


GROWING = ("steps", "models", "solve", "make_fx", "optimize")
