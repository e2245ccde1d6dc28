"""Saved observations: without secrets, read back, merged over hosts."""

import gzip
from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.jobs.types import Job
from ddpwizard.app.triage import saved
from ddpwizard.app.triage.types import Observation, ProcessSamples
from ddpwizard.app.triage.verdict import judge_job
from helpers.synthetic_job import SCRIPT, job, observation, stack, still

TEXT = """import os
KEY = "hf_AbCdEfGhIjKlMnOpQrStUvWx"
def main():
    if rank == 0:
        dist.all_reduce(x)
    dist.barrier()
main()
"""
INSIDE, OUTSIDE = stack("all_reduce", ("main", 5)), stack("barrier", ("main", 6))


def of_host(host: str, ranks: list[int], world_size: int, master: str = "10.0.0.1:29500") -> Observation:
    """Return the ranks of one host; rank 0 waits in the all_reduce under its condition."""
    per_host = str(len(ranks))
    here = msgspec.structs.replace(
        job(world_size, ranks, TORCHELASTIC_RUN_ID="run7", LOCAL_WORLD_SIZE=per_host, HF_TOKEN="hf_" + "x" * 24),
        host=host,
        master=master,
    )
    processes = [msgspec.structs.replace(p, pid=100 + n, local_rank=n) for n, p in enumerate(here.processes)]
    here = msgspec.structs.replace(here, processes=processes)
    samples = {p.pid: still(INSIDE if p.rank == 0 else OUTSIDE) for p in processes}
    return observation(here, samples, {SCRIPT: TEXT})


def saved_bundle(*observations: Observation) -> saved.Bundle:
    return msgspec.json.decode(saved.encode_bundle(observations), type=saved.Bundle)


class TestFile:
    def test_bundle_round_trip(self, tmp_path: Path) -> None:
        observed = of_host("node-1", [0, 1, 2], 3)
        path = tmp_path / "triage.json.gz"
        path.write_bytes(gzip.compress(saved.encode_bundle([observed])))
        (again,) = saved.merge_bundles([saved.read_bundle(path)])
        assert judge_job(again).verdict == judge_job(observed).verdict
        assert judge_job(again).verdict.culprits == [0]

    def test_bundle_holds_no_secret(self) -> None:
        content = saved.encode_bundle([of_host("node-1", [0, 1], 2)])
        assert b"hf_" not in content
        assert b"HF_TOKEN" not in content
        assert b"LOCAL_WORLD_SIZE" in content

    @pytest.mark.parametrize(
        "content", [b"", b"{", b"[]", b"\x1f\x8b\x00", b"\xff\xfe", b"[" * 100_000, b'{"schema": 1}']
    )
    def test_a_file_that_is_no_bundle_is_rejected_in_one_line(self, content: bytes, tmp_path: Path) -> None:
        path = tmp_path / "triage.json"
        path.write_bytes(content)
        with pytest.raises(UserError) as refusal:
            saved.read_bundle(path)
        assert str(path) in refusal.value.message
        assert "\n" not in refusal.value.message

    def test_another_schema_is_rejected(self, tmp_path: Path) -> None:
        path = tmp_path / "x.json"
        path.write_bytes(saved.encode_bundle([]).replace(b"triage-bundle/1", b"triage-bundle/9"))
        with pytest.raises(UserError, match="triage-bundle/9"):
            saved.read_bundle(path)

    def test_a_missing_file_is_reported(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="No such file"):
            saved.read_bundle(tmp_path / "none")


class TestMerge:
    def test_one_job_on_two_hosts_is_judged_as_one(self) -> None:
        (observed,) = saved.merge_bundles(
            [saved_bundle(of_host("node-2", [2, 3], 4)), saved_bundle(of_host("node-1", [0, 1], 4))]
        )
        report = judge_job(observed)
        assert (report.nodes, [row.host for row in report.ranks]) == (
            ["node-1", "node-2"],
            ["node-1", "node-1", "node-2", "node-2"],
        )
        assert (report.verdict.state, report.verdict.culprits) == ("hung", [0])
        assert report.verdict.branch == f"{SCRIPT}:4"

    def test_the_order_of_files_does_not_matter(self) -> None:
        one, two = saved_bundle(of_host("node-1", [0, 1], 4)), saved_bundle(of_host("node-2", [2, 3], 4))
        assert (
            judge_job(saved.merge_bundles([one, two])[0]).ranks == judge_job(saved.merge_bundles([two, one])[0]).ranks
        )

    def test_ranks_of_an_uninspected_host_are_unreadable(self) -> None:
        report = judge_job(saved.merge_bundles([saved_bundle(of_host("node-1", [0, 1], 4))])[0])
        assert [row.state for row in report.ranks][2:] == ["unreadable"] * 2

    def test_a_later_bundle_of_a_host_replaces_the_earlier(self) -> None:
        old, new = saved_bundle(of_host("node-1", [0, 1], 2)), saved_bundle(of_host("node-1", [0, 1], 2))
        (observed,) = saved.merge_bundles([new, old])
        assert len(observed.seen) == 2

    def test_different_jobs_are_not_merged(self) -> None:
        one, two = (of_host(host, [0, 1], 2, "localhost:29500") for host in ("node-1", "node-2"))
        assert len(saved.merge_bundles([saved_bundle(one), saved_bundle(two)])) == 2


def test_bundle_of_a_job_without_processes() -> None:
    empty: Job = job(2, [])
    (observed,) = saved.merge_bundles([saved_bundle(Observation(job=empty, seen=list[ProcessSamples]()))])
    assert judge_job(observed).verdict.state == "starting"
