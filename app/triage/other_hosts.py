"""How to look at the hosts of a job that were not looked at: one command line for each way to get there."""

import shlex

from .types import JobReport

SAVE = 'ddpwizard triage --save "triage-$(hostname).json.gz"'


def ranks_on_other_hosts(report: JobReport) -> list[int]:
    """The ranks that live on hosts that were not looked at."""
    return [row.rank for row in report.ranks if row.state == "unreadable" and row.pid is None]


def commands_for_other_hosts(report: JobReport) -> list[str]:
    """What to type so that every host of the job is looked at, and how to put the answers together; none where all
    were seen."""
    if not ranks_on_other_hosts(report):
        return []
    environ = {name: value for process in report.job.processes for name, value in process.environ.items()}
    lines: list[str] = []
    if slurm_job := environ.get("SLURM_JOB_ID"):
        lines.append(f"srun --jobid={slurm_job} --overlap --ntasks-per-node=1 sh -c {shlex.quote(SAVE)}")
    if "KUBERNETES_SERVICE_HOST" in environ:
        lines.append("kubectl exec POD -- ddpwizard triage --save - > triage-POD.json   # for each pod of the job")
    if not lines:
        lines.append("ssh HOST ddpwizard triage --save - > triage-HOST.json   # for each host of the job")
    return [*lines, "ddpwizard triage --merge triage-*.json*"]
