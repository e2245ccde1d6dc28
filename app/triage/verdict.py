"""The judgement over a job: a pure function of what was observed of it.

The rules are tried in order; the first that applies speaks. What contradicts is named, what cannot be told is not.
What recorder and logs say of the same job is then joined to it.
"""

import msgspec

from ..training_script.line_queries import ScriptFiles
from .flight_recorder.report import add_record_to_row
from .rank_activity.rank_state import RankState, rank_states
from .rules import collective_mismatch, dead_ranks, outside_collectives, progressing, startup
from .rules.combine_sources import combine
from .rules.context import INIT, JobContext, Rule, make_verdict
from .types import JobReport, Observation, RankRow, Verdict

RULES: tuple[Rule, ...] = (
    startup.nothing_started,
    dead_ranks.all_dead,
    dead_ranks.ranks_stopped,
    dead_ranks.stacks_unreadable,
    startup.starting,
    progressing.ranks_progressing,
    dead_ranks.stuck_in_shutdown,
    startup.in_rendezvous,
    dead_ranks.some_dead,
    progressing.culprits_sleeping,
    outside_collectives.stuck_outside,
    collective_mismatch.unmatched_p2p,
    collective_mismatch.different_collectives,
    collective_mismatch.same_collective,
    outside_collectives.none_in_collective,
)


def judge_job(observed: Observation) -> JobReport:
    """Each rank's row and the verdict."""
    sources = ScriptFiles(_given_as_text(observed) | observed.sources)
    found = rank_states(observed, sources)
    scene = JobContext(observed, found, sources)
    past_init = bool(scene.leaving) or any(stand.collective != INIT for stand in scene.waiting)
    records = {record.rank: record for record in observed.records}
    rows = [_row(stand, past_init) for stand in found]
    rows = [add_record_to_row(row, records[row.rank]) if row.rank in records else row for row in rows]
    return JobReport(
        launcher=observed.job.launcher,
        world_size=observed.job.world_size,
        nodes=observed.hosts,
        ranks=rows,
        verdict=combine(_by_rules(scene), scene),
        observed=observed,
    )


def _given_as_text(observed: Observation) -> dict[str, str]:
    """The program of ``python -c``, which stands in no file."""
    for seen in observed.seen:
        command = seen.process.command
        if "-c" in command[1:-1]:
            return {"<string>": command[command.index("-c", 1) + 1]}
    return {}


def _by_rules(scene: JobContext) -> Verdict:
    spoken = next((verdict for rule in RULES if (verdict := rule(scene))), None)
    return spoken or make_verdict("unknown", "What the ranks do cannot be told from what was seen.", 0.2)


def _row(stand: RankState, past_init: bool) -> RankRow:
    if stand.row.state == "missing" and past_init:
        return msgspec.structs.replace(stand.row, state="dead", note="it had joined the group and has ended")
    return stand.row
