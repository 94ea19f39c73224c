"""The peak by role, by module and by phase: what is there by hand, and that nothing is lost or counted twice."""

import dataclasses

import naive
import numpy as np
import pytest
from models.seeds import seeds
from models.small_graphs import sketch
from schedopt import Problem, Schedule
from schedopt.core.graph.annotations import PHASES, Annotations, Resident
from schedopt.core.model.simulator import simulate
from schedopt.core.report.memory_by_role import (
    alive_at_peak,
    largest_modules,
    memory_shares,
    resident_roles,
    tensor_roles,
)


def step_graph():
    """A training step in small: a layer, its loss, its gradient, its update; the layer's result is saved."""
    forward = "layer -> 100 keep=60 work=7; view: layer -> 0@0; loss: view -> 10f 30; unsaved: loss.1 -> 5; "
    backward = "gradient: view loss unsaved -> 80 work=3; scaled: gradient -> 20 keep=40; update: scaled -> 0"
    residents = (
        Resident("net.layer.weight", "parameter", 50, 0, (0,), (6,)),
        Resident("x", "input", 10, 0, (0,)),
        Resident("net.layer.weight.exp_avg", "state", 40, 5, (), (5,)),
        Resident("net.unread", "buffer", 999, -1),
    )
    modules = ("net.layer", "net.layer", "", "", "net.layer", "net.layer.weight", "net.layer.weight")
    lines = ("net.py:3", "net.py:3", "train.py:9", "train.py:9", "net.py:3", "", "")
    phases = ("forward", "forward", "forward", "backward", "backward", "update", "update")
    return sketch(forward + backward, "step", Annotations(modules, lines, phases, residents))


def in_order(graph):
    return Problem(graph), Schedule.single_device(graph.input_order)


def test_a_step_by_hand():
    graph = step_graph()
    roles = tensor_roles(graph)
    named = dict(zip(graph.tensor_names, roles, strict=True))
    assert named["layer:0"] == named["view:0"] == named["loss:0"] == named["loss:1"] == "saved activations"
    assert named["unsaved:0"] == named["gradient:0"] == "gradients"
    assert named["scaled:0"] == "temporaries of the update"

    shares = memory_shares(*in_order(graph))  # at `gradient`: layer, loss:0, unsaved, gradient, workspace
    assert shares.roles == {
        "saved activations": 110,
        "gradients": 85,
        "parameters": 50,
        "optimizer state": 40,
        "inputs": 10,
        "workspace": 3,
    }
    assert list(shares.roles) == sorted(shares.roles, key=shares.roles.get, reverse=True)
    assert shares.modules == {"net.layer": 100 + 80 + 50 + 40 + 3, "": 10 + 5 + 10}
    assert [(p.phase, p.memory, p.step, p.runs, p.source) for p in shares.phases] == [
        ("forward", 100 + 100 + 40, 3, "loss", "train.py:9"),
        ("backward", 100 + 110 + 5 + 80 + 3, 5, "gradient", "net.layer, net.py:3"),
        ("update", 100 + 10 + 80 + 20, 6, "scaled", "net.layer.weight"),
    ]
    assert resident_roles(graph) == {"parameters": 50, "optimizer state": 40, "inputs": 10}


def test_holders_of_the_peak_say_what_they_are_and_who_makes_them():
    peak = alive_at_peak(*in_order(step_graph()))
    assert peak.source == "net.layer, net.py:3"
    assert [(h.name, h.role, h.source) for h in peak.holders] == [
        ("layer:0", "saved activations", "net.layer, net.py:3"),
        ("gradient:0", "gradients", "net.layer, net.py:3"),
        ("loss:0", "saved activations", "train.py:9"),
        ("unsaved:0", "gradients", "train.py:9"),
    ]


@pytest.mark.parametrize("seed", seeds(20, quick=4))
@pytest.mark.parametrize("devices", [1, 3])
def test_roles_and_modules_each_add_up_to_the_peak(seed, devices):
    rng = np.random.default_rng([16, seed, devices])
    graph, plain = naive.random_graph(rng, 15)
    placement, steps = naive.random_steps(rng, plain, devices)
    schedule = Schedule.from_steps(*naive.schedule_of(plain, placement, steps))
    problem = Problem(graph, devices=devices)
    bare = memory_shares(problem, schedule)
    phases = tuple(rng.choice(PHASES, graph.num_ops).tolist())
    modules = tuple(rng.choice(["", "a", "a.b", "a.b.c", "d"], graph.num_ops).tolist())
    residents = tuple(
        Resident(f"a.b.w{op}", str(rng.choice(["parameter", "input", "state"])), int(size) // 2, op, (op,))
        for op, size in enumerate(graph.persistent)
    )
    annotated = dataclasses.replace(graph, annotations=Annotations(modules, (), phases, residents))
    shares = memory_shares(Problem(annotated, devices=devices), schedule)
    simulation = simulate(problem, schedule)
    for split in (bare.roles, bare.modules, shares.roles, shares.modules, largest_modules(shares.modules)):
        assert sum(split.values()) == simulation.peak
    assert bare.phases == ()
    assert set(bare.roles) <= {"tensors", "workspace", "other persistent bytes"}
    for peak in shares.phases:
        steps_of = [s for s, item in enumerate(schedule.items.tolist()) if item >= 0 and phases[item] == peak.phase]
        assert peak.memory == simulation.step_memory[steps_of].max()
        assert peak.step - 1 == steps_of[int(np.argmax(simulation.step_memory[steps_of]))]
    assert sum(resident_roles(annotated).values()) == graph.persistent.sum()


def test_a_module_with_much_of_the_bytes_is_split_and_others_are_summed_up():
    modules = {"encoder.0.a": 40, "encoder.0.b": 20, "encoder.1.a": 24, "head.x": 5, "head.y": 6, "encoder": 3, "": 2}
    wanted = {"encoder.0.a": 40, "encoder.1": 24, "encoder.0.b": 20, "head": 11, "encoder": 3, "": 2}
    assert largest_modules(modules) == wanted
    assert largest_modules(modules, share=1.0) == {"encoder": 87, "head": 11, "": 2}
    assert largest_modules({}) == {}
