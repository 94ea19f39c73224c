"""A run op by op gives the results of a run in place, and leaves what it is given as it is, whatever happens."""

import copy

import pytest
import torch
from models.seeds import mostly_slow
from models.torch_programs import MODELS, build
from schedopt import ProgramError
from schedopt.core.programs.pytorch.program import program_of
from schedopt.core.programs.pytorch.run import Replay, check_module, digest, digests, measured_costs
from torch import nn

QUICK = {"losses", "written-views", "buffers", "drawn", "normed-adam", "language-sgd"}


class Recorded(Replay):
    """Keeps what the arguments became, and how many bytes of copies were there at the most."""

    def __init__(self, program):
        super().__init__(program.name, program.module, lambda at, value: self.became.update({at: digest(value)}))
        self.became = {}
        self.copied = 0

    def call_op(self, node, args, kwargs):
        result = super().call_op(node, args, kwargs)
        copies = [key for key, memory in self._memories.items() if memory.copied]
        self.copied = max(self.copied, len(copies))
        return result


def in_place(program):
    """Return digests of the results of a plain run of the program's code, and of its arguments after it."""
    arguments = copy.deepcopy(program.arguments)
    with torch.random.fork_rng(), torch.set_grad_enabled(program.training != "none"):
        torch.manual_seed(0)
        return digests(program.module(*arguments)), digests(arguments)


@pytest.mark.parametrize("name", mostly_slow(MODELS, QUICK))
def test_a_replay_gives_what_a_run_in_place_gives_and_changes_nothing(name):
    program = program_of(*build(name))
    before, versions = digests(program.arguments), [value._version for value in program.arguments if is_tensor(value)]
    generator = torch.get_rng_state()
    replay = Recorded(program)
    results = digests(replay.run(program.arguments, program.training != "none"))
    expected, after = in_place(program)
    assert results == expected
    assert [replay.became.get(number, one) for number, one in enumerate(before)] == after
    assert digests(program.arguments) == before
    assert [value._version for value in program.arguments if is_tensor(value)] == versions
    assert torch.equal(torch.get_rng_state(), generator)
    assert {at for at, (one, two) in enumerate(zip(before, after, strict=True)) if one != two} <= set(replay.became)


def is_tensor(value):
    return isinstance(value, torch.Tensor)


class Aliased(nn.Module):
    """Writes to a view of a buffer, which another buffer and a lazy conjugate look into."""

    def __init__(self):
        super().__init__()
        self.register_buffer("whole", torch.arange(6.0).to(torch.complex64))
        self.register_buffer("part", self.whole[2:])

    def forward(self, x):
        before = self.whole.conj()
        self.part[1:].mul_(x)
        return before * 1, before.sum() + self.part.sum(), self.whole + 0


def test_all_that_is_in_a_written_memory_moves_to_its_copy():
    program = program_of(Aliased(), torch.tensor(2.0 + 1j))
    before = digests(program.arguments)
    replay = Recorded(program)
    results = digests(replay.run(program.arguments, False))
    expected, after = in_place(program)
    assert results == expected
    assert [replay.became.get(number, one) for number, one in enumerate(before)] == after != before
    assert sorted(replay.became) == [0, 1]
    assert digests(program.arguments) == before


class Stopped(Replay):
    """Raises after so many ops."""

    def __init__(self, program, error, after):
        super().__init__(program.name, program.module)
        self.error, self.left = error, after

    def call_op(self, node, args, kwargs):
        self.left -= 1
        if self.left < 0:
            raise self.error
        return super().call_op(node, args, kwargs)


@pytest.mark.slow
@pytest.mark.parametrize("error", [RuntimeError("no memory"), KeyboardInterrupt()])
def test_a_run_that_ends_early_leaves_parameters_state_buffers_and_random_numbers(error):
    model, inputs, _ = build("normed-adam")
    program = program_of(model, inputs, "adam")
    before, own, generator = digests(program.arguments), digests(model.state_dict()), torch.get_rng_state()
    ops = sum(isinstance(node.target, torch._ops.OpOverload) for node in program.module.graph.nodes)
    for after in (1, ops // 2, ops - 1):
        with pytest.raises(ProgramError if isinstance(error, RuntimeError) else KeyboardInterrupt):
            Stopped(program, error, after).run(program.arguments, True)
        assert digests(program.arguments) == before
        assert digests(model.state_dict()) == own
        assert torch.equal(torch.get_rng_state(), generator)
        assert torch.is_grad_enabled()


@pytest.mark.slow
def test_costs_and_verification_leave_gradients_and_the_model_as_they_are():
    model, inputs, _ = build("normed-adam")
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    before = digests([model.state_dict(), [parameter.grad for parameter in model.parameters()]])
    program = program_of(model, inputs, "adam")
    measured_costs(program)
    check_module(program, program.module)
    assert digests([model.state_dict(), [parameter.grad for parameter in model.parameters()]]) == before
