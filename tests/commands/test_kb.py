"""``kb`` and ``explain``."""

import json
from pathlib import Path

import pytest
from ddpwizard.app.diagnosis.cause_text import cause_lines
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


def test_list_and_graph():
    ids = {cause["id"] for cause in json.loads(ddpwizard("kb", "list", "--json").stdout)["causes"]}
    assert ids == set(built_in_knowledge().causes)
    assert ddpwizard("kb", "graph").stdout.startswith("digraph")
    nodes = {node["id"] for node in json.loads(ddpwizard("kb", "graph", "--json").stdout)["nodes"]}
    assert ids < nodes


def test_explain_prints_every_part_of_an_entry():
    knowledge = built_in_knowledge()
    assert cause_lines(knowledge.causes["port-in-use"], knowledge)[0] in ddpwizard("explain", "port-in-use").stdout
    for cause in knowledge.causes.values():
        text = "\n".join(cause_lines(cause, knowledge))
        for part in (cause.title, cause.symptoms[0], cause.sources[0].url, cause.fixes[0].title):
            assert part in text, (cause.id, part)


def test_explain_suggests_the_nearest_id():
    done = ddpwizard("explain", "unsued-parameters")
    assert done.returncode == 2
    assert "no cause 'unsued-parameters' → did you mean unused-parameters" in done.stderr
    assert "kb list shows all causes" in ddpwizard("explain", "zzzzzz").stderr


@pytest.mark.parametrize("typed", ["DW401", "dw401"])
def test_explain_shows_a_rule_of_the_review(typed: str):
    done = ddpwizard("explain", typed)
    rule = built_in_knowledge().rules["DW401"]
    assert done.returncode == 0, done.stderr
    for part in (rule.title, rule.why, rule.symptom, rule.fix, f"ddpwizard explain {rule.cause}"):
        assert part in done.stdout
    shown = json.loads(ddpwizard("explain", typed, "--json").stdout)
    assert (shown["schema"], shown["id"], shown["cause"]) == ("ddpwizard.rule/1", "DW401", rule.cause)


def test_explain_lists_the_entries_on_a_term_those_with_it_in_the_title_first():
    lines = ddpwizard("explain", "FSDP").stdout.splitlines()
    listed = [line.split()[0] for line in lines[2:]]
    knowledge = built_in_knowledge()
    assert lines[0].startswith(f"{len(listed)} results for FSDP") and len(listed) > 3
    assert set(listed) <= {*knowledge.causes, *knowledge.rules}
    assert "FSDP" in lines[2]
    assert "DW401" in ddpwizard("explain", "collective").stdout, "rules as well"
    shown = json.loads(ddpwizard("explain", "FSDP", "--json").stdout)
    assert [entry["id"] for entry in shown["entries"]] == listed
    assert "unused-parameters" in ddpwizard("explain", "unused", "gradient").stdout


def test_list_shows_a_family_or_a_cause_and_suggests_the_nearest_name():
    family = ddpwizard("kb", "list", "nccl").stdout.splitlines()
    assert family and all(line.startswith("nccl ") for line in family)
    assert len(ddpwizard("kb", "list", "nccl", "port-in-use").stdout.splitlines()) == len(family) + 1
    assert "did you mean nccl" in refused(ddpwizard("kb", "list", "ncl"), 2)
    assert "did you mean port-in-use" in refused(ddpwizard("kb", "list", "port-in-uze"), 2)
    assert "kb list shows all" in refused(ddpwizard("kb", "list", "zzzzzz"), 2)
    assert "did you mean list? ddpwizard kb --help" in refused(ddpwizard("kb", "lst"), 2)
