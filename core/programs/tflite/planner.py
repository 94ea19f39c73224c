"""The arena of TensorFlow Lite for Microcontrollers: when each tensor is needed, and where its planner puts it.

Follows `micro_allocation_info.cc` (lifetimes) and `greedy_memory_planner.cc` (places) of tensorflow/tflite-micro.
"""

from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .program import ONLINE, TfliteProgram

ALIGNMENT = 16

Scratch = Mapping[tuple[int, int], Sequence[int]]  # bytes per scratch buffer, by an operator's subgraph and place


def aligned(size: int) -> int:
    """Return bytes rounded up to the alignment of the arena."""
    return size + (-size) % ALIGNMENT


def arena_for(program: TfliteProgram) -> int:
    """Return bytes that hold all tensors of a program, were they all alive at once, thrice."""
    every = (tensor for subgraph in program.subgraphs for tensor in subgraph.tensors)
    return 3 * sum(aligned(tensor.bytes) for tensor in every if not tensor.is_constant)


@dataclass
class Request:
    """A request for a place to the planner."""

    size: int  # bytes, aligned
    # steps in which it is needed, both included
    first: int = -1
    last: int = -1
    offset: int = ONLINE  # in an offline plan


def head_of(program: TfliteProgram, scratch: Scratch) -> int:
    """Return the bytes of the arena's head, in which tensors and scratch buffers lie, in the order of the file."""
    return _end([request for request in requests_of(program, scratch) if request.size])


def tensor_places(program: TfliteProgram, scratch: Scratch) -> list[tuple[str, int]]:
    """Return the name and the offset of each tensor in the arena's head."""
    tensors = [tensor for subgraph in program.subgraphs for tensor in subgraph.tensors]
    held = [(n, request) for n, request in enumerate(requests_of(program, scratch)) if request.size]
    found = zip(held, places([request for _, request in held]), strict=True)
    return [(tensors[n].name, at) for (n, request), at in found if n < len(tensors) and request.first >= 0]


def called_head(program: TfliteProgram, scratch: Scratch, subgraph: int) -> int:
    """Return the bytes of the arena that a subgraph would take alone, with those that it runs."""
    requests = requests_of(replace(program, offsets=()), scratch, subgraph)
    return _end([request for request in requests if request.size and request.first >= 0])


def _end(requests: Sequence[Request]) -> int:
    return max((at + r.size for at, r in zip(places(requests), requests, strict=True)), default=0)


def requests_of(program: TfliteProgram, scratch: Scratch, start: int = 0) -> list[Request]:
    """Return a request per tensor of all subgraphs, of which `start` and its callees run, then per scratch buffer."""
    requests: list[Request] = []
    begins = []
    for subgraph in program.subgraphs:
        begins.append(len(requests))
        for tensor in subgraph.tensors:
            takes = not (tensor.is_constant or tensor.is_variable)
            offset = program.offsets[len(requests)] if program.offsets else ONLINE
            requests.append(Request(aligned(tensor.bytes) if takes else 0, offset=offset))
    of_scratch: list[Request] = []

    def create(begin: int, tensors: Sequence[int], step: int) -> None:
        for tensor in tensors:
            requests[begin + tensor].first = requests[begin + tensor].last = step

    def mark(number: int, step: int) -> int:
        """Mark the steps of the tensors of a subgraph that runs from a step on; return its last one."""
        subgraph, begin = program.subgraphs[number], begins[number]
        create(begin, (*subgraph.inputs, *subgraph.outputs), step)
        for at, operator in enumerate(subgraph.operators):
            step += 1
            start = step
            create(begin, operator.outputs, step)
            for called in operator.calls:
                step = mark(called, step + 1)
            for tensor in (*operator.reads, *operator.outputs):
                requests[begin + tensor].last = step
            of_scratch.extend(Request(aligned(size), start, step) for size in scratch.get((number, at), ()))
        for tensor in subgraph.outputs:
            requests[begin + tensor].last = step
        return step

    mark(start, 0)
    return requests + of_scratch


def places(requests: Sequence[Request]) -> list[int]:
    """Return where TFLM's greedy planner puts each request: by its offline plan, or, the largest first, lowest gap."""
    offline = [n for n, request in enumerate(requests) if request.offset != ONLINE]
    online = [n for n in reversed(range(len(requests))) if requests[n].offset == ONLINE]
    online.sort(key=lambda n: -requests[n].size)
    found = [request.offset for request in requests]
    placed: list[int] = []
    for n in (*offline, *online):
        wanted = requests[n]
        if wanted.offset == ONLINE:
            place = 0
            for other in placed:
                if requests[other].first <= wanted.last and wanted.first <= requests[other].last:
                    if found[other] - place >= wanted.size:
                        break
                    place = max(place, found[other] + requests[other].size)
            found[n] = place
        insort(placed, n, key=found.__getitem__)
    return found
