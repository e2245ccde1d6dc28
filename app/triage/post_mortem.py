"""A job that is there no more: what its logs say of how it ended, beside what was seen of it last."""

from pathlib import Path

import msgspec

from ..errors import UserError
from .job_logs import read
from .types import JobReport


def add_deaths_from_logs(report: JobReport) -> JobReport:
    """The last report of a job with the deaths that its logs tell by now; as it is where they are gone or say none."""
    seen = report.observed
    paths = [*(seen.log.files if seen.log else []), *(each.output_from for each in seen.seen)]
    files = [Path(path) for path in dict.fromkeys(paths) if path and Path(path).is_file()]
    if not files:
        return report
    try:
        told = read.deaths_in_log(read.read_job_logs(files))
    except UserError:
        return report
    new = [death for death in told if death not in seen.deaths]
    return msgspec.structs.replace(report, observed=msgspec.structs.replace(seen, deaths=[*seen.deaths, *new]))
