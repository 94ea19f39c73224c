"""Programs measured in processes of their own."""

import gc

import pytest
import torch
from schedopt import ProgramError
from schedopt.core.programs import runtime
from schedopt.core.programs.fresh_process import ask
from schedopt.core.programs.options import ImportOptions
from schedopt.core.programs.pytorch import run as run_module
from schedopt.core.programs.pytorch import runtime as torch_runtime
from schedopt.core.programs.pytorch.program import program_of
from schedopt.core.programs.pytorch.run import digests, function_of, peak_of
from schedopt.core.programs.runtime import Measurement

TIMES = {"microseconds": 5.0, "runs": [4.0, 5.0, 6.0], "page_faults": 0.0, "kept_microseconds": 5.0}


def test_one_element_with_a_stride_has_the_digest_of_its_value():
    value = torch.ones(1, 8, dtype=torch.float64)[:, ::8]
    assert digests(value) == digests(value.clone()) == digests(torch.ones(1, 1, dtype=torch.float64))


def digests_of_code(run, arguments, grad):
    """Run code with random numbers of a fixed seed; return digests of its results, then of its arguments."""
    with torch.random.fork_rng(), torch.set_grad_enabled(grad):
        torch.manual_seed(0)
        return digests(run(*arguments), arguments)


def test_a_measurement_sums_up_its_runs():
    row = Measurement("s.json", 99, (100, 90), (3.0, 7.0, 4.0), True)
    assert (row.measured_peak, row.median_microseconds) == (100, 4.0)
    assert row.error == pytest.approx(-0.01)


def test_ops_without_tensors_run_in_the_other_process_too():
    """They take memory and random numbers there, as they do here."""

    class Noisy(torch.nn.Module):
        def forward(self, x):
            return x + torch.arange(1000, dtype=torch.float32) * torch.rand(1000)

    program = program_of(Noisy().eval(), torch.ones(1000))
    function = function_of(program.module.code)
    one, other = (digests_of_code(run, program.arguments, False) for run in (function, program.module))
    assert one == other
    peaks = []
    for run in (function, program.module):
        with torch.no_grad():
            peaks.append(peak_of(lambda run=run: run(*program.arguments), "cpu")[1])
    assert peaks == [12000, 12000]


def test_arguments_that_nobody_reads_are_counted_on_both_sides(monkeypatch):
    class Unread(torch.nn.Linear):
        def __init__(self):
            super().__init__(2, 2)
            self.spare = torch.nn.Parameter(torch.ones(1000))

    program = program_of(Unread().eval(), torch.ones(1, 2))
    monkeypatch.setattr(torch_runtime, "load_program", lambda *_: program)
    monkeypatch.setattr(runtime, "ask", lambda *_: {"peak": 0, "digests": [], **TIMES})
    monkeypatch.setattr(torch_runtime.TorchRuntime, "own_peak", lambda _: notes.append("own"))
    notes = []
    unread = torch_runtime.TorchRuntime("net.pt2", ImportOptions(), notes.append)
    graph = unread.graph("roofline", notes.append)
    (row,) = unread.measure(graph, {}, 1, notes.append, lambda *_: notes.append("rounds"))
    assert notes.index("own") < notes.index("rounds"), "Ctrl-C there would lose all rows"
    assert row.predicted_peak == row.measured_peak + 2 * 4 == 4000 + 2 * 4 + 4 * 4 + 2 * 4 + 2 * 4
    assert any("3.91 KiB" in note for note in notes)


def test_values_of_every_kind_have_digests_that_tell_them_apart():
    values = [
        torch.tensor(1.0),
        torch.tensor([1.0]),
        torch.tensor(1.0, dtype=torch.float64),
        torch.tensor(-0.0),
        torch.tensor(0.0),
        torch.tensor(1, dtype=torch.bfloat16),
        torch.tensor(True),
        torch.tensor(1j),
        torch.empty(0),
        torch.arange(4.0).view(2, 2),
        torch.arange(4.0).view(2, 2).T,
        3,
        None,
    ]
    found = digests(values)
    assert len(set(found)) == len(values)
    assert found == digests([torch.clone(v) if torch.is_tensor(v) else v for v in values])


@pytest.mark.slow
def test_as_it_is_a_model_and_a_step_hold_what_their_names_refer_to(monkeypatch):
    def model():
        net = torch.nn.Linear(2, 2)
        net.forward = lambda x: [y := x + 1, z := y + 1, z + 1][-1]
        return net, torch.ones(1000)

    def step():
        weight = torch.nn.Parameter(torch.ones(1000))
        return lambda: (weight * 2).sum().backward(), ()

    monkeypatch.setattr(run_module, "call_function", lambda model, sizes: model())
    for make, tensors in ((model, 4), (step, 3)):  # the step's weight, its gradient, and that of the second call
        gc.collect()
        others = run_module.run_call(lambda: (lambda: None, ()), {}, "cpu", 1)  # what other tests hold
        assert abs(run_module.run_call(make, {}, "cpu", 1) - others - tensors * 4000) < 2000


@pytest.mark.slow
def test_a_run_that_fails_is_one_sentence(tmp_path):
    question = {"path": str(tmp_path / "no.pt"), "device": "cpu", "threads": 1}
    with pytest.raises(ProgramError, match=r"^net, s\.json: the run failed: [^\n]*no\.pt[^\n]*$"):
        ask("pytorch.run:run_file", question, "net, s.json")
