"""Labs of a team: drafted from a log or a session, checked, and left out with one line if they are not valid."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from ddpwizard.app.diagnosis.case import Case
from ddpwizard.app.diagnosis.draft_entry import error_lines
from ddpwizard.app.evidence import Evidence
from ddpwizard.app.labs.course import read_course
from ddpwizard.app.labs.lab_diagnosis import apply_repair, diagnose_run, repair_of
from ddpwizard.app.labs.lab_run import is_repaired, run_lab, shows_failure
from ddpwizard.app.labs.workspace import make_workspace
from ddpwizard.app.options import Options
from ddpwizard.app.session import Session
from ddpwizard.knowledge.labs import read_lab, read_labs, read_valid_labs
from ddpwizard.knowledge.loader import read_knowledge
from ddpwizard.knowledge.schema import UNFINISHED
from ddpwizard.screens.app import WizardApp
from ddpwizard.screens.shell.state import WizardState
from helpers.built_in_knowledge import built_in_knowledge
from helpers.command import ddpwizard, refused
from helpers.screen_pilot import frame, until, walk

KNOWLEDGE = built_in_knowledge()
LOG = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/user/train.py", line 31, in main
[rank1]: SeatError: no seat left on license server lic01:27000 (2 of 2)
"""
FAULT = """\
            if rank == 1 and steps == 3:
                raise type("SeatError", (RuntimeError,), {})("no seat left on license server lic01:27000 (2 of 2)")
"""


@pytest.fixture
def team(tmp_path: Path) -> Path:
    """A directory with a drafted entry and its lab."""
    log = tmp_path / "train.log"
    log.write_text(LOG)
    into = tmp_path / "team"
    done = ddpwizard("kb", "new", "license-seats", "--lab", "--log", str(log), "--into", str(into), "--json")
    assert done.returncode == 0, done.stderr
    files = [into / "license-seats.yaml", into / "labs/license-seats/lab.yaml", into / "labs/license-seats/train.py"]
    assert [row["path"] for row in json.loads(done.stdout)["files"]] == list(map(str, files))
    return into


def complete(team: Path) -> None:
    """Complete a drafted entry and lab as their author would."""
    entry, lab = team / "license-seats.yaml", team / "labs" / "license-seats"
    entry.write_text(entry.read_text().replace(UNFINISHED, "All seats are taken,"))
    script = (lab / "train.py").read_text()
    line = next(line for line in script.splitlines(keepends=True) if UNFINISHED in line)
    (lab / "train.py").write_text(script.replace(line, FAULT))
    text = (lab / "lab.yaml").read_text().replace(f'"{UNFINISHED} the text with the fault"', "rank == 1 and steps == 3")
    text = text.replace(f'"{UNFINISHED} the text without it"', '"False"')
    (lab / "lab.yaml").write_text(text.replace(UNFINISHED, "Look again,"))


def test_draft_is_left_out_until_it_is_complete(team: Path):
    lab = team / "labs" / "license-seats" / "lab.yaml"
    unfinished = ddpwizard("kb", "check", str(team))
    assert unfinished.returncode == 1
    assert f"{lab}:2: still to be written: title, story, hints, edits, train.py" in unfinished.stdout
    complete(team)
    checked = ddpwizard("kb", "check", str(team))
    assert checked.returncode == 0, checked.stdout
    listed = ddpwizard("learn", "--list", "--knowledge", str(team))
    assert "Look again, what one sees of it" in listed.stdout and not listed.stderr


@pytest.mark.labs
def test_completed_draft_fails_is_diagnosed_and_is_repaired(team: Path, tmp_path: Path):
    complete(team)
    knowledge, directory = read_knowledge(team), tmp_path / "copy"
    lab = read_labs(team)["license-seats"]
    make_workspace(lab, directory)
    failed = asyncio.run(run_lab(lab, directory, sys.executable))
    assert shows_failure(lab, failed), failed.output
    found = diagnose_run(lab, failed, directory, knowledge)
    assert found.diagnosis.causes[0].id == "license-seats"
    repair = repair_of(lab, found, directory, knowledge)
    apply_repair(repair, directory)
    assert is_repaired(lab, asyncio.run(run_lab(lab, directory, sys.executable, launch=repair.launch)))


def test_lab_of_a_known_cause_from_a_session_has_its_script_and_no_entry(tmp_path: Path):
    script = tmp_path / "main.py"
    script.write_text("print('a script of ours')\n")
    session = Session.new(argv=[])
    case = Case(KNOWLEDGE, session)
    session.append("text", origin="<stdin>", words="rank 1 waits for ever", errors=error_lines(LOG, "x"))
    case.add([Evidence("review.DW401", "review", "a collective under a condition", where=f"{script}:1")])
    case.answer("symptom", "hangs")
    into = tmp_path / "team"
    done = ddpwizard("kb", "new", "python-lock", "--lab", "--into", str(into))
    assert done.returncode == 0, done.stderr
    lab = into / "labs" / "python-lock"
    assert sorted(path for path in into.rglob("*") if path.is_file()) == [lab / "lab.yaml", lab / "train.py"]
    assert (lab / "train.py").read_text() == script.read_text()
    text = (lab / "lab.yaml").read_text()
    assert "failure: hang" in text and "rank 1 waits for ever" in text and "shows:" not in text
    assert f"fix: {KNOWLEDGE.causes['python-lock'].fixes[0].id}" in text
    again = ddpwizard("kb", "new", "python-lock", "--lab", "--into", str(into))
    assert "lab.yaml already exists" in refused(again, 2)


