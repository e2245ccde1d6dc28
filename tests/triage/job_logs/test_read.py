"""Log events and verdicts from the logs of a job.

Messages of torch and gloo are from real runs of torch 2.13 with three ranks; those of NCCL are composed from the
sources listed in ``app/triage/job_logs/patterns.py``.
"""

import os
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.jobs.types import Job, Process
from ddpwizard.app.triage.job_logs import read
from ddpwizard.app.triage.types import JobReport, LogEvent, Observation, ProcessSamples, Sample, Verdict

OPTIONS = (
    "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu, layout=Strided (default), "
    "requires_grad=false (default), pinned_memory=false (default), memory_format=(nullopt))"
)
SUMMARY_LINE = "-" * 60


def frames(rank: int, line: int, function: str, error: str) -> list[str]:
    """Return a traceback as printed by a rank: the user's line, then torch's function."""
    mark = f"[rank{rank}]: "
    return [
        f"{mark}Traceback (most recent call last):",
        f'{mark}  File "/home/user/train.py", line {line}, in <module>',
        f"{mark}    dist.{function}(x)",
        f'{mark}  File "/venv/site-packages/torch/distributed/distributed_c10d.py", line 3245, in {function}',
        f"{mark}    work.wait()",
        f"{mark}{error}",
    ]


def closed(rank: int) -> list[str]:
    error = (
        "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer "
        "[127.0.0.1]:7385. This is typically caused by a remote worker crashing. Check the logs of the remote worker."
    )
    return frames(rank, 24, "all_reduce", error)


def fingerprint(operation: str, shape: str = "4", dtype: str = "Float", number: int = 3) -> str:
    head = f"CollectiveFingerPrint(SequenceNumber={number}, OpType={operation}, TensorShape=[{shape}], "
    return f"{head}TensorDtypes={dtype}, {OPTIONS})"


def mismatch(rank: int, mine: str, other: int, theirs: str, line: int = 12) -> list[str]:
    error = (
        f"RuntimeError: Detected mismatch between collectives on ranks. Rank {rank} is running collective: {mine}, but "
        f"Rank {other} is running collective: {theirs}.Collectives differ in the following aspects:   Op type: Avs B"
    )
    return frames(rank, line, "all_reduce", error)


def summary(*ends: tuple[int, int, int]) -> list[str]:
    """Return torchrun's failure summary of (rank, exit code, pid); the first is the root cause."""

    def entry(number: int, rank: int, code: int, pid: int) -> list[str]:
        return [
            f"[{number}]:",
            "  time      : 2026-11-21_17:36:23",
            "  host      : localhost",
            f"  rank      : {rank} (local_rank: {rank})",
            f"  exitcode  : {code} (pid: {pid}) ",
            "  error_file: <N/A>",
            "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html",
        ]

    others = [line for number, end in enumerate(ends[1:], 1) for line in entry(number, *end)]
    root = ["Root Cause (first observed failure):", *entry(0, *ends[0])]
    head = ["torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", "=" * 60, "train.py FAILED"]
    return [*head, SUMMARY_LINE, "Failures:", *others, SUMMARY_LINE, *root, "=" * 60]


def nccl(rank: int, steps: int = 8, of: int = 4) -> list[str]:
    """Return the first ``steps`` lines of NCCL_DEBUG=INFO of a rank."""
    mark = f"node-1:{4100 + rank}:{4200 + rank} [{rank}] NCCL INFO "
    communicator = (
        f"ncclCommInitRankConfig comm 0x55d0c8b0 rank {rank} nranks {of} cudaDev {rank} nvmlDev {rank} "
        f"busId {rank}b000 commId 0xe1f0a4b2c3d4e5f6"
    )
    following = (rank + 1) % of
    lines = [
        "Bootstrap: Using eth0:10.0.0.1<0>",
        f"{communicator} - Init START",
        f"comm 0x55d0c8b0 rank {rank} nRanks {of} nNodes 1 localRanks {of} localRank {rank} MNNVL 0",
        f"Trees [0] -1/-1/-1->{rank}->-1 [1] -1/-1/-1->{rank}->-1",
        f"Channel 00/0 : {rank}[{rank}] -> {following}[{following}] via P2P/CUMEM",
        "Connected all rings, use ring PXN 0 GDR 1",
        "Connected all trees",
        f"{communicator} - Init COMPLETE",
    ]
    return [mark + line for line in lines[:steps]]


