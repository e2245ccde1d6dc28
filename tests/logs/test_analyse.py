"""Evidence, findings and the timeline of texts: the first failure, consequences, and the conditions of each finding."""

import gzip
from pathlib import Path

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.logs.analyse import analyse_logs
from ddpwizard.app.logs.read import find_sources, source_of_text
from ddpwizard.app.logs.types import LogAnalysis, Track
from helpers.built_in_knowledge import built_in_knowledge
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


def run_of_node(node: int, began: str, ended: str) -> str:
    """Return what torchrun and two ranks of a node print from the start to the failure of the second one."""
    prefix = "1120 {}.000000 42 torch/distributed/{}] "
    start = "W" + prefix.format(began, "run.py:766") + "Setting OMP_NUM_THREADS environment variable for each process"
    exit_ = "E" + prefix.format(ended, "elastic/multiprocessing/api.py:874")
    ranks = (2 * node - 2, 2 * node - 1)
    failure = f"{exit_}failed (exitcode: 1) local_rank: 1 (pid: 4711) of binary: /usr/bin/python3\n"
    summary = SUMMARY.format(rank=ranks[1], code=1, why="ValueError: x")
    summary = summary.replace("node-1", f"node-{node}").replace("10:00:09", ended)
    return f"{start}\n{steps(*ranks)}{raised(ranks[1], 'ValueError: x')}{failure}{summary}"


def found(analysis: LogAnalysis) -> dict[str, str]:
    return {e.id.removeprefix("log."): e.where for e in analysis.evidence if e.id.startswith("log.")}


def tracks(analysis: LogAnalysis, attempt: int = 0) -> list[Track]:
    assert analysis.timeline
    return analysis.timeline.attempts[attempt].tracks


def culprit(analysis: LogAnalysis) -> tuple[int | None, str]:
    assert analysis.timeline
    return analysis.timeline.culprit, analysis.timeline.culprit_where.removeprefix("/x.log:")


