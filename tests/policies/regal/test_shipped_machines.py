"""REGAL's networks on the shipped machines: plans by the machine's rules, or one sentence where no weights fit."""

from pathlib import Path

import numpy as np
import pytest
import schedopt
from naive.machines import random_graph

MACHINES = Path(__file__).parents[3] / "examples" / "machines"


@pytest.mark.parametrize("machine", ["two-gpus", "gpu-and-cpu"])
@pytest.mark.parametrize(
    "method", ["regal", pytest.param("gas", marks=pytest.mark.slow), pytest.param("idrs", marks=pytest.mark.slow)]
)
def test_plans_of_two_devices_are_verified(machine, method):
    graph = random_graph(np.random.default_rng(12), 10, residents=2)
    for task in ("runtime", "memory"):
        given = {"task": task, "machine": MACHINES / f"{machine}.yaml", "evaluations": 40}
        result = schedopt.solve(graph, method, **given)
        totals = schedopt.verify(result.problem, result.schedule)
        assert (totals.peak, totals.runtime) == (result.peak_memory, pytest.approx(result.runtime))
        assert result.value >= result.lower_bound
        assert schedopt.solve(graph, method, **given).value == result.value


@pytest.mark.parametrize("method", ["regal", "gas", "idrs"])
def test_the_seven_devices_of_the_phone_need_weights_of_their_own(method):
    graph = random_graph(np.random.default_rng(12), 5)
    with pytest.raises(schedopt.UsageError, match=r"no weights for runtime on 7 devices, .* --devices 7 makes some"):
        schedopt.solve(graph, method, task="runtime", machine=MACHINES / "phone.yaml")
