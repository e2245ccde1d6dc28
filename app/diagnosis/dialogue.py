"""Rules of the dialogue of a diagnosis, and its wording: all faces of the wizard use them."""

from ..evidence import LIKELY, Diagnosis, RankedCause, is_led_from_outside
from ..text.units import probability_text
from .case import FRONT_DOOR, SCRIPT_PATH, Case
from .next_step import LEAST_GAIN_BITS
from .other_subject import is_about_one_process, is_of_other_subject
from .symptoms import symptom_of

OUT_OF_SCOPE = (
    "The knowledge base has no problem of distributed training that matches. A log or a longer description would help."
)
NO_CAUSE = "No known cause matched yet. A longer log or a few answers would help."
STOPPED_JOB = (
    "The job was stopped from outside before anything failed: its launcher received a signal. The log does not show "
    "why it was stopped. If it hung, start it again and run “ddpwizard triage” while it hangs, or start it with "
    "“ddpwizard run”, which diagnoses a hang by itself."
)
NOT_DECIDED = "Your answers do not single out one cause. Run one of these commands next:"
CLEAR_ENOUGH = "The cause is clear. More answers would not change it."
NO_MORE_QUESTIONS = "There are no more questions. Run one of these commands next:"
SCRIPT_ASKED = "Path of your training script?"
SCRIPT_WHY = "The script answers several questions at once. It is read, not run."
SURE = 0.9  # from this share on the wizard shows the diagnosis
CLEAR = 0.97  # from this share on it asks nothing more
MOST_QUESTIONS = 8


def best_cause_text(cause: RankedCause) -> str:
    """Return the best cause with its share of the ranking: ``Most likely: The port is in use (92%)``."""
    return f"{likelihood(cause.confidence)}: {cause.title} ({probability_text(cause.confidence)})"


def likelihood(confidence: float) -> str:
    """Return how likely the best cause is: ``Most likely`` or ``Perhaps``."""
    return "Most likely" if confidence >= LIKELY else "Perhaps"


def no_cause_text(diagnosis: Diagnosis) -> str:
    """Return why no cause is named."""
    if diagnosis.was_stopped:
        return STOPPED_JOB
    return NO_CAUSE if diagnosis.in_scope else OUT_OF_SCOPE


def is_sure(diagnosis: Diagnosis) -> bool:
    """Return whether the first cause is likely enough to show the diagnosis."""
    return _first_share(diagnosis) >= SURE


def is_clear(diagnosis: Diagnosis) -> bool:
    """Return whether the first cause is so likely that nothing more is asked."""
    return _first_share(diagnosis) >= CLEAR


def next_question(case: Case, diagnosis: Diagnosis) -> str:
    """Return the id of the question to ask; "" if the cause is clear, or if further answers would not decide it.

    The symptom comes first, then the questions that are asked first, the script, and the most useful one.
    """
    known = case.known_answers()
    if is_clear(diagnosis) or questions_left(case) <= 0:
        return ""
    if FRONT_DOOR not in known:
        return FRONT_DOOR
    first = [id_ for id_, spec in case.knowledge.questions.items() if spec.asked_first and id_ not in known]
    if first:
        return first[0]
    if SCRIPT_PATH not in known and not _script_is_known(case):
        return SCRIPT_PATH
    return next((step.id for step in diagnosis.next if step.kind == "question"), "")


def question_before_guess(case: Case, diagnosis: Diagnosis) -> str:
    """Return the id of the question to ask first, or "".

    It is the first question of ``diagnosis.next``. It is asked about a description, as long as the evidence is only
    words and answers and its answer distinguishes enough. What a description tells as well (``general``) is asked only
    if no cause is likely enough to show its fix, and it may be one of these causes. Whether it may be one is asked of
    each description that does not show it.
    """
    described = any(item.source == "description" for item in diagnosis.evidence)
    if diagnosis.support not in ("words", "answer") or not described or is_clear(diagnosis):
        return ""
    first = next((step for step in diagnosis.next if step.kind == "question"), None)
    if not first or not (diagnosis.in_scope or _may_be_of_ranks(diagnosis)):
        return ""
    spec = case.knowledge.questions[first.id]
    tells = first.expected_gain > LEAST_GAIN_BITS and not spec.general
    is_open = not diagnosis.cause_to_fix and not is_of_other_subject(diagnosis.evidence)
    return first.id if spec.of_scope or tells or is_open else ""


def _may_be_of_ranks(diagnosis: Diagnosis) -> bool:
    """Return whether a fault of any program leads, in a description that mentions several ranks."""
    return is_led_from_outside(diagnosis.causes) and not is_about_one_process(diagnosis.evidence)


def next_offer(case: Case, diagnosis: Diagnosis) -> str:
    """Return what the next step is, in words: a probe, a question, or the experiment; "" if the cause is clear."""
    if probe := next_probe(diagnosis):
        spec = case.knowledge.probes[probe]
        return f"check {spec.title} ({spec.cost_s:g} s)"
    if question := next_question(case, diagnosis):
        return SCRIPT_ASKED if question == SCRIPT_PATH else case.knowledge.questions[question].ask
    return "" if is_clear(diagnosis) else "a command that finds the cause"


def questions_left(case: Case) -> int:
    """Return how many more questions may be asked. What a row of Home answers was not asked."""
    row = symptom_of(case.answers)
    return MOST_QUESTIONS - len(case.answers) + (len(row.answers) if row else 0)


def next_probe(diagnosis: Diagnosis) -> str:
    """Return the id of the most useful probe that may run, or ""."""
    return next((step.id for step in diagnosis.next if step.kind == "probe"), "")


def _script_is_known(case: Case) -> bool:
    return any(item.source in ("job", "review") for item in case.evidence)


def _first_share(diagnosis: Diagnosis) -> float:
    return diagnosis.causes[0].confidence if diagnosis.causes else 0.0
