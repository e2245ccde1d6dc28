"""``explain`` for every kind of entry: cause, rule, chapter, term, and the search."""

import json
import re
from pathlib import Path

import pytest
from ddpwizard.app.diagnosis.cause_text import cause_lines
from ddpwizard.app.diagnosis.entry_search import find_entries
from ddpwizard.app.diagnosis.term_text import find_term
from ddpwizard.app.labs.course import read_course
from ddpwizard.app.text.search import WordSearch
from ddpwizard.knowledge.chapters import read_chapters
from ddpwizard.knowledge.labs import read_labs
from helpers.built_in_knowledge import built_in_knowledge
from helpers.command import ddpwizard, refused


def test_cause_is_printed_with_every_part():
    knowledge = built_in_knowledge()
    assert cause_lines(knowledge.causes["port-in-use"], knowledge)[0] in ddpwizard("explain", "port-in-use").stdout
    for cause in knowledge.causes.values():
        text = "\n".join(cause_lines(cause, knowledge))
        for part in (cause.title, cause.symptoms[0], cause.sources[0].url, cause.fixes[0].title):
            assert part in text, (cause.id, part)


@pytest.mark.parametrize("typed", ["DW401", "dw401"])
def test_rule_is_found_in_any_case(typed: str):
    done = ddpwizard("explain", typed)
    rule = built_in_knowledge().rules["DW401"]
    assert done.returncode == 0, done.stderr
    for part in (rule.title, rule.why, rule.symptom, rule.fix, f"ddpwizard explain {rule.cause}"):
        assert part in done.stdout
    shown = json.loads(ddpwizard("explain", typed, "--json").stdout)
    assert (shown["schema"], shown["id"], shown["cause"]) == ("ddpwizard.rule/1", "DW401", rule.cause)


def test_chapter_is_its_pages_and_the_labs_that_exist():
    chapter = read_chapters()["collectives"]
    done = ddpwizard("explain", "Collectives")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{chapter.title}\n")
    for page in chapter.pages:
        assert page in done.stdout
    shown = json.loads(ddpwizard("explain", "collectives", "--json").stdout)
    assert (shown["schema"], shown["order"], shown["pages"]) == ("ddpwizard.chapter/1", 4, chapter.pages)
    labs = read_labs()
    expected = [labs[id_].title for id_ in chapter.labs if id_ in labs]
    assert [each["title"] for each in shown["labs"]] == expected and expected
    assert [each["number"] for each in shown["labs"]] == [f"4.{place}" for place in range(1, len(expected) + 1)]
    listed = done.stdout.partition("\nLABS\n")[2]
    assert all(f"4.{place}  {title}" in listed for place, title in enumerate(expected, 1))
    # The cause is what the learner of a lab has to find.
    assert not any(id_ in listed for id_ in chapter.labs)


def test_chapter_id_may_be_two_words():
    assert ddpwizard("explain", "silent", "numbers").stdout.startswith("Numbers that change silently\n")


def test_term_is_its_text_its_chapter_and_its_causes():
    knowledge = built_in_knowledge()
    term = knowledge.terms["local rank"]
    done = ddpwizard("explain", "local", "rank")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("local rank\n")
    assert term.text in " ".join(done.stdout.split())
    assert f"ddpwizard explain {term.chapter}" in done.stdout
    for id_ in term.causes:
        assert id_ in done.stdout and knowledge.causes[id_].title in done.stdout
    shown = json.loads(ddpwizard("explain", "local", "rank", "--json").stdout)
    assert (shown["schema"], shown["id"], shown["text"]) == ("ddpwizard.term/1", "local rank", term.text)


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("FSDP", "FSDP"),
        ("all reduce", "all-reduce"),
        ("ALL_REDUCE", "all-reduce"),
        ("allreduce", "all-reduce"),
        ("LOCAL_RANK", "local rank"),
        ("process groups", "process group"),
        ("out of memory", "OOM"),
        ("NCCL_IB_GID_INDEX", "GID"),
        ("/dev/shm", "/dev/shm"),
        ("zero 3", "ZeRO-3"),
        ("", None),
        ("进程", None),
        ("rank of a collective", None),
    ],
)
def test_term_is_found_by_any_spelling(typed: str, name: str | None):
    assert find_term(built_in_knowledge(), typed) == name


