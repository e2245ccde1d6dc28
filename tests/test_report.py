"""The report is complete, runs no code, has no secrets, and can be made public."""

import re
from html.parser import HTMLParser

import msgspec
import pytest
from ddpwizard.app.diagnosis.case import Case
from ddpwizard.app.evidence import Evidence
from ddpwizard.app.report import report_as_html, report_as_markdown
from ddpwizard.app.session import Session, SessionEvent
from ddpwizard.app.snapshot import Interface, LimitsSection, NetworkSection, Snapshot
from helpers.built_in_knowledge import built_in_knowledge

HOSTILE = "<script>alert(1)</script> `code` | *bold* \x1b[31m [link](javascript:x) ```"
SECRET = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWx"
WHERE = "/home/alice/fusion/train.py:88"
SOURCE = "  86  if rank == 0:\n> 88  dist.all_reduce(acc)"
DIFF = """--- a/train.py
+++ b/train.py
@@ -86,3 +86,3 @@
-    if rank == 0:
-        dist.all_reduce(acc)
+    dist.all_reduce(acc)
"""


@pytest.fixture
def session() -> Session:
    """Return the session of a hung job from symptom to proof; its first line is like that of an old session."""
    session = Session.new(argv=["--demo"], version="0.1", cwd="/home/alice/fusion")
    case = Case(built_in_knowledge(), session)
    case.answer("symptom", "hangs")
    case.answer("same-place", "differs")
    case.answer("same-place", "same-step")
    limits = LimitsSection(
        shm_total_bytes=64 << 20,
        shm_free_bytes=64 << 20,
        memlock_bytes=None,
        open_files=1024,
        cgroup_memory_limit_bytes=None,
        cgroup_memory_used_bytes=None,
        cgroup_oom_kills=None,
        memory_total_bytes=512 << 30,
        memory_available_bytes=500 << 30,
        cpus=64,
    )
    face = Interface(name="ens3", up=True, speed_mbps=100_000, mtu=9000, addresses=["10.3.2.7"], kind="physical")
    network = NetworkSection(
        hostname="node-07", hostname_addresses=["10.3.2.7"], interfaces=[face], nccl_would_use=["ens3"]
    )
    snapshot = Snapshot(taken_at=1.7e9, host="node-07", ddpwizard_version="0.1", limits=limits, network=network)
    session.append("snapshot", **msgspec.to_builtins(snapshot))
    culprit = Evidence("job.culprit-line-under-rank-test", "job", "rank 0 is under a rank test", where=WHERE, rank=0)
    rank = {"local_rank": 0, "host": "node-07", "state": "waiting", "since_s": 3.0, "since_from": "samples"}
    ranks = [{"rank": 0, "where": WHERE, "function": "validate", "collective": "all_reduce", **rank}]
    other = {"where": "/home/alice/fusion/train.py:103", "function": "main", "collective": "barrier"}
    ranks += [{"rank": number, **other, **rank} for number in (1, 2, 3)]
    verdict = {"state": "hung", "cause": "rank-conditional-collective", "culprits": [0], "collective": "all_reduce"}
    verdict |= {"where": WHERE, "branch": "/home/alice/fusion/train.py:86", "confidence": 0.97}
    verdict |= {"why": "Rank 0 waits in all_reduce at train.py:88; ranks 1–3 wait in barrier at train.py:103"}
    job = {"id": "torchrun-1", "launcher": "torchrun", "world_size": 4, "nodes": ["node-07"], "ranks": ranks}
    case.take_triage(jobs=[job | {"verdict": verdict}], source=[SOURCE])
    case.add([culprit, Evidence("job.ranks-in-different-collectives", "job", HOSTILE, where="train.log:2", pid=31)])
    fix = {"id": "hoist-collective", "cause": "rank-conditional-collective", "title": "run it on every rank"}
    session.append("fix", **fix, action="applied", paths=["/home/alice/fusion/train.py"], diff=DIFF)
    proof = {"what": "every rank got past train.py:88", "detail": "4 ranks in 6.1 s", "before": "hung"}
    session.append("proof", passed=True, outcome="proved", **proof, after="every rank got past", diff=DIFF)
    session.events.insert(0, SessionEvent(1.7e9, "note", {"text": f"HF_TOKEN={SECRET} torchrun train.py on node-07"}))
    return session