GOOD = (read_labs()["missing-sampler"].directory / "lab.yaml").read_text()
BROKEN = {  # the key whose line is reported, and a part of the reason
    "no YAML": ("title: ]\n", "title", "did not find"),
    "an unknown key": (GOOD + "colour: red\n", "colour", "colour"),
    "a fix of another cause": (GOOD.replace("give-each-rank-its-part", "restart"), "fix", "neither a fix"),
    "an unknown guess": (GOOD.replace("data-bound", "data-bond"), "guesses", "no cause 'data-bond'"),
    "an unknown answer": (GOOD.replace("same-on-ranks", "twice"), "answers", "no answer 'twice'"),
    "a pattern that is none": (GOOD.replace("used 1 to 1", "used ("), "repaired", "invalid regular expression"),
    "a slow pattern": (GOOD.replace("used 1 to 1", "(a+)+"), "repaired", "repeat"),
    "a file that is missing": (GOOD + "edits: [{file: x.py, old: a, new: b}]\n", "edits", "no file 'x.py'"),
    "no command line": (GOOD.replace("torchrun", "env A='1 torchrun"), "launch", "no command line"),
}


def test_invalid_labs_are_left_out_with_one_line_each(tmp_path: Path):
    roots = {what: tmp_path / str(number) for number, what in enumerate(BROKEN)}
    for what, root in roots.items():
        (root / "labs" / "missing-sampler").mkdir(parents=True)
        (root / "labs" / "missing-sampler" / "train.py").write_text("print(1)\n")
        (root / "labs" / "missing-sampler" / "lab.yaml").write_text(BROKEN[what][0])
    course = read_course(KNOWLEDGE, [*roots.values()])
    assert len(course.left_out) == len(BROKEN)
    for what, (text, key, problem) in BROKEN.items():
        number = next(number for number, row in enumerate(text.splitlines(), 1) if row.startswith(f"{key}:"))
        file = roots[what] / "labs" / "missing-sampler" / "lab.yaml"
        (left_out,) = [line for line in course.left_out if f"{file}:" in line]
        assert f"{file}:{number}: " in left_out and problem in left_out, (what, left_out)
    assert any(each.lab.directory == read_labs()["missing-sampler"].directory for each in course.labs)


def test_learn_and_check_report_an_invalid_lab_and_an_invalid_chapter(tmp_path: Path):
    (tmp_path / "labs" / "no-such-cause").mkdir(parents=True)
    (tmp_path / "labs" / "no-such-cause" / "lab.yaml").write_text(GOOD)
    (tmp_path / "labs" / "no-such-cause" / "train.py").write_text("print(1)\n")
    (tmp_path / "chapters").mkdir()
    (tmp_path / "chapters" / "ours.yaml").write_text("order: 1\n")
    listed = ddpwizard("learn", "--list", "--knowledge", str(tmp_path))
    assert listed.returncode == 0 and "What a rank is" in listed.stdout
    warnings = listed.stderr.splitlines()
    assert len(warnings) == 2 and all("it is left out → ddpwizard kb check" in line for line in warnings)
    assert "no cause 'no-such-cause'" in warnings[1]
    plain = ddpwizard("learn", "--plain", "--knowledge", str(tmp_path), stdin="q\n")
    assert plain.returncode == 0 and "no cause 'no-such-cause'" in plain.stdout, plain.stderr
    checked = ddpwizard("kb", "check", str(tmp_path))
    assert checked.returncode == 1 and "no cause 'no-such-cause'" in checked.stdout and "ours.yaml" in checked.stdout


@walk
async def test_screen_of_the_course_shows_why_a_lab_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "labs" / "no-such-cause").mkdir(parents=True)
    (tmp_path / "labs" / "no-such-cause" / "lab.yaml").write_text(GOOD)
    (tmp_path / "labs" / "no-such-cause" / "train.py").write_text("print(1)\n")
    app = WizardApp(WizardState(Options(knowledge=(tmp_path,))), "learn")
    async with app.run_test(size=(200, 40)) as pilot:
        await until(pilot, lambda: "What a rank is" in frame(pilot))
        await until(pilot, lambda: "no cause 'no-such-cause'" in frame(pilot))


def test_built_in_labs_are_valid():
    labs, problems = read_valid_labs(KNOWLEDGE)
    assert not problems
    assert all(read_lab(lab.directory / "lab.yaml") == lab for lab in labs.values())