def found_ids(typed: str) -> list[str]:
    return [entry.id for entry in find_entries(built_in_knowledge(), typed)]


def test_search_has_every_word_and_the_entry_with_this_name_first():
    found = found_ids("rank")
    assert found[0] == "rank" and {"local rank", "global rank", "node rank", "local-rank-device"} <= set(found)
    assert len(found) == len(set(found))
    assert found_ids("size world")[:2] == ["world size", "local world size"]
    assert found_ids("port-in-use")[0] == "port-in-use" and found_ids("dw401")[0] == "DW401"
    assert found_ids("") == found_ids(" ") and {*found_ids("")} == built_in_knowledge().causes.keys()


@pytest.mark.parametrize(
    ("typed", "first", "also"),
    [
        ("rank 0", "main process", "rank-conditional-collective"),
        ("rank 7", "rank", None),
        ("gpu id", "device index", "local-rank-device"),
        ("SIGTERM", "SIGTERM", "worker-exit-no-traceback"),
        ("batch size", "batch size", "effective-batch-lr"),
        ("bucket", "bucket", None),
    ],
)
def test_a_term_comes_before_the_entries_that_use_it(typed: str, first: str, also: str | None):
    found = found_ids(typed)
    assert found[0] == first and len(found) < 60
    assert also is None or also in found[:10] + built_in_knowledge().terms[first].causes


def test_other_words_list_the_entries_that_have_them_those_in_the_title_first():
    lines = ddpwizard("explain", "parameters").stdout.splitlines()
    listed = [re.split(" {2,}", line)[0] for line in lines[2:]]
    knowledge = built_in_knowledge()
    assert lines[0].startswith(f"{len(listed)} results for parameters") and len(listed) > 3
    assert set(listed) <= {*knowledge.causes, *knowledge.rules, *knowledge.terms}
    assert "parameter" in lines[2].lower()
    assert any(id_ in knowledge.rules for id_ in listed), "rules as well"
    shown = json.loads(ddpwizard("explain", "parameters", "--json").stdout)
    assert [entry["id"] for entry in shown["entries"]] == listed
    assert "unused-parameters" in ddpwizard("explain", "unused", "gradient").stdout


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("early stop", "per-rank-decision"),
        ("port in use", "port-in-use"),
        ("stale lock file", "python-lock"),
        ("same order every epoch", "missing-set-epoch"),
        ("restart from scratch", "restart-loses-state"),
    ],
)
def test_words_side_by_side_come_before_the_same_words_apart(typed: str, first: str):
    assert next(entry.id for entry in find_entries(built_in_knowledge(), typed) if entry.kind == "cause") == first


@pytest.mark.parametrize(
    ("typed", "before", "after"),
    [
        ("early stop", ["A title", "early stopping"], ["A title", "stops early"]),
        ("early stop", ["Early stop", "x"], ["A title", "early stopping"]),
        ("early stop", ["A title", "x, early stop"], ["Stops early", "x"]),
        ("reduce", ["A title", "all_reduce"], ["A title", "allreduce"]),
        ("port in use", ["A title", "port-in-use"], ["A title", "support in users"]),
        ("rank hang", ["A title", "hang of a rank"], ["A title", "rank", "hang"]),
    ],
)
def test_order_of_matches(typed: str, before: list[str], after: list[str]):
    search = WordSearch(typed)
    assert search.order(before) < search.order(after)


