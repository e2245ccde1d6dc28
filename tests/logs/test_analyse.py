"""From texts to evidence and a timeline: who was first, what only followed, and what each finding needs to be shown."""

import gzip
from pathlib import Path

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.logs.analyse import analyse_logs
from ddpwizard.app.logs.read import find_sources, source_of_text
from ddpwizard.app.logs.types import LogAnalysis, Track
from helpers.log_reading_knowledge import KNOWLEDGE

HEADER = "Traceback (most recent call last):"
SUMMARY = """\
Root Cause (first observed failure):
[0]:
  time      : 2026-11-20_10:00:09
  host      : node-1
  rank      : {rank} (local_rank: {rank})
  exitcode  : {code} (pid: 4711)
  error_file: <N/A>
  traceback : {why}
"""
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU {gpu} has a total capacity of "
    "79.15 GiB of which {free} is free. {others}Including non-PyTorch memory, this process has {own} memory in use. "
    "Of the allocated memory {allocated} is allocated by PyTorch, and {unallocated} is reserved by PyTorch but "
    "unallocated."
)


def of(text: str) -> LogAnalysis:
    return analyse_logs([source_of_text(text, "/x.log")], KNOWLEDGE)


def raised(rank: int, message: str, line: int = 3, function: str = "main") -> str:
    text = f'{HEADER}\n  File "/home/me/train.py", line {line}, in {function}\n    step()\n{message}\n'
    return "".join(f"[rank{rank}]: {part}\n" for part in text.splitlines())


def steps(*ranks: int, count: int = 5) -> str:
    return "".join(f"[rank{rank}]: step {n} loss 1\n" for n in range(count) for rank in ranks)


def oom(rank: int, **values: str) -> str:
    given = {"gpu": "3", "free": "1.02 GiB", "others": "", "own": "77.00 GiB", "allocated": "76.00 GiB"}
    return raised(rank, OOM.format(**{**given, "unallocated": "0.50 GiB", **values}))


def found(understood: LogAnalysis) -> dict[str, str]:
    return {e.id.removeprefix("log."): e.where for e in understood.evidence if e.id.startswith("log.")}


def tracks(understood: LogAnalysis, attempt: int = 0) -> list[Track]:
    assert understood.timeline
    return understood.timeline.attempts[attempt].tracks


def culprit(understood: LogAnalysis) -> tuple[int | None, str]:
    assert understood.timeline
    return understood.timeline.culprit, understood.timeline.culprit_where.removeprefix("/x.log:")


