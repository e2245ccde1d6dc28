"""The judgement over a job: a pure function of what was observed of it.

The rules are tried in order; the first that applies speaks. What contradicts is named, what cannot be told is not.
What recorder and logs say of the same job is then joined to it.
"""

import msgspec

from .code.source import Sources
from .recorder.report import with_record
from .rules import gone, moving, outside, places, start
from .rules.join import joined
from .rules.scene import INIT, Rule, Scene, told
from .standing import Stand, stands
from .types import JobReport, Observation, RankRow, Verdict

RULES: tuple[Rule, ...] = (
    start.nothing_started,
    gone.all_gone,
    gone.stopped,
    gone.unreadable,
    start.coming_up,
    moving.moving,
    gone.leaving,
    start.joining,
    gone.some_gone,
    moving.sleeping,
    outside.outside,
    places.pairs,
    places.different_places,
    places.same_collective,
    outside.nobody_waits,
)


def judge(observed: Observation) -> JobReport:
    """Each rank's row and the verdict."""
    sources = Sources(_given_as_text(observed) | observed.sources)
    found = stands(observed, sources)
    scene = Scene(observed, found, sources)
    past_init = bool(scene.leaving) or any(stand.collective != INIT for stand in scene.waiting)
    records = {record.rank: record for record in observed.records}
    rows = [_row(stand, past_init) for stand in found]
    rows = [with_record(row, records[row.rank]) if row.rank in records else row for row in rows]
    return JobReport(
        launcher=observed.job.launcher,
        world_size=observed.job.world_size,
        nodes=observed.hosts,
        ranks=rows,
        verdict=joined(_by_rules(scene), scene),
        observed=observed,
    )


def _given_as_text(observed: Observation) -> dict[str, str]:
    """The program of ``python -c``, which stands in no file."""
    for seen in observed.seen:
        command = seen.process.command
        if "-c" in command[1:-1]:
            return {"<string>": command[command.index("-c", 1) + 1]}
    return {}


def _by_rules(scene: Scene) -> Verdict:
    spoken = next((verdict for rule in RULES if (verdict := rule(scene))), None)
    return spoken or told("unknown", "What the ranks do cannot be told from what was seen.", 0.2)


def _row(stand: Stand, past_init: bool) -> RankRow:
    if stand.row.state == "missing" and past_init:
        return msgspec.structs.replace(stand.row, state="dead", note="it had joined the group and has ended")
    return stand.row