class TestFirstFailure:
    def test_rank_with_its_own_error_is_first_even_if_consequences_precede_it(self):
        text = raised(0, "RuntimeError: Connection closed by peer") + raised(1, "ValueError: bad") + "signal SIGTERM\n"
        analysis = of(steps(0, 1) + text)
        assert culprit(analysis) == (1, "15")
        assert found(analysis) == {"one-rank-failed-first": "/x.log:15", "script-error": "/x.log:15"}
        assert [e.kind for e in tracks(analysis)[0].events] == ["consequence", "consequence"]

    def test_first_of_several_errors(self):
        analysis = of(steps(0, 1, 2) + raised(2, "ValueError: a") + raised(1, "KeyError: 'b'"))
        assert culprit(analysis) == (2, "16")
        assert "one-rank-failed-first" not in found(analysis)

    def test_first_by_time_stamp_if_the_text_is_not_in_order(self):
        late = "[rank0]: 2026-11-20 10:00:09 ERROR odd thing 1 of 2\n"
        early = "[rank1]: 2026-11-20 10:00:01 ERROR CUDA out of memory\n"
        assert culprit(of(late + early)) == (1, "2")

    def test_no_culprit_if_all_ranks_fail_alike(self):
        text = "".join(raised(rank, f"ValueError: bad shape {rank}") for rank in range(4))
        analysis = of(text + SUMMARY.format(rank=2, code=1, why="x"))
        assert culprit(analysis) == (None, "")
        assert found(analysis) == {
            "all-ranks-failed-alike": "/x.log:1",
            "script-error": "/x.log:1",
            "failed-on-first-node": "/x.log:17",
        }

    def test_launcher_summary_if_the_rank_logged_no_error(self):
        analysis = of(steps(0, 1) + SUMMARY.format(rank=1, code=-9, why="Signal 9 (SIGKILL) received by PID 4711"))
        assert culprit(analysis) == (1, "11")
        assert found(analysis) == {"killed-without-error": "/x.log:11", "failed-on-first-node": "/x.log:11"}

    def test_first_summary_of_several_launchers_says_on_which_node_the_first_rank_failed(self):
        second = SUMMARY.format(rank=5, code=1, why="x").replace("local_rank: 5", "local_rank: 1")
        early, late = (SUMMARY.format(rank=2, code=1, why="x").replace("10:00:09", f"10:00:{s}") for s in ("08", "10"))
        assert "failed-on-first-node" not in found(of(steps(0, 2, 5) + late + second))
        assert "failed-on-first-node" in found(of(steps(0, 2, 5) + early + second))

    def test_launcher_summary_is_ignored_if_that_rank_shows_a_consequence(self):
        closed = raised(0, "RuntimeError: Connection closed by peer")
        assert culprit(of(steps(0, 1) + closed + SUMMARY.format(rank=0, code=1, why="x"))) == (None, "")

    @pytest.mark.parametrize(
        ("error", "own"),
        [
            ("FileNotFoundError: [Errno 2] No such file or directory: 'words.json'", True),
            ("torch.distributed.DistNetworkError: Connection closed by peer", False),
            ("RuntimeError: Connection closed by peer", False),
        ],
    )
    def test_type_of_exception_that_tells_a_fault_of_the_rank(self, error: str, own: bool):
        seen = found(of(steps(0, 1) + raised(1, error) + SUMMARY.format(rank=1, code=1, why="x")))
        assert ("script-error" in seen, "only-consequences" in seen) == (own, not own)

    @pytest.mark.parametrize(("local", "same"), [(9, True), (1, False)])
    def test_node_of_the_first_failure(self, local: int, same: bool):
        summary = SUMMARY.format(rank=9, code=1, why="x").replace("local_rank: 9", f"local_rank: {local}")
        assert ("failed-on-first-node" in found(of(summary))) == same

    def test_rank_that_waits_in_another_collective(self):
        frame = '  File "/site-packages/torch/distributed/distributed_c10d.py", line 9, in {}\n'
        parts = [(rank, raised(rank, "RuntimeError: Connection closed", 30 if rank == 2 else 40)) for rank in range(4)]
        text = ""
        for rank, part in parts:
            lines = part.splitlines(keepends=True)
            inside = f"[rank{rank}]: " + frame.format("all_reduce" if rank == 2 else "barrier")
            text += "".join([*lines[:3], inside, lines[3]])
        analysis = of(text)
        assert culprit(analysis) == (2, "11")
        assert set(found(analysis)) == {"ranks-disagree-on-collective"}

    def test_single_writer_has_no_culprit(self):
        analysis = of(f'{HEADER}\n  File "/a.py", line 1, in f\nValueError: x\n' + "CUDA out of memory\n")
        assert culprit(analysis) == (None, "")
        assert found(analysis) == {}


class TestCollectives:
    WATCHDOG = (
        "[rank{0}]:[E1120 10:00:00.1 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum={1}, OpType={2}, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for "
        "600012 milliseconds\n"
    )

    def timeouts(self, *calls: tuple[int, int, str]) -> str:
        return steps(*(rank for rank, *_ in calls)) + "".join(self.WATCHDOG.format(*each) for each in calls)

    def test_same_collective_timeout(self):
        analysis = of(self.timeouts((0, 7, "ALLREDUCE"), (1, 7, "ALLREDUCE")))
        assert set(found(analysis)) == {"same-collective-timeout", "only-consequences"}

    def test_different_collectives(self):
        analysis = of(self.timeouts((0, 7, "ALLREDUCE"), (1, 8, "BROADCAST"), (2, 8, "BROADCAST")))
        assert set(found(analysis)) == {"ranks-disagree-on-collective"}
        assert culprit(analysis)[0] == 0

    def test_rank_without_timeout_is_the_culprit(self):
        analysis = of(steps(3) + self.timeouts((0, 7, "ALLREDUCE"), (1, 7, "ALLREDUCE"), (2, 7, "ALLREDUCE")))
        assert culprit(analysis) == (3, "5")
        assert "same-collective-timeout" not in found(analysis)

    def test_timeouts_of_different_groups_are_not_compared(self):
        a, b = (self.WATCHDOG.format(rank, rank + 5, "ALLREDUCE") for rank in (0, 1))
        text = a.replace("[Rank", "[PG ID 1 PG GUID 1 Rank") + b.replace("[Rank", "[PG ID 2 PG GUID 2 Rank")
        assert set(found(of(text))) == {"only-consequences"}


