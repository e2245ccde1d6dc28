"""A real job with torch's own debug server in it: asked only where that is allowed."""

import asyncio
import importlib.util
from pathlib import Path

import pytest
from ddpwizard.app.triage.triage import triage_jobs
from helpers.jobs import launched, triage_until, wait_for

pytestmark = [
    pytest.mark.jobs,
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(importlib.util.find_spec(name) for name in ("aiohttp", "jinja2", "tabulate")),
        reason="torch's debug server needs aiohttp, jinja2 and tabulate",
    ),
]


def test_its_records_join_the_verdict(tmp_path: Path) -> None:
    with launched("debugged.py", tmp_path, 2) as job:
        wait_for(lambda: job.printed("rank 0 is past the sum"), "the sum is done")
        before = triage_until(job.pid, "hung")
        assert before.observed.records == []
        assert any("--allow connects asks it" in problem for problem in before.observed.problems)
        (report,) = asyncio.run(triage_jobs(pid=job.pid, allow="connects"))
        assert sorted(record.rank for record in report.observed.records) == [0, 1]
        assert report.verdict.culprits == before.verdict.culprits == [1]
        assert report.ranks[0].seq is not None
