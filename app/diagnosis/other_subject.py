"""Evidence for "none of these": texts about another subject, and the answer to the question about the scope."""

from collections.abc import Collection, Sequence

from ...knowledge.calibration import Calibration
from ...knowledge.schema import NATS, Knowledge
from ..evidence import (
    NO_TRAINING,
    ONE_PROCESS,
    ONE_RANK,
    OTHER_PROGRAM,
    OTHER_SUBJECT,
    STARTING,
    TEXT_SOURCES,
    Evidence,
    answer_parts,
    shows_several_ranks,
    shows_unrelated,
)
from .evidence_weights import NO_MENTION, OTHER_WORDS, WORDS_NATS, Weights

STARTING_NATS = NATS["decisive"]  # if the job is still starting
OTHER_PROGRAM_NATS = NATS["decisive"]  # for the output of programs that train nothing
UNRELATED_NATS = 4.0  # for an error message unrelated to distributed training
ONE_PROCESS_NATS = 11.0
ONE_PROCESS_TOO_NATS = 9.0  # reduction for causes that a single process can have as well


def of_training(items: list[Evidence]) -> list[Evidence]:
    """Return the evidence without what other programs have written; all of it with an answer, a probe or a job, which
    say that there is a training job."""
    if any(item.source not in TEXT_SOURCES for item in items):
        return items
    return [item for item in items if item.id == OTHER_PROGRAM] or items


def is_about_one_process(items: Collection[Evidence]) -> bool:
    """Return whether the text mentions no other process, or an answer says that there is none."""
    return any(item.id in (ONE_PROCESS, ONE_RANK) for item in items)


def is_of_other_subject(items: Collection[Evidence]) -> bool:
    """Return whether an answer says that there is no training in several processes."""
    return any(item.id in (NO_TRAINING, ONE_RANK) for item in items)


def unrelated_nats(knowledge: Knowledge, weights: Weights, items: Sequence[Evidence], measured: Calibration) -> float:
    """Return the nats for "none of these": an error message of a single process, no mention of several ranks, words of
    another subject unless a log shows what only several ranks have. Or a job that is still starting.

    Only if no probe and no answer implies a job of several ranks, or if the answer about the scope says so.
    """
    if any(item.id == STARTING for item in items):
        return STARTING_NATS
    if not is_of_other_subject(items) and _is_known_job(items, knowledge, weights):
        return 0.0
    is_of_job = any(item.source == "log" and shows_several_ranks(item.id, knowledge) for item in items)
    other_subject = max((item.strength for item in items if item.id == OTHER_SUBJECT and not is_of_job), default=0.0)
    return (
        WORDS_NATS * measured.multipliers.get(OTHER_WORDS, 1.0) * other_subject
        + OTHER_PROGRAM_NATS * any(item.id in (OTHER_PROGRAM, NO_TRAINING) for item in items)
        + UNRELATED_NATS * shows_unrelated(knowledge, items)
        + ONE_PROCESS_NATS * measured.multipliers.get(NO_MENTION, 1.0) * is_about_one_process(items)
    )


def _is_known_job(items: Sequence[Evidence], knowledge: Knowledge, weights: Weights) -> bool:
    """Return whether something else than texts is known, and implies several ranks if the texts name one process."""
    others = [item for item in items if item.source not in TEXT_SOURCES]
    if not is_about_one_process(items):
        return bool(others)
    return any(_implies_several_ranks(item, knowledge, weights) for item in others)


def _implies_several_ranks(item: Evidence, knowledge: Knowledge, weights: Weights) -> bool:
    """Return whether a finding or an answer implies several ranks; an answer that fits one process as well does not."""
    if item.source != "answer":
        return True
    question = knowledge.questions.get(answer_parts(item.id)[0])
    if question and (question.general or question.of_scope):
        return True
    supported = [knowledge.causes[id_] for id_, nats in weights.get(item.id, {}).items() if nats > 0]
    return bool(supported) and not any(cause.one_process or not cause.distributed for cause in supported)


def spared_nats(items: Collection[Evidence], measured: Calibration, unrelated: float) -> float:
    """Return the nats by which causes that a single process can have as well are spared."""
    if not is_about_one_process(items):
        return 0.0
    return min(unrelated, ONE_PROCESS_TOO_NATS * measured.multipliers.get(NO_MENTION, 1.0))