class TestPeersThatEnded:
    """Rank 0 fails only because the others are gone; torchrun would have reported or ended them."""

    LOST = raised(0, "RuntimeError: Connection closed by peer [127.0.0.1]:41234")
    END = SUMMARY.format(rank=0, code=1, why="")

    def test_ranks_that_had_ended_without_an_error(self):
        text = steps(0, 1, 2) + "[rank1]: done\n[rank2]: done\n" + self.LOST + self.END
        assert "peers-ended-first" in found(of(text))

    @pytest.mark.parametrize(
        "more",
        [
            "Sending process 72 closing signal SIGTERM\n",
            "  rank : 1 (local_rank: 1)\n  exitcode : 1 (pid: 72)\n",
            raised(1, "ValueError: bad"),
        ],
    )
    def test_ranks_that_were_alive_or_failed_had_not(self, more: str):
        assert "peers-ended-first" not in found(of(steps(0, 1, 2) + more + self.LOST + self.END))

    def test_without_the_report_of_the_launcher_nothing_is_known(self):
        assert "peers-ended-first" not in found(of(steps(0, 1, 2) + self.LOST))


class TestOutOfMemory:
    def test_oom_on_one_rank(self):
        assert set(found(of(steps(0, 1, 2) + oom(1)))) == {"oom-on-one-rank", "oom-own-memory", "oom-exceeds-free"}

    def test_oom_on_all_ranks(self):
        seen = set(found(of(oom(0) + oom(1))))
        assert seen == {"oom-on-all-ranks", "all-ranks-failed-alike", "oom-own-memory", "oom-exceeds-free"}

    def test_oom_on_first_gpu(self):
        crowded = {"gpu": "0", "own": "9.00 GiB", "allocated": "8.00 GiB"}
        assert "oom-on-first-gpu" in found(of(steps(0) + oom(3, **crowded)))
        assert "oom-on-first-gpu" not in found(of(steps(0) + oom(3, gpu="0")))
        assert "oom-on-first-gpu" not in found(of(steps(3) + oom(0, **crowded)))

    def test_oom_fragmented(self):
        assert set(
            found(
                of(OOM.format(gpu=0, free="1 GiB", others="", own="77 GiB", allocated="50 GiB", unallocated="26 GiB"))
            )
        ) == {"oom-fragmented", "oom-own-memory"}

    @pytest.mark.parametrize(
        ("free", "unallocated", "exceeds"), [("0.50 GiB", "1.40 GiB", True), ("0.50 GiB", "1.60 GiB", False)]
    )
    def test_request_larger_than_all_free_memory_is_no_fragmentation(self, free: str, unallocated: str, exceeds: bool):
        message = OOM.format(gpu=0, free=free, others="", own="78 GiB", allocated="76 GiB", unallocated=unallocated)
        assert ("oom-exceeds-free" in found(of(message))) == exceeds

    def test_oom_held_by_others(self):
        others = "Process 81 has 60.00 GiB memory in use. Process 82 has 2.00 GiB memory in use. "
        text = oom(0, gpu="0", others=others, own="15.00 GiB", allocated="14 GiB")
        assert set(found(of(text))) == {"oom-held-by-others", "oom-exceeds-free"}

    @pytest.mark.parametrize(
        ("holders", "pids", "expected"),
        [
            ({"81": "6.40 GiB"}, (70, 71, 72), {"oom-foreign-process"}),
            ({"81": "0.50 GiB"}, (70, 71, 72), set()),  # the request would not fit without it
            ({"71": "6.40 GiB"}, (70, 71, 72), set()),
            ({"71": "9.00 GiB", "81": "6.40 GiB"}, (70, 71, 72), {"oom-foreign-process"}),
            ({"81": "6.40 GiB"}, (70, 72), set()),  # it may be the rank whose process is not named
            ({"71": "60.00 GiB"}, (70, 71, 72), set()),
            ({"81": "60.00 GiB"}, (70, 71, 72), {"oom-held-by-others", "oom-foreign-process"}),
        ],
    )
    def test_process_that_is_none_of_the_ranks(
        self, holders: dict[str, str], pids: tuple[int, ...], expected: set[str]
    ):
        others = "".join(f"Process {pid} has {size} memory in use. " for pid, size in holders.items())
        own = "15.00 GiB" if "60.00 GiB" in holders.values() else "70.00 GiB"
        message = oom(1, gpu="1", others=others, own=own, allocated="14 GiB", free="0.50 GiB")
        torchrun = "".join(f"W1121 Sending process {pid} closing signal SIGTERM\n" for pid in pids[1:])
        torchrun += f"E1121 failed (exitcode: 1) local_rank: 1 (pid: {pids[0]}) of binary: /usr/bin/python\n"
        seen = set(found(of(steps(0, 1, 2) + message + torchrun)))
        assert seen & {"oom-held-by-others", "oom-foreign-process"} == expected

    @pytest.mark.parametrize(
        "line",
        [
            "  exitcode  : 1 (pid: {pid})",
            "[2026-11-21 10:00:09,123] [INFO] [launch.py:319:sigkill_handler] Killing subprocess {pid}",
            "[2026-11-21 10:00:09,123] [INFO] [launch.py:256:main] process {pid} spawned with command: ['python']",
            "n1:{pid}:{pid} [0] NCCL INFO comm 0x1 rank {rank} nranks 2 cudaDev {rank} busId 1",
            "(RayTrainWorker pid={pid}) step 1",
        ],
    )
    def test_processes_of_the_ranks_are_known_from(self, line: str):
        ranks = "".join(line.format(pid=70 + rank, rank=rank) + "\n" for rank in (0, 1))
        for pid, expected in ((71, set[str]()), (81, {"oom-foreign-process"})):
            others = f"Process {pid} has 6.40 GiB memory in use. "
            seen = set(found(of(steps(0, 1) + oom(1, others=others, own="70.00 GiB", free="0.50 GiB") + ranks)))
            assert seen & {"oom-foreign-process"} == expected

    def test_older_wording_of_out_of_memory(self):
        text = (
            "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 1; 15.78 GiB total capacity; 5.00 GiB "
            "already allocated; 1.00 GiB free; 13.90 GiB reserved in total by PyTorch)"
        )
        assert set(found(of(text))) == {"oom-fragmented", "oom-own-memory"}


