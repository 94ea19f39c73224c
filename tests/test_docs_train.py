"""The table of shipped weights in the docs is what their cards say."""

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "train" / "shipped-weights.md").read_text().splitlines()
CARDS = sorted((ROOT / "policies" / "weights").glob("*.yaml"))
TASKS = {"memory": "peak", "runtime": "makespan"}


def row_of(path):
    """Return the line of the table for a card."""
    card = yaml.safe_load(path.read_text())
    network, method = card["recipe"]["network"], path.stem.partition("-")[0]
    used = f"`{method}`"
    if "task" in network:
        used += f", {TASKS[network['task']]}, {network.get('devices', 'any number of')} devices"
    return f"| `{path.stem}` | {used} | {card['network']} | {card['hours']} | {card['commit']} |"


@pytest.mark.parametrize("path", CARDS, ids=lambda path: path.stem)
def test_the_table_has_the_row_of_each_card(path):
    assert row_of(path) in PAGE


def test_the_table_has_no_other_rows():
    assert sum(line.startswith("| `") for line in PAGE) == len(CARDS)
    assert {path.stem for path in CARDS} == {path.stem for path in CARDS[0].parent.glob("*.safetensors")}
