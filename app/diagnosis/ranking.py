"""Rank causes by a sum of log-odds over plain tables, so that every position can be explained line by line.

Each cause starts at a prior, larger if it is frequent in descriptions and one supports it, and gains or loses the nats
that the knowledge base assigns to an observation; "none of these" starts at 0. Observations from one text are not
independent: of one sentence, and of clues and typical words, only the strongest counts, and each further one counts
less. Once a job or its log shows what is wrong, the state of the machine, descriptions and the symptom count for a
cause at most as much as what is shown of it: they support it, they do not replace it; the symptom also if a hung job
was inspected and shows no cause. How a running job runs (on one node, without a GPU) excludes the causes that need
more. A softmax over both turns the sums into probabilities, at a temperature fitted on labelled cases for what the
first cause rests on.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

import msgspec

from ...knowledge.calibration import Calibration, built_in_calibration
from ...knowledge.schema import NATS, Cause, Knowledge
from ..evidence import (
    NOT_HUNG,
    SCRIPT_ERROR,
    TEXT_SOURCES,
    Evidence,
    RankedCause,
    ReasonLine,
    Source,
    Support,
    answer_id,
    is_root_error,
    verdict_id,
)
from .evidence_weights import Weights
from .other_subject import of_training, spared_nats, unrelated_nats

COMMON_PRIOR_NATS = -3.0  # with no evidence "none of these" keeps more than half of the probability
TEXT_DISCOUNT = 0.7  # each further piece of the same text counts this much of the one before it
UNSEEN_NATS = -1.0  # a hung job that shows none of the signs by which the cause is known
EXCLUDED_NATS = -NATS["decisive"]  # for a cause that cannot be, as the running job runs (one node, no GPU)
STEPS_BACK_NATS = -3.0  # for a generic cause when a specific one is supported
SHOWN_NATS = NATS["strong"]
OWN_NATS = 2.0  # evidence for one cause is stronger than "it hangs", which supports many
DOCUMENTED_TEMPERATURE = 0.65  # where none is fitted
READINGS = ("clue:", "words:")  # of a whole description: a sentence for one may be among the words of the other
SUPPORT_OF_SOURCE: Mapping[Source, Support] = {
    "log": "log",
    "description": "words",
    "answer": "answer",
    "probe": "probe",
    "job": "probe",
    "review": "probe",
}
SYMPTOM_ANSWER = answer_id("symptom", "")


class Ranking(msgspec.Struct, frozen=True):
    """The causes, best first. ``other`` is the probability of none of them; with ``several`` the first two are both
    supported by evidence of their own and their confidences are independent. ``support``: what the first rests on."""

    causes: list[RankedCause]
    other: float
    several: bool = False
    support: Support = "words"


def rank_causes(
    knowledge: Knowledge, weights: Weights, evidence: Iterable[Evidence], calibration: Calibration | None = None
) -> Ranking:
    """Return every cause with its probability and its reasons; with the built-in calibration if no other is given.

    An id counts once per case, however often it was observed (one line printed by 8 ranks is one observation).
    """
    lines: dict[str, list[ReasonLine]] = defaultdict(list)
    around: dict[str, list[ReasonLine]] = defaultdict(list)
    readings: dict[str, list[ReasonLine]] = defaultdict(list)
    items = of_training(_once(evidence))
    measured = calibration or built_in_calibration()
    unrelated = unrelated_nats(knowledge, weights, items, measured)
    is_shown = any(_shows_fault(item, knowledge) for item in items)
    inspected = [item for item in items if _is_of_hung_job(item)]
    for item in items:
        is_around = (is_shown and item.source in ("probe", "description")) or (
            (is_shown or inspected) and item.id.startswith(SYMPTOM_ANSWER)
        )
        kept = around if is_around else lines
        for cause, nats in weights.get(item.id, {}).items():
            if _is_circumstance(item):
                nats = EXCLUDED_NATS if nats <= NATS["against"] else min(0.0, nats)
            if nats:
                is_reading = nats > 0 and item.source == "description" and item.id.startswith(READINGS)
                counted = readings if is_reading else kept
                counted[cause].append(ReasonLine(item.source, item.what, item.where, nats * item.strength))
    for id_, read in readings.items():
        (around if is_shown else lines)[id_].append(max(read, key=lambda line: line.weight))
    for id_ in _without_their_signs(knowledge, inspected):
        lines[id_].append(ReasonLine("job", "the running job shows none of its signs", "", UNSEEN_NATS))
    reasons = {
        id_: _with_surroundings(_discounted(_once_per_sentence(lines[id_])), _once_per_sentence(around[id_]))
        if lines[id_] or around[id_]
        else []
        for id_ in knowledge.causes
    }
    _step_back(knowledge, reasons)
    scores = {
        id_: COMMON_PRIOR_NATS
        + cause.prior
        + (measured.priors.get(id_, 0.0) if _is_described(reasons[id_]) else 0.0)
        + sum(line.weight for line in reasons[id_])
        for id_, cause in knowledge.causes.items()
    }
    spared = spared_nats(items, measured, unrelated)
    for id_ in (id_ for id_, cause in knowledge.causes.items() if cause.one_process):
        scores[id_] += spared
    order = sorted(scores, key=lambda i: (-scores[i], i))
    nothing: Support = "words" if any(item.source in TEXT_SOURCES for item in items) else "answer"
    support = _support(reasons[order[0]] if order else [], nothing)
    temperature = temperature_of(support, measured)
    shares, other = softmax_with_other(scores, unrelated, temperature)
    both = _two_at_once(knowledge, order, reasons)
    for id_, second in zip(both, reversed(both), strict=True):
        shares[id_] = softmax_with_other({i: s for i, s in scores.items() if i != second}, unrelated, temperature)[0][
            id_
        ]
    ranked = [
        RankedCause(
            id=id_,
            title=knowledge.causes[id_].title,
            confidence=round(shares[id_], 4),
            because=sorted((b for b in merged if b.weight > 0), key=lambda b: -b.weight),
            against=sorted((b for b in merged if b.weight <= 0), key=lambda b: b.weight),
            fixes=[fix.id for fix in knowledge.causes[id_].fixes],
            distributed=knowledge.causes[id_].distributed,
        )
        for id_, merged in ((id_, _merged(reasons[id_])) for id_ in order)
    ]
    return Ranking(ranked, other, bool(both), support)


def _is_described(lines: Iterable[ReasonLine]) -> bool:
    """Return whether a description supports a cause: the frequencies of causes are those in described cases."""
    return any(line.source == "description" and line.weight > 0 for line in lines)


def _merged(lines: Iterable[ReasonLine]) -> list[ReasonLine]:
    """Return the reasons with those of one line of a log as one, which has the sum of their weights."""
    found: dict[tuple[str, str, str], ReasonLine] = {}
    for line in lines:
        before = found.get(key := (line.source, line.what, line.where))
        found[key] = msgspec.structs.replace(line, weight=line.weight + before.weight) if before else line
    return [*found.values()]


def _is_circumstance(item: Evidence) -> bool:
    """Return whether an observation is how a job runs, not what is wrong with it.

    It excludes causes and supports none: a job shows it whether it is healthy or not.
    """
    return item.source == "job" and item.id.startswith("answer:")


def _is_of_hung_job(item: Evidence) -> bool:
    """Return whether an observation is that of a running job that makes no progress."""
    return item.source == "job" and item.id.startswith("job.") and item.id not in NOT_HUNG


def _without_their_signs(knowledge: Knowledge, inspected: Collection[Evidence]) -> list[str]:
    """Return the causes that a hung job would show, of which an inspected one shows nothing."""
    seen = {item.id for item in inspected}
    return [id_ for id_, cause in knowledge.causes.items() if seen and _is_unseen(cause, seen)]


def _is_unseen(cause: Cause, seen: set[str]) -> bool:
    signs = {id_: NATS[weight] for id_, weight in cause.findings.items() if id_.startswith("job.") and NATS[weight] > 0}
    return seen.isdisjoint(signs) and max(signs.values(), default=0.0) >= NATS["strong"]


def _two_at_once(knowledge: Knowledge, order: list[str], reasons: Mapping[str, list[ReasonLine]]) -> list[str]:
    """Return the first two causes if each has decisive evidence of its own and they are not easily confused."""
    if len(order) < 2:
        return []
    pair = order[:2]
    first, second = ({(b.what, b.where): b.weight for b in reasons[id_] if b.weight > 0} for id_ in pair)
    own = [
        max((w for key, w in mine.items() if key not in others), default=0.0)
        for mine, others in ((first, second), (second, first))
    ]
    apart = (
        pair[1] not in knowledge.causes[pair[0]].tells_apart and pair[0] not in knowledge.causes[pair[1]].tells_apart
    )
    generic = any(knowledge.causes[id_].generic for id_ in pair)
    return pair if apart and not generic and min(own) >= NATS["decisive"] else []


def _support(lines: Iterable[ReasonLine], nothing: Support) -> Support:
    """Return the kind of observation that adds most to a cause, ``nothing`` if none does."""
    totals: dict[Support, float] = defaultdict(float)
    for line in lines:
        if line.weight > 0:
            totals[SUPPORT_OF_SOURCE[line.source]] += line.weight
    return max(totals, key=lambda kind: totals[kind]) if totals else nothing


def temperature_of(support: Support, calibration: Calibration) -> float:
    """Return the fitted temperature of a softmax whose first cause rests on this kind of observation."""
    kind = support if support in ("log", "words") else "other"
    return calibration.temperatures.get(kind, DOCUMENTED_TEMPERATURE)


def softmax_with_other(
    scores: Mapping[str, float], other_nats: float = 0.0, temperature: float = DOCUMENTED_TEMPERATURE
) -> tuple[dict[str, float], float]:
    """Return the probabilities of the causes and of "none of these", whose score is ``other_nats``. They sum to 1."""
    top = max(other_nats, *scores.values()) if scores else other_nats
    exponentials = {id_: math.exp((score - top) / temperature) for id_, score in scores.items()}
    other = math.exp((other_nats - top) / temperature)
    total = other + sum(exponentials.values())
    return {id_: value / total for id_, value in exponentials.items()}, other / total


def _shows_fault(item: Evidence, knowledge: Knowledge) -> bool:
    """Return whether evidence is the verdict on a job, or an error in a log that names its own cause."""
    if item.source == "log":
        return item.id == SCRIPT_ERROR or is_root_error(item.id, knowledge)
    return item.source == "job" and item.id.startswith(verdict_id(""))


def _with_surroundings(shown: list[ReasonLine], around: list[ReasonLine]) -> list[ReasonLine]:
    """Add what does not come from the job or its log; what supports the cause counts no more than what is shown."""
    most = max(0.0, sum(line.weight for line in shown))
    gain = sum(line.weight for line in around if line.weight > 0)
    share = min(1.0, most / gain) if gain else 1.0
    weighed = [
        msgspec.structs.replace(line, weight=round(line.weight * share, 2)) if line.weight > 0 else line
        for line in around
    ]
    return shown + [line for line in weighed if line.weight]


def _once_per_sentence(lines: list[ReasonLine]) -> list[ReasonLine]:
    """Keep the strongest of what a sentence shows for a cause, or against it: as a description or as lines of a log."""
    strongest: dict[tuple[str, bool], ReasonLine] = {}
    logged: dict[tuple[str, bool], float] = defaultdict(float)
    for line in lines:
        key = line.where, line.weight > 0
        if line.source == "description" and (key not in strongest or abs(line.weight) > abs(strongest[key].weight)):
            strongest[key] = line
        elif line.source == "log" and line.where:
            logged[key] += abs(line.weight)
    described = {key: line for key, line in strongest.items() if abs(line.weight) > logged[key]}
    return [
        line
        for line in lines
        if line.source not in TEXT_SOURCES
        or (described.get(key := (line.where, line.weight > 0)) is line)
        or (line.source == "log" and key not in described)
    ]


def _discounted(lines: list[ReasonLine]) -> list[ReasonLine]:
    """Reduce the weight of each further piece of text, for and against separately; keep other sources unchanged."""
    kept = [line for line in lines if line.source not in TEXT_SOURCES]
    from_text = sorted((line for line in lines if line.source in TEXT_SOURCES), key=lambda line: -abs(line.weight))
    for side in ([x for x in from_text if x.weight > 0], [x for x in from_text if x.weight <= 0]):
        kept += [
            msgspec.structs.replace(line, weight=line.weight * TEXT_DISCOUNT**place) for place, line in enumerate(side)
        ]
    return [msgspec.structs.replace(line, weight=round(line.weight, 2)) for line in kept]


def _step_back(knowledge: Knowledge, reasons: dict[str, list[ReasonLine]]) -> None:
    """Lower generic causes when a specific one is supported; half as much if only answers support it.

    Words do not count: the text model has already weighed them for the specific cause against the generic one.
    """
    shown = {id_: [line for line in lines if line.source != "description"] for id_, lines in reasons.items()}
    specific = {
        id_: lines
        for id_, lines in shown.items()
        if not knowledge.causes[id_].generic and any(line.weight >= OWN_NATS for line in lines)
    }
    totals = {id_: sum(line.weight for line in lines) for id_, lines in specific.items()}
    best = max(totals, key=lambda id_: totals[id_], default="")
    if not best or totals[best] < SHOWN_NATS:
        return
    seen = sum(line.weight for line in specific[best] if line.source != "answer") >= SHOWN_NATS
    why = f"“{knowledge.causes[best].title}” is more specific"
    for id_, lines in reasons.items():
        if knowledge.causes[id_].generic and lines:
            source = specific[best][0].source
            lines.append(ReasonLine(source, why, "", STEPS_BACK_NATS if seen else STEPS_BACK_NATS / 2))


def _once(evidence: Iterable[Evidence]) -> list[Evidence]:
    """Keep one piece of evidence per id: the strongest, the first among equals."""
    best: dict[str, Evidence] = {}
    for item in evidence:
        if item.id not in best or item.strength > best[item.id].strength:
            best[item.id] = item
    return list(best.values())
