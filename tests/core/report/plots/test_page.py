"""The page is one file: its data is the simulator's, no name escapes from it, and it asks the network for nothing."""

from __future__ import annotations

import json
import re
from functools import partial
from html.parser import HTMLParser

import numpy as np
import pytest
from models.small_graphs import sketch
from models.timelines import input_timeline, random_timeline
from schedopt import GraphBuilder, Problem, Schedule
from schedopt.core.graph.annotations import Annotations
from schedopt.core.model.timeline import timeline_of
from schedopt.core.report.plots.page import page, trace

drawn = partial(random_timeline, 623)

HARMFUL = (
    "</script><script>alert(1)</script>",
    "<!--",
    "]]>",
    "\"'`",
    "/*DATA*/",
    "\\u003c",
    "\u2028\u2029",
    "<img src=x onerror=alert(1)>",
    "&lt;",
    "${x}",
)


class Scripts(HTMLParser):
    """Collects the contents of script elements, and every attribute that could fetch something."""

    def __init__(self, text):
        super().__init__()
        self.scripts, self.tags, self.fetched = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.fetched += [value for name, value in attrs if name in ("src", "href", "srcset", "action", "data")]
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.tags and self.tags[-1] == "script":
            self.scripts[-1] += data


def data_of(text):
    parsed = Scripts(text)
    assert len(parsed.scripts) == 2
    return json.loads(parsed.scripts[0])


@pytest.mark.parametrize("devices", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_the_data_says_what_the_simulator_says(seed, devices):
    timeline = drawn(seed, devices, task="runtime", bandwidth=1e6)
    (schedule,) = data_of(page([timeline]))["schedules"]
    simulation = timeline.simulation
    assert (schedule["peak"], schedule["makespan"]) == (simulation.peak, simulation.runtime)
    assert schedule["items"] == timeline.schedule.items.tolist()
    assert schedule["end"] == pytest.approx(simulation.step_end.tolist(), abs=1e-4)
    for device, memory in enumerate(schedule["memory"]):
        during = dict(zip(memory["steps"], memory["during"], strict=True))
        own = np.flatnonzero(timeline.schedule.targets == device)
        assert [during[step] for step in own] == simulation.step_memory[own].tolist()
        assert max(memory["during"], default=0) == simulation.peak_per_device[device]
    rows = [(*h[:5], bool(h[5]), tuple(h[6])) for h in schedule["holdings"]]
    assert rows == [tuple(holding[:7]) for holding in timeline.holdings]


def test_no_name_escapes_from_the_data():
    builder = GraphBuilder("</script><b>")
    for name in HARMFUL:
        builder.add_op(name, outputs=[4])
    graph = builder.build()
    text = page([timeline_of("</script>", Problem(graph), Schedule.single_device(graph.input_order))])
    data = data_of(text)
    assert data["graph"] == "</script><b>"
    assert data["ops"] == list(HARMFUL)
    assert data["schedules"][0]["label"] == "</script>"
    harmless = page([input_timeline(drawn(0, 1).problem.graph)])
    assert Scripts(text).tags == Scripts(harmless).tags
    assert not set("<>&") & set(Scripts(text).scripts[0])


def test_names_reach_the_page_as_text_alone():
    """The script has no way to make markup or code of a string."""
    script = Scripts(page([drawn(0, 1)])).scripts[1]
    assert not re.search(r"(inner|outer)HTML|insertAdjacentHTML|document\.write|eval\(|new Function|setTimeout", script)


def test_the_page_fetches_nothing():
    text = page([drawn(0, 2)])
    assert Scripts(text).fetched == []
    assert not re.search(r"https?:|//[a-z]+\.|url\(|@import|fetch\(|XMLHttpRequest|import\(|WebSocket|sendBeacon", text)


def test_the_page_and_the_trace_say_where_ops_come_from():
    notes = Annotations(("net", "", "net"), ("</script>:1", "", "</script>:1"))
    timeline = input_timeline(sketch("a -> 4; b -> 4; c -> 4", "annotated", notes))
    data = data_of(page([timeline]))
    assert [data["sources"][place] for place in data["sourceOf"]] == ["net, </script>:1", "", "net, </script>:1"]
    assert len(data["sources"]) == 2
    ops = [event for event in json.loads(trace([timeline]))["traceEvents"] if event.get("cat") == "op"]
    assert [event["args"].get("source") for event in ops] == ["net, </script>:1", None, "net, </script>:1"]
    assert "sources" not in data_of(page([drawn(0, 1)]))
