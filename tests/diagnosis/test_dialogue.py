"""Rules of the dialogue: the order of questions, and when they end."""

import msgspec
import pytest
from ddpwizard.app.diagnosis import dialogue
from ddpwizard.app.diagnosis.case import FRONT_DOOR, SCRIPT_PATH, SKIPPED, Case
from ddpwizard.app.diagnosis.evidence_weights import NEUTRAL_ANSWERS, weight_table
from ddpwizard.app.diagnosis.experiment import choose_experiment
from ddpwizard.app.diagnosis.next_step import next_steps
from ddpwizard.app.evidence import (
    ONE_PROCESS,
    OTHER_SUBJECT,
    SCOPE,
    Evidence,
    NextStep,
    Support,
    confirmed_id,
    typical_words_id,
)
from helpers.built_in_knowledge import built_in_knowledge

KNOWLEDGE = built_in_knowledge()


def next_of(case: Case) -> str:
    return dialogue.next_question(case, case.diagnosis())


def test_the_symptom_then_the_place_of_the_job_then_the_script():
    case = Case(KNOWLEDGE)
    assert next_of(case) == FRONT_DOOR
    case.answer(FRONT_DOOR, "hangs")
    assert next_of(case) == "where-is-job"
    case.answer("where-is-job", "ended")
    assert next_of(case) == SCRIPT_PATH
    case.answer(SCRIPT_PATH, SKIPPED)
    assert next_of(case) not in ("", SCRIPT_PATH, "where-is-job")


def test_a_job_answers_where_it_is_and_names_its_script():
    case = Case(KNOWLEDGE)
    case.answer(FRONT_DOOR, "hangs")
    case.add([Evidence("job.progressing", "job", "the ranks move")])
    assert next_of(case) not in ("where-is-job", SCRIPT_PATH)


@pytest.mark.parametrize("finding", ["job.progressing", "job.straggler"])
def test_job_that_makes_progress_does_not_hang_whatever_was_answered(finding: str):
    seen = Evidence(finding, "job", "the ranks move")
    case, unanswered = Case(KNOWLEDGE), Case(KNOWLEDGE)
    case.answer(FRONT_DOOR, "hangs")
    hanging = {cause.id for cause in case.diagnosis().causes[:10]}
    case.add([seen])
    unanswered.add([seen])
    assert [cause.id for cause in case.diagnosis().causes] == [cause.id for cause in unanswered.diagnosis().causes]
    first = [cause.id for cause in case.diagnosis().causes[:3]]
    assert not {"p2p-broken", "barrier-wrong-device", "mtu-mismatch"} & {*first} and {*first} - hanging
    assert "when-it-stops" in case.known_answers()
    offered = list(case.answers_to_offer(FRONT_DOOR))
    assert (offered[0], offered[-1]) == ("wrong-or-slow", "hangs")
    assert next(iter(Case(KNOWLEDGE).answers_to_offer(FRONT_DOOR))) == "hangs"
    assert {*offered} == {*KNOWLEDGE.questions[FRONT_DOOR].answers}


def test_nothing_is_asked_once_the_cause_is_clear():
    case = Case(KNOWLEDGE)
    case.answer(FRONT_DOOR, "crashes")
    case.add([Evidence(confirmed_id("port-in-use", True), "answer", "yes"), Evidence("ports.busy", "probe", "busy")])
    diagnosis = case.diagnosis()
    assert diagnosis.causes[0].confidence >= dialogue.CLEAR
    assert dialogue.next_question(case, diagnosis) == "" and dialogue.next_offer(case, diagnosis) == ""


def test_the_experiment_has_the_users_script_launcher_and_place():
    case = Case(KNOWLEDGE)
    case.answer(FRONT_DOOR, "hangs")
    assert choose_experiment(case).commands == ["ddpwizard run -- torchrun --nproc-per-node=2 train.py"]
    case.answer(SCRIPT_PATH, "/home/me/my run.py")
    case.answer("how-launched", "accelerate")
    assert choose_experiment(case).commands == ["ddpwizard run -- accelerate launch '/home/me/my run.py'"]
    known = choose_experiment(case, ["torchrun", "--nproc-per-node=4", "x.py"]).commands
    assert known == ["ddpwizard run -- torchrun --nproc-per-node=4 x.py"]
    case.answer("where-is-job", "other-user")
    assert choose_experiment(case).commands == ["sudo ddpwizard triage"]


