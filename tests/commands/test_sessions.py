"""``sessions``: list, resume, export; a missing session is one line."""

import json
from pathlib import Path

import pytest
from ddpwizard.app.session import Session
from helpers.command import ddpwizard, refused


def a_session(answer: str = "hangs") -> Session:
    session = Session.new(argv=["--plain"], version="0.1", cwd="/home/alice/fusion")
    session.append("answer", question="symptom", answer=answer)
    return session


def test_no_sessions_is_no_error():
    done = ddpwizard("sessions", "list")
    assert (done.returncode, done.stdout) == (0, "")
    assert "no sessions yet" in done.stderr
    assert json.loads(ddpwizard("sessions", "list", "--json").stdout)["sessions"] == []


def test_list_is_sorted_newest_first():
    ids = [a_session().id, a_session("crashes").id][::-1]
    for arguments in (["sessions"], ["sessions", "list"]):
        assert [line.split()[0] for line in ddpwizard(*arguments).stdout.splitlines()] == ids
    document = json.loads(ddpwizard("sessions", "list", "--json").stdout)
    assert document["schema"] == "ddpwizard.sessions/1"
    assert [row["id"] for row in document["sessions"]] == ids
    assert all(row["open"] and row["steps"] == 2 for row in document["sessions"])


@pytest.mark.parametrize("outcome", ["proved", "not shown here", "still there"])
def test_list_shows_the_outcome_of_the_last_proof(outcome: str):
    session = a_session()
    session.append("proof", passed=outcome == "proved", outcome=outcome, what="", detail="")
    assert ddpwizard("sessions", "list").stdout.rstrip().endswith(f"My job hangs, {outcome}")
    row = json.loads(ddpwizard("sessions", "list", "--json").stdout)["sessions"][0]
    assert (row["outcome"], row["about"]) == (outcome, f"My job hangs, {outcome}")


def test_list_names_the_script(tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text("import torch\n")
    verdict = {"state": "hung", "where": f"{script}:1", "why": "", "findings": []}
    a_session().append("triage", jobs=[{"id": "1", "verdict": verdict}])
    assert ddpwizard("sessions", "list").stdout.rstrip().endswith("My job hangs, train.py")


def test_list_skips_a_damaged_session(state: Path):
    session = a_session()
    (state / "sessions" / "20200101-000000-dead.jsonl").write_text("{not json}\n{}\n")
    done = ddpwizard("sessions", "list")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == [session.id]
    assert "has no session event" in refused(ddpwizard("sessions", "export", "2020"), 2)


@pytest.mark.parametrize("action", ["resume", "export"])
def test_unknown_cause_id_is_a_usage_error(action: str):
    a_session()
    assert "no session 'nope'" in refused(ddpwizard("sessions", action, "nope"), 2)
    assert "no session '../x'" in refused(ddpwizard("sessions", action, "../x"), 2)


def test_ambiguous_id_is_rejected():
    a_session()
    a_session()
    assert "2 sessions begin with '20'" in refused(ddpwizard("sessions", "export", "20"), 2)


def test_export_goes_to_stdout_or_to_a_file(tmp_path: Path):
    session = a_session()
    done = ddpwizard("sessions", "export", session.id)
    assert done.returncode == 0
    assert done.stdout.startswith("# ddpwizard report")
    assert "/home/alice/fusion" in done.stdout
    page = tmp_path / "report.html"
    done = ddpwizard("sessions", "export", session.id, "--format", "html", "--public", "--output", str(page))
    assert (done.returncode, done.stdout) == (0, "")
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert "alice" not in page.read_text()
    assert list(tmp_path.iterdir()) == [page]


def test_export_without_an_id_takes_the_newest():
    a_session()
    newest = a_session()
    assert f"Session {newest.id}" in ddpwizard("sessions", "export").stdout


def test_export_to_an_unwritable_directory_is_an_error(tmp_path: Path):
    a_session()
    line = refused(ddpwizard("sessions", "export", "--output", str(tmp_path / "no" / "dir.md")), 2)
    assert "cannot be written" in line
    assert list(tmp_path.iterdir()) == []


def test_resume_without_a_terminal_uses_plain_mode():
    session = a_session()
    done = ddpwizard("sessions", "resume", session.id, stdin="", limit_s=120)
    assert done.returncode == 0, done.stderr
    assert session.id in done.stdout + done.stderr


def test_export_overwrites_a_file_with_force_only(tmp_path: Path):
    a_session()
    page = tmp_path / "train.py"
    page.write_text("print(1)\n")
    assert "--force" in refused(ddpwizard("sessions", "export", "--output", str(page)), 2)
    assert page.read_text() == "print(1)\n"
    assert ddpwizard("sessions", "export", "--output", str(page), "--force").returncode == 0
    assert page.read_text().startswith("# ddpwizard report")
