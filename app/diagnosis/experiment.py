"""The experiment that decides a case when answers do not: what to run, and what it shows."""

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from ..triage.other_hosts import MERGE, SAVE_FROM_HOST
from .case import Case
from .symptoms import symptom_of

SCRIPT = "train.py"  # in place of a script whose path is not known
WHERE_IS_JOB = "where-is-job"
ELSEWHERE = ("other-host", "container", "other-user")  # answers after which the job can be inspected elsewhere
INSPECT_THERE = "Inspect it where it runs:"
LAUNCH_LINES = {
    "plain-python": "python {script}",
    "accelerate": "accelerate launch {script}",
    "deepspeed": "deepspeed {script}",
    "scheduler": "srun python {script}",
}
TORCHRUN = "torchrun --nproc-per-node=2 {script}"
RUN = "ddpwizard run -- {launch}"
OWN_COMMAND = "Write your own command in place of: {launch}"


class Experiment(NamedTuple):
    """Commands to run, and what they show."""

    shows: str
    commands: list[str]


def choose_experiment(case: Case, launch_command: Sequence[str] = ()) -> Experiment:
    """Return the experiment for the symptom of a case. ``launch_command``: that of its job, if it is known."""
    if where := _where_it_runs(case.answer_to(WHERE_IS_JOB)):
        return where
    script = shlex.quote(case.script or SCRIPT)
    launched = LAUNCH_LINES.get(case.answer_to("how-launched"), TORCHRUN)
    launch = shlex.join(launch_command) if launch_command else launched.format(script=script)
    symptom = symptom_of(case.answers)
    found = _of_symptom(symptom.id if symptom else "", script, launch)
    return found if launch_command else found._replace(shows=f"{found.shows} {OWN_COMMAND.format(launch=launch)}")


def _of_symptom(symptom: str, script: str, launch: str) -> Experiment:
    run = RUN.format(launch=launch)
    match symptom:
        case "slow":
            return Experiment(
                "While the job runs, the second command names the rank that sets the pace, and where its time goes. "
                "The third compares the links with what they can do.",
                [f"{launch} &", "ddpwizard triage", "ddpwizard doctor --bench"],
            )
        case "wrong":
            return Experiment(
                "The review finds what makes ranks train on wrong data or step differently. Then train on one rank "
                "with the same total batch: if the numbers are right there, the error is between the ranks.",
                [f"ddpwizard review {script}", f"torchrun --nproc-per-node=1 {script}"],
            )
        case "memory":
            return Experiment(
                "The plan shows what fills the memory, and which strategy fits. The second command watches the run, "
                "and keeps the message of the rank that ran out first.",
                [f"ddpwizard plan --script {script}", run],
            )
        case "dead-start":
            return Experiment(
                "The check names what this machine lacks. The second command watches the run, and shows which rank "
                "does not join.",
                ["ddpwizard doctor", run],
            )
        case "crashed":
            return Experiment("It watches the run, and keeps the first error of the first rank that fails.", [run])
        case _:
            return Experiment(
                "It watches the run. Once the run stops making progress, it names the rank that the others wait for, "
                "its line, and why.",
                [run],
            )


def _where_it_runs(where: str) -> Experiment | None:
    """Return how to inspect a job that runs, but not as a process of this user on this host."""
    match where:
        case "other-host":
            return Experiment(
                "The job can be inspected where it runs, and the hosts compared here.", [SAVE_FROM_HOST, MERGE]
            )
        case "container":
            return Experiment(
                "The job can be inspected inside its container or pod.",
                ["docker exec CONTAINER ddpwizard triage", "kubectl exec POD -- ddpwizard triage"],
            )
        case "other-user":
            return Experiment("The job can be inspected as its user or as root.", ["sudo ddpwizard triage"])
        case _:
            return None
