"""`schedopt train METHOD --recipe`: shipped recipes at a toy size, going on after a stop, and each way to be wrong."""

import pytest
import yaml
from models.train_commands import refused
from schedopt.policies.networks.shipped import WEIGHTS
from schedopt.policies.regal.training import TrainingParameters
from schedopt.policies.training import settings as chains
from schedopt.policies.training.run_folder import CHECKPOINT, CONFIG, curve_of
from schedopt.policies.training.settings import RECIPES, read_chain

TOY = {"validation_graphs": 1, "threads": 1, "checkpoint_seconds": 0}
TOY_REGAL = {
    "improving": 0,
    "training_graphs": 2,
    "features": 40,
    "validation_evaluations": 100,
    "synthetic": {"nodes_low": 8, "nodes_high": 10},
}
TOY_PHASE = {"graphs": 2, "epochs": 1}


def toy(name):
    """Return a shipped recipe with everything in it but its network's kind and its phases' made small."""
    recipe = yaml.safe_load((RECIPES / f"{name}.yaml").read_text())
    settings = recipe["settings"]
    if isinstance(settings, str):
        settings = yaml.safe_load((WEIGHTS / f"{settings}.yaml").read_text())["recipe"]
    settings |= TOY
    settings["network"] |= {"width": 8}
    for phase in settings["phases"]:
        phase |= TOY_PHASE
        if recipe["method"] == "topoformer":
            phase |= {"nodes": [8, 10], "batch": 2, "teacher_width": 4, "samples": min(phase.get("samples", 1), 2)}
        elif recipe["method"] == "direct":
            phase |= {"steps": 1, "samples": 2}
        else:
            phase |= {"steps": 1, "evaluations": 100, "samples": min(phase.get("samples", 1), 2)}
    if recipe["method"] == "topoformer":
        settings["network"] |= {"layers": 1, "heads": 1, "head_width": 4, "eigenvectors": 2}
        settings |= {"validation_nodes": 10}
    elif recipe["method"] == "direct":
        settings["network"] |= {"rounds": 1}
        settings |= {"training_graphs": 2, "synthetic": TOY_REGAL["synthetic"]}
    else:
        settings["network"] |= {"rounds": 1}
        settings |= TOY_REGAL
    for run in recipe["runs"]:
        run["set"] = {key: value for key, value in run.get("set", {}).items() if key in ("seed", "network.ratios")}
    return recipe | {"settings": settings}


def write(folder, recipe):
    (folder / "toy.yaml").write_text(yaml.safe_dump(recipe))
    return folder / "toy.yaml"


FIRST = "topoformer-layered"


@pytest.mark.slow
@pytest.mark.parametrize("name", [file.stem for file in sorted(RECIPES.glob("*.yaml"))])
def test_a_recipe_makes_weights_from_nothing(name, run, tmp_path):
    recipe = toy(name)
    method, runs = recipe["method"], recipe["runs"]
    given = []
    if any(of_run.get("given") for of_run in runs):
        run("gen", "synthetic", tmp_path / "given", "--count", 2, "--nodes", "8-10", "--quiet")
        given = [tmp_path / "given"]
    words = ["train", method, *given, "--recipe", write(tmp_path, recipe), "--output", tmp_path / "run"]
    result = run(*words)
    assert result.exit_code == 0, result.stderr
    last = tmp_path / "run" / runs[-1]["name"]
    assert f"--weights {last / 'weights.safetensors'}" in result.stdout
    starts = [yaml.safe_load((tmp_path / "run" / of_run["name"] / CONFIG).read_text())["start"] for of_run in runs]
    before = [str(tmp_path / "run" / of_run["name"] / "weights.safetensors") for of_run in runs]
    assert starts == ["", *before[:-1]]
    lengths = [len(curve_of(tmp_path / "run" / of_run["name"])) for of_run in runs]
    assert lengths == [1 + len(of_run["phases"]) for of_run in runs]
    again = run(*words, "--resume")
    assert again.exit_code == 0
    assert again.stderr.count("is finished; nothing is left to do") == len(runs)


@pytest.mark.slow
def test_a_recipe_goes_on_where_it_stopped(run, tmp_path, monkeypatch):
    """The first run is taken as it is; the second, which was never begun, is begun."""
    words = ["train", "topoformer", "--recipe", write(tmp_path, toy(FIRST)), "--output", tmp_path / "run"]
    read = chains.read_chain
    monkeypatch.setattr(chains, "read_chain", lambda *a: read(*a)[:1])
    assert run(*words, "--quiet").exit_code == 0
    monkeypatch.undo()
    first = (tmp_path / "run" / "imitation" / CHECKPOINT).read_bytes()
    refused(run(*words), "give --resume to go on")
    result = run(*words, "--resume")
    assert result.exit_code == 0, result.stderr
    assert result.stderr.count("nothing is left to do") == 1
    assert (tmp_path / "run" / "imitation" / CHECKPOINT).read_bytes() == first
    assert (tmp_path / "run" / "large" / CHECKPOINT).exists()


def test_a_recipe_that_draws_its_graphs_refuses_others_to_validate_on(run, tmp_path, diamond_file):
    words = ["train", "topoformer", "--recipe", write(tmp_path, toy(FIRST)), "--output", tmp_path / "run"]
    refused(run(*words, "--validation", diamond_file), "draws the graphs that it validates on; leave out --validation")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"runs": []}, "needs runs, each with a name of its own"),
        ({"runs": [{"name": "a", "phases": [0]}] * 2}, "needs runs, each with a name of its own"),
        ({"runs": [{"name": "a", "phases": [9]}]}, "run 'a': phases must be numbers from 0 to 2"),
        ({"runs": [{"name": "../a", "phases": [0]}]}, "a name is one of a folder"),
        ({"runs": [{"name": "a"}]}, "a run has a name and phases"),
        ({"runs": [{"name": "a", "phases": [0], "set": {"clap": 1}}]}, "there is no setting 'clap'"),
        ({"method": "gas"}, "is a recipe of gas, not regal"),
        ({"more": 1}, "is no recipe, which has"),
    ],
)
def test_a_recipe_that_makes_no_sense_is_refused(change, words, tmp_path):
    with pytest.raises(Exception, match=words) as refused:
        read_chain(str(write(tmp_path, toy("regal-memory") | change)), "regal", TrainingParameters)
    assert type(refused.value).__name__ in ("FormatError", "UsageError")