def watchdog(rank: int, number: int = 808, operation: str = "ALLREDUCE", group: str = "0(default_pg)") -> list[str]:
    mark = f"[rank{rank}]:[E626 06:24:44.90388{rank}913 "
    size = "NumelIn=9801523, NumelOut=9801523, Timeout(ms)=600000"
    return [
        f"{mark}ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum={number}, OpType={operation}, {size}) ran for 600020 milliseconds before timing out.",
        f"{mark}ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID {group} Rank {rank}] "
        f"Exception (either an error or timeout) detected by watchdog at work: {number}, "
        f"last enqueued NCCL work: {number + 3}, last completed NCCL work: {number - 1}.",
    ]


def dump_signal(rank: int, enqueued: int, completed: int) -> list[str]:
    return [
        f"[rank{rank}]:[E626 06:24:45.17817{rank}209 ProcessGroupNCCL.cpp:1987] [PG ID 0 PG GUID 0(default_pg) Rank "
        f"{rank}] Received a dump signal due to a collective timeout from  rank 1 and we will try our best to dump the "
        f"debug info. Last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}.This is most likely "
        "caused by incorrect usages of collectives"
    ]


def absent(ranks: str, timeout_ms: int = 3000) -> list[str]:
    message = f"[Rank 0]: Rank{'s' if ',' in ranks else ''} {ranks} failed to pass monitoredBarrier in {timeout_ms} ms"
    return [
        f"[rank0]:[E1121 17:35:55.159681348 ProcessGroupGloo.cpp:67] {message}",
        *frames(0, 14, "monitored_barrier", f"RuntimeError: {message}"),
    ]


def timed_out(rank: int) -> list[str]:
    where = "[/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78]"
    return frames(
        rank, 20, "all_reduce", f"RuntimeError: {where} Timed out waiting 6000ms for recv operation to complete"
    )


def log(path: Path, *parts: Sequence[str]) -> Path:
    path.write_text("".join(f"{line}\n" for part in parts for line in part))
    return path


def verdict_of(tmp_path: Path, *parts: Sequence[str]) -> Verdict:
    return read.report_from_logs([log(tmp_path / "job.log", *parts)]).verdict


def steps(*ranks: int) -> list[str]:
    return [f"[rank{rank}]: step {step} loss 0.1" for step in range(3) for rank in ranks]


def log_events(report: JobReport, *kinds: str) -> list[LogEvent]:
    assert report.observed.log
    return [event for event in report.observed.log.facts if event.kind in kinds]


