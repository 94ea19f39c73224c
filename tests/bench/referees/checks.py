"""The referees: each draws a case, asks schedopt by its public names, compares, and yields words to be counted."""

from __future__ import annotations

import copy
import json
import math
from itertools import islice

import schedopt
from draw import a_case, bind, document_of, graph_text, plans
from model import CONTROL, Case, Device, Machine, Verdict, World, Wrong, check_addresses

ONE = ("input", "random", "dfs", "dfs-postorder", "bfs", "lpmf", "backward-ratio", "depth-first-dp", "approximate-dp",
       "order-search", "auto", "cp-sat")  # fmt: skip
SEVERAL = ("input", "random", "gp-dfs", "heft", "peft", "cpop", "list-scheduling", "local-search", "annealing",
           "step-search", "brkga", "brkga:decoder=lazy", "cp-sat")  # fmt: skip
SEARCHES = ("random", "order-search", "auto", "local-search", "annealing", "step-search", "brkga", "recompute")
PROVES = ("depth-first-dp", "cp-sat")  # on graphs of this size
EXCEEDED = ("infeasible", "limit-not-met")


class Fault(Exception):
    """The product and its referee differ."""


class Asked:  # a case in files, as schedopt reads it
    def __init__(self, case: Case, folder) -> None:
        self.case, self.folder = case, folder
        (folder / "graph.pbtxt").write_text(graph_text(case))
        self.graph = schedopt.read_graph(folder / "graph.pbtxt")

    def read(self, document: dict):
        """Return a schedule file as schedopt reads it, with its problem."""
        (self.folder / "schedule.json").write_text(json.dumps(document))
        return schedopt.read_schedule(self.folder / "schedule.json", self.graph)

    def verify(self, document: dict):
        """Return the totals of a schedule file, or what is wrong with it."""
        try:
            return self.read(document).verify()
        except schedopt.SchedoptError as error:
            return str(error)

    def solve(self, steps: list, method: str, **more):
        """Return a result, or None where a method says that it does not solve such a problem."""
        searches = method.split(":")[0] in SEARCHES
        more |= {"evaluations": 200} if searches else {"time_limit": 20} if method in PROVES else {}
        what = self.graph if self.case.recompute else self.read(document_of(self.case) | {"steps": steps}).problem
        try:
            return schedopt.solve(what, method, **more)
        except schedopt.UsageError:
            return None

    def judge(self, result) -> tuple:
        """Return the file of a result, and the verdict on it, once all that it claims is compared."""
        result.save(self.folder / "result.json")
        document = json.loads((self.folder / "result.json").read_text())
        method, steps = document["method"], document["steps"]
        self.case.task, self.case.runtime_limit = document["task"], document.get("runtime_limit_us")
        try:
            verdict = World(self.case).judge(steps)
        except Wrong as error:
            raise Fault(f"{method} broke a rule: {error}") from error
        true, has_frees = claimed(self.case, steps, verdict), any("frees" in step for step in steps)
        for step, real in zip(steps, true["steps"], strict=True):
            step["frees"] = sorted(step.get("frees", ())) if has_frees else real["frees"]
        for name in ("peak_memory", "peak_memory_per_device", "runtime_us", "steps"):
            if document[name] != true[name]:
                raise Fault(f"{method}: {name} is {document[name]}, not {true[name]}")
        return document, verdict

    def expect(self, document: dict, what: str) -> str:
        """Compare the verifier's word on a file with the referee's, and return which it was."""
        try:
            verdict = World.of(self.case, document["steps"]).judge(document["steps"])
            if (document.get("status") in EXCEEDED) != (self.case.excess(verdict) > 0):
                raise Wrong("a limit is exceeded, or is not, against the status")
            known = (verdict.peaks, verdict.makespan)
        except Wrong as error:
            known = error
        said = self.verify(document)
        is_refused = isinstance(said, str)
        if isinstance(known, Wrong) != is_refused or not (is_refused or known == (said.peak_per_device, said.runtime)):
            raise Fault(f"{what}: schedopt says {said}, the referee {known}")
        return f"{what}, {'refused' if is_refused else 'accepted'}"


def claimed(case: Case, steps: list, verdict: Verdict) -> dict:
    """Return a schedule file with all claims, which are true."""
    steps = [step | claim for step, claim in zip(steps, verdict.claims, strict=True)]
    peaks, status = verdict.peaks, "limit-not-met" if case.excess(verdict) else "feasible"
    totals = {"peak_memory": max(peaks), "peak_memory_per_device": peaks, "runtime_us": verdict.makespan}
    return document_of(case) | totals | {"status": status, "steps": steps}


