"""The all-reduce test for real: processes under torchrun, and the faults it must name."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from ddpwizard.app.errors import InspectionError
from ddpwizard.app.evidence import Check
from ddpwizard.app.probes import allreduce
from ddpwizard.app.probes.context import ProbeContext
from ddpwizard.app.snapshot import AllreduceSection, Snapshot
from helpers.torchrun_ranks import fault, no_rank_left, rank_pids, ranks_started
from msgspec.structs import replace

pytestmark = pytest.mark.jobs
AGENT = str(allreduce.AGENT)
LIMIT_S = 300.0  # long, for a busy machine
CANCELLED_S = 20.0  # a busy machine's pause, and far less than the test would go on for


@pytest.fixture(autouse=True)
def short_collectives(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hang is reported after seconds."""
    monkeypatch.setattr(allreduce, "COLLECTIVE_LIMIT_S", 6.0)


def context(ranks: int, environ: "dict[str, str] | None" = None) -> ProbeContext:
    return ProbeContext(python=sys.executable, ranks=ranks, environ={**os.environ, **(environ or {})})


def judged(section: AllreduceSection) -> Check:
    (check,) = allreduce.judge(Snapshot(taken_at=0, host="box", ddpwizard_version="0", allreduce=section))
    return check


def test_it_goes_through_with_every_element_right():
    progress: list[str] = []
    section = asyncio.run(allreduce.collect(replace(context(3), progress=progress.append), LIMIT_S))
    assert (section.backend, section.ranks, section.ended, section.verdict) == ("gloo", 3, "done", "")
    assert [row.bytes for row in section.rows] == [4, 65536, 1 << 20, 16 << 20]
    assert all(row.correct for row in section.rows)
    for row in section.rows:
        assert row.algbw_gbps == pytest.approx(row.bytes / row.seconds / 1e9)
        assert row.busbw_gbps == pytest.approx(row.algbw_gbps * 2 * 2 / 3)
    assert [line for line in progress if "16 MiB in" in line], progress
    assert judged(section).finding == "allreduce.correct"


def test_variables_of_another_launcher_do_no_harm():
    left_over = {"RANK": "7", "WORLD_SIZE": "64", "MASTER_ADDR": "203.0.113.1", "MASTER_PORT": "1", "PET_NNODES": "9"}
    assert asyncio.run(allreduce.collect(context(2, left_over), LIMIT_S)).ended == "done"


def test_a_wrong_interface_is_named():
    section = asyncio.run(allreduce.collect(context(2, {"GLOO_SOCKET_IFNAME": "nope0"}), LIMIT_S))
    assert (section.ended, section.culprits, section.rows) == ("failed", [0, 1], [])
    assert "ranks 0, 1 failed while joining the others" in section.verdict
    assert "nope0" in section.verdict
    assert any("nope0" in line for line in section.last_lines[0])
    assert judged(section).finding == "allreduce.interface-error"


def test_wrong_data_is_found_and_its_place_named(tmp_path: Path):
    # Call 53 is the first at 64 KiB; rank 1 then gives one element that is too large.
    environ = fault(tmp_path, rank=1, call=53, code="tensor[12345] += 1")
    section = asyncio.run(allreduce.collect(context(2, environ), LIMIT_S))
    assert section.ended == "done"
    assert [row.correct for row in section.rows] == [True, False, True, True]
    assert section.culprits == [0, 1], "the sum is wrong on every rank"
    assert "1 of 16384 elements wrong on rank 0 at 64 KiB: number 12345 should be" in section.verdict
    assert judged(section).finding == "allreduce.wrong-data"


def test_a_stopped_rank_is_named(tmp_path: Path):
    environ = fault(tmp_path, rank=1, call=60, code="os.kill(os.getpid(), signal.SIGSTOP)")
    section = asyncio.run(allreduce.collect(context(3, environ), LIMIT_S))
    assert (section.ended, section.culprits) == ("hung", [1])
    assert section.verdict == "rank 1 was stopped (by a signal or a debugger) while in all-reduce 60 (64 KiB)"
    assert [row.bytes for row in section.rows] == [4]
    assert judged(section).finding == "allreduce.hung"


def test_a_rank_that_sleeps_is_named(tmp_path: Path):
    """It is alive, but never enters the collective that the others wait in."""
    code = "real(tensor); __import__('time').sleep(600)"
    environ = fault(tmp_path, rank=2, call=59, code=code)
    section = asyncio.run(allreduce.collect(context(3, environ), LIMIT_S))
    assert (section.ended, section.culprits) == ("hung", [2])
    assert section.verdict == "rank 2 was still in all-reduce 59 (64 KiB), ranks 0, 1 in all-reduce 60 (64 KiB)"
    assert judged(section).finding == "allreduce.hung"
    assert any("Timed out" in line for line in section.last_lines[0])


def test_a_rank_stopped_from_outside_before_it_joins():
    async def scenario() -> AllreduceSection:
        task = asyncio.ensure_future(allreduce.collect(context(2), LIMIT_S))
        os.kill((await ranks_started(AGENT, 2))[1], signal.SIGSTOP)
        return await task

    section = asyncio.run(scenario())
    assert (section.ended, section.culprits) == ("hung", [1])
    assert judged(section).finding == "allreduce.hung"


def test_a_killed_rank_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also where the launcher reports it much later than the others their lost connections."""
    monkeypatch.setattr(allreduce, "GRACE_S", 0.3)  # the kernel closes connections of a killed rank before it is dead
    environ = fault(tmp_path, rank=1, call=60, code="os.kill(os.getpid(), signal.SIGKILL)")
    section = asyncio.run(allreduce.collect(context(3, environ), LIMIT_S))
    assert (section.ended, section.culprits) == ("failed", [1])
    assert section.verdict == "rank 1 was ended by SIGKILL (signal 9) while in all-reduce 60 (64 KiB)"


def test_cancel_leaves_nothing_behind():
    async def scenario() -> float:
        task = asyncio.ensure_future(allreduce.collect(context(3), LIMIT_S))
        await ranks_started(AGENT, 3)
        started = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        answered_s = time.monotonic() - started
        await no_rank_left(AGENT, limit_s=60)
        return answered_s

    assert asyncio.run(scenario()) < CANCELLED_S
    assert rank_pids(AGENT) == {}


def test_an_interpreter_that_cannot(tmp_path: Path):
    (tmp_path / "torch.py").write_text("raise ImportError('half an installation')")
    with pytest.raises(InspectionError, match="half an installation"):
        asyncio.run(allreduce.collect(context(2, {"PYTHONPATH": str(tmp_path)}), LIMIT_S))