class TestWhoWasFirst:
    def test_the_one_with_an_error_of_its_own_though_others_come_before_it_in_the_text(self):
        text = raised(0, "RuntimeError: Connection closed by peer") + raised(1, "ValueError: bad") + "signal SIGTERM\n"
        understood = of(steps(0, 1) + text)
        assert culprit(understood) == (1, "15")
        assert found(understood) == {"one-rank-failed-first": "/x.log:15"}
        assert [e.kind for e in tracks(understood)[0].events] == ["consequence", "consequence"]

    def test_the_first_of_several(self):
        understood = of(steps(0, 1, 2) + raised(2, "ValueError: a") + raised(1, "KeyError: 'b'"))
        assert culprit(understood) == (2, "16")
        assert "one-rank-failed-first" not in found(understood)

    def test_by_time_where_the_text_is_not_in_order(self):
        late = "[rank0]: 2026-11-20 10:00:09 ERROR odd thing 1 of 2\n"
        early = "[rank1]: 2026-11-20 10:00:01 ERROR CUDA out of memory\n"
        assert culprit(of(late + early)) == (1, "2")

    def test_nobody_when_all_fail_alike(self):
        text = "".join(raised(rank, f"ValueError: bad shape {rank}") for rank in range(4))
        understood = of(text + SUMMARY.format(rank=2, code=1, why="x"))
        assert culprit(understood) == (None, "")
        assert found(understood) == {"all-ranks-failed-alike": "/x.log:1"}

    def test_the_launchers_word_where_the_rank_left_none(self):
        understood = of(steps(0, 1) + SUMMARY.format(rank=1, code=-9, why="Signal 9 (SIGKILL) received by PID 4711"))
        assert culprit(understood) == (1, "11")
        assert found(understood) == {"killed-without-error": "/x.log:11"}

    def test_not_the_launchers_word_where_that_rank_only_noticed(self):
        closed = raised(0, "RuntimeError: Connection closed by peer")
        assert culprit(of(steps(0, 1) + closed + SUMMARY.format(rank=0, code=1, why="x"))) == (None, "")

    def test_the_one_that_waits_where_no_other_does(self):
        frame = '  File "/site-packages/torch/distributed/distributed_c10d.py", line 9, in {}\n'
        parts = [(rank, raised(rank, "RuntimeError: Connection closed", 30 if rank == 2 else 40)) for rank in range(4)]
        text = ""
        for rank, part in parts:
            lines = part.splitlines(keepends=True)
            inside = f"[rank{rank}]: " + frame.format("all_reduce" if rank == 2 else "barrier")
            text += "".join([*lines[:3], inside, lines[3]])
        understood = of(text)
        assert culprit(understood) == (2, "11")
        assert set(found(understood)) == {"ranks-disagree-on-collective"}

    def test_one_voice_is_compared_with_nobody(self):
        understood = of(f'{HEADER}\n  File "/a.py", line 1, in f\nValueError: x\n' + "CUDA out of memory\n")
        assert culprit(understood) == (None, "")
        assert found(understood) == {}


class TestCollectives:
    WATCHDOG = (
        "[rank{0}]:[E1120 10:00:00.1 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum={1}, OpType={2}, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for "
        "600012 milliseconds\n"
    )

    def timeouts(self, *told: tuple[int, int, str]) -> str:
        return steps(*(rank for rank, *_ in told)) + "".join(self.WATCHDOG.format(*each) for each in told)

    def test_the_same(self):
        understood = of(self.timeouts((0, 7, "ALLREDUCE"), (1, 7, "ALLREDUCE")))
        assert set(found(understood)) == {"same-collective-timeout", "only-consequences"}

    def test_different_ones(self):
        understood = of(self.timeouts((0, 7, "ALLREDUCE"), (1, 8, "BROADCAST"), (2, 8, "BROADCAST")))
        assert set(found(understood)) == {"ranks-disagree-on-collective"}
        assert culprit(understood)[0] == 0

    def test_one_is_missing(self):
        understood = of(steps(3) + self.timeouts((0, 7, "ALLREDUCE"), (1, 7, "ALLREDUCE"), (2, 7, "ALLREDUCE")))
        assert culprit(understood) == (3, "5")
        assert "same-collective-timeout" not in found(understood)

    def test_groups_of_their_own_are_not_compared(self):
        a, b = (self.WATCHDOG.format(rank, rank + 5, "ALLREDUCE") for rank in (0, 1))
        text = a.replace("[Rank", "[PG ID 1 PG GUID 1 Rank") + b.replace("[Rank", "[PG ID 2 PG GUID 2 Rank")
        assert set(found(of(text))) == {"only-consequences"}


