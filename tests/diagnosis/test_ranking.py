"""Ranking: sums of log-odds, the lines that explain them, and the most informative next step."""

import math

import pytest
from ddpwizard.app.diagnosis.decision_graph import build_graph, graph_as_dot, graph_as_json
from ddpwizard.app.diagnosis.evidence_weights import weight_table
from ddpwizard.app.diagnosis.next_step import entropy_bits, expected_gain_bits, next_steps
from ddpwizard.app.diagnosis.ranking import DOCUMENTED_TEMPERATURE, rank_causes, softmax_with_other
from ddpwizard.app.evidence import (
    ONE_PROCESS,
    OTHER_SUBJECT,
    Evidence,
    answer_id,
    confirmed_id,
    is_root_error,
    signature_id,
    typical_words_id,
)
from ddpwizard.knowledge.calibration import Calibration
from ddpwizard.knowledge.schema import NATS
from helpers.built_in_knowledge import built_in_knowledge

KNOWLEDGE = built_in_knowledge()
WEIGHTS = weight_table(KNOWLEDGE)
CRASHED = answer_id("symptom", "crashes")


def seen(id_: str, strength: float = 1.0) -> Evidence:
    return Evidence(id_, "probe", id_, where="somewhere", strength=strength)


def test_shares_and_other_sum_to_one():
    shares, other = softmax_with_other({"a": 2.0, "b": -1.0}, temperature=0.5)
    assert math.isclose(sum(shares.values()) + other, 1.0)
    assert math.isclose(shares["a"] / other, math.exp(2.0 / 0.5))


def test_without_evidence_none_of_these_leads():
    nothing = rank_causes(KNOWLEDGE, WEIGHTS, [])
    assert nothing.other > max(cause.confidence for cause in nothing.causes)
    assert all(not cause.because for cause in nothing.causes)


def test_each_cause_is_led_to_by_its_own_strongest_finding():
    for cause in KNOWLEDGE.causes.values():
        decisive = [id_ for id_, weight in cause.findings.items() if weight == "decisive"]
        for finding in decisive:
            assert rank_causes(KNOWLEDGE, WEIGHTS, [seen(finding)]).causes[0].id == cause.id, finding


def test_the_lines_add_up_to_the_rank():
    finding = "limits.shm-small"
    before, after = (rank_causes(KNOWLEDGE, WEIGHTS, items, Calibration()) for items in ([], [seen(finding)]))
    cause = "shm-too-small"
    odds_before = next(c.confidence for c in before.causes if c.id == cause) / before.other
    odds_after = next(c.confidence for c in after.causes if c.id == cause) / after.other
    line = next(c for c in after.causes if c.id == cause).because[0]
    assert math.log(odds_after / odds_before) * DOCUMENTED_TEMPERATURE == pytest.approx(line.weight, abs=0.1)
    assert line.where == "somewhere"


def test_the_same_observation_counts_once():
    once = rank_causes(KNOWLEDGE, WEIGHTS, [seen("limits.shm-small")])
    often = rank_causes(KNOWLEDGE, WEIGHTS, [seen("limits.shm-small")] * 8)
    assert once == often


def test_prior_of_a_frequent_cause_counts_where_a_description_supports_it():
    frequent = Calibration(priors={"p2p-broken": 1.0})

    def share(item: Evidence, calibration: Calibration) -> float:
        ranked = rank_causes(KNOWLEDGE, WEIGHTS, [item], calibration).causes
        return next(cause.confidence for cause in ranked if cause.id == "p2p-broken")

    described = Evidence(typical_words_id("p2p-broken"), "description", "words", strength=0.5)
    answered = Evidence(answer_id("works-on-one-gpu", "works"), "answer", "it works on one GPU")
    assert share(described, frequent) > share(described, Calibration())
    assert share(answered, frequent) == share(answered, Calibration())


