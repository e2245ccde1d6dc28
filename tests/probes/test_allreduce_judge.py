"""Verdict of the all-reduce test from the progress of its ranks, without starting any."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from ddpwizard.app.diagnosis.case import Case
from ddpwizard.app.evidence import Check
from ddpwizard.app.probes import allreduce
from ddpwizard.app.probes.allreduce_judge import RankProgress, all_reduce_verdict, build_bench_rows, parse_exit_codes
from ddpwizard.app.snapshot import AllreduceSection, Snapshot
from helpers.built_in_knowledge import built_in_knowledge

TORCHRUN_TABLE = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
======================================================
Failures:
[1]:
  time      : 2026-11-20_13:00:36
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 8957)  (SIGTERM)
------------------------------------------------------
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : -7 (pid: 8958)  (SIGBUS)
""".splitlines()  # torch 2.13.0; shortened


def row(size: int = 1024, seconds: float = 0.001, **wrong: Any) -> dict[str, Any]:
    return {"event": "row", "bytes": size, "seconds": seconds, "wrong": 0, **wrong}


def log(**fields: Any) -> RankProgress:
    return RankProgress(**{"pid": 1, "joined": True, "call": 5, "call_bytes": 65536, **fields})


class TestChooseBackend:
    def test_nccl_with_one_rank_per_gpu(self):
        assert allreduce.choose_backend(["nccl", "gloo"], 8, None) == ("nccl", 8)
        assert allreduce.choose_backend(["nccl", "gloo"], 8, 4) == ("nccl", 4)

    def test_gloo_if_ranks_share_a_gpu_or_there_is_none(self):
        assert allreduce.choose_backend(["nccl", "gloo"], 1, 2) == ("gloo", 2)
        assert allreduce.choose_backend(["gloo"], 0, None) == ("gloo", 2)
        assert allreduce.choose_backend([], 0, None)[0] == ""


