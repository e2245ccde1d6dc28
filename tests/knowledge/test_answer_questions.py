"""The measure of the questions before a guess: it lists what has no answer, and takes a reader's answers."""

from bench.answer_questions import ask
from bench.calibrate import read_case
from ddpwizard.app.commands.diagnose_questions import MOST_ASKED
from ddpwizard.app.diagnosis.case import SKIPPED
from helpers.built_in_knowledge import built_in_knowledge

KNOWLEDGE = built_in_knowledge()
ROW = {
    "id": "x",
    "text": "Training on 4 GPUs hangs at some update, and there is no message.",
    "cause": "dataloader-stall",
}


def test_a_question_without_an_answer_is_named_and_changes_nothing():
    dialogue = ask(read_case(ROW, KNOWLEDGE), {}, KNOWLEDGE)
    assert dialogue.unanswered in KNOWLEDGE.questions and not dialogue.asked
    assert dialogue.after == dialogue.before


def test_answers_are_given_one_after_the_other_and_skipped_ones_count_as_asked():
    read = read_case(ROW, KNOWLEDGE)
    skipped = ask(read, dict.fromkeys(KNOWLEDGE.questions, SKIPPED), KNOWLEDGE)
    assert not skipped.unanswered and 1 < len(skipped.asked) <= MOST_ASKED
    assert skipped.after.first == skipped.before.first
    answers = dict.fromkeys(KNOWLEDGE.questions, SKIPPED) | {skipped.asked[0]: "none"}
    assert ask(read, answers, KNOWLEDGE).asked[0] == skipped.asked[0]


def test_an_answer_moves_the_cause_that_it_names():
    answers = dict.fromkeys(KNOWLEDGE.questions, SKIPPED) | {"closest": ROW["cause"]}
    dialogue = ask(read_case(ROW, KNOWLEDGE), answers, KNOWLEDGE)
    assert "closest" in dialogue.asked
    assert dialogue.before.place > 0 and dialogue.after.place == 0
