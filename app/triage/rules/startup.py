"""Rules for a job that has not begun: no rank yet, ranks that join, ranks that never came."""

from collections.abc import Sequence

from ...launchers.arguments import LaunchRequest
from ...training_script.frame import StackFrame
from .. import phrases
from ..rank_activity.frames import function_name
from ..types import Verdict
from .context import INIT, PATIENCE_S, JobContext, hang_verdict, make_verdict, rank_numbers, waiting_sentence

LOOPBACK = ("localhost", "127.", "::1", "[::1]")
NOBODY = ", where nobody answers yet"
NAMED = 8  # nodes that are named one by one


def nothing_started(scene: JobContext) -> Verdict | None:
    """The launcher lives and has started no rank."""
    if scene.observed.seen:
        return None
    job, asked = scene.job, scene.job.asked
    name = f"{job.launcher} (pid {job.launcher_pid})"
    launchers = scene.observed.launchers
    at_rendezvous = any(_at_rendezvous(launcher.stack) for launcher in launchers)
    unread = not any(launcher.stack for launcher in launchers)
    if asked is None or not (at_rendezvous or (unread and asked.most_nodes > 1)):
        return make_verdict("starting", f"{name} has started no rank yet.", 0.6)
    young = bool(launchers) and min(launcher.age_s for launcher in launchers) < PATIENCE_S
    came, then = max(len(launchers), 1), _next(asked, job.launcher)
    unanswered = any(function_name(frame) == "_create_tcp_store" for launcher in launchers for frame in launcher.stack)
    text = (
        f"{name} waits at the rendezvous{_at(asked.endpoint)}{NOBODY if unanswered else ''}: {_who_came(asked, came)}"
    )
    if came >= asked.least_nodes:
        if asked.most_nodes > asked.least_nodes:
            return make_verdict(
                "starting", f"{text} It gives others half a minute to come, then it starts the ranks.", 0.6
            )
        return make_verdict("starting" if young else "hung", f"{text} {then}", 0.5, ["job.waiting-at-init"])
    sure = 0.6 if unread else 0.85
    findings = ["job.waiting-at-init", "job.rank-missing"]
    return make_verdict(
        "starting" if young else "hung", f"{text} {then}", sure, findings, cause="ranks-missing-at-init"
    )


def _at_rendezvous(stack: Sequence[StackFrame]) -> bool:
    """Whether torch's agent is on its way to the other nodes (torch 2.13, distributed/elastic)."""
    return any(
        "/distributed/elastic/rendezvous/" in frame.path or function_name(frame) == "_rendezvous" for frame in stack
    )


def _at(endpoint: str) -> str:
    return f" at {endpoint}" if endpoint else ""


def _who_came(asked: LaunchRequest, came: int) -> str:
    """``1 of 2 nodes has come, 1 is missing. Together they would start 8 ranks, 4 on each.``"""
    least, each = asked.least_nodes, asked.ranks_per_node
    missing = least - came
    wanted = f"{least}" if asked.most_nodes == least else f"{least} to {asked.most_nodes}"
    text = f"{came} of {wanted} node{'s' if asked.most_nodes > 1 else ''} {'has' if came == 1 else 'have'} come"
    if missing > 0:
        others = [str(node) for node in range(least) if node != asked.node_rank]
        named = asked.node_rank is not None and came == 1 and len(others) <= NAMED
        who = f"node{'s' if len(others) > 1 else ''} {', '.join(others)}" if named else str(missing)
        text += f", {who} {'is' if missing == 1 else 'are'} missing"
    if each:
        text += f". Together they {'would ' if missing > 0 else ''}start "
        text += f"{'at least ' if asked.most_nodes > least else ''}{least * each} ranks, {each} on each"
    return f"{text}."


def _next(asked: LaunchRequest, launcher: str) -> str:
    """What to look at."""
    address = asked.endpoint.rpartition(":")[0] or asked.endpoint
    if asked.most_nodes == 1:
        return "See whether its host is this one, or can be reached from here, and who listens on the port."
    text = "Start the same command on each node that is missing"
    own = "--machine_rank" if launcher == "accelerate" else "--node-rank"
    text += f", each with its own {own}" if asked.node_rank is not None else ""
    if address.startswith(LOOPBACK):
        return f"{text}. {address} is this host alone: give an address that all nodes can reach."
    same = " and ".join(filter(None, [asked.run_id and f"run id {asked.run_id}", asked.endpoint]))
    met = f", and see that it names {same} too and reaches that address" if same else ""
    return f"{text}; where it runs already, look at the end of its log{met}."


def starting(scene: JobContext) -> Verdict | None:
    """Ranks are still imported, or join within the first seconds."""
    if not scene.living or any(stand.collective not in (None, INIT) for stand in scene.living):
        return None
    if scene.moving and all(stand.row.state == "starting" or stand.collective == INIT for stand in scene.living):
        return make_verdict("starting", "The ranks are starting up.", 0.8)
    if scene.waiting and scene.idle and scene.age_s < PATIENCE_S:
        return make_verdict("starting", "The ranks are starting up.", 0.7)
    return None


def in_rendezvous(scene: JobContext) -> Verdict | None:
    """Every rank that lives waits in ``init_process_group``."""
    if not scene.waiting or scene.idle or any(stand.collective != INIT for stand in scene.waiting):
        return None
    wait = waiting_sentence(scene.waiting)
    if scene.gone:
        gone = phrases.ranks_phrase(rank_numbers(scene.gone))
        if scene.age_s < PATIENCE_S:
            return make_verdict("starting", f"{wait} for {phrases.mid_sentence(gone)}, not started yet.", 0.6)
        text = f"{wait} for {phrases.mid_sentence(gone)}: no such process lives here."
        findings = ["job.rank-missing", "job.waiting-at-init"]
        return hang_verdict("ranks-missing-at-init", scene.gone, text, 0.85, findings, waiting=scene.waiting)
    if scene.age_s < PATIENCE_S:
        return make_verdict("starting", "The ranks are joining the process group.", 0.6)
    elsewhere = len(scene.unread)
    what = f" for {elsewhere} that should join from other hosts" if elsewhere else ", although all ranks are here"
    text = f"{wait}{what}. Look at MASTER_ADDR and MASTER_PORT ({scene.job.master or 'not set'}) next."
    return hang_verdict(None, [], text, 0.5, ["job.waiting-at-init"], waiting=scene.waiting)
