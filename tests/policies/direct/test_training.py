"""Training of `direct`: its problems, what its loss pushes, and stops."""

import dataclasses

import numpy as np
import pytest
from models.runs import At, assert_same_run
from schedopt import solve
from schedopt.core.bounds.bounds import possible_times
from schedopt.core.solvers.placements.list_schedulers import starting_orders
from schedopt.datasets.synthetic import SyntheticParameters
from schedopt.policies.direct import training
from schedopt.policies.direct.keys import FEATURES
from schedopt.policies.direct.network import DirectNetworkParameters
from schedopt.policies.direct.training import HELD_OUT, Phase, Trainer, TrainingParameters, advantages, make_cases
from schedopt.policies.training.run_folder import curve_of
from schedopt.policies.training.trainable import Work

TINY = TrainingParameters(
    network=DirectNetworkParameters(width=8, rounds=1),
    phases=(Phase(epochs=1, steps=2, graphs=2, samples=2),),
    synthetic=SyntheticParameters(nodes_low=8, nodes_high=12),
    types=(1, 2),
    training_graphs=4,
    validation_graphs=2,
)


def test_the_settings_are_those_of_the_shipped_weights():
    assert TrainingParameters.shipped("direct-runtime-types") == TrainingParameters()


def test_samples_are_weighed_against_the_others_of_their_graph():
    found = advantages(np.array([[1.0, 1.0, 4.0], [5.0, 5.0, 5.0], [10.0, 10.0, 40.0]]))
    assert found[0, 0] == found[0, 1] < 0 < found[0, 2]
    assert (found[1] == 0).all()
    np.testing.assert_allclose(found[0], found[2])
    assert np.mean(found[0] ** 2) == pytest.approx(1)


def test_ops_run_on_one_type_of_device_and_no_graph_is_held_out():
    cases, held_out = ([*make_cases(TINY, first, 4, ())] for first in (0, HELD_OUT))
    tensors = [{tuple(case.problem.graph.tensor_size.tolist()) for case in some} for some in (cases, held_out)]
    assert not tensors[0] & tensors[1]
    for case in cases:
        able = possible_times(case.problem)
        assert {tuple(row) for row in np.isfinite(able).tolist()} == {(True, False, False), (False, True, True)}
        assert len(np.unique(case.seen.nodes[:, FEATURES - 3])) == 2
        _, (value,) = starting_orders(case.problem, case.seen.rule[None])
        assert value == pytest.approx(solve(case.problem, "direct:decode=rule").value)


@pytest.mark.slow
def test_reinforce_makes_draws_better(tmp_path):
    phase = Phase(epochs=2, steps=12, graphs=4, samples=32, learning_rate=0.01)
    parameters = dataclasses.replace(TINY, phases=(phase,), validation_graphs=1)
    assert Trainer(tmp_path, parameters, [*make_cases(parameters, 0, 4, ())]).run()
    gaps = [line["sampled_gap_percent"] for line in curve_of(tmp_path)[1:]]
    assert gaps[1] < gaps[0]


@pytest.mark.slow
def test_a_stop_within_a_step_undoes_the_step(tmp_path):
    def trainer(folder):
        return Trainer(folder, TINY, [*make_cases(TINY, 0, 2, ())])

    assert trainer(tmp_path / "whole").run()
    stop = At(5)  # two validation graphs are drawn, then done; then it is asked within the first step
    assert not trainer(tmp_path / "cut").run(must_stop=stop)
    assert stop.calls == 5 and trainer(tmp_path / "cut").place.step == 0
    assert trainer(tmp_path / "cut").run()
    assert_same_run(tmp_path / "cut", tmp_path / "whole")


def test_a_stop_is_heard_while_graphs_are_drawn(tmp_path, monkeypatch):
    """Before the first step, and in a validation, of which another one draws all."""
    drawn = []
    make = training.make_case
    monkeypatch.setattr(training, "make_case", lambda *words: drawn.append(words) or make(*words))
    work = Work(tmp_path, TINY, [], [], 1, False)
    assert Trainer.prepared(work, None, lambda: True) is None
    assert len(drawn) == 1
    trainer = Trainer.prepared(work, None, lambda: False)
    assert trainer.validate(trainer.network, lambda: True) is None
    assert len(drawn) == 1 + 4 + 1
    assert trainer.validate(trainer.network).keys() == {*Trainer.validated}
    assert trainer.validate(trainer.network) and len(drawn) == 1 + 4 + 1 + 2