@pytest.mark.parametrize(("strength", "kept"), [(0.01, "log"), (1.0, "description")])
def test_a_line_counts_as_an_error_or_as_a_description(strength: float, kept: str):
    cause = KNOWLEDGE.causes["timeout-masks-cause"]
    symptom = next(number for number, each in enumerate(cause.signatures) if each.role == "symptom")
    line = Evidence(signature_id(cause, symptom), "log", "a time-out", where="run.log:5", strength=0.3)
    words = Evidence(typical_words_id(cause.id), "description", "words", where="run.log:5", strength=strength)
    ranked = rank_causes(KNOWLEDGE, WEIGHTS, [line, words]).causes
    assert [each.source for each in next(c for c in ranked if c.id == cause.id).because] == [kept]


def test_a_line_that_several_signatures_match_is_one_reason():
    cause = KNOWLEDGE.causes["port-in-use"]
    line = "OSError: [Errno 98] Address already in use"
    both = [Evidence(f"log:{cause.id}/{number}", "log", line, where="run.log:5") for number in (0, 1)]
    alone, together = (rank_causes(KNOWLEDGE, WEIGHTS, items).causes[0] for items in (both[:1], both))
    assert together.id == cause.id and [each.what for each in together.because] == [line]
    assert together.because[0].weight > alone.because[0].weight


def test_evidence_against_lowers():
    pro = [seen("limits.shm-small")]
    contra = [*pro, seen("limits.shm-roomy")]
    assert (
        rank_causes(KNOWLEDGE, WEIGHTS, contra).causes[0].confidence
        <= rank_causes(KNOWLEDGE, WEIGHTS, pro).causes[0].confidence
    )


def test_a_weaker_match_weighs_less():
    whole = rank_causes(KNOWLEDGE, WEIGHTS, [seen("words:wrong-nic")]).causes
    half = rank_causes(KNOWLEDGE, WEIGHTS, [seen("words:wrong-nic", 0.5)]).causes
    assert whole[0].id == half[0].id == "wrong-nic"
    assert whole[0].confidence > half[0].confidence


def text(id_: str) -> Evidence:
    return Evidence(id_, "log", id_, where=id_)


def weights_of(evidence: list[Evidence], cause: str) -> list[float]:
    ranked = rank_causes(KNOWLEDGE, WEIGHTS, evidence).causes
    return [line.weight for line in next(c for c in ranked if c.id == cause).because]


def test_pieces_of_one_text_count_less_and_less_and_probes_in_full():
    lines = [text("log:port-in-use/0"), text("words:port-in-use")]
    alone = sum(weights_of(lines[:1], "port-in-use")) + sum(weights_of(lines[1:], "port-in-use"))
    assert sum(weights_of(lines, "port-in-use")) < alone
    probed = [*lines, seen("ports.busy")]
    assert sum(weights_of(probed, "port-in-use")) == pytest.approx(
        sum(weights_of(lines, "port-in-use")) + sum(weights_of([seen("ports.busy")], "port-in-use"))
    )


def test_a_generic_cause_steps_back_where_a_specific_one_is_shown():
    generic = next(cause for cause in KNOWLEDGE.causes.values() if cause.generic and cause.signatures)
    echo = text(f"log:{generic.id}/0")
    alone = rank_causes(KNOWLEDGE, WEIGHTS, [echo])
    with_echo = rank_causes(KNOWLEDGE, WEIGHTS, [echo, text("log:port-in-use/0")])
    assert with_echo.causes[0].id == "port-in-use"
    lines = next(c for c in with_echo.causes if c.id == generic.id).against
    assert any("Port" in line.what or "port" in line.what for line in lines)
    assert not any("says more" in line.what for c in alone.causes for line in c.against)


def test_what_a_text_says_for_many_causes_does_not_show_one():
    generic = next(cause for cause in KNOWLEDGE.causes.values() if cause.generic and cause.signatures)
    hangs = Evidence(answer_id("symptom", "hangs"), "description", "it hangs", where="x:1", strength=0.6)
    faint = Evidence("words:p2p-broken", "description", "like it", where="x", strength=0.35)
    ranked = rank_causes(KNOWLEDGE, WEIGHTS, [text(f"log:{generic.id}/0"), hangs, faint]).causes
    assert not any("says more" in line.what for cause in ranked for line in cause.against)