@pytest.mark.parametrize(
    ("support", "gain", "share", "asked"),
    [
        ("words", 0.6, 0.4, "rank-gated"),
        ("answer", 0.6, 0.4, "rank-gated"),
        ("words", 0.1, 0.4, ""),
        ("log", 0.6, 0.4, ""),
        ("words", 0.6, 0.98, ""),
    ],
)
def test_specific_question_comes_before_a_guess_from_words(support: Support, gain: float, share: float, asked: str):
    """The symptom and the area are asked after a description only if no cause is likely."""
    case = Case(KNOWLEDGE)
    case.add([Evidence("words:wrong-nic", "description", "like it", where="x:1")])
    found = case.diagnosis()
    first = msgspec.structs.replace(found.causes[0], confidence=share)
    steps = [NextStep("question", "rank-gated", "?", gain), NextStep("question", "area", "?", 2.0)]
    steps = steps if gain > dialogue.LEAST_GAIN_BITS else steps[::-1]
    diagnosis = msgspec.structs.replace(found, support=support, causes=[first], next=steps)
    assert dialogue.question_before_guess(case, diagnosis) == asked
    unlikely = msgspec.structs.replace(diagnosis, causes=[msgspec.structs.replace(first, confidence=0.1)])
    expected = "" if support == "log" else "rank-gated" if gain > dialogue.LEAST_GAIN_BITS else "area"
    assert dialogue.question_before_guess(case, unlikely) == expected
    undescribed = msgspec.structs.replace(diagnosis, evidence=[])
    assert dialogue.question_before_guess(case, undescribed) == ""
    assert dialogue.question_before_guess(case, msgspec.structs.replace(diagnosis, in_scope=False)) == ""


def described(*causes: str) -> Case:
    """A case with a description that fits these causes alike, so that none of them is clear."""
    case = Case(KNOWLEDGE)
    case.add([Evidence(typical_words_id(cause), "description", "words", where="x:1", strength=0.8) for cause in causes])
    return case


def shares(case: Case) -> dict[str, float]:
    return {cause.id: cause.confidence for cause in case.diagnosis().causes}


def test_likely_causes_of_a_description_are_answers_of_which_each_moves_what_it_names():
    causes = ("wrong-nic", "p2p-broken", "gpu-sick")
    offered = [*described(*causes).answers_to_offer("closest")]
    assert {*offered} == {*causes, "none", "unsure"}
    before = shares(described(*causes))
    for cause in causes:
        case = described(*causes)
        case.answer("closest", cause)
        assert case.diagnosis().causes[0].id == cause and shares(case)[cause] > before[cause]
    refused = described(*causes)
    refused.answer("closest", "none")
    assert all(shares(refused).get(cause, 0.0) < before[cause] for cause in causes)
    refused.take_back_answer("closest")
    assert shares(refused) == before
    refused.answer("closest", "unsure")
    assert max(shares(refused), key=lambda id_: shares(refused)[id_]) == max(before, key=lambda id_: before[id_])


@pytest.mark.parametrize("causes", [(), ("wrong-nic",)])
def test_causes_are_no_answers_unless_a_description_fits_several(causes: tuple[str, ...]):
    case = described(*causes)
    case.answer(FRONT_DOOR, "hangs")
    assert "closest" not in [step.id for step in case.diagnosis().next]


def test_first_question_of_the_next_steps_is_the_one_before_a_guess():
    case = described("wrong-nic", "p2p-broken", "gpu-sick")
    diagnosis = case.diagnosis()
    first = next(step for step in diagnosis.next if step.kind == "question")
    assert dialogue.question_before_guess(case, diagnosis) == first.id
    assert first.expected_gain > dialogue.LEAST_GAIN_BITS and not KNOWLEDGE.questions[first.id].general
    assert {answer.id: answer.text for answer in first.answers} == case.answers_to_offer(first.id)


@pytest.mark.parametrize("question", [id_ for id_ in KNOWLEDGE.questions if id_ != FRONT_DOOR])
def test_each_question_can_be_left_open_and_that_answer_moves_nothing(question: str):
    (unknown,) = [answer for answer in KNOWLEDGE.questions[question].answers if answer in NEUTRAL_ANSWERS]
    case = described("wrong-nic", "p2p-broken", "gpu-sick")
    before = case.diagnosis()
    case.answer(question, unknown)
    after = case.diagnosis()
    assert (after.causes, after.other, after.support) == (before.causes, before.other, before.support)
    assert question in case.known_answers() and question not in [step.id for step in after.next]


def test_question_that_tells_more_than_a_probe_comes_first():
    may_probe = [id_ for id_, spec in KNOWLEDGE.probes.items() if spec.intrusiveness == "reads" and spec.findings]
    first, *others = described("wrong-nic", "p2p-broken", "gpu-sick").diagnosis(may_probe=may_probe).next
    assert first.kind == "question"
    assert first.expected_gain > max(step.expected_gain for step in others if step.kind == "probe") > 0
    undescribed = Case(KNOWLEDGE)
    undescribed.answer(FRONT_DOOR, "hangs")
    assert undescribed.diagnosis(may_probe=may_probe).next[0].kind == "probe"