def test_environment_keeps_variables_of_the_user():
    given = {"RANK": "1", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "x", "NCCL_SOCKET_IFNAME": "ens3", "RANKING": "1"}
    kept = allreduce.clean_environment({**given, "NCCL_DEBUG": "INFO"})
    assert kept == {"OMP_NUM_THREADS": "1", "NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "ens3", "RANKING": "1"}


class TestVerdict:
    def test_all_done(self):
        assert all_reduce_verdict({0: log(done=True), 1: log(done=True)}, False) == ("done", [], "")

    def test_wrong_elements(self):
        wrong = row(16, wrong=2, first=1, should=3.0, got="nan")
        ended, ranks, text = all_reduce_verdict(
            {0: log(done=True, rows=[row(16)]), 1: log(done=True, rows=[wrong])}, False
        )
        assert (ended, ranks) == ("done", [1])
        assert text == "2 of 4 elements wrong on rank 1 at 16 B: number 1 should be 3 and is nan"

    def test_rank_behind_is_named_at_a_timeout(self):
        ended, ranks, text = all_reduce_verdict({0: log(call=6), 1: log(call=5), 2: log(call=6)}, True)
        assert (ended, ranks) == ("hung", [1])
        assert text == "rank 1 was still in all-reduce 5 (64 KiB), ranks 0, 2 in all-reduce 6 (64 KiB)"

    def test_all_ranks_in_the_same_collective(self):
        ended, ranks, text = all_reduce_verdict({0: log(), 1: log()}, True)
        assert (ended, ranks) == ("hung", [])
        assert text.startswith("all 2 ranks were in all-reduce 5")

    def test_rank_that_never_started(self):
        ended, ranks, text = all_reduce_verdict({0: log(joined=False, call=-1), 1: RankProgress()}, True)
        assert (ended, ranks, text) == ("hung", [1], "rank 1 was still starting up, rank 0 joining the others")

    def test_first_error_counts_but_a_killed_rank_comes_before_it(self):
        first = log(error="RuntimeError: no", error_at=1.0)
        later = log(error="Connection closed by peer", error_at=2.0)
        assert all_reduce_verdict({0: later, 1: first}, False)[1] == [1]
        ended, ranks, text = all_reduce_verdict({0: later, 1: log(exit_code=-9), 2: log(exit_code=-15)}, False)
        assert (ended, ranks) == ("failed", [1])
        assert "SIGKILL" in text

    def test_torchrun_alone_failed(self):
        ended, ranks, text = all_reduce_verdict(
            {0: RankProgress(), 1: RankProgress()}, False, "RuntimeError: no address"
        )
        assert (ended, ranks) == ("failed", [])
        assert text.endswith("RuntimeError: no address")


def test_exit_codes_from_the_table_of_torchrun():
    assert parse_exit_codes(TORCHRUN_TABLE) == {0: -15, 1: -7}


def test_rows_use_the_slowest_rank_and_sizes_that_all_finished():
    logs = {0: log(rows=[row(1000, 0.5), row(2000, 1.0)]), 1: log(rows=[row(1000, 1.0, wrong=1)])}
    (only,) = build_bench_rows("gloo", logs)
    assert (only.seconds, only.correct, only.algbw_gbps, only.busbw_gbps) == (1.0, False, 1e-6, 1e-6)


@pytest.mark.parametrize(
    ("line", "finding"),
    [
        ("ncclInvalidUsage: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000", "duplicate-gpu"),
        ("Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1", "duplicate-gpu"),
        ("Error while creating shared memory segment /dev/shm/nccl-X (size 9637888)", "shm-error"),
        ("Bootstrap : no socket interface found", "interface-error"),
        ("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)", "hung"),
        ("RuntimeError: something else", "failed"),
    ],
)
def test_last_lines_of_the_ranks_give_the_finding(line: str, finding: str):
    section = AllreduceSection(
        backend="nccl", ranks=2, rows=[], verdict="rank 0 failed", ended="failed", last_lines={0: [f"[rank0]: {line}"]}
    )
    (check,) = allreduce.judge(Snapshot(taken_at=0, host="b", ddpwizard_version="0", allreduce=section))
    assert (check.status, check.finding) == ("fail", f"allreduce.{finding}")
    assert line in check.detail and "[rank0]" not in check.detail


def judged(backend: str, **fields: Any) -> Check:
    section = AllreduceSection(backend=backend, ranks=2, rows=[], load=3.5, cpus=2, **fields)
    (check,) = allreduce.judge(Snapshot(taken_at=0, host="b", ddpwizard_version="0", allreduce=section))
    return check


WRONG = {
    "correct": {},
    "wrong-data": {"verdict": "2 of 4 elements wrong"},
    "hung": {"verdict": "all 2 ranks were in all-reduce 5", "ended": "hung"},
    "failed": {"verdict": "rank 0 failed: RuntimeError", "ended": "failed"},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_test_on_cpus_is_no_evidence_about_gpus_and_links(name: str):
    on_cpus, on_gpus = judged("gloo", **WRONG[name]), judged("nccl", **WRONG[name])
    assert on_cpus.finding == on_gpus.finding == f"allreduce.{name}"
    assert on_cpus.evidence() is None and on_gpus.evidence() is not None
    assert "the load was 3.5 on 2 CPUs" in on_cpus.detail and "not on GPUs" in on_cpus.detail
    assert "nothing of GPUs" not in on_gpus.detail and "NCCL" not in on_cpus.fix


def test_shared_memory_and_interfaces_are_the_same_for_every_backend():
    full = judged("gloo", verdict="rank 0 failed: No space left on device", ended="failed")
    assert full.evidence() is not None and full.finding == "allreduce.shm-error"


def test_a_correct_test_on_cpus_names_no_slow_link():
    """“Too slow” without a job: the test that ran by itself on a loaded machine made a slow link the first cause."""

    def shares(check: Check | None) -> dict[str, float]:
        case = Case(built_in_knowledge())
        case.answer("symptom", "wrong-or-slow")
        case.answer("slow-or-wrong", "slow")
        case.add(item for item in [check.evidence() if check else None] if item)
        return {cause.id: cause.confidence for cause in case.diagnosis().causes}

    assert shares(judged("gloo")) == shares(None)
    assert shares(judged("nccl"))["slow-link"] > shares(None)["slow-link"]


def agent() -> Any:
    spec = importlib.util.spec_from_file_location("allreduce_agent", Path(allreduce.AGENT))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TestPattern:
    """The data of the test: a swap of ranks, a shift and a chunk in a wrong place are all detected."""

    def test_sum_is_exact(self):
        import torch

        module = agent()
        for count in (1, 250, 251, 1000):
            parts = [module.fill_pattern(torch, rank, count, "cpu") for rank in range(4)]
            assert all(len(part) == count for part in parts)
            assert torch.equal(torch.stack(parts).sum(dim=0), module.expected_sum(torch, 4, count, "cpu"))

    def test_faults_are_detected(self):
        import torch

        module = agent()
        right = module.expected_sum(torch, 4, 4096, "cpu")
        parts = [module.fill_pattern(torch, rank, 4096, "cpu") for rank in range(4)]

        def wrong(*taken: Any) -> int:
            return module.wrong_elements(torch, sum(taken[1:], taken[0]), right)["wrong"]

        assert wrong(*parts) == 0
        assert wrong(parts[0], parts[1], parts[2], parts[2]) > 3000, "one rank twice, one missing"
        assert wrong(*parts[:3], parts[3].roll(1)) > 3000, "shifted by one"
        swapped = torch.cat([right[1024:2048], right[:1024], right[2048:]])
        assert module.wrong_elements(torch, swapped, right)["wrong"] > 1500, "chunks in each other's place"

    def test_first_wrong_element_is_reported(self):
        import torch

        data = torch.tensor([1.0, 2.0, float("nan"), 9.0])
        found = agent().wrong_elements(torch, data, torch.tensor([1.0, 2.0, 3.0, 4.0]))
        assert found == {"wrong": 2, "first": 2, "should": 3.0, "got": "nan"}
