"""A hint for the solver: the best schedule known, and the times at which its steps run."""

from __future__ import annotations

from ...search.search import Search

EDITS_AS_ONE = 20


def improve(search: Search, evaluations: int, method: str) -> None:
    """Let `auto`, or another method, improve the best schedule known."""
    with search.part(evaluations=evaluations * (EDITS_AS_ONE if search.problem.recompute else 1)):
        if not search.exhausted():
            search.run(method)


class HintedTimes:
    """Device of each op, and start and end of each step, of a schedule whose steps run as early as they can.

    `times` has the ops by their number, and the transfers by tensor and target.
    """

    def __init__(self, devices: list[int]) -> None:
        self.device = devices
        self.times: dict[int | tuple[int, int], tuple[int, int]] = {}
        self.clock: dict[int | tuple[int, int], int] = {}

    @property
    def makespan(self) -> int:
        """The latest end."""
        return max((end for _, end in self.times.values()), default=0)

    def run(self, step: int | tuple[int, int], ready: int, duration: int, places: list[int | tuple[int, int]]) -> None:
        """Run a step once it is ready and the devices or the link that it occupies are free."""
        start = max([ready, *(self.clock.get(place, 0) for place in places)])
        self.times[step] = start, start + duration
        self.clock |= dict.fromkeys(places, start + duration)

    def number_devices(self, ranked: list[int]) -> None:
        """Give the devices numbers, in the order in which the ops of a list use them first."""
        used = list(dict.fromkeys(self.device[op] for op in ranked))
        new = {device: number for number, device in enumerate(used)}
        self.device = [new[device] for device in self.device]
        self.times = {
            step if isinstance(step, int) else (step[0], new[step[1]]): times for step, times in self.times.items()
        }
