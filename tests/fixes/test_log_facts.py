"""The first error of a log that fixes name: that of the rank that failed first, not of those that lost it."""

import pytest
from ddpwizard.app.fixes.log_facts import first_error
from ddpwizard.app.logs.analyse import analyse_logs
from ddpwizard.app.logs.read import source_of_text
from helpers.built_in_knowledge import built_in_knowledge

KNOWLEDGE = built_in_knowledge()
LOST = """\
[default0]:[rank0]: Traceback (most recent call last):
[default0]:[rank0]:   File "/home/user/train.py", line 35, in main
[default0]:[rank0]:     loss.backward()
[default0]:[rank0]: RuntimeError: [../gloo/transport/tcp/pair.cc:537] Connection closed by peer [127.0.0.1]:431
"""
RAISED = """\
[default1]:[rank1]: Traceback (most recent call last):
[default1]:[rank1]:   File "/home/user/train.py", line 33, in main
[default1]:[rank1]:     number, rest = text.split()
[default1]:[rank1]: ValueError: not enough values to unpack (expected 2, got 1)
"""
SUMMARY = """\
============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-03_10:00:00
  host      : node1
  rank      : 1 (local_rank: 1)
  exitcode  : {exitcode}
  error_file: <N/A>
  traceback : {traceback}
============================================================
"""
KILLED = SUMMARY.format(exitcode="-11 (pid: 12)", traceback="Signal 11 (SIGSEGV) received by PID 12")
ENDED = SUMMARY.format(exitcode="1 (pid: 12)", traceback="To enable traceback see: https://pytorch.org/docs/")


@pytest.mark.parametrize(
    ("log", "rank", "location"),
    [(LOST + KILLED, None, ""), (LOST + RAISED + ENDED, 1, "train.py:33"), (LOST, 0, "train.py:35")],
    ids=["a signal ended the culprit", "the culprit raised", "no culprit is known"],
)
def test_first_error_is_none_of_a_rank_that_lost_the_culprit(log: str, rank: int | None, location: str) -> None:
    track, event = first_error(analyse_logs([source_of_text(log, "output")], KNOWLEDGE).timeline)
    assert (track.rank if track else None) == rank
    assert location in (event.values.get("location", "") if event else "")