class TestMemory:
    def test_one_rank(self):
        assert set(found(of(steps(0, 1, 2) + oom(1)))) == {"oom-on-one-rank"}

    def test_all_ranks(self):
        assert set(found(of(oom(0) + oom(1)))) == {"oom-on-all-ranks", "all-ranks-failed-alike"}

    def test_the_first_gpu(self):
        crowded = {"gpu": "0", "own": "9.00 GiB", "allocated": "8.00 GiB"}
        assert "oom-on-first-gpu" in found(of(steps(0) + oom(3, **crowded)))
        assert "oom-on-first-gpu" not in found(of(steps(0) + oom(3, gpu="0")))
        assert "oom-on-first-gpu" not in found(of(steps(3) + oom(0, **crowded)))

    def test_fragmented(self):
        assert set(
            found(
                of(OOM.format(gpu=0, free="1 GiB", others="", own="77 GiB", allocated="50 GiB", unallocated="26 GiB"))
            )
        ) == {"oom-fragmented"}

    def test_others_hold_it(self):
        others = "Process 81 has 60.00 GiB memory in use. Process 82 has 2.00 GiB memory in use. "
        text = oom(0, gpu="0", others=others, own="15.00 GiB", allocated="14 GiB")
        assert set(found(of(text))) == {"oom-held-by-others"}

    def test_the_older_wording(self):
        text = (
            "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 1; 15.78 GiB total capacity; 5.00 GiB "
            "already allocated; 1.00 GiB free; 13.90 GiB reserved in total by PyTorch)"
        )
        assert set(found(of(text))) == {"oom-fragmented"}


class TestOtherFindings:
    def test_a_signal(self):
        assert set(found(of(SUMMARY.format(rank=1, code=-11, why="x")))) == {"crashed-by-signal"}
        assert set(found(of("x.sh: line 3:  4711 Segmentation fault      (core dumped) python a.py"))) == {
            "crashed-by-signal"
        }

    @pytest.mark.parametrize(
        "text",
        ["x.sh: line 3:  4711 Killed                  python train.py", "Killed\n", "exits with return code = -9"],
    )
    def test_killed_in_other_words(self, text: str):
        assert set(found(of(text))) == {"killed-without-error"}

    def test_killed_after_an_error_is_no_riddle(self):
        assert found(of("odd thing 1 of 2\nKilled\n")) == {}

    def test_too_few_joined(self):
        text = "Timed out after 601 seconds waiting for clients. 7/8 clients joined."
        assert set(found(of(text))) == {"ranks-never-joined"}
        assert found(of(text.replace("7/8", "8/8"))) == {}

    def test_a_rank_that_falls_silent(self):
        understood = of(steps(0, 1, 2, count=10) + steps(0, 2, count=60))
        assert found(understood) == {"rank-fell-silent": "/x.log:29"}

    def test_ranks_that_never_said_much_are_not_silent(self):
        assert found(of(steps(0, 1, 2, count=1) + steps(0, count=60))) == {}

    def test_versions(self):
        text = "n1:5:5 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\nn2:5:5 [0] NCCL INFO NCCL version 2.{}+cuda12.4\n"
        assert set(found(of(text.format("20.5")))) == {"versions-differ"}
        assert found(of(text.format("21.5"))) == {}

    def test_one_host(self):
        lines = [f"worker-{n}: step {step}" for step in range(6) for n in (1, 2)]
        text = "\n".join([*lines, "worker-2: odd thing 1 of 2", "worker-1: Connection closed by peer"])
        assert set(found(of(text))) == {"one-host-failed", "one-rank-failed-first"}
        assert [track.name for track in tracks(of(text))] == ["worker-1", "worker-2"]


