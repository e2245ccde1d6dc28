"""Choose the question or probe with the most expected information for its cost.

For a step with the outcomes o and the causes c, p(o|c) is taken proportional to exp(weight of o for c); outcomes an
entry does not mention are neutral. The gain is the entropy now minus the expected entropy after the outcome, in bits,
times the probability that the question makes sense.
"""

import math
from collections.abc import Collection, Mapping

from ...knowledge.schema import NEUTRAL_ANSWERS, Knowledge, Question
from ..evidence import AnswerOption, NextStep, answer_id
from .evidence_weights import NONE_ANSWER, Weights

NO_FINDING_NATS = 1.0  # a probe most often finds nothing: that outcome is e times as likely as a neutral one
SMALLEST_GAIN_BITS = 0.004
LEAST_GAIN_BITS = 0.2  # of a question that is asked before a guess
LEAST_FITTING = 0.5  # probability that a question makes sense
NOT_TRIED = "not-tried"
TRIED = 0.5  # the probability that a person has tried what a description does not mention
OWN_ANSWERS = (NONE_ANSWER, *NEUTRAL_ANSWERS)  # of a question whose other answers are the causes
READING_S = 10.0  # a person takes to read a question and its answers, before finding out which is right


def next_steps(
    knowledge: Knowledge,
    weights: Weights,
    shares: Mapping[str, float],
    asked: Collection[str],
    probes_left: Collection[str],
    described: Collection[str] = (),
    *,
    is_scope_open: bool = False,
) -> list[NextStep]:
    """Return useful steps, best first; probes come before questions to the user, except those that tell more of a
    description.

    ``shares`` holds the probability of each cause; the rest to 1 is "none of these". ``asked`` are the questions
    already asked, ``probes_left`` the probes that may still run without confirmation. ``described``: the likely causes
    of a description; then the questions come first that tell enough, and that it does not answer as well.
    A question is left out where it hardly makes sense. ``is_scope_open``: the description may be about something else;
    the question about that comes first.
    """
    steps: list[tuple[int, float, NextStep]] = []
    most_of_probes = 0.0
    for id_ in probes_left:
        probe = knowledge.probes[id_]
        outcomes = [f"{id_}.{name}" for name in probe.findings]
        gain = expected_gain_bits(outcomes, weights, shares, NO_FINDING_NATS)
        most_of_probes = max(gain, most_of_probes)
        steps.append((1, gain / probe.cost_s, NextStep("probe", id_, probe.title, round(gain, 3))))
    for id_, question in knowledge.questions.items():
        if id_ in asked or (question.of_causes and len(described) < 2) or (question.of_scope and not is_scope_open):
            continue
        offered = offered_answers(question, described)
        if (fitting := _fitting_probability(question, knowledge, weights, shares, asked)) < LEAST_FITTING:
            continue
        gain = expected_gain_bits([answer_id(id_, answer) for answer in offered], weights, shares, None) * fitting
        gain *= TRIED if described and NOT_TRIED in offered else 1.0
        cost_s = READING_S + question.cost_s
        options = [AnswerOption(answer, text) for answer, text in offered.items()]
        tells_more = described and not question.general and gain > max(LEAST_GAIN_BITS, most_of_probes)
        place = (
            -1
            if question.of_scope
            else 0
            if tells_more
            else 2
            if not described or (gain > LEAST_GAIN_BITS and not question.general)
            else 3
        )
        steps.append((place, gain / cost_s, NextStep("question", id_, question.ask, round(gain, 3), options)))
    useful = [step for step in steps if step[2].expected_gain >= SMALLEST_GAIN_BITS]
    return [step for _, _, step in sorted(useful, key=lambda s: (s[0], -s[1], s[2].id))]


def offered_answers(question: Question, causes: Collection[str]) -> dict[str, str]:
    """Return the answers to offer: of a question about causes only these, and those that name none."""
    if not question.of_causes:
        return question.answers
    own = {answer: text for answer, text in question.answers.items() if answer in OWN_ANSWERS}
    return {cause: question.answers[cause] for cause in causes if cause in question.answers} | own


def _fitting_probability(
    question: Question, knowledge: Knowledge, weights: Weights, shares: Mapping[str, float], asked: Collection[str]
) -> float:
    """Return the probability that a question makes sense: that answers to others, which are not known yet, fit it.

    A question about an error message tells nothing about a job that has raised none.
    """
    total = 1.0
    for other, fitting in question.fits.items():
        if other in asked:
            continue
        answers = list(knowledge.questions[other].answers)
        columns = [weights.get(answer_id(other, answer), {}) for answer in answers]
        fitting_places = [place for place, answer in enumerate(answers) if answer in fitting]
        rest = 1.0 - sum(shares.values())
        fits = rest * len(fitting) / len(answers)
        for cause, share in shares.items():
            chances = _likelihood([column.get(cause, 0.0) for column in columns])
            fits += share * sum(chances[place] for place in fitting_places)
        total *= fits
    return total


def expected_gain_bits(
    outcomes: list[str], weights: Weights, shares: Mapping[str, float], nothing_nats: float | None
) -> float:
    """Return the expected decrease of entropy over the causes, in bits, when exactly one of the outcomes is observed.

    ``nothing_nats``: the score of the additional outcome "nothing found"; None if one of the outcomes must occur.
    """
    columns = [weights.get(outcome, {}) for outcome in outcomes]
    nothing = [] if nothing_nats is None else [nothing_nats]
    neutral = _likelihood([0.0] * len(columns) + nothing)
    mentioned = set().union(*columns)
    prior = {cause: share for cause, share in shares.items() if share > 0}
    if (rest := 1.0 - sum(shares.values())) > 0:
        prior[""] = rest
    likelihood = [
        _likelihood([column.get(cause, 0.0) for column in columns] + nothing) if cause in mentioned else neutral
        for cause in prior
    ]
    gain = entropy_bits(prior.values())
    for chances in zip(*likelihood, strict=True):
        joint = [share * chance for share, chance in zip(prior.values(), chances, strict=True)]
        mass = sum(joint)
        if mass > 0:
            gain -= mass * entropy_bits([value / mass for value in joint])
    return max(0.0, gain)


def _likelihood(scores: list[float]) -> list[float]:
    exponentials = [math.exp(score) for score in scores]
    total = sum(exponentials)
    return [value / total for value in exponentials]


def entropy_bits(shares: Collection[float]) -> float:
    """Shannon entropy of a distribution, in bits."""
    return -sum(share * math.log2(share) for share in shares if share > 0)