class TestRead:
    def test_event_has_line_rank_and_time(self, tmp_path: Path) -> None:
        path = log(tmp_path / "job.log", steps(0, 1, 2, 3), watchdog(2))
        found = read.read_job_logs([path])
        timeout = found.of("watchdog")[0]
        assert (timeout.rank, timeout.where) == (2, f"{path}:13")
        assert (timeout.values["seq"], timeout.values["op"]) == ("808", "ALLREDUCE")
        assert timeout.values["timeout_ms"] == "600000"
        at = datetime.fromtimestamp(timeout.at or 0)
        assert (at.month, at.day, at.hour, at.minute) == (6, 26, 6, 24)
        work = found.of("work")[0]
        assert (work.values["enqueued"], work.values["completed"], work.values["group"]) == ("811", "807", "0")

    def test_event_time_is_not_after_the_last_write(self, tmp_path: Path) -> None:
        path = log(tmp_path / "job.log", watchdog(2))
        written = datetime(2026, 3, 1, 12).timestamp()
        os.utime(path, (written, written))
        timeout = read.read_job_logs([path]).of("watchdog")[0]
        assert datetime.fromtimestamp(timeout.at or 0).year == 2025

    def test_last_line_and_step_of_each_rank(self, tmp_path: Path) -> None:
        for rank in range(3):
            folder = tmp_path / "run_ab12" / "attempt_0" / str(rank)
            folder.mkdir(parents=True)
            out = log(folder / "stdout.log", ["loading", "epoch 2 step 41", f"step {42 + rank} loss 0.1"])
            os.utime(out, (1_790_000_000 + rank, 1_790_000_000 + rank))
            log(folder / "stderr.log")
        found = read.read_job_logs([tmp_path])
        assert [(row.rank, row.step, row.last) for row in found.ranks] == [
            (rank, 42 + rank, f"step {42 + rank} loss 0.1") for rank in range(3)
        ]
        assert [row.silent_since for row in found.ranks] == [1_790_000_000, 1_790_000_001, 1_790_000_002]

    def test_silent_since_is_the_time_stamp_in_a_shared_log(self, tmp_path: Path) -> None:
        path = log(
            tmp_path / "job.log",
            ["[rank0]: 2026-11-21 10:00:05 step 7", "[rank1]: 2026-11-21 10:00:06 step 7", "[rank1]: step 8"],
        )
        written = datetime(2026, 11, 21, 12).timestamp()
        os.utime(path, (written, written))
        rows = {row.rank: row for row in read.read_job_logs([path]).ranks}
        assert datetime.fromtimestamp(rows[0].silent_since or 0).strftime("%H:%M:%S") == "10:00:05"
        assert rows[1].silent_since is None  # its last line has no time stamp, and the file is shared
        assert rows[1].step == 8

    def test_only_the_last_attempt_is_read(self, tmp_path: Path) -> None:
        for attempt in (0, 1):
            for rank in (0, 1):
                folder = tmp_path / "run" / f"attempt_{attempt}" / str(rank)
                folder.mkdir(parents=True)
                lines = frames(rank, 9, "barrier", "ValueError: boom") if attempt == 0 else [f"step {rank}"]
                log(folder / "stdout.log", lines)
        found = read.read_job_logs([tmp_path])
        assert found.attempts == 2
        assert not found.of("traceback")

    def test_observation_survives_json(self, tmp_path: Path) -> None:
        report = read.report_from_logs([log(tmp_path / "job.log", steps(0, 1, 2), absent("1"), summary((0, 1, 71)))])
        assert msgspec.json.decode(msgspec.json.encode(report.observed), type=Observation) == report.observed

    def test_missing_log_raises_user_error(self, tmp_path: Path) -> None:
        with pytest.raises(UserError):
            read.read_job_logs([tmp_path / "none.log"])

    def test_rank_within_a_subgroup_is_not_the_global_rank(self, tmp_path: Path) -> None:
        text = watchdog(5, group="3(mesh_dp)")
        text[1] = text[1].replace("Rank 5]", "Rank 1]")
        found = read.read_job_logs([log(tmp_path / "job.log", steps(*range(8)), text)])
        assert {event.rank for event in found.of("work", "watchdog")} == {5}
        assert found.of("work")[0].values["about"] == "mesh_dp"

    def test_newer_wording_of_the_watchdog(self, tmp_path: Path) -> None:
        line = (
            "[rank3]:[E1206 18:44:12.715 ProcessGroupNCCL.cpp:1900] [PG ID 0 PG GUID 0(default_pg) Rank 3]  failure "
            "detected by watchdog at work sequence id: 12 PG status: last enqueued work: 14, last completed work: 11"
        )
        work = read.read_job_logs([log(tmp_path / "job.log", steps(0, 3), [line])]).of("work")[0]
        assert (work.rank, work.values["seq"], work.values["enqueued"], work.values["completed"]) == (
            3,
            "12",
            "14",
            "11",
        )

    def test_long_log_of_hostile_lines_is_read_in_time(self, tmp_path: Path) -> None:
        lines = [
            "[PG ID 0 PG GUID " + "a" * 3000,
            "Rank 1, " * 4000 + "failed to pass monitoredBarrier",
            "CollectiveFingerPrint(OpType=" * 800 + "Detected mismatch between collectives on ranks. Rank 1",
            "x" * 100_000 + "last enqueued NCCL work: 1",
        ] * 200
        began = time.thread_time()
        read.read_job_logs([log(tmp_path / "job.log", lines)])
        assert time.thread_time() - began < 30