@pytest.mark.parametrize(
    ("typed", "nearest"),
    [
        ("unsued-parameters", "unused-parameters"),
        ("DW4011", "DW401"),
        ("colectives", "collectives"),
        ("bukcet-sizes", "bucket-sizes"),
        ("stragler", "straggler-rank"),
        ("reduce-scater", "reduce-scatter"),
    ],
)
def test_suggestion_is_the_nearest_id_of_any_kind(typed: str, nearest: str):
    line = refused(ddpwizard("explain", typed), 2)
    assert f"no cause, rule, chapter, lab or term {typed!r} → did you mean " in line
    assert nearest in line.partition("did you mean")[2].rstrip("?").replace(",", "").split()


@pytest.mark.parametrize("typed", ["zzzzzz", "lable"])
def test_nothing_similar_leads_to_the_lists(typed: str):
    """Letters inside other words, such as "available", are no match."""
    line = refused(ddpwizard("explain", typed), 2)
    assert "kb list shows all causes" in line and "learn --list" in line and "did you mean" not in line


def test_a_number_is_its_chapter_or_lab():
    course = read_course(built_in_knowledge())
    chapter, lab = course.chapter("7"), course.lab("7.2")
    assert chapter and lab
    assert ddpwizard("explain", "7").stdout == ddpwizard("explain", chapter.chapter.id).stdout
    assert ddpwizard("explain", "7.2").stdout.startswith(f"{lab.lab.title}\nlab 7.2\n")
    assert lab.lab.cause not in ddpwizard("explain", "7.2").stdout
    assert "no lab '7.99': the labs of chapter 7 are 7.1 to 7." in refused(ddpwizard("explain", "7.99"), 2)
    assert f"no chapter '40': there are {len(course.chapters)}" in refused(ddpwizard("explain", "40"), 2)
    assert "host-ram-oom" in ddpwizard("explain", "137").stdout, "an exit code is searched for"


def test_a_lab_that_only_measures_is_found_by_its_id():
    lab = next(each for each in read_course(built_in_knowledge()).labs if each.lab.question)
    assert ddpwizard("explain", lab.lab.id).stdout.startswith(f"{lab.lab.title}\nlab {lab.number}\n")


def test_invalid_chapter_of_a_team_is_left_out_with_a_warning(tmp_path: Path):
    (tmp_path / "chapters").mkdir()
    path = tmp_path / "chapters" / "ours.yaml"
    path.write_text("order: 20\n")
    (tmp_path / "terms.yaml").write_text("odd thing: {text: It is odd. It is seldom met., chapter: ours}\n")
    done = ddpwizard("explain", "odd", "thing", "--knowledge", str(tmp_path))
    assert done.returncode == 0 and "It is seldom met." in done.stdout
    assert [f"{path}:1: " in line for line in done.stderr.splitlines()] == [True]
    checked = ddpwizard("kb", "check", str(tmp_path))
    assert checked.returncode == 1 and f"{path}:1: " in checked.stdout


def test_kb_check_reports_labs_of_a_chapter_that_are_no_causes(tmp_path: Path):
    (tmp_path / "chapters").mkdir()
    path = tmp_path / "chapters" / "ours.yaml"
    path.write_text("order: 20\ntitle: Ours\nsummary: Ours.\npages: [Ours.]\nlabs:\n  - port-in-use\n  - no-such\n")
    checked = ddpwizard("kb", "check", str(tmp_path))
    assert checked.returncode == 1 and f"{path}:7: no cause or lab 'no-such'" in checked.stdout


@pytest.mark.parametrize(
    ("typed", "text", "found"),
    [
        ("shard", "a sharded model", True),
        ("lable", "it is available", False),
        ("reduce", "all_reduce", True),
        ("7", "CUDA 7.0 or 7", True),
        ("7", "700 W", False),
        ("exit 137", "exit code 137", True),
        ("", "anything", False),
    ],
)
def test_a_word_begins_a_word_and_a_number_is_whole(typed: str, text: str, found: bool):
    assert WordSearch(typed).has_words([text]) is found
