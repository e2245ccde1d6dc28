"""``kb``."""

import json
from pathlib import Path

from helpers.built_in_knowledge import built_in_knowledge
from helpers.command import ddpwizard, refused


def test_kb_check_accepts_the_built_in_entries():
    done = ddpwizard("kb", "check")
    assert done.returncode == 0
    assert "All entries are valid" in done.stdout


def test_kb_check_reports_file_and_line(tmp_path: Path):
    path = tmp_path / "broken.yaml"
    path.write_text("id: broken\nfamily: hung\n")
    done = ddpwizard("kb", "check", str(tmp_path))
    assert done.returncode == 1
    assert f"{path}:" in done.stdout
    problem = json.loads(ddpwizard("kb", "check", str(tmp_path), "--json").stdout)["problems"][0]
    assert problem["path"] == str(path)


def test_broken_team_entry_is_one_warning_and_kb_check_reports_it(tmp_path: Path):
    team = tmp_path / "ddpwizard" / "knowledge"
    team.mkdir(parents=True)
    path = team / "bad.yaml"
    path.write_text("id: x\n")
    env = {"XDG_CONFIG_HOME": str(tmp_path)}
    done = ddpwizard("explain", "port-in-use", env=env)
    assert done.returncode == 0, done.stderr
    assert [f"{path}:1: " in line for line in done.stderr.splitlines()] == [True]
    done = ddpwizard("kb", "check", env=env)
    assert done.returncode == 1
    assert f"{path}:1: " in done.stdout


def test_kb_check_refuses_a_directory_without_entries(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("none yet\n")
    assert f"{tmp_path}: no .yaml file in it" in refused(ddpwizard("kb", "check", "--knowledge", str(tmp_path)), 2)


def test_list_and_graph():
    ids = {cause["id"] for cause in json.loads(ddpwizard("kb", "list", "--json").stdout)["causes"]}
    assert ids == set(built_in_knowledge().causes)
    assert ddpwizard("kb", "graph").stdout.startswith("digraph")
    nodes = {node["id"] for node in json.loads(ddpwizard("kb", "graph", "--json").stdout)["nodes"]}
    assert ids < nodes


def test_list_shows_a_family_or_a_cause_and_suggests_the_nearest_name():
    family = ddpwizard("kb", "list", "nccl").stdout.splitlines()
    assert family and all(line.startswith("nccl ") for line in family)
    assert len(ddpwizard("kb", "list", "nccl", "port-in-use").stdout.splitlines()) == len(family) + 1
    assert "did you mean nccl" in refused(ddpwizard("kb", "list", "ncl"), 2)
    assert "did you mean port-in-use" in refused(ddpwizard("kb", "list", "port-in-uze"), 2)
    assert "kb list shows all" in refused(ddpwizard("kb", "list", "zzzzzz"), 2)
    assert "did you mean list? ddpwizard kb --help" in refused(ddpwizard("kb", "lst"), 2)
