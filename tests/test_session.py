"""A session is its file: every step is written at once, an incomplete line costs only itself, secrets are removed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.diagnosis.case import Case
from ddpwizard.app.errors import UserError
from ddpwizard.app.evidence import Evidence
from ddpwizard.app.report import report_as_markdown
from ddpwizard.app.session import Session, all_sessions
from ddpwizard.app.snapshot import EnvSection, Snapshot, snapshot_from_plain
from helpers.built_in_knowledge import built_in_knowledge


def test_each_event_is_on_disk_before_the_call_returns():
    session = Session.new(argv=["ddpwizard"])
    session.append("answer", question="symptom", answer="hangs")
    lines = [json.loads(line) for line in session.path.read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["opened", "answer"]
    assert oct(session.path.stat().st_mode & 0o777) == "0o600"


def test_killed_process_loses_no_event(state: Path):
    code = (
        "import os, signal\n"
        "from ddpwizard.app.session import Session\n"
        "s = Session.new(argv=[]); s.append('answer', question='symptom', answer='hangs')\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code], check=False, timeout=180)
    assert Session.load("last").events[-1].data["answer"] == "hangs"


def test_incomplete_last_line_is_dropped_and_writing_continues():
    session = Session.new(argv=[])
    with session.path.open("a") as file:
        file.write('{"at": 1, "kind": "ans')
    again = Session.load(session.id)
    again.append("note", text="after the tear")
    assert [event.kind for event in Session.load(session.id).events] == ["opened", "note"]


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense",
        b'{"at": 1, "kind": "truth", "data": {"cause": "x"}}',
        b'{"at": 1, "kind": "evidence", "data": {}}',
        b'{"at": 1e300, "kind": "note", "data": {}}',
        b'{"at": 1, "kind": "fix", "data": {}}',
        b'{"at": 1, "kind": "snapshot", "data": {"host": 7}}',
        b'{"at": 1, "kind": "triage", "data": {"jobs": "x"}}',
        b'{"at": 1, "kind": "diagnosis", "data": {"causes": [7]}}',
        b'{"at": 1, "kind": "note", "data": {"text": "\xff"}}',
        b'{"at": 1, "kind": "note", "data": {"text": ' + b"[" * 5000 + b"]" * 5000 + b"}}",
    ],
    ids=[
        "no JSON",
        "a key is missing",
        "no evidence",
        "no time",
        "no fix",
        "no snapshot",
        "no job",
        "no cause",
        "not UTF-8",
        "deep",
    ],
)
def test_damaged_line_is_left_out_and_reported(line: bytes):
    session = Session.new(argv=[])
    with session.path.open("ab") as file:
        file.write(line + b"\n")
    session.append("note", text="more")
    again = Session.load(session.id)
    assert [event.kind for event in again.events] == ["opened", "note"]
    assert again.damage == f"session {session.id}: 1 damaged line left out (line 2)"
    assert [each.id for each in all_sessions()] == [session.id]


def test_files_that_are_no_sessions_are_left_out(tmp_path: Path):
    session = Session.new(argv=[])
    directory = session.path.parent
    (directory / "z-empty.jsonl").touch()
    (directory / "z-directory.jsonl").mkdir()
    os.mkfifo(directory / "z-pipe.jsonl")
    (directory / "z-deep.jsonl").write_text("[" * 100_000)
    assert [each.id for each in all_sessions()] == [session.id]
    assert Session.load("last").id == session.id
    with pytest.raises(UserError, match="not a regular file"):
        Session.load("z-pipe")


def test_full_disk_loses_the_event_and_nothing_else():
    """The size of files is limited to what a file system of 8 kB leaves: a write is cut off as on a full disk."""
    session = Session.new(argv=[])
    code = (
        "import resource, sys\n"
        "from ddpwizard.app.errors import UserError\n"
        "from ddpwizard.app.session import Session\n"
        "session = Session.load(sys.argv[1])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))\n"
        "try:\n"
        "    session.append('note', text='x' * 5000)\n"
        "except UserError as error:\n"
        "    print(error)\n"
        "assert len(session.events) == 1\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
        "session.append('note', text='there is space again')\n"
    )
    done = subprocess.run([sys.executable, "-c", code, session.id], capture_output=True, text=True, check=True)
    assert "cannot write the session file" in done.stdout
    again = Session.load(session.id)
    assert [event.data.get("text") for event in again.events] == [None, "there is space again"]
    assert again.damage == ""


def test_session_that_cannot_be_begun_leaves_no_file(state: Path):
    code = (
        "import resource\n"
        "from ddpwizard.app.errors import UserError\n"
        "from ddpwizard.app.session import Session\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (8, 8))\n"
        "try:\n"
        "    Session.new(argv=[])\n"
        "except UserError:\n"
        "    pass\n"
    )
    subprocess.run([sys.executable, "-B", "-c", code], check=True)
    assert list((state / "sessions").iterdir()) == []


def test_secrets_do_not_reach_the_file():
    session = Session.new(argv=["ddpwizard"], environ={"HF_TOKEN": "abcdefgh", "RANK": "0"})
    session.append("note", text="run --api-key=s3cr3tvalue against https://me:pw@host/x with hf_" + "a" * 30)
    text = session.path.read_text()
    for secret in ("abcdefgh", "s3cr3tvalue", "me:pw", "hf_aaaa"):
        assert secret not in text
    assert '"RANK":"0"' in text


def test_session_id_may_be_abbreviated_but_not_ambiguous():
    first, second = Session.new(argv=[]), Session.new(argv=[])
    assert Session.load(first.id).id == first.id
    with pytest.raises(UserError, match="no session"):
        Session.load("nothing")
    with pytest.raises(UserError, match="2 sessions"):
        Session.load(first.id[:2])
    assert {s.id for s in all_sessions()} == {first.id, second.id}


def test_last_session_of_one_second_is_the_newest():
    ids = [Session.new(argv=[]).id for _ in range(9)]
    assert [session.id for session in all_sessions()] == ids[::-1]
    assert Session.load("last").id == ids[-1]


def test_unwritable_state_directory_is_one_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    with pytest.raises(UserError, match="cannot write the session file"):
        Session.new(argv=[])


def test_resumed_case_equals_the_original():
    knowledge = built_in_knowledge()
    case = Case(knowledge, Session.new(argv=[]))
    case.answer("symptom", "hangs")
    case.answer("how-many-nodes", "one")
    case.take_back_answer("how-many-nodes")
    case.add([Evidence("limits.shm-small", "probe", "/dev/shm is 64 MB")])
    case.mark_probed("limits")
    assert case.session
    again = Case(knowledge, Session.load(case.session.id))
    assert again.diagnosis() == case.diagnosis()
    assert again.answers == {"symptom": "hangs"}
    assert again.probed == {"limits"}


def test_later_answer_replaces_the_earlier_one():
    case = Case(built_in_knowledge())
    case.answer("symptom", "hangs")
    case.answer("symptom", "crashes")
    assert [item.id for item in case.evidence] == ["answer:symptom=crashes"]


def test_a_snapshot_with_ranks_is_read_back_from_the_file():
    env = EnvSection(owner="pid 7", variables={}, ranks={7: {"RANK": "0"}})
    snapshot = Snapshot(taken_at=1.0, host="node-07", ddpwizard_version="0.1.0", env=env)
    session = Session.new(argv=[])
    session.append("snapshot", **msgspec.to_builtins(snapshot, str_keys=True))
    again = Session.load(session.id)
    assert snapshot_from_plain(again.events[-1].data) == snapshot
    assert "node-07" in report_as_markdown(again)