class Page(HTMLParser):
    """The tags and texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_both_formats_are_complete(session: Session) -> None:
    html_text = " ".join(Page(report_as_html(session)).words)
    for text in (report_as_markdown(session).replace("\\", ""), html_text):
        for part in (
            "Yes, at the same step",
            "/dev/shm 64 MiB",
            "ens3 100 Gb/s mtu 9000",
            "ranks 1–3 wait in barrier",
            "97%",
            "job.culprit-line-under-rank-test",
            WHERE,
            "/home/alice/fusion/train.py:86",
            "A collective that only some ranks reach",
            "> 88  dist.all_reduce(acc)",
            "-        dist.all_reduce(acc)",
            "applied: run it on every rank",
            "every rank got past train.py:88.",
            "4 ranks in 6.1 s",
        ):
            assert part in text or part.replace(">", "&gt;") in text, part
        assert "No, at different steps" not in text, "an answer that was taken back"


def test_ranks_at_the_same_place_share_a_row(session: Session) -> None:
    rows = [line for line in report_as_markdown(session).splitlines() if line.startswith("| ") and "waiting" in line]
    assert [row.split(" | ")[0] for row in rows] == ["| 0", "| 1–3"]


def test_report_starts_with_the_answer(session: Session) -> None:
    lines = [line for line in report_as_markdown(session).splitlines() if line]
    assert lines[1].startswith("Rank 0 waits in all_reduce")
    assert lines[2].startswith("Most likely: A collective that only some ranks reach")
    assert lines[3].startswith("Proved: ")


@pytest.mark.parametrize(("passed", "shown"), [(True, "– not shown here"), (False, "✗ still there")])
def test_a_proof_of_an_old_session_without_the_state_before_is_not_called_proved(passed: bool, shown: str) -> None:
    old = Session.new(argv=[], version="0.1", cwd="/")
    old.append("proof", passed=passed, what="inspected the GPUs again: it is gone", detail="")
    page = report_as_markdown(old)
    assert shown in page
    assert "proved:" not in page.lower()


def test_the_report_has_the_diff_of_a_fix_that_was_proved_and_not_applied() -> None:
    session = Session.new(argv=[], version="0.1", cwd="/")
    session.append("proof", passed=True, outcome="proved", what="it ended", detail="", before="hung", diff=DIFF)
    page = report_as_markdown(session)
    assert "✓ proved: it ended" in page and "Before: hung." in page
    assert "```diff" in page and DIFF.splitlines()[-1] in page


def test_html_report_loads_and_runs_nothing(session: Session) -> None:
    page = report_as_html(session)
    parsed = Page(page)
    assert parsed.open == []
    assert not {"script", "link", "img", "iframe", "a"} & set(parsed.tags)
    assert "url(" not in page and "@import" not in page and "\x1b" not in page
    assert HOSTILE.replace("\x1b[31m", "") in "".join(parsed.words)
    assert "prefers-color-scheme: dark" in page


def test_hostile_text_is_escaped_in_markdown(session: Session) -> None:
    line = next(
        line for line in report_as_markdown(session).splitlines() if "alert(1)" in line and line.startswith("| job")
    )
    assert "<script" not in line
    assert len(re.findall(r"(?<!\\)\|", line)) == 5, "a bar in a text begins no column"
    assert not re.search(r"(?<!\\)[`*\[]", line)


def test_code_with_fences_stays_code(session: Session) -> None:
    session.append("note", text="```\n# not a heading\n```")
    fence = re.search(r"^(`{4,})text\n```\n# not a heading\n```\n\1$", report_as_markdown(session), re.MULTILINE)
    assert fence


@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize("form", [report_as_markdown, report_as_html])
def test_report_has_no_secrets(session: Session, form, public: bool) -> None:
    assert SECRET not in form(session, public=public)


@pytest.mark.parametrize("form", [report_as_markdown, report_as_html])
def test_public_report_has_no_private_names_and_is_complete(session: Session, form) -> None:
    page = form(session, public=True)
    for name in ("alice", "fusion", "node-07", "10.3.2.7", "train.py", "train.log"):
        assert name not in page, name
    private = form(session)
    assert page.count("A collective that only some ranks reach") == private.count("A collective that only some ranks")
    assert page.count("97%") == private.count("97%")
    file = re.search(r"/home/user-1/dir-\d+/(file-\d+\.py):88", page)
    assert file and f"{file[1]}:103" in page and f"a/{file[1]}" in page, "the same name, the same alias"


def test_building_a_report_writes_nothing(session: Session) -> None:
    before = session.path.read_bytes()
    report_as_markdown(session)
    report_as_html(session, public=True)
    assert session.path.read_bytes() == before


def test_empty_session_has_a_report() -> None:
    text = report_as_markdown(Session.new(argv=[]))
    assert "do not point at one cause" in text
    assert "## The job" not in text
