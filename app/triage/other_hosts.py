"""The hosts of a job: one or several, and commands to inspect those that have not been inspected yet."""

import re
import shlex

from .types import JobReport

LOOPBACK = ("localhost", "127.0.0.1", "::1")
SAVE_FROM_HOST = "ssh HOST ddpwizard triage --save - > triage-HOST.json   # for each host of the job"
MERGE = "ddpwizard triage --merge triage-*.json*"
NOT_INSPECTED = "Ranks on other hosts were not inspected. To include them:"
SLURM_JOB_ID = re.compile(r"[0-9][0-9_]{0,30}")
SAVE = 'ddpwizard triage --save "triage-$(hostname).json.gz"'


def ranks_on_other_hosts(report: JobReport) -> list[int]:
    """Return the ranks on hosts that were not inspected."""
    return [row.rank for row in report.ranks if row.state == "unreadable" and row.pid is None]


def runs_on_one_node(report: JobReport) -> bool | None:
    """Return whether all ranks of a job are on one node; None if a rank is missing that may be on another."""
    if len(report.nodes) > 1 or ranks_on_other_hosts(report):
        return False
    environ = next((process.environ for process in report.job.processes), {})
    here = environ.get("LOCAL_WORLD_SIZE") == environ.get("WORLD_SIZE", "")
    loopback = report.job.master.rpartition(":")[0].strip("[]") in LOOPBACK
    missing = any(row.state == "missing" for row in report.ranks)
    return True if here or loopback or not missing else None


def other_hosts_lines(report: JobReport) -> list[str]:
    """Return how to include the hosts that were not inspected, as indented lines; [] if all were."""
    commands = commands_for_other_hosts(report)
    return [NOT_INSPECTED, *(f"  {command}" for command in commands)] if commands else []


def commands_for_other_hosts(report: JobReport) -> list[str]:
    """Return commands that inspect every host of the job and merge the results; empty if all were inspected."""
    if not ranks_on_other_hosts(report):
        return []
    environ = {name: value for process in report.job.processes for name, value in process.environ.items()}
    lines: list[str] = []
    slurm_job = environ.get("SLURM_JOB_ID", "")
    if SLURM_JOB_ID.fullmatch(slurm_job):  # a process may claim anything
        lines.append(f"srun --jobid={slurm_job} --overlap --ntasks-per-node=1 sh -c {shlex.quote(SAVE)}")
    if "KUBERNETES_SERVICE_HOST" in environ:
        lines.append("kubectl exec POD -- ddpwizard triage --save - > triage-POD.json   # for each pod of the job")
    if not lines:
        lines.append(SAVE_FROM_HOST)
    return [*lines, MERGE]