class TestOtherFindings:
    def test_loss_that_is_nan_names_the_first_rank(self):
        lines = [f"[rank{rank}] step 7 loss 2.1 grad_norm inf\n" for rank in (0, 1)]
        lines += ["[rank1] step 8 loss nan grad_norm inf\n", "[rank0] step 9 loss nan\n"]
        (evidence,) = [each for each in of("".join(lines)).evidence if each.id == "log.not-finite"]
        assert evidence.rank == 1 and "rank 1 prints first that loss is NaN" in evidence.what

    @pytest.mark.parametrize(
        "line", ["{'loss': nan, 'epoch': 0.1}", "train/loss: NaN", "grad_norm=nan", "loss = tensor(nan)"]
    )
    def test_printed_forms_of_nan(self, line: str):
        assert "not-finite" in found(of(f"{line}\n"))

    @pytest.mark.parametrize("line", ["loss of nanoGPT 2.1", "step 3 grad_norm inf", "dropped nan rows, loss 2.0"])
    def test_other_words_are_no_nan(self, line: str):
        assert "not-finite" not in found(of(f"{line}\n"))

    def test_crash_by_signal(self):
        seen = found(of(SUMMARY.format(rank=1, code=-11, why="x")))
        assert set(seen) == {"crashed-by-signal", "failed-on-first-node"}
        assert set(found(of("x.sh: line 3:  4711 Segmentation fault      (core dumped) python a.py"))) == {
            "crashed-by-signal"
        }

    @pytest.mark.parametrize("signal", ["Bus error", "Segmentation fault", "Killed", "Aborted"])
    def test_signal_of_a_loader_worker_is_not_one_of_its_rank(self, signal: str):
        line = (
            f"[rank1]: RuntimeError: DataLoader worker (pid 4711) is killed by signal: {signal}. It is possible that\n"
        )
        assert found(of(line)).keys().isdisjoint({"crashed-by-signal", "killed-without-error"})

    @pytest.mark.parametrize("signal", ["Bus error", "Segmentation fault"])
    def test_signal_that_the_shell_prints_is_one_of_the_rank(self, signal: str):
        assert set(found(of(f"{signal} (core dumped)\n"))) == {"crashed-by-signal"}

    @pytest.mark.parametrize(
        "text",
        ["x.sh: line 3:  4711 Killed                  python train.py", "Killed\n", "exits with return code = -9"],
    )
    def test_sigkill_in_other_wording(self, text: str):
        assert set(found(of(text))) == {"killed-without-error"}

    def test_sigkill_after_an_error_is_not_a_finding(self):
        assert found(of("odd thing 1 of 2\nKilled\n")) == {}

    def test_ranks_never_joined(self):
        text = "Timed out after 601 seconds waiting for clients. 7/8 clients joined."
        assert set(found(of(text))) == {"ranks-never-joined"}

    @pytest.mark.parametrize(("joined", "more"), [("7", False), ("8", False), ("16", True)])
    def test_more_processes_joined_than_the_world_size(self, joined: str, more: bool):
        text = (
            "RuntimeError: Timed out initializing process group in store based barrier on rank: 2, for key: "
            f"store_based_barrier_key:1 (world_size=8, worker_count={joined}, timeout=0:30:00)"
        )
        assert ("more-joined-than-world-size" in found(of(text))) is more

    def test_an_exception_of_a_rank_is_no_consequence(self):
        """Its message without a traceback is not known to be the first failure, but it is no time-out either."""
        text = "[rank2]: FileNotFoundError: [Errno 2] No such file or directory: '/data/run1'\n[rank0]: step 1"
        analysis = analyse_logs([source_of_text(text, "/x.log")], built_in_knowledge())
        assert "only-consequences" not in found(analysis)
        assert found(of(text.replace("7/8", "8/8"))) == {}

    def test_rank_fell_silent(self):
        analysis = of(steps(0, 1, 2, count=10) + steps(0, 2, count=60))
        assert found(analysis) == {"rank-fell-silent": "/x.log:29"}

    def test_ranks_with_few_lines_are_not_silent(self):
        assert found(of(steps(0, 1, 2, count=1) + steps(0, count=60))) == {}

    def test_different_nccl_versions(self):
        text = "n1:5:5 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\nn2:5:5 [0] NCCL INFO NCCL version 2.{}+cuda12.4\n"
        assert set(found(of(text.format("20.5")))) == {"versions-differ"}
        assert found(of(text.format("21.5"))) == {}
        assert found(of(text.format("21.5").replace("5+cuda12.4\nn2", "5\nn2"))) == {}

    def test_one_host_failed(self):
        lines = [f"worker-{n}: step {step}" for step in range(6) for n in (1, 2)]
        text = "\n".join([*lines, "worker-2: odd thing 1 of 2", "worker-1: Connection closed by peer"])
        assert set(found(of(text))) == {"one-host-failed", "one-rank-failed-first"}
        assert [track.name for track in tracks(of(text))] == ["worker-1", "worker-2"]


