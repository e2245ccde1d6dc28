"""``diagnose --probe`` while a job runs: it counts only in a case of its own log or script."""

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.command import ddpwizard
from helpers.hang_jobs import named, standing

pytestmark = [pytest.mark.jobs, pytest.mark.alone, pytest.mark.slow]


def diagnosed(*arguments: str) -> tuple[dict[str, Any], str]:
    done = ddpwizard("diagnose", *arguments, "--probe", "--json")
    return json.loads(done.stdout), done.stderr


def test_a_job_counts_only_in_a_case_of_its_own_log_or_script(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    log = tmp_path / "old.log"
    log.write_text(
        "[rank0]: step 1\n[rank1]: step 1\nWatchdog caught collective operation timeout: WorkNCCL(SeqNum=3)\n"
    )
    with standing(named("sharded"), tmp_path / "job") as there:
        other, noted = diagnosed(str(log))
        assert not [item for item in other["evidence"] if item["source"] == "job"]
        assert f"It is not the job of this case, and does not count: ddpwizard triage --pid {there.pid}" in noted
        own, noted = diagnosed("--script", str(tmp_path / "job" / "sharded.py"))
        assert own["causes"][0]["id"] == "rank-conditional-collective"
        assert [item for item in own["evidence"] if item["source"] == "job"]
        assert f"--pid {there.pid}" not in noted