def damaged(rng, steps: list, devices: int) -> list:
    """Return the steps with one or two changes."""
    steps = list(steps)
    for kind in rng.choices(("move", "move", "double", "drop", "send"), k=rng.choice((1, 1, 2))):
        at, other = rng.randrange(len(steps)), rng.randrange(len(steps))
        if kind in ("move", "double"):
            steps.insert(other, steps.pop(at) if kind == "move" else steps[at])
        elif kind == "drop" and len(steps) > 1:
            del steps[at]
        else:
            key = rng.choice([key for key in steps[at] if key in ("device", "from", "to")])
            steps[at] = steps[at] | {key: rng.randrange(devices + 1)}
    return steps


def false_claims(rng, case: Case, document: dict, verdict: Verdict) -> dict:
    """Return copies of a true file with one false claim each, by its name."""
    value, steps, at = case.value(verdict), document["steps"], rng.randrange(len(document["steps"]))
    changes = {"peak": {"peak_memory": max(verdict.peaks) + rng.choice((-1, 1))}}
    changes["peaks"] = {"peak_memory_per_device": [*verdict.peaks[:-1], verdict.peaks[-1] + 1]}
    changes["makespan"] = {"runtime_us": verdict.makespan + 0.5}
    real, tensors = steps[at], [f"{op.name}:{port}" for op in case.ops for port in range(len(op.sizes))]
    wrong = {"start": {"start_us": real["start_us"] + 0.25}, "end": {"end_us": real["end_us"] + 1}}
    wrong |= {"bytes": {"bytes": real["bytes"] + 1}} if "bytes" in real else {}
    wrong |= {"frees": {"frees": sorted({*real["frees"]} ^ {rng.choice(tensors)})}} if tensors else {}
    changes |= {name: {"steps": [*steps[:at], real | change, *steps[at + 1 :]]} for name, change in wrong.items()}
    if document["status"] == "feasible":
        name = "peak_share_bound" if case.counts_shares else "lower_bound"
        changes["bound"] = {name: value + 1}
        changes["optimal"] = {"status": "optimal", name: value - 1}
        changes |= {"share": {"peak_share": value + 0.5}} if case.counts_shares else {}
        changes["exceeded"] = {"status": rng.choice(EXCEEDED)}
        changes |= {"limit": {"memory_limit": max(verdict.peaks) - 1}} if max(verdict.peaks) > 1 else {}
    return {name: document | change for name, change in changes.items()}


def verify(rng, folder):
    """Schedules on machines: what `check` says of true, damaged and falsely claimed ones."""
    devices = rng.choice((1, 2, 2, 3, 4))
    case = a_case(rng, rng.randint(2, 8), rng.choice((0, 1, 1, 2)), devices)
    if case.machine.is_file:
        bind(rng, case)
    world, asked = World(case, every=case.machine.is_file and rng.random() < 0.5), Asked(case, folder)
    try:
        steps = next(plans(rng, world))
    except StopIteration:  # no links
        return
    except Wrong as error:
        try:
            asked.read(document_of(case) | {"steps": []})
        except schedopt.SchedoptError:
            return (yield "contradictions")
        raise Fault(f"accepted, though {error}") from error
    verdict = world.judge(steps)
    yield asked.expect(document_of(case) | {"steps": steps}, "plain")
    for _ in range(5):
        yield asked.expect(document_of(case) | {"steps": damaged(rng, steps, devices)}, "damaged")
    case.memory_limit = max(1, max(verdict.peaks) + rng.choice((0, -1, 9))) if rng.random() < 0.7 else None
    if case.machine.is_file and rng.random() < 0.5 and not case.machine.is_equal:
        case.machine.devices[0].memory = max(1, verdict.peaks[0] - rng.choice((0, 0, 1)))
    document = claimed(case, steps, verdict)
    yield asked.expect(document, "true")
    for name, false in false_claims(rng, case, document, verdict).items():
        if not isinstance(asked.verify(false), str):
            raise Fault(f"a false claim of {name} is accepted")
        yield f"false {name}"


def least_peak(case: Case) -> int:
    """The least peak of any order on one device, over all sets of ops that have run."""
    ops, world, root, needed = case.ops, World(case), {}, {}
    for tensor in sorted(t for t in world.size if t[1] != CONTROL):
        base = root[tensor] = root[world.view[tensor]] if tensor in world.view else tensor
        users, final = needed.get(base, (set(), False))  # of each buffer the ops that use it, and whether it is kept
        needed[base] = users | {tensor[0], *world.readers[tensor]}, final or ops[tensor[0]].final
    always, best = sum(op.persistent for op in ops), {frozenset(): 0}
    for _ in ops:
        following = {}
        for done, peak in best.items():
            alive = [b for b, (users, final) in needed.items() if b[0] in done and (final or users - done)]
            for op in {*range(len(ops))} - done:
                if world.waited[op] <= done:
                    here = sum(world.size[b] for b in {*alive, *(b for b in needed if b[0] == op)})
                    now = max(peak, here + ops[op].workspace)
                    following[done | {op}] = min(now, following.get(done | {op}, now))
        best = following
    return always + min(best.values())


