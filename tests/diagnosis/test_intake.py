"""Matching: the right line is named, a long line costs nothing, words count for what they are worth."""

import time

import msgspec
import pytest
from ddpwizard.app.diagnosis.case import Case
from ddpwizard.app.diagnosis.intake import add_to_case, read_sources
from ddpwizard.app.evidence import ONE_PROCESS, OTHER_SUBJECT, SCRIPT_ERROR, Evidence
from ddpwizard.app.logs.passages import PassageIndex
from ddpwizard.app.logs.read import source_of_text
from ddpwizard.knowledge.schema import Cause, Clue, FixSpec, Knowledge, Question, Reference, Signature, Verification
from helpers.built_in_knowledge import built_in_knowledge

ODD = Cause(
    id="odd-cause",
    title="The odd one",
    family="hang",
    summary="odd",
    symptoms=["loss explodes after restarting the scheduler"],
    explain="odd",
    fixes=[FixSpec(id="repair", kind="text", title="Repair it")],
    verify=Verification(probe="limits"),
    holds_for={"torch": ">=2.1"},
    sources=[Reference(title="t", url="https://example.org", checked="2.13")],
    signatures=[Signature(pattern=r"odd thing (\d+) of (\d+)$", literal="odd thing", weight="strong")],
)
KNOWLEDGE = Knowledge(
    causes={"odd-cause": ODD},
    questions={},
    probes={},
    messages=built_in_knowledge().messages,
    rules={},
    in_scope_words=["nccl"],
    synonyms=[["explode", "blows up"]],
    topics={},
    multi_rank_words=[".*"],
    glossary={},
    version="test",
)
OTHERS = {
    f"other-{n}": msgspec.structs.replace(ODD, id=f"other-{n}", symptoms=[word], signatures=[], title=word)
    for n, word in enumerate(["network is slow", "disk is full", "port is taken", "memory runs out", "fan is loud"])
}
WITH_LIKENESS = msgspec.structs.replace(KNOWLEDGE, causes={"odd-cause": ODD} | OTHERS)


def match(text: str, origin: str, knowledge: Knowledge) -> list[Evidence]:
    return read_sources([source_of_text(text, origin)], knowledge).evidence


def test_the_first_matching_line_is_named_with_its_rank():
    text = "start\n[rank3]: an odd thing at last\n[rank3]: odd thing 3 of 4\n[rank1]: odd thing 1 of 4\n"
    (found,) = [item for item in match(text, "/x.log", KNOWLEDGE) if item.id.startswith("log:")]
    assert (found.id, found.where, found.rank) == ("log:odd-cause/0", "/x.log:3", 3)
    assert found.what == "[rank3]: odd thing 3 of 4"


def test_messages_are_evidence_in_addition_to_causes():
    text = "W1120 Sending process 77 closing signal SIGTERM"
    assert [item.id for item in match(text, "x", KNOWLEDGE)] == ["message:agent-sigterm", "log.only-consequences"]


def test_a_line_of_ten_megabytes_does_not_slow_it_down():
    text = "odd thing " * 1_000_000
    started = time.thread_time()
    assert match(text, "x", KNOWLEDGE) == []
    assert time.thread_time() - started < 10


def test_words_of_a_short_text_find_the_symptom():
    items = match("my losses exploded when I restarted the scheduler", "x", WITH_LIKENESS)
    (found,) = [item for item in items if item.id != OTHER_SUBJECT]
    assert found.id == "likeness:odd-cause", "an entry that the text model does not know"
    assert 0.0 < found.strength <= 1.0
    assert "explodes" in found.what


def heard(text: str, clue: list[str]) -> list[str]:
    cause = msgspec.structs.replace(ODD, clues=[Clue(all=clue, why="It is odd.")], symptoms=["zzzz"])
    found = match(text, "x", msgspec.structs.replace(KNOWLEDGE, causes={"odd-cause": cause}))
    return [item.id for item in found if item.id.startswith("clue:")]


