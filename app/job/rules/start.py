"""Rules for a job that has not begun: no rank yet, ranks that join, ranks that never came."""

from .. import words
from ..types import Verdict
from .scene import INIT, PATIENCE_S, Scene, hung, numbers, they_wait, told


def nothing_started(scene: Scene) -> Verdict | None:
    """The launcher lives and has started no rank."""
    if scene.observed.seen:
        return None
    job = scene.job
    name = f"{job.launcher} (pid {job.launcher_pid})"
    nodes = nodes_asked_for(job.launcher_command)
    if nodes > len(scene.observed.hosts):
        looked_at = len(scene.observed.hosts)
        text = (
            f"{name} has started no rank yet: it asks for {nodes} nodes, "
            f"and {'one was' if looked_at == 1 else f'{looked_at} were'} looked at. It waits for the others to come."
        )
        return hung("ranks-missing-at-init", [], text, 0.6, ["job.waiting-at-init", "job.rank-missing"])
    return told("starting", f"{name} has started no rank yet.", 0.6)


def nodes_asked_for(command: list[str]) -> int:
    """The least number of nodes a launcher's command line asks for (``--nnodes=2``, ``--nnodes 1:4``); 1 where none."""
    for index, word in enumerate(command):
        name, _, value = word.partition("=")
        if name.replace("_", "-") in ("--nnodes", "--num-machines", "--num-nodes"):
            given = value or (command[index + 1] if index + 1 < len(command) else "")
            least = given.partition(":")[0]
            return int(least) if least.isdecimal() else 1
    return 1


def coming_up(scene: Scene) -> Verdict | None:
    """Ranks are still imported, or join within the first seconds."""
    if not scene.living or any(stand.collective not in (None, INIT) for stand in scene.living):
        return None
    if scene.moving and all(stand.row.state == "starting" or stand.collective == INIT for stand in scene.living):
        return told("starting", "The ranks are starting up.", 0.8)
    if scene.waiting and scene.idle and scene.age_s < PATIENCE_S:
        return told("starting", "The ranks are starting up.", 0.7)
    return None


def joining(scene: Scene) -> Verdict | None:
    """Every rank that lives waits in ``init_process_group``."""
    if not scene.waiting or scene.idle or any(stand.collective != INIT for stand in scene.waiting):
        return None
    wait = they_wait(scene.waiting)
    if scene.gone:
        gone = words.ranks(numbers(scene.gone))
        if scene.age_s < PATIENCE_S:
            return told("starting", f"{wait} for {words.within(gone)}, not started yet.", 0.6)
        text = f"{wait} for {words.within(gone)}: no such process lives here."
        findings = ["job.rank-missing", "job.waiting-at-init"]
        return hung("ranks-missing-at-init", scene.gone, text, 0.85, findings, waiting=scene.waiting)
    if scene.age_s < PATIENCE_S:
        return told("starting", "The ranks are joining the process group.", 0.6)
    elsewhere = len(scene.unread)
    what = f" for {elsewhere} that should join from other hosts" if elsewhere else ", although all ranks are here"
    text = f"{wait}{what}. Look at MASTER_ADDR and MASTER_PORT ({scene.job.master or 'not set'}) next."
    return hung(None, [], text, 0.5, ["job.waiting-at-init"], waiting=scene.waiting)