class TestVerdict:
    def test_minority_of_a_mismatch_is_the_culprit(self, tmp_path: Path) -> None:
        reduce, cast = fingerprint("ALLREDUCE"), fingerprint("BROADCAST")
        parts = [mismatch(0, reduce, 1, cast), mismatch(1, cast, 0, reduce, line=9), mismatch(2, reduce, 1, cast)]
        verdict = verdict_of(tmp_path, *parts)
        assert (verdict.cause, verdict.culprits) == ("collective-desync", [1])
        assert verdict.where == "/home/user/train.py:9"
        assert "Rank 1 calls broadcast ([4], float); ranks 0, 2 call all_reduce ([4], float)" in verdict.why
        assert verdict.confidence > 0.8
        assert "job.log-names-mismatch" in verdict.findings

    def test_shape_mismatch(self, tmp_path: Path) -> None:
        four, eight = fingerprint("ALLREDUCE"), fingerprint("ALLREDUCE", "8")
        verdict = verdict_of(
            tmp_path, mismatch(0, four, 1, eight), mismatch(1, eight, 0, four), mismatch(2, four, 1, eight)
        )
        assert (verdict.culprits, verdict.collective) == ([1], "all_reduce")

    def test_mismatch_of_two_ranks_has_two_culprits(self, tmp_path: Path) -> None:
        one, other = fingerprint("ALLREDUCE", dtype="Double"), fingerprint("ALLREDUCE")
        verdict = verdict_of(tmp_path, mismatch(0, one, 1, other), mismatch(1, other, 0, one))
        assert verdict.culprits == [0, 1]
        assert verdict.confidence < 0.5

    def test_mismatch_with_a_barrier_without_separator(self, tmp_path: Path) -> None:
        barrier = "CollectiveFingerPrint(SequenceNumber=0OpType=BARRIER)"
        reduce = fingerprint("ALLREDUCE", number=0)
        parts = [mismatch(0, barrier, 1, reduce), mismatch(1, reduce, 0, barrier), mismatch(2, reduce, 0, barrier)]
        assert verdict_of(tmp_path, *parts).culprits == [0]

    def test_monitored_barrier_reports_absent_ranks(self, tmp_path: Path) -> None:
        verdict = verdict_of(tmp_path, steps(0, 1, 2, 3), absent("1, 3"))
        assert (verdict.state, verdict.cause, verdict.culprits) == ("hung", None, [1, 3])
        assert verdict.why == "Ranks 1, 3 have not reached the monitored barrier within 3 s."
        assert verdict.collective == "monitored_barrier"

    def test_rank_that_failed_before_the_barrier_is_dead(self, tmp_path: Path) -> None:
        failed = frames(1, 7, "barrier", "ValueError: boom")
        verdict = verdict_of(
            tmp_path, steps(0, 1, 2), failed, absent("1"), summary((1, 1, 71), (0, 1, 70), (2, -15, 72))
        )
        assert (verdict.state, verdict.cause, verdict.culprits) == ("dead", "rank-died-survivors-wait", [1])
        assert verdict.where == "/home/user/train.py:7"

    def test_failed_rank_and_ranks_that_noticed(self, tmp_path: Path) -> None:
        failed = frames(1, 23, "barrier", "ValueError: boom")
        verdict = verdict_of(tmp_path, closed(0), failed, closed(2), summary((1, 1, 71), (0, -15, 70), (2, -15, 72)))
        assert (verdict.cause, verdict.culprits, verdict.where) == (
            "rank-died-survivors-wait",
            [1],
            "/home/user/train.py:23",
        )
        assert verdict.why.startswith("Rank 1 failed: ValueError: boom at train.py:23. Ranks 0, 2 wait for it")

    def test_rank_killed_by_a_signal(self, tmp_path: Path) -> None:
        report = read.report_from_logs(
            [
                log(
                    tmp_path / "job.log",
                    closed(0),
                    steps(1),
                    closed(2),
                    summary((1, -9, 71), (0, -15, 70), (2, -15, 72)),
                )
            ]
        )
        assert (report.verdict.cause, report.verdict.culprits) == ("rank-died-survivors-wait", [1])
        assert [(death.rank, death.pid, death.how) for death in report.observed.deaths] == [(1, 71, "signal")]

    def test_first_exit_alone_has_low_confidence(self, tmp_path: Path) -> None:
        verdict = verdict_of(tmp_path, summary((0, 1, 70), (1, -15, 71), (2, -15, 72)))
        assert verdict.culprits == [0]
        assert verdict.confidence <= 0.5

    def test_silent_rank_if_the_others_lost_a_peer(self, tmp_path: Path) -> None:
        verdict = verdict_of(tmp_path, steps(0, 1, 2), closed(0), closed(2))
        assert (verdict.cause, verdict.culprits) == ("rank-died-survivors-wait", [1])

    def test_silent_rank_if_the_others_timed_out(self, tmp_path: Path) -> None:
        verdict = verdict_of(tmp_path, steps(0, 1, 2), timed_out(0), timed_out(2))
        assert (verdict.cause, verdict.culprits, verdict.collective) == (None, [1], "all_reduce")

    def test_silent_rank_of_very_many_in_one_text_is_not_a_culprit(self, tmp_path: Path) -> None:
        parts = [watchdog(rank) for rank in range(512) if rank != 400]
        assert verdict_of(tmp_path, steps(*range(512)), *parts).culprits == []

    def test_silent_rank_of_very_many_with_a_file_each(self, tmp_path: Path) -> None:
        for rank in range(128):
            folder = tmp_path / "run" / "attempt_0" / str(rank)
            folder.mkdir(parents=True)
            log(folder / "stderr.log", ["step 7"] if rank == 100 else watchdog(rank))
        assert read.report_from_logs([tmp_path]).verdict.culprits == [100]

    def test_rank_that_never_called_the_awaited_collective(self, tmp_path: Path) -> None:
        verdict = verdict_of(tmp_path, watchdog(0), watchdog(1), watchdog(2), dump_signal(3, 807, 807))
        assert (verdict.culprits, verdict.collective) == ([3], "all_reduce")
        assert "number 808" in verdict.why
        assert verdict.findings == ["job.log-rank-behind"]

    def test_rank_that_enqueued_more_is_not_a_culprit(self, tmp_path: Path) -> None:
        parts = [watchdog(0), watchdog(1), dump_signal(2, 808, 807), dump_signal(3, 811, 807)]
        assert verdict_of(tmp_path, *parts).culprits == []

    def test_desync_report_of_torch(self, tmp_path: Path) -> None:
        report = [
            "[rank0]:[E626 06:24:44.903 ProcessGroupNCCL.cpp:1785] Rank 0",
            "\t - [0] Timeout at collective: ALLREDUCE, #12",
            "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:",
            "\t   - [2] joined but didn't finish collective #11 (count from 1)",
            "\t     [3] finished collective #11, but didn't join collective #12 (count from 1)",
            "\t - Snapshot of ranks' latest states:",
        ]
        verdict = verdict_of(tmp_path, steps(0, 1, 2, 3), report)
        assert (verdict.cause, verdict.culprits, verdict.findings) == (None, [2, 3], ["job.log-rank-behind"])
        never = (
            "\t - To our best knowledge, ranks [3] are the lagging ranks that caused this timeout. They never joined"
        )
        verdict = verdict_of(tmp_path, steps(0, 1, 2, 3), [*report[:2], never])
        assert verdict.culprits == [3]
        assert verdict.why == "torch's own report at the time-out lists rank 3: it has not entered any collective yet."

    def test_different_operations_under_one_sequence_number(self, tmp_path: Path) -> None:
        verdict = verdict_of(tmp_path, watchdog(0), watchdog(1), watchdog(2, operation="BROADCAST"), watchdog(3))
        assert (verdict.cause, verdict.culprits, verdict.collective) == ("collective-desync", [2], "broadcast")

    def test_sequence_numbers_of_different_groups_are_not_compared(self, tmp_path: Path) -> None:
        parts = [watchdog(0), watchdog(1), watchdog(2, operation="_ALLGATHER_BASE", group="7(mesh)")]
        assert verdict_of(tmp_path, *parts).cause != "collective-desync"

    def test_all_ranks_in_the_same_collective(self, tmp_path: Path) -> None:
        verdict = verdict_of(tmp_path, *(watchdog(rank) for rank in range(4)))
        assert (verdict.state, verdict.culprits, verdict.findings) == ("hung", [], ["job.same-collective"])

    def test_gloo_size_mismatch_of_three_ranks_has_no_culprit(self, tmp_path: Path) -> None:
        line = "[rank1]: terminate called: [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 340 vs 4. "
        verdict = verdict_of(tmp_path, steps(0, 1, 2), [line])
        assert (verdict.cause, verdict.culprits) == ("collective-desync", [])
        assert verdict.why == "Rank 1 received 340 bytes but expected 4."

    def test_nccl_init_stops_first_on_one_rank(self, tmp_path: Path) -> None:
        verdict = verdict_of(tmp_path, *(nccl(rank, 2 if rank == 2 else 5) for rank in range(4)))
        assert (verdict.cause, verdict.culprits) == (None, [2])
        assert verdict.why == (
            "NCCL's initialisation stopped first on rank 2, after the start; ranks 0, 1, 3 have gone further."
        )

    def test_rank_missing_from_nccl_init(self, tmp_path: Path) -> None:
        verdict = verdict_of(tmp_path, *(nccl(rank, 2) for rank in (0, 1, 3)))
        assert (verdict.cause, verdict.culprits) == ("ranks-missing-at-init", [2])

    def test_complete_nccl_init_has_no_culprit(self, tmp_path: Path) -> None:
        verdict = verdict_of(tmp_path, *(nccl(rank) for rank in range(4)))
        assert (verdict.state, verdict.culprits) == ("unknown", [])

    def test_nccl_init_of_a_second_communicator_is_incomplete(self, tmp_path: Path) -> None:
        second = [[line.replace("e1f0a4b2", "aaaa1111") for line in nccl(rank, 2)] for rank in range(4)]
        parts = [*(nccl(rank) for rank in range(4)), second[0], second[1], second[3]]
        verdict = verdict_of(tmp_path, *parts)
        assert (verdict.cause, verdict.culprits) == (None, [2])
        assert verdict.why.startswith("Ranks 0, 1, 3 wait in NCCL's initialisation for rank 2")

    def test_steps_alone_have_no_verdict(self, tmp_path: Path) -> None:
        verdict = verdict_of(tmp_path, steps(0, 1))
        assert (verdict.state, verdict.culprits) == ("unknown", [])

    def test_observed_alive_rank_is_not_dead(self, tmp_path: Path) -> None:
        path = log(tmp_path / "job.log", closed(0), frames(1, 23, "barrier", "ValueError: caught"), closed(2))
        observed = read.report_from_logs([path]).observed
        process = Process(pid=71, rank=1, local_rank=1, command=[], cwd="", python="", environ={})
        living = ProcessSamples(
            process=process, host="", samples=[Sample(at=1.0, process_state="S", cpu_s=0, switches=0)]
        )
        verdict = read.verdict_from_log(msgspec.structs.replace(observed, seen=[living]))
        assert verdict and verdict.cause is None and verdict.confidence < 0.5

    def test_no_log_has_no_verdict(self) -> None:
        job = Job(
            launcher="python",
            launcher_pid=None,
            launcher_command=[],
            world_size=2,
            master="",
            host="",
            processes=[],
        )
        assert read.verdict_from_log(Observation(job=job, seen=[])) is None


