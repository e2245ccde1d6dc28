"""Samples of real ranks that wait for different things."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from ddpwizard.app.jobs import discover
from ddpwizard.app.triage.sampling import sampler
from ddpwizard.app.triage.types import Observation, ProcessSamples
from helpers.jobs import SCRIPTS, RunningJob, launched, running, torchrun, wait_for

pytestmark = [pytest.mark.jobs, pytest.mark.slow]


def observed(job: RunningJob) -> Observation:
    (found,) = discover.job_of_pid(job.pid)
    return asyncio.run(sampler.sample_job(found, gap_s=0.5)).observed


def by_rank(observation: Observation) -> dict[int, ProcessSamples]:
    return {seen.process.rank: seen for seen in observation.seen if seen.process.rank is not None}


def is_at(seen: ProcessSamples, where: str) -> bool:
    return where in {f"{frame.path}:{frame.line}" for frame in seen.samples[-1].stack}


def settled(job: RunningJob, marks: list[str]) -> dict[int, ProcessSamples]:
    """The ranks, looked at after each has come to its line, by mark."""

    def there() -> bool:
        ranks = by_rank(observed(job))
        return len(ranks) == len(marks) and all(is_at(ranks[r], job.line(mark)) for r, mark in enumerate(marks))

    wait_for(there, f"the ranks stand at {marks}: {list(job.output)}")
    return by_rank(observed(job))


class TestWaits:
    def test_each_rank_waits_for_something_else(self, tmp_path: Path) -> None:
        script = tmp_path / "sampling_waits.py"
        script.write_text((SCRIPTS / script.name).read_text())
        command = torchrun(script, 5)
        command[3:3] = ["--log-dir", str(tmp_path / "logs"), "--redirects", "3"]
        with running(command, script, tmp_path, OMP_NUM_THREADS="1") as job:
            settled(job, ["PEERS", "SHELL", "INPUT", "PIPE", "LOCK"])
            os.kill(job.ranks()[0], signal.SIGSTOP)
            observation = observed(job)
            ranks = by_rank(observation)
            last = {rank: seen.samples[-1] for rank, seen in ranks.items()}
            assert [last[rank].process_state for rank in range(5)] == ["T", "S", "S", "S", "S"]
            assert is_at(ranks[0], job.line("PEERS"))

            (shell,) = ranks[1].children
            assert (shell.command, shell.kind, shell.process_state, shell.moved) == (
                ["sleep", "600"],
                "other",
                "S",
                False,
            )
            assert [ranks[rank].children for rank in (0, 2, 3, 4)] == [[]] * 4

            if last[3].waits_in:  # kernels may keep it to themselves
                assert "pipe" in last[3].waits_in
                assert "wait" in last[1].waits_in
                assert "futex" in last[4].waits_in
            (holder,) = [thread for thread in last[4].others if thread.name == "holder"]
            assert job.line("HOLDER") in {f"{frame.path}:{frame.line}" for frame in holder.frames}

            master = f":{ranks[1].process.environ['MASTER_PORT']}"
            for seen in ranks.values():
                assert any(link.peer.endswith(master) and link.state == "estab" for link in seen.links)
                assert seen.output_from.endswith(f"/{seen.process.rank}/stdout.log")
                assert seen.output[0] == f"step {seen.process.rank}"
            assert ranks[3].output[1] == "token=‹redacted› red"
            assert observation.sources.keys() == {str(script)}
            assert observation.log and len(observation.log.files) == 5

    def test_rank_whose_loader_workers_hang(self, tmp_path: Path) -> None:
        with launched("sampling_loader.py", tmp_path, 2) as job:
            ranks = settled(job, ["PEERS", "FETCH"])
            stuck = [child for child in ranks[1].children if child.kind == "loader"]
            assert len(stuck) == 2
            assert all(child.stack[0].function.endswith("__getitem__") for child in stuck)
            assert {child.process_state for child in stuck} == {"S"}
            worker = int(job.line("WORKER").rpartition(":")[2])
            assert {child.stack[0].line for child in stuck} == {worker}
            # A rank that waits in a collective is not worth the cost of reading its workers.
            assert all(not child.stack for child in ranks[0].children)

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a namespace")
    def test_rank_in_a_container_is_read_from_the_host(self, tmp_path: Path) -> None:
        script = tmp_path / "metrics.py"
        script.write_text((SCRIPTS / script.name).read_text())
        inside = ["unshare", "--pid", "--fork", "--mount-proc", *torchrun(script, 2)]
        with running(inside, script, tmp_path) as job:
            seen = settled(job, ["HANG", "PEERS"])
            ranks = job.ranks()
            assert {each.process.pid for each in seen.values()} == set(ranks.values())
            assert [each.samples[-1].problem for each in seen.values()] == ["", ""]
            assert all(each.links for each in seen.values())