def judge_result(asked: Asked, result, known: list, proves: bool = False) -> str:
    """Compare value, bound and status of a result with all schedules that are known."""
    case, (document, verdict) = asked.case, asked.judge(result)
    status, value = document["status"], case.value(verdict)
    bound = document["peak_share_bound" if case.counts_shares else "lower_bound"]
    kept = [case.value(other) for other in known if not case.excess(other)]
    best, slack = min(kept, default=math.inf), 1e-9 * abs(bound) if case.task == "runtime" else 0
    wrong = {
        "a schedule is below the bound": status not in EXCEEDED and bound > best + slack,
        "the status is against the limits": (status in EXCEEDED) != (case.excess(verdict) > 0),
        "the share is another": document.get("peak_share", value) != value,
        "a schedule keeps the limit": status == "infeasible" and kept,
        "the value is not the bound": status == "optimal" and not math.isclose(value, bound, rel_tol=1e-9),
        "a schedule is better": status == "optimal" and best < value - slack,
        "this method ends with a proof": proves and status not in ("optimal", "infeasible"),
        "its own file is refused": isinstance(asked.verify(document), str),
    }
    if found := [name for name, is_wrong in wrong.items() if is_wrong]:
        raise Fault(f"{document['method']}, {status}, value {value}, bound {bound}, best {best}: {found}")
    return status