class TestReport:
    def test_report_has_a_row_for_each_rank(self, tmp_path: Path) -> None:
        report = read.report_from_logs([log(tmp_path / "job.log", *(watchdog(rank) for rank in (0, 1, 3)), steps(2))])
        assert report.world_size == 4
        assert [row.rank for row in report.ranks] == [0, 1, 2, 3]
        assert {row.since_from for row in report.ranks} == {"log"}
        assert [(row.collective, row.seq) for row in report.ranks] == [
            ("all_reduce", 808),
            ("all_reduce", 808),
            (None, None),
            ("all_reduce", 808),
        ]
        assert report.ranks[2].note == "step 2"

    def test_row_has_the_users_line_of_a_traceback(self, tmp_path: Path) -> None:
        report = read.report_from_logs(
            [log(tmp_path / "job.log", closed(0), frames(1, 23, "barrier", "ValueError: boom"))]
        )
        assert [row.where for row in report.ranks] == ["/home/user/train.py:24", "/home/user/train.py:23"]
        assert [(row.state, row.note) for row in report.ranks] == [("dead", "RuntimeError"), ("dead", "ValueError")]

    def test_rank_that_is_not_in_the_log_is_missing(self, tmp_path: Path) -> None:
        report = read.report_from_logs([log(tmp_path / "job.log", *(nccl(rank, 2) for rank in (0, 1, 3)))])
        assert [row.state for row in report.ranks] == ["unreadable", "unreadable", "missing", "unreadable"]