def test_a_text_about_one_process_tells_less_against_causes_that_one_process_meets():
    nobody_else = Evidence(ONE_PROCESS, "description", "nothing speaks of several", where="x")
    alone, several = KNOWLEDGE.causes["incomplete-resume"], KNOWLEDGE.causes["wrong-nic"]
    assert alone.one_process and not several.one_process
    for cause, least, most in ((alone, 0.5, 1.0), (several, 0.0, 0.1)):
        words = [Evidence(f"words:{cause.id}", "description", "like it", where="x"), text(f"clue:{cause.id}/0")]
        first = next(c for c in rank_causes(KNOWLEDGE, WEIGHTS, [nobody_else, *words]).causes if c.id == cause.id)
        assert least <= first.confidence <= most, cause.id


def test_words_of_another_subject_do_not_count_against_a_log_of_several_ranks():
    elsewhere = Evidence(OTHER_SUBJECT, "description", "words of cooking", where="x")
    moderate = Evidence("log.one-rank-failed-first", "log", "rank 1 failed first", where="x:1")
    strong = Evidence("log.ranks-disagree-on-collective", "log", "two collectives", where="x:1")

    def other(*items: Evidence) -> float:
        return rank_causes(KNOWLEDGE, WEIGHTS, items).other

    assert other(elsewhere, strong) == other(strong)
    assert other(elsewhere, moderate) > other(moderate), "one process has such an error as well"


def test_an_answer_that_fits_others_weighs_a_little_against_and_unsure_not_at_all():
    question = "error-words"
    assert WEIGHTS[answer_id(question, "address-in-use")]["port-in-use"] > 0
    assert WEIGHTS[answer_id(question, "gradients")]["port-in-use"] < 0
    assert "port-in-use" not in WEIGHTS[answer_id(question, "unsure")]


def test_two_independent_causes_are_both_reported():
    both = rank_causes(KNOWLEDGE, WEIGHTS, [seen("gpus.holder-gone"), seen("limits.oom-killed")])
    assert both.several
    assert {cause.id for cause in both.causes[:2]} == {"zombie-vram", "host-ram-oom"}
    assert all(cause.confidence > 0.5 for cause in both.causes[:2])
    one = rank_causes(KNOWLEDGE, WEIGHTS, [seen("ports.busy")])
    assert not one.several


def test_a_rejected_cause_is_no_longer_first():
    found = [seen("limits.shm-small")]
    assert rank_causes(KNOWLEDGE, WEIGHTS, found).causes[0].id == "shm-too-small"
    refused = rank_causes(
        KNOWLEDGE, WEIGHTS, [*found, Evidence(confirmed_id("shm-too-small", False), "answer", "not that")]
    )
    assert refused.causes[0].id != "shm-too-small"
    assert refused.causes[0].confidence < refused.other


def test_gain_of_an_outcome_nobody_weighs_is_nothing():
    shares = {"a": 0.4, "b": 0.4}
    assert expected_gain_bits(["x", "y"], {}, shares, None) == pytest.approx(0.0)


def test_gain_of_a_question_that_settles_two_equals_their_entropy():
    shares = {"a": 0.5, "b": 0.5}
    weights = {"x": {"a": 50.0}, "y": {"b": 50.0}}
    assert expected_gain_bits(["x", "y"], weights, shares, None) == pytest.approx(1.0, abs=1e-6)
    assert entropy_bits([0.5, 0.5]) == 1.0


def test_probes_come_before_questions_and_nothing_comes_twice():
    shares = {cause.id: cause.confidence for cause in rank_causes(KNOWLEDGE, WEIGHTS, []).causes}
    steps = next_steps(KNOWLEDGE, WEIGHTS, shares, asked={"symptom"}, probes_left=["limits", "env"])
    kinds = [step.kind for step in steps]
    assert kinds.index("question") == kinds.count("probe") > 0
    assert "symptom" not in [step.id for step in steps]


