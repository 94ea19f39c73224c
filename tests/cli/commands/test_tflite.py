"""The command line on a TFLite file: its notes, exit codes, and what is refused."""

import json


def test_fit_takes_the_memory_once(run, diamond_file):
    assert json.loads(run("fit", diamond_file, "--sram", "1K", "--json").stdout)["memory"] == 1024
    assert json.loads(run("fit", diamond_file, "--sram", "20", "--json").stdout)["memory"] == 20
