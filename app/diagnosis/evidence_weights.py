"""The nats that each observation adds to each cause: the words of the entries times the measured multipliers."""

from collections import defaultdict
from collections.abc import Mapping

from ...knowledge.calibration import Calibration, built_in_calibration
from ...knowledge.schema import NATS, NEUTRAL_ANSWERS, Knowledge, Severity, Weight
from ..evidence import (
    NO_TRAINING,
    ONE_RANK,
    answer_id,
    clue_id,
    confirmed_id,
    quoted_text_id,
    rule_error_id,
    rule_finding_id,
    signature_id,
    similar_text_id,
    typical_words_id,
    verdict_id,
)

VERDICT_NATS = NATS["decisive"]  # the verdict of a triage names this cause
WORDS_NATS = NATS["decisive"]  # a text that can be about this cause only, or about another subject only
QUOTE_NATS = 2 * NATS["decisive"]  # for a team's own sentence, against words that are typical of other causes
SYMPTOM_SHARE = 0.5  # a symptom is seen with many causes: it counts half of a root's weight
UNMENTIONED_NATS = -1.0  # an answer that does not name a cause known by this question
NONE_NATS = -2.0  # "none of these" to a question in which the cause has an answer of its own
# What a finding of the review adds to the cause of its rule, where the entry of the cause has no weight of its own.
RULE_WEIGHTS: dict[Severity, Weight] = {"error": "strong", "warning": "moderate", "info": "weak"}
NONE_ANSWER = "none"

# The classes of evidence whose multipliers are fitted.
ROOT_SIGNATURE, SYMPTOM_SIGNATURE, LOG_FINDING = "root signature", "symptom signature", "log finding"
TYPICAL_WORDS, OTHER_WORDS = "typical words", "words of another subject"
NO_MENTION = "no mention of several ranks"
LIKENESS, ANSWER = "likeness", "answer"
CLUES: dict[Weight, str] = {
    "decisive": "decisive clue",
    "strong": "strong clue",
    "moderate": "moderate clue",
    "weak": "weak clue",
    "against": "clue against",
}
CLASSES = (
    ROOT_SIGNATURE,
    SYMPTOM_SIGNATURE,
    LOG_FINDING,
    TYPICAL_WORDS,
    OTHER_WORDS,
    NO_MENTION,
    LIKENESS,
    ANSWER,
    *CLUES.values(),
)

Weights = Mapping[str, Mapping[str, float]]  # evidence id -> cause id -> nats


def weight_table(knowledge: Knowledge, calibration: Calibration | None = None) -> Weights:
    """Return the nats that each observable id adds to each cause; the built-in calibration without another one."""
    measured = (calibration or built_in_calibration()).multipliers
    table: dict[str, dict[str, float]] = defaultdict(dict)
    for cause in knowledge.causes.values():
        for finding, weight in cause.findings.items():
            share = measured.get(LOG_FINDING, 1.0) if finding.startswith("log.") else 1.0
            table[finding][cause.id] = NATS[weight] * share
        for question, weights in cause.questions.items():
            weighed = {answer: NATS[weight] for answer, weight in weights.items()}
            for answer in knowledge.questions[question].answers:
                if nats := _answer_nats(answer, weighed):
                    table[answer_id(question, answer)][cause.id] = nats * measured.get(ANSWER, 1.0)
        for index, signature in enumerate(cause.signatures):
            is_root = signature.role == "root"
            share = measured.get(ROOT_SIGNATURE if is_root else SYMPTOM_SIGNATURE, 1.0)
            table[signature_id(cause, index)][cause.id] = (
                NATS[signature.weight] * share * (1.0 if is_root else SYMPTOM_SHARE)
            )
        for index, clue in enumerate(cause.clues):
            table[clue_id(cause, index)][cause.id] = NATS[clue.weight] * measured.get(CLUES[clue.weight], 1.0)
        for question in (id_ for id_, spec in knowledge.questions.items() if spec.of_causes):
            share = measured.get(ANSWER, 1.0)
            table[answer_id(question, cause.id)][cause.id] = NATS["strong"] * share
            table[answer_id(question, none_of(cause.id))][cause.id] = NONE_NATS * share
        if not cause.one_process and cause.distributed:
            table[ONE_RANK][cause.id] = -NATS["decisive"]
        table[NO_TRAINING][cause.id] = -NATS["decisive"]
        table[typical_words_id(cause.id)][cause.id] = WORDS_NATS * measured.get(TYPICAL_WORDS, 1.0)
        table[similar_text_id(cause)][cause.id] = WORDS_NATS * measured.get(LIKENESS, 1.0)
        table[quoted_text_id(cause)][cause.id] = QUOTE_NATS
        table[verdict_id(cause.id)][cause.id] = VERDICT_NATS
        table[confirmed_id(cause.id, True)][cause.id] = NATS["decisive"]
        table[confirmed_id(cause.id, False)][cause.id] = -NATS["decisive"]
    for id_, rule in knowledge.rules.items():
        table[rule_finding_id(id_)].setdefault(rule.cause, NATS[RULE_WEIGHTS[rule.severity]])
        table[rule_error_id(id_)][rule.cause] = NATS["strong"]
    return table


def none_of(cause: str) -> str:
    """Return the answer by which "none of these" counts against a cause that was offered."""
    return f"{NONE_ANSWER}/{cause}"


def _answer_nats(answer: str, weights: Mapping[str, float]) -> float:
    """Return the nats of an answer for a cause that weighs these answers of the question."""
    if answer in NEUTRAL_ANSWERS:
        return 0.0
    if answer in weights:
        return weights[answer]
    known = max(weights.values(), default=0.0) >= NATS["strong"]
    return (NONE_NATS if answer == NONE_ANSWER else UNMENTIONED_NATS) if known else 0.0
