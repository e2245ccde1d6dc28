"""Post-mortem: combine the last report of a finished job with the deaths in its logs."""

from pathlib import Path

import msgspec

from ..errors import UserError
from .job_logs import read
from .types import JobReport


def add_deaths_from_logs(report: JobReport) -> JobReport:
    """Return the last report of a job with the deaths found in its logs; unchanged if there are no logs or deaths."""
    observed = report.observed
    paths = [*(observed.log.files if observed.log else []), *(seen.output_from for seen in observed.seen)]
    files = [Path(path) for path in dict.fromkeys(paths) if path and Path(path).is_file()]
    if not files:
        return report
    try:
        deaths = read.deaths_in_log(read.read_job_logs(files))
    except UserError:
        return report
    new = [death for death in deaths if death not in observed.deaths]
    return msgspec.structs.replace(report, observed=msgspec.structs.replace(observed, deaths=[*observed.deaths, *new]))
