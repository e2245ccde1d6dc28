"""A case: collected evidence and the diagnosis computed from it, for the screens, ``--plain`` and the commands.

A case is rebuilt from the events of its session and holds nothing else, so a resumed session is the same case.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ...knowledge.schema import NEUTRAL_ANSWERS, Knowledge, Question
from ..evidence import (
    MIN_SHARE_SHOWN,
    MOVING,
    ONE_PROCESS,
    SCOPE,
    TEXT_SOURCES,
    Diagnosis,
    Evidence,
    RankedCause,
    answer_id,
    answer_parts,
    confirmed_id,
    is_led_from_outside,
)
from .evidence_weights import NONE_ANSWER, none_of, weight_table
from .explained_errors import explain_errors
from .next_step import next_steps, offered_answers
from .ranking import Ranking, rank_causes
from .scope import scale_by_scope

if TYPE_CHECKING:
    from ..session import Session

SKIPPED = "skipped"
SCRIPT_PATH = "script-path"  # the question for the path of the training script; its answer is the path
FRONT_DOOR = "symptom"  # the question the wizard begins with
MOST_OFFERED = 4  # causes, as answers to a question
HANGS, RUNS = "hangs", "wrong-or-slow"  # two of its answers


class Case:
    """Evidence and its ranking. Without a session nothing is saved (a plain ``diagnose``)."""

    def __init__(self, knowledge: Knowledge, session: "Session | None" = None) -> None:
        self.knowledge = knowledge
        self.session = session
        self.evidence: list[Evidence] = []
        self.answers: dict[str, str] = {}
        self.job = ""  # the id of the job that was inspected last
        self.probed: set[str] = set()
        self._weights = weight_table(knowledge)
        for event in session.events if session else []:
            self._replay(event.kind, event.data)

    def add(self, evidence: Iterable[Evidence]) -> None:
        """Add observations."""
        items = list(evidence)
        if self.session and items:
            self.session.append_all("evidence", [msgspec.to_builtins(item) for item in items])
        self.evidence += items

    def answer(self, question: str, answer: str) -> None:
        """Record the answer to a question; ``skipped`` and "I don't know" only mark it as asked."""
        self._record("answer", question=question, answer=answer)

    def take_back_answer(self, question: str) -> None:
        """Remove an answer (the user went back)."""
        self._record("answer", question=question, answer=None)

    def take_triage(self, **verdicts: Any) -> None:
        """Record the result of a triage; it replaces the evidence of earlier ones. The case is of its first job."""
        self._record("triage", **verdicts)

    def mark_probed(self, probe: str) -> None:
        """Record that a probe has run, whatever it found."""
        self._record("step", probed=probe)

    def settle(self, cause: str, was: bool) -> None:
        """Record your answer that it was this cause, or that it was not; it stays in the session."""
        self._record("truth", cause=cause, was=was)

    @property
    def script(self) -> str:
        """The path of the training script that the user gave, or ""."""
        given = self.answers.get(SCRIPT_PATH, "")
        return "" if given == SKIPPED else given

    @property
    def is_moving(self) -> bool:
        """True if the job was inspected and makes progress: then it does not hang, whatever was answered before."""
        return any(item.source == "job" and item.id in MOVING for item in self.evidence)

    def answers_to_offer(self, question: str) -> dict[str, str]:
        """Return the answers of a question and their labels in the order to show them: of a job that makes progress
        a hang comes last."""
        answers = dict(offered_answers(self.knowledge.questions[question], self._described_causes()))
        if question != FRONT_DOOR or not self.is_moving:
            return answers
        return {RUNS: answers.pop(RUNS)} | {id_: answers[id_] for id_ in sorted(answers, key=lambda id_: id_ == HANGS)}

    @property
    def rejected(self) -> set[str]:
        """Causes that the user has rejected."""
        return {id_ for item in self.evidence if (id_ := item.id.removeprefix("rejected:")) != item.id}

    def diagnosis(self, in_scope: bool = True, may_probe: Iterable[str] = ()) -> Diagnosis:
        """Return the current ranking with its reasons and the next steps.

        ``may_probe``: probes that are allowed to run.
        """
        weighed, ranking = self._ranked()
        # A text about one process does not weigh on the next step: the answer to a question may correct it.
        others = [item for item in weighed if item.id != ONE_PROCESS]
        asking = ranking if len(others) == len(weighed) else rank_causes(self.knowledge, self._weights, others)
        shares = {cause.id: cause.confidence for cause in asking.causes}
        left = [probe for probe in may_probe if probe not in self.probed]
        return Diagnosis(
            in_scope=in_scope and self.answer_to(SCOPE) != "no-training" and not is_led_from_outside(ranking.causes),
            causes=[cause for cause in ranking.causes if _worth_showing(cause)],
            other=round(ranking.other, 4),
            several=ranking.several,
            support=ranking.support,
            next=next_steps(
                self.knowledge,
                self._weights,
                shares,
                self.known_answers(),
                left,
                self._described_causes(ranking),
                is_scope_open=_is_scope_open(weighed, ranking),
            ),
            evidence=list(self.evidence),
        )

    def _ranked(self) -> tuple[list[Evidence], Ranking]:
        """Return the evidence as it counts, and the ranking."""
        kept = [item for item in self.evidence if not (self.is_moving and item.id == answer_id(FRONT_DOOR, HANGS))]
        weighed = explain_errors(scale_by_scope(kept, self.knowledge, self.rejected), self.knowledge)
        return weighed, rank_causes(self.knowledge, self._weights, weighed)

    def _described_causes(self, ranking: Ranking | None = None) -> list[str]:
        """Return the most likely causes if the case has a description, for a question whose answers are causes."""
        if not any(item.source == "description" for item in self.evidence):
            return []
        causes = (ranking or self._ranked()[1]).causes[:MOST_OFFERED]
        return [cause.id for cause in causes if cause.because and cause.confidence >= MIN_SHARE_SHOWN]

    def known_answers(self) -> set[str]:
        """Return the questions that need no asking: answered by the user or by other evidence, or out of place."""
        implied = {answer_parts(item.id)[0] for item in self.evidence if item.id.startswith("answer:")}
        seen = {item.id for item in self.evidence}
        sources = {*(item.source for item in self.evidence), *self.probed}
        needless = {
            id_
            for id_, question in self.knowledge.questions.items()
            if not sources.isdisjoint(question.answered_by)
            or not seen.isdisjoint(question.pointless_after)
            or not self._fits(question)
        }
        return {*self.answers, *implied, *needless}

    def answer_to(self, question: str) -> str:
        """Return the answer to a question that the user or other evidence gave, or "" if it is not known."""
        given = self.answers.get(question, "")
        implied = (answer_parts(item.id) for item in self.evidence if item.id.startswith("answer:"))
        answer = given or next((answer for asked, answer in implied if asked == question), "")
        if question == FRONT_DOOR and answer == HANGS and self.is_moving:
            return RUNS
        return "" if answer in (SKIPPED, *NEUTRAL_ANSWERS) else answer

    def _fits(self, question: Question) -> bool:
        return all((given := self.answer_to(other)) in answers or not given for other, answers in question.fits.items())

    def _record(self, kind: Any, **data: Any) -> None:
        if self.session:
            self.session.append(kind, **data)
        self._replay(kind, data)

    def _replay(self, kind: str, data: Mapping[str, Any]) -> None:
        if kind == "evidence":
            self.evidence.append(msgspec.convert(data, Evidence))
        elif kind == "answer":
            self._take_answer(data["question"], data["answer"])
        elif kind == "truth":
            answer = "you confirmed this cause" if data["was"] else "you rejected this cause"
            self.evidence.append(Evidence(confirmed_id(data["cause"], data["was"]), "answer", answer))
        elif kind == "triage":
            self.evidence = [item for item in self.evidence if item.source != "job"]
            self.job = next((job["id"] for job in data.get("jobs", [])), "")
        elif kind == "step" and "probed" in data:
            self.probed.add(data["probed"])

    def _take_answer(self, question: str, answer: str | None) -> None:
        prefix = answer_id(question, "")
        self.evidence = [item for item in self.evidence if not item.id.startswith(prefix)]
        self.answers.pop(question, None)
        if answer is None:
            return
        self.answers[question] = answer
        spec = self.knowledge.questions.get(question)
        if spec and answer in spec.answers and answer not in NEUTRAL_ANSWERS:
            offered = self._described_causes() if spec.of_causes and answer == NONE_ANSWER else []
            what = f"{spec.ask} {spec.answers[answer]}"
            given = [answer, *map(none_of, offered)]
            self.evidence += [Evidence(answer_id(question, each), "answer", what) for each in given]


def _is_scope_open(evidence: Iterable[Evidence], ranking: Ranking) -> bool:
    """Return whether only a description and logs are known, and name no other process or fit none of the causes."""
    items = list(evidence)
    if {item.source for item in items} not in ({"description"}, {*TEXT_SOURCES}):
        return False
    first = ranking.causes[0].confidence if ranking.causes else 0.0
    return any(item.id == ONE_PROCESS for item in items) or ranking.other > first


def _worth_showing(cause: RankedCause) -> bool:
    return cause.confidence >= MIN_SHARE_SHOWN or bool(cause.because)