def test_when_it_stops_is_asked_only_where_something_stops():
    def asked(*causes: str) -> list[str]:
        return [step.id for step in described(*causes).diagnosis().next]

    assert "when-it-stops" not in asked("poor-scaling", "slow-link", "straggler-rank")
    assert "when-it-stops" in asked("barrier-wrong-device", "exit-hang", "ranks-missing-at-init")


def test_question_for_what_was_tried_tells_half_after_a_description():
    likely = {"wrong-nic": 0.4, "p2p-broken": 0.4}

    def gain(question: str, *described: str) -> float:
        steps = next_steps(KNOWLEDGE, weight_table(KNOWLEDGE), likely, (), (), described)
        return next(step.expected_gain for step in steps if step.id == question)

    assert gain("what-cures-it", *likely) == pytest.approx(gain("what-cures-it") / 2, abs=0.002)
    assert gain("machine-words", *likely) == gain("machine-words")


OF_ONE_PROCESS = Evidence(ONE_PROCESS, "description", "no other process is named", where="x")
ELSEWHERE = Evidence(OTHER_SUBJECT, "description", "words of cooking", where="x")


def asked_first(*evidence: Evidence, strength: float = 0.5) -> str:
    case = Case(KNOWLEDGE)
    case.add([Evidence(typical_words_id("wrong-nic"), "description", "words", where="x:1", strength=strength)])
    case.add(evidence)
    return dialogue.question_before_guess(case, case.diagnosis())


def test_whether_there_are_several_ranks_is_asked_first_unless_the_text_shows_it():
    assert asked_first(OF_ONE_PROCESS) == asked_first(ELSEWHERE) == SCOPE
    assert asked_first(strength=0.7) != SCOPE
    assert asked_first(OF_ONE_PROCESS, Evidence("job.progressing", "job", "it moves")) != SCOPE
    assert SCOPE not in [step.id for step in Case(KNOWLEDGE).diagnosis().next]


def test_answer_about_the_scope_opens_the_causes_of_several_ranks_or_closes_them():
    def after(answer: str) -> tuple[float, float]:
        case = Case(KNOWLEDGE)
        case.add([OF_ONE_PROCESS, Evidence(typical_words_id("wrong-nic"), "description", "words", where="x:1")])
        case.answer(SCOPE, answer)
        case.answer("how-many-nodes", "several")
        diagnosis = case.diagnosis()
        return next((c.confidence for c in diagnosis.causes if c.id == "wrong-nic"), 0.0), diagnosis.other

    assert after("several")[0] > 0.5 > after("several")[1]
    assert after("one")[0] < 0.1 and after("one")[1] > 0.8
    assert after("no-training")[0] < 0.1 and after("no-training")[1] > 0.8


def test_one_process_that_trains_may_have_the_causes_of_one():
    case = Case(KNOWLEDGE)
    case.add([OF_ONE_PROCESS, Evidence(typical_words_id("data-bound"), "description", "words", where="x:1")])
    case.answer(SCOPE, "one")
    assert case.diagnosis().causes[0].id == "data-bound" and case.diagnosis().causes[0].confidence > 0.5


def test_another_program_is_out_of_scope_and_nothing_more_is_asked():
    case = Case(KNOWLEDGE)
    case.add([OF_ONE_PROCESS])
    case.answer(SCOPE, "no-training")
    assert not case.diagnosis().in_scope
    assert dialogue.question_before_guess(case, case.diagnosis()) == ""


@pytest.mark.parametrize(("answer", "several"), [("memory-kind=host", False), ("rank-gated=collective", True)])
def test_answer_that_fits_one_process_implies_no_others(answer: str, several: bool):
    case = Case(KNOWLEDGE)
    case.add([OF_ONE_PROCESS])
    case.answer(*answer.split("="))
    of_several = sum(share for id_, share in shares(case).items() if not KNOWLEDGE.causes[id_].one_process)
    assert of_several > 0.9 if several else of_several < 0.05


def test_error_of_any_program_is_questioned_where_several_ranks_are_named():
    error = Evidence(typical_words_id("script-error"), "description", "words", where="x:1", strength=0.8)
    other = Evidence(typical_words_id("backend-mismatch"), "description", "words", where="x:2", strength=0.8)
    case = Case(KNOWLEDGE)
    case.add([error, other])
    diagnosis = case.diagnosis()
    leading = [c for c in diagnosis.causes if c.id == "script-error"]
    outside = msgspec.structs.replace(
        diagnosis, in_scope=False, causes=[msgspec.structs.replace(leading[0], confidence=0.6)]
    )
    assert dialogue.question_before_guess(case, outside)
    of_one = msgspec.structs.replace(outside, evidence=[*outside.evidence, OF_ONE_PROCESS])
    assert dialogue.question_before_guess(case, of_one) == ""
