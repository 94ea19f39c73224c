"""A method as it is asked for: its name, its parameters, a budget of its own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from ..base.errors import UsageError
from ..base.options import spelled
from ..base.units import parse_count, parse_seconds
from ..problem.problem import Problem
from ..problem.schedule import Schedule
from .parameters import Parameters, from_texts
from .registry import METHODS, Method, listed, method_of, methods_where, parameter_fields, parameters_class


@dataclass(frozen=True)
class MethodSpec:
    """A method with its parameters and a budget of its own, written `name` or `name:parameter=value:...`."""

    text: str  # as it was written
    # the method in the registry, and its parameters, checked
    name: str
    parameters: Parameters
    # complete schedules priced, and seconds; None for what all methods have
    evaluations: int | None = None
    time_limit: float | None = None

    @property
    def method(self) -> Method:
        """The registry's line."""
        return method_of(self.name)


def parse_method(text: str, **flags: str | None) -> MethodSpec:
    """Read `name` or `name:parameter=value:...`, with the parameters that options give, such as `--decoder lazy`."""
    name, *settings = text.strip().split(":")
    texts = {flag: value for flag, value in flags.items() if value is not None}
    for flag in texts:
        if flag not in {field.name for field in parameter_fields(name)}:
            able = listed(other for other, method in METHODS.items() if flag in method.flags)
            raise UsageError(f"{spelled(flag)} is not for method '{name}', which has none; it is for {able}")
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f"'{setting}' in method '{text}' is not written parameter=value")
        key = key.strip().replace("-", "_")
        if key in texts:
            raise UsageError(f"parameter {key} of '{name}' is given twice")
        texts[key] = value.strip()
    known = [field.name for field in parameter_fields(name)]
    evaluations, time_limit = texts.pop("evaluations", None), texts.pop("time_limit", None)
    return MethodSpec(
        text.strip(),
        name,
        from_texts(parameters_class(name), texts, name, known, method_of(name).fixed),
        None if evaluations is None else parse_count(evaluations, f"evaluations of '{name}'"),
        parse_seconds(time_limit) if time_limit else None,
    )


def check_supported(
    spec: MethodSpec, problem: Problem, evaluations: int | None, initial: Schedule | None = None
) -> None:
    """Raise UsageError if the method cannot solve this problem, count evaluations, or start from a schedule."""
    method, is_single = spec.method, problem.devices == 1
    unable = "never" if problem.recompute else "only"

    def refuse(why: str, able: Callable[[Method], object] | None = None) -> NoReturn:
        others = methods_where(lambda m: m.recomputation != unable and able(m)) if able else []
        raise UsageError(f"method '{spec.name}' {why}{f' use {listed(others)}' if able else ''}")

    if method.recomputation == unable:
        again = spelled("recompute", True)
        if problem.recompute:
            refuse(f"runs every op once; with {again}", lambda m: True)
        refuse(f"decides what runs again; give {again}, or use another")
    if method.memory_on_one_device_only and (problem.task != "memory" or not is_single):
        on = spelled("devices", problem.devices) if problem.machine.is_anonymous else "on a machine"
        refuse(
            f"minimises peak memory on one device; for {spelled('task', problem.task)} {on}",
            lambda m: not m.memory_on_one_device_only and not (is_single and m.several_devices_only),
        )
    if method.several_devices_only and is_single:
        one = spelled("devices", 1)
        refuse(f"places ops on several devices; for {one}", lambda m: not m.several_devices_only)
    spec.parameters.check(problem)
    if initial is not None and not method.searches:
        refuse("builds one schedule and cannot start from another;", lambda m: m.searches)
    if evaluations is not None and not method.counts_evaluations:
        refuse(f"does not count evaluations; limit it by {spelled('time_limit')}")
