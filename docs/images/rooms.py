"""Draws the rooms of the package and their imports, for docs/dev/architecture.md.

usage: python docs/images/rooms.py
"""

import ast
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).parents[2]
PICTURE = Path(__file__).with_suffix(".svg")
COLUMNS = {"cli": 1.5, "api": 0.5, "policies": 2.5, "experiments": 0, "programs": 1, "datasets": 2.5, "report": 1}
COLUMNS |= {"solvers": 2, "files": 1, "addresses": 1, "model": 1, "bounds": 2}
"""The column of each room that does not stand in the middle."""
COLUMN, ROW, WIDTH, HEIGHT = 140, 50, 110, 28
COLOURS = {"cli": "#fde8c8", "policies": "#fde8c8", "datasets": "#fde8c8"}


def room_of(parts):
    """Return the room of a path in the package: a folder of core, or a folder of the root."""
    return parts[1] if parts[0] == "core" else parts[0]


def imports():
    """Return the graph of the rooms, with an edge to each room that a file of a room imports."""
    rooms = nx.DiGraph()
    for file in (file for folder in ("cli", "core", "datasets", "policies") for file in (ROOT / folder).rglob("*.py")):
        package = file.relative_to(ROOT).parts[:-1]
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                module = [*package[: len(package) - node.level + 1], *(node.module or "").split(".")]
                if module[0] in ("cli", "core", "datasets", "policies") and room_of(module) != room_of(package):
                    rooms.add_edge(room_of(package), room_of(module))
    return rooms


def drawing():
    """Return the picture: an arrow per import that no other arrows imply, each row above all that it imports."""
    rooms = nx.transitive_reduction(imports())
    rows = {room: row for row, rank in enumerate(nx.topological_generations(rooms.reverse())) for room in rank}
    top = max(rows.values())
    x = {room: round(COLUMNS.get(room, 1.5) * COLUMN + WIDTH / 2 + 5) for room in rows}
    y = {room: (top - row) * ROW + HEIGHT // 2 + 5 for room, row in rows.items()}
    size = f'width="{max(x.values()) + WIDTH // 2 + 5}" height="{top * ROW + HEIGHT + 10}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">',
        '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0 1 L8 4 L0 7 z" fill="#777"/></marker></defs>',
    ]
    for room, other in sorted(rooms.edges):
        start, end = f"M{x[room]} {y[room] + HEIGHT // 2}", f"L{x[other]} {y[other] - HEIGHT // 2}"
        lines.append(f'<path d="{start} {end}" stroke="#777" marker-end="url(#tip)"/>')
    for room in sorted(rows):
        corner = f'x="{x[room] - WIDTH // 2}" y="{y[room] - HEIGHT // 2}" width="{WIDTH}" height="{HEIGHT}" rx="4"'
        lines.append(f'<rect {corner} fill="{COLOURS.get(room, "#dbe9f6")}" stroke="#555"/>')
        lines.append(f'<text x="{x[room]}" y="{y[room] + 5}" text-anchor="middle" fill="#111">{room}</text>')
    return "\n".join([*lines, "</svg>\n"])


if __name__ == "__main__":
    PICTURE.write_text(drawing())
