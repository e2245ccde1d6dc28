"""From a session or a log to an entry: the lines are generalised, and what comes out passes the check as it is."""

import json
import re
from pathlib import Path

import pytest
from ddpwizard.app.diagnosis.case import Case
from ddpwizard.app.diagnosis.draft_entry import error_lines, signature_of_line
from ddpwizard.app.session import Session
from ddpwizard.knowledge.loader import read_knowledge
from ddpwizard.knowledge.schema import UNFINISHED
from helpers.built_in_knowledge import built_in_knowledge
from helpers.command import ddpwizard, refused

LOG = """\
step 1
[rank3]: Traceback (most recent call last):
[rank3]:   File "/home/user/train.py", line 12, in <module>
[rank3]: StorageStallError: mount /data/shards/17 gave no answer in 30 s (try 2 of 5)
2026-01-01 10:00:01,123 ERROR lease 0x7f00a1 lost by worker 12
2026-01-01 10:00:02,001 ERROR lease 0x7f00ff lost by worker 13
done
"""


def finish(entry: Path) -> None:
    """Complete a draft as a user would."""
    entry.write_text(entry.read_text().replace(UNFINISHED, "Here is"))


@pytest.mark.parametrize(
    ("line", "again", "other"),
    [
        ("[rank3]: lease 0x7f00a1 lost by worker 12", "lease 0xdead lost by worker 7", "lease lost by worker"),
        ("IOError: cannot open /data/a/b.bin at 12.5 s", "IOError: cannot open /x/y at 3 s", "IOError: cannot open"),
        ("no seat on lic01:27000 (8 of 8)", "no seat on flex.example-3.org:2700 (2 of 2)", "no seat on : (8 of 8)"),
    ],
)
def test_numbers_addresses_hosts_and_paths_may_differ(line: str, again: str, other: str):
    pattern, literal = signature_of_line(line)
    assert re.search(pattern, line) and re.search(pattern, again)
    assert not re.search(pattern, other)
    assert literal in line and literal in again


def test_each_kind_of_error_line_comes_once_with_its_place():
    assert [where for where, _ in error_lines(LOG, "/x.log")] == ["/x.log:4", "/x.log:5"]


def test_an_entry_from_a_log_passes_the_check_and_is_found_again(tmp_path: Path):
    log, into = tmp_path / "train.log", tmp_path / "team"
    log.write_text(LOG)
    done = ddpwizard("kb", "new", "storage-stall", "--log", str(log), "--into", str(into), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["path"] == str(into / "storage-stall.yaml")
    unfinished = ddpwizard("kb", "check", str(into))
    assert unfinished.returncode == 1 and "still to be written" in unfinished.stdout
    finish(into / "storage-stall.yaml")
    assert ddpwizard("kb", "check", str(into)).returncode == 0
    entry = into / "storage-stall.yaml"
    assert read_knowledge(into).causes["storage-stall"].examples[0].startswith("[rank3]: StorageStallError")
    whole = entry.read_text()
    entry.write_text(whole.replace("  - |-", "  - RuntimeError 98 Address already in use\n  - |-"))
    misled = ddpwizard("kb", "check", str(into))
    assert misled.returncode == 1 and f"{entry}:" in misled.stdout
    assert "example 1 does not lead to storage-stall" in misled.stdout
    entry.write_text(whole)
    other = tmp_path / "other.log"
    other.write_text(LOG.replace("/data/shards/17", "/mnt/x/9").replace("30 s", "31 s"))
    found = ddpwizard("diagnose", str(other), "--knowledge", str(into), "--json")
    assert json.loads(found.stdout)["causes"][0]["id"] == "storage-stall"


def test_an_entry_from_a_session_keeps_what_was_rejected(tmp_path: Path):
    session = Session.new(argv=[])
    case = Case(built_in_knowledge(), session)
    session.append("text", origin="<stdin>", words="the storage stalls every night", errors=error_lines(LOG, "x"))
    case.answer("same-place", "differs")
    case.settle("port-in-use", was=False)
    done = ddpwizard("kb", "new", "storage-stall", "--into", str(tmp_path))
    assert done.returncode == 0, done.stderr
    finish(tmp_path / "storage-stall.yaml")
    entry = read_knowledge(tmp_path).causes["storage-stall"]
    assert entry.title == "The storage stalls every night"
    assert entry.questions == {"same-place": {"differs": "moderate"}}
    assert list(entry.tells_apart) == ["port-in-use"]
    assert "StorageStallError" in entry.signatures[0].pattern


@pytest.mark.parametrize(("id_", "problem"), [("Bad Id", "bad id"), ("port-in-use", "already")])
def test_a_name_that_cannot_be_is_refused(id_: str, problem: str, tmp_path: Path):
    done = ddpwizard("kb", "new", id_, "--into", str(tmp_path))
    assert done.returncode == 2 and problem in done.stderr


def test_nothing_is_written_over(tmp_path: Path):
    log = tmp_path / "train.log"
    log.write_text(LOG)
    command = ["kb", "new", "storage-stall", "--log", str(log), "--into", str(tmp_path / "team")]
    assert ddpwizard(*command).returncode == 0
    assert ddpwizard(*command).returncode == 2


def test_a_log_without_an_unknown_error_says_so(tmp_path: Path):
    log = tmp_path / "train.log"
    log.write_text("step 1\nstep 2\n")
    done = ddpwizard("kb", "new", "odd-one", "--log", str(log), "--into", str(tmp_path))
    assert done.returncode == 0 and "There is no error line. Add a signature or clues by hand" in done.stderr
    assert f"Drafted from {log}." in done.stderr


@pytest.mark.parametrize("with_lab", [(), ("--lab",)])
def test_the_newest_session_needs_something_to_draft_from(with_lab: tuple[str, ...], tmp_path: Path):
    session = Session.new(argv=[])
    session.append("text", origin="<stdin>", words="", errors=[])
    done = ddpwizard("kb", "new", "nosuch", *with_lab, "--into", str(tmp_path))
    assert session.id in refused(done, 2) and not [*tmp_path.glob("*.yaml"), *tmp_path.glob("labs/*")]