def test_a_clue_is_heard_in_any_form_of_its_words():
    assert heard("The loss is exploding with find_unused_parameters=True", ["explode", "find unused parameters"])
    assert heard("it blows up", ["explode"]), "a synonym"
    assert heard("set-epoch was forgotten", ["set_epoch|shuffle"]), "either of two"
    assert heard("checkpointing", ["checkpoint*"])
    assert heard("it was balancing", ["balance*"]), "any form of the word"
    assert not heard("the loss explodes", ["explode", "scheduler"]), "every term"
    assert not heard("parameters unused find", ["find_unused_parameters"]), "a phrase has its order"
    assert not heard("an exception, an exceptional one", ["exceed*"]), "the stem of a word is not its beginning"
    assert heard("the limit was exceeded", ["limit*", "exceed*"])


def test_the_terms_of_a_clue_stand_close_together():
    assert heard("explode " + "word " * 50 + "scheduler", ["explode", "scheduler"])
    assert not heard("explode " + "word " * 500 + "scheduler", ["explode", "scheduler"])


def test_evidence_quotes_the_terms_and_names_the_sentence():
    text = "One\nthing first. Then the loss\nexplodes. At last the scheduler stops, it explodes."
    clued = msgspec.structs.replace(
        ODD, clues=[Clue(all=["explode", "scheduler"], why="It is odd.")], symptoms=["zzzz"]
    )
    found = match(text, "x", msgspec.structs.replace(KNOWLEDGE, causes={"odd-cause": clued}))
    (clue,) = [item for item in found if item.id.startswith("clue:")]
    assert clue.what == "It is odd: “explodes”, “scheduler”"
    assert clue.where == "x:2:14"


def test_nothing_a_person_types_is_taken_for_a_search():
    for text in ('"', "NEAR(", "a AND OR NOT", "col:*", "explode* ^x", "\x00", "'; DROP TABLE x"):
        assert isinstance(match(text, "x", KNOWLEDGE), list)


def test_text_answers_a_question_without_asking():
    asked = Question(ask="How many?", why="w", answers={"two": "Two"}, heard={"two": [["two nodes"]]})
    known = msgspec.structs.replace(KNOWLEDGE, questions={"nodes": asked})
    (found,) = [item for item in match("on\ntwo nodes", "x", known) if item.id.startswith("answer:")]
    assert (found.id, found.source, found.strength < 1) == ("answer:nodes=two", "description", True)


def test_one_is_not_heard_in_on():
    clue = [Clue(all=["one gpu", "full"], why="It is odd.")]
    knowledge = msgspec.structs.replace(KNOWLEDGE, causes={"odd-cause": msgspec.structs.replace(ODD, clues=clue)})
    heard = {text: match(text, "x", knowledge) for text in ("One GPU is full\n", "memory on GPU 0 is full\n")}
    (one, on) = ([item for item in found if item.id.startswith("clue:")] for found in heard.values())
    assert [item.what for item in one] == ["It is odd: “One GPU”, “full”"]
    assert on == []


def test_options_of_a_command_are_not_what_went_wrong():
    command = "torchrun --loss 1 --explodes yes \\\n  --restarting 3 --scheduler odd train.py\n"
    text = "the loss explodes after --restarting the scheduler\n"
    assert not [item for item in match(command, "x", WITH_LIKENESS) if item.id == "likeness:odd-cause"]
    assert [item for item in match(text, "x", WITH_LIKENESS) if item.id == "likeness:odd-cause"]


def test_words_of_a_log_are_not_the_users():
    assert match("loss explodes after restarting the scheduler\n" * 200, "x", WITH_LIKENESS) == []


def test_scope():
    assert read_sources([source_of_text("an NCCL error", "x")], KNOWLEDGE).in_scope
    known = msgspec.structs.replace(KNOWLEDGE, multi_rank_words=["nccl"])
    found = read_sources([source_of_text("my soup is too salty", "x")], known)
    assert not found.in_scope
    assert [item.id for item in found.evidence] == [ONE_PROCESS]


