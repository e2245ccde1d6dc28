"""A session is its file: every step is written at once, an incomplete line costs only itself, secrets are removed."""

import json
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


def test_invalid_line_is_reported():
    session = Session.new(argv=[])
    with session.path.open("a") as file:
        file.write("nonsense\n")
    session.append("note", text="more")
    with pytest.raises(UserError, match=":2:"):
        Session.load(session.id)


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
