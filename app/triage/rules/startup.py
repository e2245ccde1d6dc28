"""Rules for a job in start-up: no rank started yet, ranks joining, ranks missing at init."""

from collections.abc import Sequence

from ...launchers.arguments import LaunchRequest
from ...training_script.frame import StackFrame
from .. import phrases
from ..rank_activity.frames import function_name
from ..types import Verdict
from .context import INIT, STARTUP_S, JobContext, hang_verdict, make_verdict, rank_numbers, waiting_sentence
from .init_arguments import contradicting_arguments, init_arguments

LOOPBACK = ("localhost", "127.", "::1", "[::1]")
UNANSWERED = ", which does not answer yet"
MOST_NAMED_NODES = 8
# A rendezvous of nodes that are all here is slow only on a busy machine; torch gives up after this time (torch 2.13,
# read_timeout of the c10d rendezvous).
COMPLETE_STARTUP_S = 60.0


def nothing_started(context: JobContext) -> Verdict | None:
    """The launcher runs but has started no rank."""
    if context.observed.seen:
        return None
    job, asked = context.job, context.job.asked
    name = f"{job.launcher} (pid {job.launcher_pid})"
    launchers = context.observed.launchers
    at_rendezvous = any(_at_rendezvous(launcher.stack) for launcher in launchers)
    unreadable = not any(launcher.stack for launcher in launchers)
    if asked is None or not (at_rendezvous or (unreadable and asked.most_nodes > 1)):
        return make_verdict("starting", f"{name} has started no rank yet.", 0.6)
    age_s = min((launcher.age_s for launcher in launchers), default=COMPLETE_STARTUP_S)
    address = f" at {asked.endpoint}" if asked.endpoint else ""
    arrived, advice = max(len(launchers), 1), _advice(asked, job.launcher)
    unanswered = any(function_name(frame) == "_create_tcp_store" for launcher in launchers for frame in launcher.stack)
    text = f"{name} waits at the rendezvous{address}{UNANSWERED if unanswered else ''}: {_arrived_text(asked, arrived)}"
    if arrived >= asked.least_nodes:
        if asked.most_nodes > asked.least_nodes:
            return make_verdict(
                "starting", f"{text} It waits half a minute for more nodes, then it starts the ranks.", 0.6
            )
        state = "starting" if age_s < (STARTUP_S if unanswered else COMPLETE_STARTUP_S) else "hung"
        return make_verdict(state, f"{text} {advice}", 0.5, ["job.waiting-at-init"])
    confidence = 0.6 if unreadable else 0.85
    findings = ["job.waiting-at-init", "job.rank-missing"]
    state = "starting" if age_s < STARTUP_S else "hung"
    return make_verdict(state, f"{text} {advice}", confidence, findings, cause="ranks-missing-at-init")


def _at_rendezvous(stack: Sequence[StackFrame]) -> bool:
    """Return whether torch's agent is connecting to the other nodes (torch 2.13, distributed/elastic)."""
    return any(
        "/distributed/elastic/rendezvous/" in frame.path or function_name(frame) == "_rendezvous" for frame in stack
    )


def _arrived_text(asked: LaunchRequest, arrived: int) -> str:
    """Return ``1 of 2 nodes has arrived, 1 is missing. Together they would start 8 ranks, 4 on each.``"""
    least, each = asked.least_nodes, asked.ranks_per_node
    missing = least - arrived
    wanted = f"{least}" if asked.most_nodes == least else f"{least} to {asked.most_nodes}"
    text = (
        f"{arrived} of {wanted} node{'s' if asked.most_nodes > 1 else ''} {'has' if arrived == 1 else 'have'} arrived"
    )
    if missing > 0:
        others = [str(node) for node in range(least) if node != asked.node_rank]
        named = asked.node_rank is not None and arrived == 1 and len(others) <= MOST_NAMED_NODES
        who = f"node{'s' if len(others) > 1 else ''} {', '.join(others)}" if named else str(missing)
        text += f", {who} {'is' if missing == 1 else 'are'} missing"
    if each:
        text += f". Together they {'would ' if missing > 0 else ''}start "
        text += f"{'at least ' if asked.most_nodes > least else ''}{least * each} ranks, {each} on each"
    return f"{text}."


def _advice(asked: LaunchRequest, launcher: str) -> str:
    """Return what to check next."""
    address = asked.endpoint.rpartition(":")[0] or asked.endpoint
    if asked.most_nodes == 1:
        return "Check that its host is this machine or can be reached from here, and which process listens on the port."
    text = "Start the same command on each missing node"
    rank_option = "--machine_rank" if launcher == "accelerate" else "--node-rank"
    text += f", each with its own {rank_option}" if asked.node_rank is not None else ""
    if address.startswith(LOOPBACK):
        return f"{text}. {address} is only reachable from this host: use an address that all nodes can reach."
    same = " and ".join(filter(None, [asked.run_id and f"run id {asked.run_id}", asked.endpoint]))
    check = f", and check that it uses {same} too and can reach that address" if same else ""
    return f"{text}; if it already runs there, look at the end of its log{check}."


def starting(context: JobContext) -> Verdict | None:
    """Ranks still import modules, or join within the first seconds."""
    if not context.alive or any(state.collective not in (None, INIT) for state in context.alive):
        return None
    if context.progressing and all(
        state.row.state == "starting" or state.collective == INIT for state in context.alive
    ):
        return make_verdict("starting", "The ranks are starting up.", 0.8)
    if context.waiting and context.idle and context.age_s < STARTUP_S:
        return make_verdict("starting", "The ranks are starting up.", 0.7)
    return None


def in_rendezvous(context: JobContext) -> Verdict | None:
    """Every rank that is alive waits in ``init_process_group``."""
    if not context.waiting or context.idle or any(state.collective != INIT for state in context.waiting):
        return None
    wait = waiting_sentence(context.waiting)
    if context.absent:
        missing = phrases.mid_sentence(phrases.ranks_phrase(rank_numbers(context.absent)))
        if context.age_s < STARTUP_S:
            return make_verdict("starting", f"{wait} for {missing}, not started yet.", 0.6)
        text = f"{wait} for {missing}: no such process runs here."
        findings = ["job.rank-missing", "job.waiting-at-init"]
        return hang_verdict("ranks-missing-at-init", context.absent, text, 0.85, findings, waiting=context.waiting)
    if context.age_s < STARTUP_S:
        return make_verdict("starting", "The ranks are joining the process group.", 0.6)
    elsewhere = len(context.unreadable)
    given = init_arguments(context)
    if contradiction := contradicting_arguments(context, wait, given):
        return contradiction
    what = f" for {elsewhere} that should join from other hosts" if elsewhere else ", although all ranks are here"
    address = next((each.address for each in given if each.address), None)
    master = f"MASTER_ADDR and MASTER_PORT ({context.job.master or 'not set'})"
    text = f"{wait}{what}. Check {f'init_method ({address})' if address else master} next."
    return hang_verdict(None, [], text, 0.5, ["job.waiting-at-init"], waiting=context.waiting)