@pytest.mark.parametrize(("words", "is_found"), [("On 4 GPUs it ends with this:", True), ("It ends with this:", False)])
def test_error_of_a_script_in_a_text_about_several_ranks(words: str, is_found: bool):
    """A traceback of the script that no entry explains, with no launcher around it."""
    text = (
        f"{words}\n\nTraceback (most recent call last):\n"
        '  File "/home/user/train.py", line 40, in <module>\n    main()\n'
        '  File "/home/user/data.py", line 12, in read\n    return rows[name]\n'
        "KeyError: 'boxes'\n"
    )
    found = read_sources([source_of_text(text, "x")], built_in_knowledge())
    assert any(item.id == SCRIPT_ERROR for item in found.evidence) == is_found


def test_exception_whose_name_does_not_end_in_error_is_an_error_line_for_a_new_entry():
    text = (
        "[rank1]: 2026-11-26 15:17:40 ERROR store: refused\n[rank1]: Traceback (most recent call last):\n"
        '[rank1]:   File "/home/me/train.py", line 7, in main\n[rank1]:     open()\n'
        "[rank1]: store.errors.LeaseRefused: no lease after 60 s\n"
    )
    found = read_sources([source_of_text(text, "x")], built_in_knowledge()).errors["x"]
    assert [where for where, _ in found] == ["x:1", "x:5"]
    assert found[1][1] == "store.errors.LeaseRefused: no lease after 60 s"


def test_an_error_line_has_its_own_number():
    text = (
        "usage: train.py [-h] --local_rank LOCAL_RANK [--steps STEPS]\n"
        "train.py: error: the following arguments are required: --local_rank\n"
    )
    found = [item for item in match(text, "/arg.log", built_in_knowledge()) if "env-contract-broken" in item.id]
    assert {item.where for item in found} == {"/arg.log:2"}


def test_typical_words_have_the_number_of_their_line():
    lines = ["step 2 loss 0.26", "terminate called after throwing", "op.preamble.length <= op.nbytes. 12 vs 4 in gloo"]
    index = PassageIndex("\n".join(lines), built_in_knowledge())
    assert index.sentences.place_of_all(["preamble", "nbytes"]) == "3"
    assert index.sentences.place_of_all(["loss", "nbytes"]) == "1"
    index.close()


@pytest.mark.parametrize("text", ["The odd one of the team", "loss explodes: after restarting the SCHEDULER"])
def test_a_symptom_or_title_of_a_team_is_found_word_for_word(text: str):
    team = msgspec.structs.replace(ODD, id="team-cause", title="The odd one of the team")
    knowledge = built_in_knowledge()
    knowledge = msgspec.structs.replace(knowledge, causes=knowledge.causes | {"team-cause": team})
    case = Case(knowledge)
    found = add_to_case(case, [source_of_text(text, "<text>")])
    assert found.in_scope
    assert case.diagnosis(in_scope=found.in_scope).named(1)[0].id == "team-cause"


@pytest.mark.parametrize(
    "text",
    [
        "same order every epoch",
        "data is not reshuffled between epochs",
        "the loader gives the identical permutation at every epoch",
    ],
)
def test_an_order_that_repeats_in_each_epoch_is_about_several_ranks(text: str):
    case = Case(built_in_knowledge())
    found = add_to_case(case, [source_of_text(text, "<text>")])
    assert case.diagnosis(in_scope=found.in_scope).named(1)[0].id == "missing-set-epoch"


@pytest.mark.parametrize(
    "text", ["loss is nan after the first epoch", "the columns are in the same order in both files"]
)
def test_epochs_or_an_order_alone_are_not_about_several_ranks(text: str):
    assert ONE_PROCESS in {item.id for item in match(text, "<text>", built_in_knowledge())}