class TestAttempts:
    RESTART = "[default] Worker group FAILED. {}/3 attempts left; will restart worker group\n"

    def test_restarts_part_the_text(self):
        text = steps(0, 1) + raised(1, "ValueError: x") + self.RESTART.format(3) + steps(0, 1, count=3)
        understood = of(text)
        assert understood.timeline and [a.number for a in understood.timeline.attempts] == [0, 1]
        assert set(found(understood)) == {"restarted", "started-over", "one-rank-failed-first"}
        assert [track.last.line for track in tracks(understood)] == [9, 14]
        assert [track.first.line for track in tracks(understood, 1)] == [16, 17]

    def test_two_agents_tell_of_one_restart(self):
        text = steps(0, 1) + self.RESTART.format(3) * 2 + steps(0, 1) + self.RESTART.format(2) + steps(0, 1)
        understood = of(text)
        assert understood.timeline and len(understood.timeline.attempts) == 3

    def test_going_on_is_not_starting_over(self):
        later = "".join(f"[rank0]: step {n}\n" for n in range(4, 9))
        assert set(found(of(steps(0) + self.RESTART.format(3) + later))) == {"restarted"}

    def test_from_the_folders_of_torchrun(self, tmp_path: Path):
        for attempt in (0, 1):
            for rank in (0, 1):
                folder = tmp_path / f"attempt_{attempt}" / str(rank)
                folder.mkdir(parents=True)
                (folder / "stderr.log").write_text("odd thing 1 of 2\n" if rank == 1 else "Connection closed\n")
                (folder / "stdout.log").write_text(f"step {attempt}\n")
        understood = analyse_logs(find_sources([str(tmp_path)]), KNOWLEDGE)
        assert understood.timeline and [len(a.tracks) for a in understood.timeline.attempts] == [2, 2]
        assert understood.timeline.culprit == 1
        (odd,) = [e for e in understood.evidence if e.id == "log:odd/0"]
        assert odd.rank == 1 and odd.where.endswith("attempt_0/1/stderr.log:1")


class TestEvidence:
    def test_one_for_each_id_with_rank_and_line(self):
        understood = of("start\n[rank3]: odd thing at last\n[rank3]: odd thing 3 of 4\n[rank1]: odd thing 1 of 4\n")
        (item,) = [e for e in understood.evidence if e.id == "log:odd/0"]
        assert (item.id, item.where, item.rank, item.what) == ("log:odd/0", "/x.log:3", 3, "[rank3]: odd thing 3 of 4")

    def test_a_pattern_of_several_lines_is_found_among_mixed_ranks(self):
        text = steps(0, 1) + "[rank1]: first half\n[rank0]: step 6\n[rank1]: second half\n"
        assert "log:deep/0" in {item.id for item in of(text).evidence}

    def test_local_ranks_become_global_where_the_log_says_so(self):
        text = "[default1]:[rank9]: step 1\n[default1]:odd thing 1 of 2\n[default0]:[rank8]: step 1\n"
        (item,) = [e for e in of(text).evidence if e.id == "log:odd/0"]
        assert item.rank == 9

    def test_colours_and_progress_bars_are_in_nobodys_way(self):
        text = "[rank1]: \x1b[31modd \x1b[1mthing 1 of 2\x1b[0m\n 10%|#| 1/9\r[rank2]: CUDA out of memory\r 20%|#|\n"
        ranks = {item.id: item.rank for item in of(text).evidence}
        assert ranks["log:odd/0"] == 1
        assert ranks["log:oom/0"] == 2

    def test_short_texts_are_given_as_prose(self):
        assert of("my job hangs\n").prose == [("/x.log", "my job hangs\n")]
        assert of("my job hangs\n" * 1000).prose == []

    def test_scope(self):
        assert of("an NCCL thing").in_scope
        assert of("odd thing 1 of 2").in_scope
        assert not of("my soup is too salty").in_scope

    def test_gzip_and_several_files(self, tmp_path: Path):
        for rank in range(3):
            with gzip.open(tmp_path / f"rank{rank}.log.gz", "wt") as file:
                file.write("step 1\n" * 20 + ("odd thing 1 of 2\n" if rank == 2 else "Connection closed by peer\n"))
        seen: list[tuple[int, int]] = []
        understood = analyse_logs(find_sources([str(tmp_path)]), KNOWLEDGE, lambda done, of: seen.append((done, of)))
        assert understood.timeline and understood.timeline.culprit == 2
        assert seen and seen == sorted(seen)

    def test_nothing_is_refused(self, tmp_path: Path):
        (tmp_path / "x.log").write_text(" \n")
        with pytest.raises(UserError, match="nothing in it"):
            analyse_logs(find_sources([str(tmp_path / "x.log")]), KNOWLEDGE)