def one_device(rng, folder):
    """Orders of one device: peaks, bounds, proofs and limits of methods against the least peak over all sets."""
    case = a_case(rng, rng.randint(2, 8), 0, 1)
    case.machine, case.task = Machine([Device("device 0")], is_file=False), "memory"
    asked, world = Asked(case, folder), World(case)
    files, least = list(plans(rng, world, 60, 1)), least_peak(case)
    known = [world.judge(steps) for steps in files]
    assert least <= min(max(verdict.peaks) for verdict in known), "the referee is at odds with itself"
    known.append(Verdict([least], known[0].makespan, known[0].makespan))
    case.memory_limit = rng.choice((None, None, *(max(1, least + more) for more in (0, -1, 8, -(least // 2)))))
    for method in rng.sample(ONE, 4):
        if (result := asked.solve(files[0], method)) is not None:
            yield judge_result(asked, result, known, method in PROVES)


def several_devices(rng, folder):
    """Schedules of several devices: values, bounds, proofs and limits of methods against plans of tiny graphs."""
    is_fan, devices = rng.random() < 0.4, rng.choice((2, 2, 2, 3))
    case = a_case(rng, rng.choice((3, 7) if is_fan else (2, 3, 4)), 0 if is_fan else rng.choice((0, 0, 1, 1)), devices)
    if is_fan:  # all ops read one tensor, on equal devices whose transfers take as long as a few ops
        for at, op in enumerate(case.ops):
            op.inputs, op.control, op.sizes, op.views, op.shifts = [(0, 0)] if at else [], [], [8], [-1], [0]
            op.runtime, op.final = rng.choice((4.0, 4.0, 4.0, 1.0) if at else (0.0, 1.0, 4.0)), False
        links = dict.fromkeys([(0, 1), (1, 0)], rng.choice(((0.0, 8e6), (1.0, 8e6), (2.0, math.inf), (3.0, math.inf))))
        beside, case.task = rng.random() < 0.3, "runtime"
        case.machine = Machine([Device("device 0"), Device("device 1")], links, beside, is_file=beside)
    elif case.machine.is_file:
        bind(rng, case)
    asked, world = Asked(case, folder), World(case)
    try:
        files = list(islice(plans(rng, world, 3 if is_fan else 20), 800))
        known = [world.judge(steps) for steps in (files[0], *files[1:])]
    except (Wrong, IndexError):  # nowhere to run, or no links
        return
    if rng.random() < 0.4:
        case.memory_limit = max(1, min(max(verdict.peaks) for verdict in known) + rng.choice((0, 0, -1, -4, 5, 20)))
    elif case.machine.is_file and rng.random() < 0.4 and not case.machine.is_equal:
        memory = max(1, rng.choice(known).peaks[0] + rng.choice((0, -1, 4)))
        for device in case.machine.devices[: rng.choice((1, devices))]:
            device.memory, memory = memory, max(1, rng.choice((memory, 2 * memory, 3 * memory // 2)))
        case.memory_limit = rng.choice((None, 2 * memory))
    for method in ("cp-sat" if is_fan else "auto", *rng.sample(SEVERAL, 2)):
        if (result := asked.solve(files[0], method)) is not None:
            limits = (case.memory_limit, *(device.memory for device in case.machine.devices))
            is_exact = method == "cp-sat" and case.task == "runtime" and limits == (None,) * len(limits)
            yield judge_result(asked, result, known, is_exact)


def sequences(rng, world: World, longest: int, most: int) -> list:
    """Return sequences of runs in which all ops run, some again."""
    ops, found = range(world.own), []

    def go(runs):
        if len({*runs}) == world.own:
            found.append([{"op": world.names[op], "device": 0} for op in runs])
        for op in rng.sample(ops, len(ops)) if len(runs) < longest else ():
            is_late = {*runs} & {*world.readers.get((op, CONTROL), ())} or (op in runs and world.case.ops[op].once)
            if len(found) < most and world.waited[op] <= {*runs} and not is_late and runs[-1:] != [op]:
                go([*runs, op])

    go([])
    return found


def recompute(rng, folder):
    """Ops that run again: their replay, least peaks and least times against sequences of runs."""
    case = a_case(rng, rng.randint(2, 5), 0, 1, once=True)
    case.machine, case.task, case.recompute = Machine([Device("device 0")], is_file=False), "runtime", True
    for op in case.ops if rng.random() < 0.3 else ():
        op.runtime = 0.0
    asked, world = Asked(case, folder), World(case)
    files, always = sequences(rng, world, len(case.ops) + 2, 1200), max(1, sum(op.persistent for op in case.ops))
    total = sum(op.runtime for op in case.ops) or len(case.ops)
    for steps in rng.sample(files, min(2, len(files))):
        verdict = world.judge(steps)
        case.memory_limit = rng.choice((None, max(always, max(verdict.peaks) - rng.choice((0, 1)))))
        case.runtime_limit = rng.choice((None, verdict.time, max(total, verdict.time - 0.5)))
        yield asked.expect(claimed(case, steps, verdict), "true")
        yield asked.expect(document_of(case) | {"steps": damaged(rng, steps, 1)}, "damaged")
    known = [world.judge(steps) for steps in files]
    peaks = sorted(max(verdict.peaks) for verdict in known)
    case.memory_limit, case.runtime_limit = max(1, rng.choice((peaks[0], peaks[0] - 1, rng.choice(peaks), 1))), None
    more = {"memory_limit": case.memory_limit}
    if rng.random() < 0.4:
        case.memory_limit, more = None, {"max_overhead": rng.choice((0.0, 0.25, 1.0))}
    method = rng.choice(("auto", "recompute", "cp-sat", "checkpoint-segments"))
    if (result := asked.solve(files[0], method, recompute=True, **more)) is not None:
        yield judge_result(asked, result, known)


def addresses(rng, folder):
    """Addresses: arenas, their bounds and overlaps in time, of `solve`, and with one number changed."""
    devices = rng.choice((1, 1, 2, 3))
    case = a_case(rng, rng.randint(2, 8), rng.choice((0, 1)), devices)
    asked, world = Asked(case, folder), World(case)
    try:
        steps = next(plans(rng, world))
    except (Wrong, StopIteration):  # nowhere to run, or no links
        return
    method = rng.choice(("input", "lpmf", "order-search") if devices == 1 else ("heft", "gp-dfs", "input"))
    if (result := asked.solve(steps, method, addresses=True, align=rng.choice((1, 8, 64)))) is None:
        return
    document = json.loads(json.dumps(result.document()))
    verdict = World(case).judge(document["steps"])
    for changes in range(5):
        if changes:
            document = copy.deepcopy(document)
            numbers = [(step["offsets"], name) for step in document["steps"] for name in step.get("offsets", ())]
            numbers += [(step, "workspace_offset") for step in document["steps"] if "workspace_offset" in step]
            numbers += [(arena, name) for arena in document["arenas"] for name in ("bytes", "bound")]
            where, name = rng.choice(numbers)
            where[name] = max(0, where[name] + rng.choice((-1, 1, 2)) * rng.choice((1, document["alignment"])))
        said, wrong = asked.verify(document), None
        try:
            check_addresses(world, verdict, document)
        except Wrong as error:
            wrong = error
        if isinstance(said, str) != (wrong is not None) or (wrong and not changes):
            raise Fault(f"after {changes} changes schedopt says {said}, the referee {wrong}")
        yield f"{'changed' if changes else 'solved'}, {'refused' if wrong else 'accepted'}"


REFEREES = {verify: 4, one_device: 2, several_devices: 6, recompute: 3, addresses: 2}  # with shares of the time
