"""`schedopt.testing`: the counted peak against one counted by hand and against runs, its limits, and locked peaks."""

import json
import subprocess
import sys

import pytest
import schedopt
import torch
from models import own_calls
from schedopt import FormatError, ProgramError, UsageError
from schedopt.core.api.testing import check_peak, count_peak, lock_peak
from schedopt.core.programs.fresh_process import ask
from schedopt.testing import assert_peak
from torch import nn

ROW = 4 * 1000


def test_names_of_python_hold_tensors():
    """Each row counts as long as a name holds it; views take nothing, and what was there before is held."""

    def chain(x):
        for _ in range(5):
            x = (x + 1)[:]
        return x

    def keeps(x):
        kept = [x]
        for _ in range(5):
            kept.append(kept[-1] + 1)
        return kept[-1]

    x = torch.ones(1000)
    assert [assert_peak(f, x, "1MiB") for f in (chain, keeps)] == [3 * ROW, 6 * ROW]
    assert schedopt.testing.assert_peak is assert_peak


def test_gradients_and_state_of_the_first_call_are_there_in_the_second():
    layer = nn.Linear(1000, 1, bias=False)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1, momentum=0.9)

    def step(x):
        layer(x).sum().backward()
        optimizer.step()

    before, draws = layer.weight.clone(), torch.get_rng_state()
    shares = {holder.name: holder.size for holder in count_peak(step, torch.ones(1, 1000)).peak.holders}
    assert [shares[role] for role in ("parameters", "gradients", "optimizer state", "inputs")] == [ROW] * 4
    assert layer.weight.grad is None and not optimizer.state
    assert torch.equal(layer.weight, before) and torch.equal(torch.get_rng_state(), draws)


def test_values_follow_from_inputs_or_are_taken_as_zero():
    def by_length(x, lengths):
        return [x + 1 for _ in range(int(lengths.max()))]

    def by_result(x):
        return x * 2 if x.sum().item() > 0 else x

    notes = []
    counted = count_peak(by_length, (torch.ones(1000), torch.tensor([3, 5])), note=notes.append)
    assert (counted.peak.memory, notes) == (6 * ROW + 16, [])
    scale = torch.ones(1000, requires_grad=True)
    assert count_peak(lambda x: by_result(x * scale), torch.ones(1000), note=notes.append).peak.memory == 3 * ROW + 4
    assert "by_result: it reads a value at test_testing.py:" in notes[0].replace("<lambda>", "by_result")
    with pytest.raises(ProgramError, match=r"test_testing.py:\d+: op aten.nonzero.default, whose bytes depend on"):
        assert_peak(lambda x: (x * scale).nonzero(), torch.ones(1000), "1MiB")


def test_what_follows_from_values_counts():
    x = torch.ones(1000)
    assert count_peak(lambda x: x[x > 0], x).peak.memory == 2 * ROW + 1000 + ROW  # of both calls
    assert count_peak(lambda x: x.nonzero(), x).peak.memory == ROW + 2 * 8000


def test_an_lstm_counts_what_its_backward_needs():
    lstm, x = nn.LSTM(8, 8), torch.ones(5, 2, 8)
    assert count_peak(lambda x: lstm(x), x).memory > count_peak(lstm, x).memory + 8000


def test_an_attribute_is_no_global_of_its_name(monkeypatch):
    monkeypatch.setitem(globals(), "data", torch.ones(1000))
    assert count_peak(lambda x: x.data + 1, torch.ones(10)).memory == 80


def test_a_call_without_an_op_is_refused():
    async def waits(x):
        return x + 1

    def gives(x):
        yield x + 1

    for call in (waits, gives, lambda x: None):
        with pytest.raises(ProgramError, match="calls no op of PyTorch"):
            assert_peak(call, torch.ones(4), "1MiB")


def test_a_peak_above_the_limit_names_lines_and_tensors():
    with pytest.raises(AssertionError, match=r"(?s)660 B above 3.00 KiB; most is held by\n.*relu#1:0 \(test_te"):
        assert_peak(lambda x: [x.relu() for _ in range(2)], torch.ones(311), "3KiB")
    assert assert_peak(lambda x: x + 1, torch.ones(1000), "2MiB", allocator="cuda") == 2**21
    with pytest.raises(AssertionError, match="reserved by cuda"):
        assert_peak(lambda x: x + 1, torch.ones(1000), "1MiB", allocator="cuda")
    with pytest.raises(UsageError, match="a PyTorch model or a function is called, not int"):
        assert_peak(3, torch.ones(2, 2), "1MiB")


def test_a_larger_peak_than_the_locked_one_is_told_by_its_tensors(tmp_path):
    path = tmp_path / "peaks.json"
    small, large = (count_peak(lambda x, n=n: [x + 1 for _ in range(n)], torch.ones(1000), name="net") for n in (2, 4))
    lock_peak(path, "net", small)
    lock_peak(path, "other", large)
    assert check_peak(path, "net", small) == (f"{small.sentence}; as locked", None)
    said, difference = check_peak(path, "net", large)
    assert said.startswith("net: peak 19.5 KiB live, at add#4:0, test_testing.py:")
    assert "; 7.81 KiB more than locked with PyTorch 2." in said
    assert [holder.name for holder in difference.held_by_one[1]] == ["add#3:0", "add#4:0"]
    assert "7.81 KiB less than locked" in check_peak(path, "other", small)[0]
    with pytest.raises(UsageError, match="it has no peak of 'nothing'; lock= writes it"):
        check_peak(path, "nothing", small)
    document = json.loads(path.read_text())
    entry = document["peaks"]["net"]
    damaged = ({**entry, **change} for change in ({"memory": "1"}, {"peak": {"holders": [{}]}}, {"peak": 3}))
    for content in (*({"peaks": {"net": entry}} for entry in damaged), {"peaks": {"net": 1}}, {"peaks": []}, []):
        path.write_text(json.dumps(content))
        with pytest.raises(FormatError, match=r"peaks.json: (the peak of 'net' is damaged|it is no file of)"):
            check_peak(path, "net", small)


@pytest.mark.slow
@pytest.mark.parametrize("name", own_calls.NAMES)
def test_the_counted_peak_is_the_measured_one(name):
    """Within 0.5%: the ops' own memory is not counted."""
    model = f"{own_calls.__name__}:{name}"
    call, inputs = getattr(own_calls, name)()
    counted = [count_peak(call, inputs, name=name, note=lambda text: None).memory for _ in range(3)]
    assert len(set(counted)) == 1
    question = {"model": model, "sizes": {}, "device": "cpu", "threads": 1}
    assert counted[0] == pytest.approx(ask("pytorch.run:run_call", question, name), rel=0.005)


@pytest.mark.slow
def test_the_fixture_is_found_and_fails(tmp_path):
    test = (
        "import torch\n\ndef test(assert_peak):\n    assert_peak(torch.nn.Linear(4, 4), torch.ones(4, 4), at_most=9)\n"
    )
    (tmp_path / "test_net.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-q", "test_net.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "AssertionError: Linear: peak 208 B live, at addmm#1:0, test_net.py:4: 199 B above 9 B" in done.stdout