def test_a_question_that_may_make_no_sense_gains_less():
    """The question about the error message counts less while the symptom, which must be a crash, is not known, and is
    left out where a crash is unlikely."""
    shares = {"wrapper-forward-bypassed": 0.3, "inplace-buffer-modified": 0.5}
    gains = [
        {step.id: step.expected_gain for step in next_steps(KNOWLEDGE, WEIGHTS, shares, asked=asked, probes_left=[])}
        for asked in ((), ("symptom",))
    ]
    unknown, known = (found["step-error"] for found in gains)
    assert 0 < unknown < 0.7 * known
    assert gains[0]["step-habit"] == gains[1]["step-habit"]
    slow = next_steps(KNOWLEDGE, WEIGHTS, {"poor-scaling": 0.9}, asked=(), probes_left=[])
    assert "step-error" not in [step.id for step in slow]


def test_every_cause_of_the_graph_is_reachable_and_has_a_fix():
    graph = build_graph(KNOWLEDGE)
    for cause in KNOWLEDGE.causes:
        relations = {data["relation"] for _, _, data in graph.in_edges(cause, data=True)}
        assert {"supports", "fixes", "verifies"} <= relations, cause
    assert len(graph_as_json(graph)["nodes"]) == graph.number_of_nodes()
    assert graph_as_dot(graph).startswith("digraph")


NAMED_BY_AN_ERROR = {
    cause.id: signature_id(cause, index)
    for cause in KNOWLEDGE.causes.values()
    for index, signature in enumerate(cause.signatures)
    if is_root_error(signature_id(cause, index), KNOWLEDGE)
}
OF_THE_MACHINE = {
    cause.id: around
    for cause in KNOWLEDGE.causes.values()
    if (around := [id_ for id_ in cause.findings if id_.partition(".")[0] not in ("job", "log", "review")])
}


@pytest.mark.parametrize("cause", sorted(NAMED_BY_AN_ERROR))
def test_the_error_of_a_log_comes_before_what_the_machine_could_cause(cause: str):
    crash = [Evidence(NAMED_BY_AN_ERROR[cause], "log", "the error"), Evidence(CRASHED, "answer", "it crashed")]
    for other, findings in OF_THE_MACHINE.items():
        first = rank_causes(KNOWLEDGE, WEIGHTS, [*crash, *map(seen, findings)]).causes[0].id
        assert first != other or first == cause, other


def test_the_machine_supports_the_cause_that_the_log_shows():
    error = Evidence(NAMED_BY_AN_ERROR["shm-too-small"], "log", "the error")
    alone, both = (rank_causes(KNOWLEDGE, WEIGHTS, [error, *more]) for more in ([], [seen("limits.shm-small")]))
    assert [found.causes[0].id for found in (alone, both)] == ["shm-too-small"] * 2
    assert both.causes[0].confidence > alone.causes[0].confidence
    assert {reason.source for reason in both.causes[0].because} == {"log", "probe"}


def test_one_sentence_counts_once_for_a_cause():
    cause = next(cause for cause in KNOWLEDGE.causes.values() if cause.clues)

    def nats(**places: str) -> float:
        items = [Evidence(id_, "description", "x", where=place) for id_, place in places.items()]
        return sum(weights_of(items, cause.id))

    clue, words = f"clue:{cause.id}/0", f"words:{cause.id}"
    alone = max(nats(**{clue: "x:1"}), nats(**{words: "x:1"}))
    assert nats(**{clue: "x:1", words: "x:1"}) == nats(**{clue: "x:1", words: "x:1:40"}) == alone
    answer = next(
        f"answer:{question}={answer}"
        for question, weights in cause.questions.items()
        for answer, weight in weights.items()
        if 0 < NATS[weight] < NATS[cause.clues[0].weight]
    )
    alone = nats(**{clue: "x:1"})
    assert nats(**{clue: "x:1", answer: "x:1"}) == alone < nats(**{clue: "x:1", answer: "x:1:40"})