class TestAttempts:
    RESTART = "[default] Worker group FAILED. {}/3 attempts left; will restart worker group\n"

    def test_restarts_split_the_text_into_attempts(self):
        text = steps(0, 1) + raised(1, "ValueError: x") + self.RESTART.format(3) + steps(0, 1, count=3)
        analysis = of(text)
        assert analysis.timeline and [a.number for a in analysis.timeline.attempts] == [0, 1]
        assert set(found(analysis)) == {"restarted", "started-over", "one-rank-failed-first", "script-error"}
        assert [track.last.line for track in tracks(analysis)] == [9, 14]
        assert [track.first.line for track in tracks(analysis, 1)] == [16, 17]

    def test_restart_reported_by_two_agents_counts_once(self):
        text = steps(0, 1) + self.RESTART.format(3) * 2 + steps(0, 1) + self.RESTART.format(2) + steps(0, 1)
        analysis = of(text)
        assert analysis.timeline and len(analysis.timeline.attempts) == 3

    def test_resumed_steps_are_not_started_over(self):
        later = "".join(f"[rank0]: step {n}\n" for n in range(4, 9))
        assert set(found(of(steps(0) + self.RESTART.format(3) + later))) == {"restarted"}

    def test_logs_of_two_nodes_in_one_text_are_one_start(self):
        first, second = run_of_node(1, "10:05:01", "10:25:10"), run_of_node(2, "10:05:03", "10:25:30")
        for text in (first + second, second + first):
            analysis = of(text)
            assert analysis.timeline and [a.number for a in analysis.timeline.attempts] == [0]
            assert "restarted" not in found(analysis)

    def test_launcher_that_starts_after_the_end_is_a_restart(self):
        text = run_of_node(1, "10:05:01", "10:25:10") + run_of_node(1, "10:25:14", "10:40:00")
        assert "restarted" in found(of(text))

    def test_restarts_of_two_nodes_in_one_text_are_numbered_alike(self):
        nodes = [run_of_node(1, "10:05:01", "10:25:10"), run_of_node(2, "10:05:03", "10:25:30")]
        analysis = of("".join(node.replace("step 2", f"step 2\n{self.RESTART.format(3)}", 1) for node in nodes))
        assert analysis.timeline and [a.number for a in analysis.timeline.attempts] == [0, 1]

    def test_attempts_from_torchrun_log_dir(self, tmp_path: Path):
        for attempt in (0, 1):
            for rank in (0, 1):
                folder = tmp_path / f"attempt_{attempt}" / str(rank)
                folder.mkdir(parents=True)
                (folder / "stderr.log").write_text("odd thing 1 of 2\n" if rank == 1 else "Connection closed\n")
                (folder / "stdout.log").write_text(f"step {attempt}\n")
        analysis = analyse_logs(find_sources([str(tmp_path)]), KNOWLEDGE)
        assert analysis.timeline and [len(a.tracks) for a in analysis.timeline.attempts] == [2, 2]
        assert analysis.timeline.culprit == 1
        (odd,) = [e for e in analysis.evidence if e.id == "log:odd/0"]
        assert odd.rank == 1 and odd.where.endswith("attempt_0/1/stderr.log:1")


