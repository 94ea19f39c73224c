"""Names with line breaks, tabs, escapes, markup and scripts: no output of any command obeys them."""

import json
import re
from xml.etree import ElementTree

import pytest
import schedopt
from schedopt.core.graph.annotations import Annotations, Resident

pytestmark = pytest.mark.slow
COMMANDS = """
show g.pb; show . --list; solve g.pb -o g.json -m cp-sat; solve g.pb -o dfs.json -m dfs --force;
solve g.pb --format order -m dfs; solve g.pb --machine m.yaml -m heft --task runtime -o m.json;
solve g.pb --recompute --memory-limit 80% -m recompute --evaluations 50; solve g.pb --memory-limit 1 -m dfs;
solve g.pb --addresses -m dfs -o a.json --plot a.svg; show g.pb g.json; show g.pb m.json; show g.pb a.json;
diff g.pb h.pb; diff g.json dfs.json -g g.pb; check g.pb m.json; compare g.pb h.pb -m dfs,bfs -o c.csv --per-graph;
compare g.pb h.pb -m dfs,bfs -o c.html; pareto g.pb -t 0.2s -o p.csv; fit g.pb --memory 3000; pack b.csv -o b2.csv;
pack b2.csv --check; pack b2.csv -o b.h --format c-header; plot g.pb g.json dfs.json -o p.svg;
plot g.pb m.json -o m.svg; plot g.pb g.json -o k.svg --kind graph; plot g.pb m.json -o m.html;
plot g.pb m.json -o trace.json; convert g.pb c.dot; convert c.dot c.json; show c.json
"""


def bad(name):
    return f'{name}\nBAD\r\t\x1b[31m\u2028</script><script>alert("{name}")</script>[red]$x$'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for letter, ops in (("g", 8), ("h", 9)):
        builder = schedopt.GraphBuilder(bad(letter))
        for op in range(ops):
            reads = [(before, 0) for before in {op - 1, op // 2} if 0 <= before < op]
            builder.add_op(bad(f"op{op}"), inputs=reads, outputs=[100 + 13 * op, 5], runtime=1.0 + op, persistent=8)
        texts = {kind: tuple(bad(f"{kind}{op // 2}") for op in range(ops)) for kind in ("modules", "lines")}
        held = tuple(Resident(bad(f"w{op}"), "parameter", 8, op, (op,)) for op in range(ops))
        schedopt.write_graph(builder.build(Annotations(**texts, residents=held)), tmp_path / f"{letter}.pb")
    devices = [{"name": bad(f"d{at}"), "memory": "1GiB"} for at in range(2)]
    (tmp_path / "m.yaml").write_text(json.dumps({"devices": devices, "default_link": {"bandwidth": 1e6}}))
    (tmp_path / "b.csv").write_text('id,lower,upper,size\n"a\nBAD\t\x1b[31m",0,3,8\n"a\nBAD",1,3,8\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_names_stay_in_their_line(run, folder):
    for command in COMMANDS.split(";"):
        done = run(*command.split())
        assert done.exit_code in (0, 1), (command, done.stderr)
        said = done.stdout + done.stderr
        assert not re.search(r"(?<!\\n)BAD|[\x1b\r\t\u2028]", said), (command, said)
    for drawn in folder.glob("*.svg"):
        assert ElementTree.parse(drawn) is not None
        assert "BAD" not in "".join(line[:3] for line in drawn.read_text().splitlines())
    for page in folder.glob("*.html"):
        assert "<script>alert" not in page.read_text()
    assert "BAD" not in re.sub("_BAD", "", (folder / "b.h").read_text())
