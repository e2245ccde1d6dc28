"""The verdict on a job: a pure function of what was observed of it.

Rules are tried in order; the first match decides. Contradictions are reported; unknowns are left out. The verdict of
the stacks is then combined with those of the Flight Recorder records and the logs.
"""

import msgspec

from ..training_script.line_queries import ScriptFiles
from .flight_recorder.report import add_record_to_row
from .rank_activity.rank_state import RankState, rank_states
from .rules import after_error, blocked_ranks, collective_mismatch, dead_ranks, progressing, startup
from .rules.combine_sources import combine
from .rules.context import INIT, JobContext, Rule, make_verdict
from .types import JobReport, Observation, RankRow, Verdict

RULES: tuple[Rule, ...] = (
    startup.nothing_started,
    dead_ranks.all_dead,
    dead_ranks.ranks_stopped,
    dead_ranks.stacks_unreadable,
    startup.starting,
    after_error.blocked_after_error,
    progressing.ranks_progressing,
    dead_ranks.stuck_in_shutdown,
    startup.in_rendezvous,
    dead_ranks.some_dead,
    progressing.culprits_sleeping,
    blocked_ranks.stuck_outside,
    collective_mismatch.unmatched_p2p,
    collective_mismatch.different_collectives,
    collective_mismatch.same_collective,
    blocked_ranks.none_in_collective,
)


def judge_job(observed: Observation) -> JobReport:
    """Return the report of a job: a row for each rank and the verdict."""
    sources = ScriptFiles(_source_of_command(observed) | observed.sources)
    states = rank_states(observed, sources)
    context = JobContext(observed, states, sources)
    past_init = bool(context.exiting) or any(state.collective != INIT for state in context.waiting)
    records = {record.rank: record for record in observed.records}
    rows = [_row(state, past_init) for state in states]
    rows = [add_record_to_row(row, records[row.rank]) if row.rank in records else row for row in rows]
    return JobReport(
        launcher=observed.job.launcher,
        world_size=observed.job.world_size,
        nodes=observed.hosts,
        ranks=rows,
        verdict=combine(_verdict_of_rules(context), context),
        observed=observed,
    )


def _source_of_command(observed: Observation) -> dict[str, str]:
    """Return the program of ``python -c``, which is in no file."""
    for seen in observed.seen:
        command = seen.process.command
        if "-c" in command[1:-1]:
            return {"<string>": command[command.index("-c", 1) + 1]}
    return {}


def _verdict_of_rules(context: JobContext) -> Verdict:
    first = next((verdict for rule in RULES if (verdict := rule(context))), None)
    return first or make_verdict("unknown", "Could not determine what the ranks are doing.", 0.2)


def _row(state: RankState, past_init: bool) -> RankRow:
    if state.row.state == "missing" and past_init:
        return msgspec.structs.replace(state.row, state="dead", note="it had joined the group and has ended")
    return state.row
