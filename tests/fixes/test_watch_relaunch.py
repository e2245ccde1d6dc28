"""A job that was started to prove a fix is recognised."""

import os
import subprocess
import sys

import pytest
from ddpwizard.app.fixes.watch_relaunch import MARK, is_relaunched
from ddpwizard.app.jobs import discover
from helpers.jobs import wait_for


@pytest.mark.parametrize("mark", ["", "0123"])
def test_job_of_a_proof_is_recognised_by_its_environment(mark: str) -> None:
    contract = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    environ = {**os.environ, **contract, **({MARK: mark} if mark else {})}
    with subprocess.Popen([sys.executable, "-c", "input()"], env=environ, stdin=subprocess.PIPE) as rank:
        job = wait_for(lambda: next(iter(discover.job_of_pid(rank.pid)), None), "the job")
        assert is_relaunched(job) == bool(mark)
        rank.kill()