class TestEvidence:
    def test_one_piece_of_evidence_per_id_with_rank_and_line(self):
        analysis = of("start\n[rank3]: odd thing at last\n[rank3]: odd thing 3 of 4\n[rank1]: odd thing 1 of 4\n")
        (item,) = [e for e in analysis.evidence if e.id == "log:odd/0"]
        assert (item.id, item.where, item.rank, item.what) == ("log:odd/0", "/x.log:3", 3, "[rank3]: odd thing 3 of 4")

    def test_multi_line_pattern_matches_in_interleaved_ranks(self):
        text = steps(0, 1) + "[rank1]: first half\n[rank0]: step 6\n[rank1]: second half\n"
        assert "log:deep/0" in {item.id for item in of(text).evidence}

    def test_local_rank_is_mapped_to_global_rank(self):
        text = "[default1]:[rank9]: step 1\n[default1]:odd thing 1 of 2\n[default0]:[rank8]: step 1\n"
        (item,) = [e for e in of(text).evidence if e.id == "log:odd/0"]
        assert item.rank == 9

    def test_colours_and_progress_bars_do_not_hide_matches(self):
        text = "[rank1]: \x1b[31modd \x1b[1mthing 1 of 2\x1b[0m\n 10%|#| 1/9\r[rank2]: CUDA out of memory\r 20%|#|\n"
        ranks = {item.id: item.rank for item in of(text).evidence}
        assert ranks["log:odd/0"] == 1
        assert ranks["log:oom/0"] == 2

    def test_short_texts_are_prose(self):
        assert of("my job hangs\n").prose == [("/x.log", "my job hangs\n")]
        assert of("my job hangs\n" * 1000).prose == []

    def test_in_scope(self):
        assert of("an NCCL thing").in_scope
        assert of("odd thing 1 of 2").in_scope
        assert not of("my soup is too salty").in_scope

    def test_gzip_and_multiple_files(self, tmp_path: Path):
        for rank in range(3):
            with gzip.open(tmp_path / f"rank{rank}.log.gz", "wt") as file:
                file.write("step 1\n" * 20 + ("odd thing 1 of 2\n" if rank == 2 else "Connection closed by peer\n"))
        seen: list[tuple[int, int]] = []
        analysis = analyse_logs(find_sources([str(tmp_path)]), KNOWLEDGE, lambda done, of: seen.append((done, of)))
        assert analysis.timeline and analysis.timeline.culprit == 2
        assert seen and seen == sorted(seen)

    def test_empty_file_raises_user_error(self, tmp_path: Path):
        (tmp_path / "x.log").write_text(" \n")
        with pytest.raises(UserError, match="nothing in it"):
            analyse_logs(find_sources([str(tmp_path / "x.log")]), KNOWLEDGE)
