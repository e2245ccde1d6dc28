"""Probes run within their limits and at their level; a failing probe does not stop the others."""

import asyncio
import sys
import time
from typing import Any

import pytest
from ddpwizard.app.errors import InspectionError
from ddpwizard.app.evidence import Check
from ddpwizard.app.probes import gpus, run_probes, software
from ddpwizard.app.probes.context import LEVELS, ProbeContext
from ddpwizard.app.snapshot import GpuSection, Snapshot, SoftwareSection
from ddpwizard.knowledge.schema import Intrusiveness, Knowledge
from helpers.built_in_knowledge import built_in_knowledge
from msgspec.structs import replace

KNOWLEDGE = built_in_knowledge()
SOFTWARE = SoftwareSection(python="p", python_version="3.12.1", torch="2.13.0", backends=["gloo"])
GPUS = GpuSection(problem="no driver")


@pytest.fixture
def collectors(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a coroutine function in place of the collector of ``software`` or ``gpus``."""

    def put(**given: Any) -> None:
        for name, collect in given.items():
            monkeypatch.setattr({"software": software, "gpus": gpus}[name], "collect", collect)

    async def answer_software(_context: ProbeContext, _limit_s: float) -> SoftwareSection:
        return SOFTWARE

    async def answer_gpus(_context: ProbeContext, _limit_s: float) -> GpuSection:
        return GPUS

    put(software=answer_software, gpus=answer_gpus)
    return put


def run(knowledge: Knowledge = KNOWLEDGE, granted: Intrusiveness = "reads", **more: Any) -> Snapshot:
    context = ProbeContext(python=sys.executable)
    return asyncio.run(run_probes.run_probes(["gpus", "software"], context, knowledge, granted=granted, **more))


def with_spec(probe: str, **changes: Any) -> Knowledge:
    return replace(KNOWLEDGE, probes={**KNOWLEDGE.probes, probe: replace(KNOWLEDGE.probes[probe], **changes)})


def test_every_probe_has_a_declaration_a_module_and_a_section():
    for probe in run_probes.PROBES:
        assert probe in KNOWLEDGE.probes
        assert probe in Snapshot.__struct_fields__


class TestPermittedProbes:
    def test_levels_add_up(self):
        by_level = [run_probes.permitted_probes(KNOWLEDGE, level) for level in LEVELS]
        assert "env" in by_level[0] and "resolve" not in by_level[0]
        assert "resolve" in by_level[1] and "allreduce" not in by_level[1]
        assert set(by_level[2]) == set(run_probes.PROBES)


class TestRunProbes:
    def test_sections_and_callbacks(self, collectors: Any):
        events: list[object] = []
        snapshot = run(on_start=events.append, on_done=lambda probe, part: events.append((probe, part.failed)))
        assert (snapshot.software, snapshot.gpus, snapshot.failed) == (SOFTWARE, GPUS, {})
        assert snapshot.host and snapshot.ddpwizard_version
        assert sorted(events, key=str) == sorted(["gpus", "software", ("gpus", {}), ("software", {})], key=str)

    def test_readers_run_at_the_same_time(self, collectors: Any):
        both = {"software": asyncio.Event(), "gpus": asyncio.Event()}

        def waits_for(mine: str, other: str, section: object) -> Any:
            async def collect(_context: ProbeContext, _limit_s: float) -> object:
                both[mine].set()
                await both[other].wait()
                return section

            return collect

        collectors(software=waits_for("software", "gpus", SOFTWARE), gpus=waits_for("gpus", "software", GPUS))
        assert run(with_spec("gpus", limit_s=5)).failed == {}

    @pytest.mark.parametrize(
        ("error", "text"),
        [
            (InspectionError("NVML is silent", "look at dmesg"), "NVML is silent → look at dmesg"),
            (ValueError("boom"), "the check itself failed: ValueError: boom"),
        ],
    )
    def test_failing_probe_leaves_the_others(self, collectors: Any, error: Exception, text: str):
        async def fail(_context: ProbeContext, _limit_s: float) -> GpuSection:
            raise error

        collectors(gpus=fail)
        snapshot = run()
        assert snapshot.failed == {"gpus": text}
        assert snapshot.software == SOFTWARE

    def test_hanging_probe_times_out(self, collectors: Any, monkeypatch: pytest.MonkeyPatch):
        async def never(_context: ProbeContext, _limit_s: float) -> GpuSection:
            await asyncio.Event().wait()
            raise AssertionError

        monkeypatch.setattr(run_probes, "SLACK_S", 0.1)
        collectors(gpus=never)
        started = time.monotonic()
        snapshot = run(with_spec("gpus", limit_s=0.2))
        assert time.monotonic() - started < 30
        assert snapshot.failed == {"gpus": "did not answer within 0.2 s"}
        assert snapshot.software == SOFTWARE

    def test_collector_gets_its_limit(self, collectors: Any):
        seen: list[float] = []

        async def collect(_context: ProbeContext, limit_s: float) -> GpuSection:
            seen.append(limit_s)
            return GPUS

        collectors(gpus=collect)
        run()
        assert seen == [KNOWLEDGE.probes["gpus"].limit_s]

    def test_probe_above_the_level_is_not_run(self, collectors: Any):
        async def forbidden(_context: ProbeContext, _limit_s: float) -> GpuSection:
            raise AssertionError("was run")

        collectors(gpus=forbidden)
        snapshot = run(with_spec("gpus", intrusiveness="perturbs"), granted="connects")
        assert snapshot.failed == {"gpus": "not run: it may pause a job; --allow perturbs runs it"}


class TestJudge:
    def test_a_failed_probe_is_unknown_never_ok(self):
        snapshot = Snapshot(taken_at=0, host="b", ddpwizard_version="0", failed={"gpus": "no answer"})
        (check,) = run_probes.judge_snapshot(snapshot)
        assert (check.id, check.status, check.detail, check.evidence()) == ("gpus", "unknown", "no answer", None)

    def test_only_requested_probes_are_judged(self):
        snapshot = Snapshot(taken_at=0, host="b", ddpwizard_version="0", software=SOFTWARE, gpus=GPUS)
        assert {check.finding for check in run_probes.judge_snapshot(snapshot)} == {"software.torch-fine", "gpus.none"}
        assert [check.finding for check in run_probes.judge_snapshot(snapshot, ["gpus"])] == ["gpus.none"]

    def test_duplicate_finding_is_reported_once(self, monkeypatch: pytest.MonkeyPatch):
        same = Check("a", "warn", "first", finding="env.visible-devices-odd", where="CUDA_VISIBLE_DEVICES")
        monkeypatch.setattr(software, "judge", lambda _snapshot: [same])
        monkeypatch.setattr(gpus, "judge", lambda _snapshot: [replace(same, title="again"), replace(same, where="x")])
        snapshot = Snapshot(taken_at=0, host="b", ddpwizard_version="0", software=SOFTWARE, gpus=GPUS)
        assert [(check.title, check.where) for check in run_probes.judge_snapshot(snapshot)] == [
            ("first", "CUDA_VISIBLE_DEVICES"),
            ("first", "x"),
        ]


class TestMerge:
    OLD = Snapshot(
        taken_at=1, host="b", ddpwizard_version="0", software=SOFTWARE, gpus=GPUS, failed={"ports": "old", "env": "old"}
    )

    def test_newer_section_replaces_the_older_one(self):
        newer = replace(SOFTWARE, torch="2.14.0")
        new = Snapshot(taken_at=2, host="b", ddpwizard_version="0", software=newer, failed={"env": "new"})
        merged = run_probes.merge_snapshots(self.OLD, new)
        assert (merged.taken_at, merged.software, merged.gpus) == (2, newer, GPUS)
        assert merged.failed == {"ports": "old", "env": "new"}

    def test_newer_failure_drops_the_older_section(self):
        new = Snapshot(taken_at=2, host="b", ddpwizard_version="0", failed={"gpus": "gone"})
        merged = run_probes.merge_snapshots(self.OLD, new)
        assert merged.gpus is None and merged.failed["gpus"] == "gone"

    def test_newer_section_drops_the_older_failure(self):
        old = Snapshot(taken_at=1, host="b", ddpwizard_version="0", failed={"gpus": "gone"})
        new = Snapshot(taken_at=2, host="b", ddpwizard_version="0", gpus=GPUS)
        assert run_probes.merge_snapshots(old, new).failed == {}
