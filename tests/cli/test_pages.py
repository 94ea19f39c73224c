"""Every page in a real browser, light and dark: clicks, hovers, zooms, keys, other orders; no error of the console."""

import json

import pytest
import schedopt
from models.browser import Browser
from models.timelines import input_timeline
from schedopt.core.base.units import format_bytes
from schedopt.core.model.timeline import timeline_of
from schedopt.core.report.plots.page import page

pytestmark = pytest.mark.slow
GRAPH = "examples/graphs/unet.pb.gz"
TRAINING = "examples/graphs/bert-adam.pb.gz"
BESIDE = {"task": "runtime", "machine": "examples/machines/two-gpus.yaml"}
PLANS = {
    "one device": (GRAPH, "dfs", {}),
    "repeated runs": (GRAPH, "recompute", {"recompute": True, "memory_limit": "85%"}),
    "addresses": (GRAPH, "dfs", {"addresses": True}),
    "blocking": (GRAPH, "heft", {"task": "runtime", "devices": 3, "bandwidth": "10GB/s"}),
    "beside": (GRAPH, "heft", BESIDE),
    "homes": (TRAINING, "gp-dfs", {"devices": 2}),
    "homes beside": (TRAINING, "heft", BESIDE),
    "phone": (GRAPH, "random", {"machine": "examples/machines/phone.yaml"}),
    "no runtimes": ("examples/graphs/layered-50.pbtxt", "gp-dfs", {"devices": 2}),
}


@pytest.fixture(params=["light", "dark"])
def browser(request, tmp_path):
    browser = Browser(tmp_path / "profile", request.param)
    yield browser
    browser.close()
    assert browser.errors == []


def is_dark(browser):
    """Whether the page is dark, by the brightness of its paper."""
    return browser.run("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every(part => part < 128)")


def colors(browser, canvas):
    """Return how many colors a canvas has."""
    return browser.run(
        f"(() => {{ const c = document.getElementById('{canvas}'); return new Set(new Uint32Array("
        "c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size; })()"
    )


@pytest.mark.parametrize("kind", PLANS)
def test_a_plan_is_looked_at(browser, kind, tmp_path, request):
    path, method, options = PLANS[kind]
    evaluations = {"evaluations": 20} if method in ("random", "recompute") else {}
    result = schedopt.solve(str(request.config.rootpath / path), method, **options, **evaluations)
    timeline = timeline_of("plan", result.problem, result.schedule, result.addresses)
    before = [] if result.problem.devices > 1 else [input_timeline(result.problem.graph)]
    file = tmp_path / "page.html"
    file.write_text(page([*before, timeline]))
    browser.open(file)
    scheme = browser.run("matchMedia('(prefers-color-scheme: dark)').matches")
    assert is_dark(browser) == scheme
    shown = ["memory"] + ["arena"] * (result.addresses is not None)
    shown += ["gantt"] * (result.problem.devices > 1 or result.runtime > 0)
    for canvas in ("memory", "arena", "gantt"):
        assert browser.run(f"!document.getElementById('{canvas}').hidden") == (canvas in shown)
    ops = browser.run("document.getElementById('about').textContent")
    assert ops == result.title().split(": ")[1], "homes of weights are no ops"
    names = [device.name for device in result.problem.machine.devices]
    peak = format_bytes(result.peak_memory).replace("\u202f", " ")

    browser.press("p")
    assert browser.run("Number(document.getElementById('step').dataset.memory)") == result.peak_memory
    assert peak in browser.run("document.getElementById('schedules').textContent")
    where = browser.run("document.getElementById('alive').textContent")
    assert (f" on {names[timeline.fullest_device]} at step" in where) == (len(names) > 1)
    for at, name in enumerate(names if len(names) > 1 else []):
        browser.click(f"#devices button:nth-child({at + 1})")
        assert browser.run("state.device") == at
        assert f" on {name} at step" in browser.run("document.getElementById('alive').textContent")
    for canvas in shown:
        browser.press("p")
        assert colors(browser, canvas) > 3
        browser.hover(f"#{canvas}", 0.4)
        assert browser.run("!document.getElementById('tip').hidden")
        browser.click(f"#{canvas}", 0.9)
        late = browser.run("startOf(current(), state.step)")
        browser.click(f"#{canvas}", 0.2)
        assert browser.run("startOf(current(), state.step)") < late or canvas == "gantt"  # another device's row
        browser.wheel(f"#{canvas}", -600)
        span = "(state.high - state.low) / extent()"
        assert browser.run(span) < 0.9
        low = browser.run("state.low")
        browser.click(f"#{canvas}", 0.5, to=0.3)
        assert browser.run("state.low") > low, "what is dragged to the left shows what is later"
        browser.press("0")
        assert browser.run(span) == 1
    for key in ("Home", "ArrowRight", "ArrowLeft", "End", "PageUp", "t", "+", "-", "t", "0", "p"):
        browser.press(key)
        assert all(colors(browser, canvas) > 3 for canvas in shown)
    axes = [False, True] if result.runtime else [False]
    for by_time in axes:
        browser.run(f"setAxis({str(by_time).lower()}), refresh()")
        browser.draw()
        for device in range(len(names)):
            most = browser.run(f"Math.max(...piecesOf(current(), {device}).map(piece => piece[2]))")
            assert most == result.simulation.peak_per_device[device], "the peak of each device, along either axis"
    browser.press("/")
    for letter in result.order[-1][:4]:
        browser.send("Input.insertText", text=letter)
    browser.draw()
    assert browser.run("state.matches.length") >= 1
    browser.press("ArrowDown")
    browser.press("Enter") if browser.run("!found.hidden") else None
    for number in range(len(before) + 1):
        browser.click(f"#schedules button:nth-child({number + 1})")
        assert browser.run("state.schedule") == number
    browser.click("#alive button.link")
    browser.hover("#alive tbody tr")


def test_a_comparison_is_sorted(browser, run, tmp_path, request):
    file = tmp_path / "page.html"
    graphs = [request.config.rootpath / "examples/graphs" / name for name in ("layered-50.pbtxt", "unet.pb.gz")]
    assert run("compare", *graphs, "--methods", "input,dfs,lpmf", "--output", file).exit_code == 0
    browser.open(file)
    assert is_dark(browser) == browser.run("matchMedia('(prefers-color-scheme: dark)').matches")
    for table in range(browser.run("document.querySelectorAll('table').length")):
        browser.run(f"document.querySelectorAll('table')[{table}].id = 'table{table}'")
        for column in (1, 2):
            rows = f"[...document.querySelectorAll('#table{table} tbody tr')]"
            numbers = f"{rows}.map(row => row.cells[{column - 1}].dataset.number)"
            for sign in (1, -1):
                browser.click(f"#table{table} th:nth-child({column})")
                found = [float(number) for number in browser.run(numbers) if number is not None]
                assert found == sorted(found, reverse=sign < 0)


def test_a_front_is_read(browser, run, tmp_path, request):
    file = tmp_path / "front.html"
    done = run("pareto", request.config.rootpath / GRAPH, "--points", 3, "-t", 1, "--plot", file, "--json")
    browser.open(file)
    for point in json.loads(done.stdout)["points"]:
        assert format_bytes(point["peak_memory"]) in browser.run("document.body.textContent")
    assert browser.run("document.querySelector('svg').getBoundingClientRect().width") > 300
