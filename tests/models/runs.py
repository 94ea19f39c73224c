"""Training runs in tests: compare two, and stop or kill one at a chosen moment."""

import json
import shutil
import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from schedopt.core.files import atomic
from schedopt.policies.networks import network as files
from schedopt.policies.training import run_folder
from schedopt.policies.training.run_folder import CHECKPOINT, WEIGHTS, curve_of


def weights_of(network):
    return torch.cat([value.detach().flatten() for value in network.state_dict().values()]).clone()


def gradient(network):
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in network.parameters()])


def checkpoint_of(folder):
    """Return all of a checkpoint but its times."""
    with safe_open(str(Path(folder) / CHECKPOINT), "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        about = {name: value for name, value in file.metadata().items() if name != "digest"}  # which covers times
    about["place"] = {name: value for name, value in json.loads(about["place"]).items() if not name.endswith("seconds")}
    return tensors, about


def untimed(curve):
    return [{name: value for name, value in line.items() if not name.endswith("seconds")} for line in curve]


def board_of(folder):
    """Return the curves that TensorBoard shows, but for times.

    It reads files by name, which end in the second and in a number that is not padded: of those that were begun in one
    second, number 10 would come before number 9. So they are named by their order here.
    """
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def order(path):
        return int(path.name.split(".")[3]), int(path.suffix[1:])

    with tempfile.TemporaryDirectory() as copies:
        for at, path in enumerate(sorted(Path(folder).glob("events.out.tfevents.*"), key=order)):
            shutil.copy(path, Path(copies) / f"events.out.tfevents.{at:04d}")
        board = EventAccumulator(copies)
        board.Reload()
    tags = [tag for tag in board.Tags()["scalars"] if not tag.endswith("seconds")]
    return {tag: [(event.step, event.value) for event in board.Scalars(tag)] for tag in tags}


def assert_same_run(folder, other):
    (tensors, about), (others, about_other) = checkpoint_of(folder), checkpoint_of(other)
    assert about == about_other
    assert tensors.keys() == others.keys()
    for name, value in tensors.items():
        assert torch.equal(value, others[name]), name
    assert (folder / WEIGHTS).read_bytes() == (other / WEIGHTS).read_bytes()
    assert untimed(curve_of(folder)) == untimed(curve_of(other))
    assert board_of(folder) == board_of(other)


class At:
    """True, or raises Killed, when it is called for a certain time."""

    def __init__(self, time):
        self.time, self.calls = time, 0

    def __call__(self, *arguments):
        self.calls += 1
        return self.calls == self.time

    def kill(self, *arguments):
        if self():
            raise Killed


class Killed(BaseException):
    """Stands for SIGKILL: nothing is caught or tidied up on its way."""


def run_killed_at_any_moment(new_trainer, monkeypatch):
    """Run a trainer to its end, killed after a step, after a line of the curve, and around each file that matters.

    A run comes upon seven such moments before its first step, so it dies at the first, the second, and so on to the
    seventh, and goes on each time. Returns how often.
    """
    write = atomic.write_atomically

    def deadly(path, data):
        if Path(path).name in (CHECKPOINT, WEIGHTS):
            Path(path).with_name(f".{Path(path).name}.half").write_bytes(b"half")
            moment.kill()
            write(path, data)
            moment.kill()
        else:
            write(path, data)

    for module in (run_folder, files):
        monkeypatch.setattr(module, "write_atomically", deadly)
    kills = 0
    while True:
        moment = At(1 + kills % 7)
        try:
            assert new_trainer().run(on_step=moment.kill, on_epoch=moment.kill)
            return kills
        except Killed:
            kills += 1
            assert kills < 100
