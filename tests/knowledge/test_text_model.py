"""The stored text model: up to date, and able to tell the causes apart and to name the words that counted."""

import msgspec
import pytest
from ddpwizard.knowledge.text_model import MODEL_FILE, TextClassifier, TextModel, built_in_classifier, read_text_model
from ddpwizard.knowledge.training_texts import REPORTS, digest, read_reports, training_texts
from ddpwizard.knowledge.words import stem_of, synonymous_stems, terms_of
from helpers.built_in_knowledge import built_in_knowledge

KNOWLEDGE = built_in_knowledge()
TEXTS = training_texts(KNOWLEDGE)
LEAST_REPORTS = 20


def test_the_stored_model_is_trained_from_the_present_texts():
    assert read_text_model().trained_from == digest(TEXTS, synonymous_stems(KNOWLEDGE.synonyms)), "run make text-model"


def test_the_model_knows_every_cause_and_what_is_about_something_else():
    assert built_in_classifier().labels == {*KNOWLEDGE.causes, ""}
    assert MODEL_FILE.stat().st_size < 400_000


@pytest.mark.parametrize("path", sorted(REPORTS.glob("*.yaml")), ids=lambda path: path.stem)
def test_reports_of_a_cause_are_many_and_each_differs(path):
    reports = read_reports(path)
    assert len(set(reports)) == len(reports) >= LEAST_REPORTS


def test_stored_weights_still_tell_most_training_texts_apart():
    classifier = built_in_classifier()
    sample = TEXTS[:: len(TEXTS) // 400]
    answers = [classifier.shares(text, 1) for _, text in sample]
    right = [answer[0].label == label for answer, (label, _) in zip(answers, sample, strict=True) if answer]
    assert sum(right) > 0.85 * len(right)


def test_shares_are_probabilities_and_come_with_words_of_the_text():
    text = "The second node cannot reach MASTER_ADDR, the TCPStore connection is refused."
    found = built_in_classifier().shares(text, len(KNOWLEDGE.causes) + 1)
    assert sum(label.share for label in found) == pytest.approx(1.0)
    assert [label.share for label in found] == sorted((label.share for label in found), reverse=True)
    assert found[0].because and all(words in text for words in found[0].because)


def test_a_text_without_known_terms_has_no_label():
    assert built_in_classifier().shares("qqq zzz", 3) == []


def test_a_model_of_two_labels_follows_its_weights():
    model = TextModel("", {"leakag": "leak"}, ["a", "b"], [0.0, 0.0], 0.1, "leak\nport\nrank", bytes([16] * 3),
                      bytes([1, 1, 2]), bytes([0, 1, 0, 1]), bytes([227, 227, 137, 137]))  # fmt: skip
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(model), type=TextModel)
    classifier = TextClassifier(stored)
    for text, label in (
        ("the leak of a rank, no pair", ""),
        ("leak leak rank port leak", "a"),
        ("leakage leakage rank port leakage", "a"),
        ("port port rank leak", "b"),
    ):
        found = classifier.shares(text, 1)
        assert (found[0].label if found else "") == label


def test_a_term_counts_less_in_lines_of_code_or_output():
    terms = "leak\nport\nrank"
    model = TextModel("", {}, ["a", "b"], [0.0, 0.0], 0.1, terms, bytes([16] * 3), bytes([1] * 3),
                      bytes([0, 1, 1]), bytes([150] * 3))  # fmt: skip
    in_prose, in_code, in_both = (
        {label.label: label.share for label in TextClassifier(model).shares(text, 2)}["a"]
        for text in (
            "There is a leak in it.\nport, rank",
            "self.x = leak(0)\nport, rank",
            "self.x = leak(0)\nThere is a leak in it.\nport, rank",
        )
    )
    assert in_code < in_prose <= in_both


def test_words_of_any_text_and_numbers_are_not_shown_as_typical():
    text = (
        "After 8 minutes each rank 0 still uses the same DistributedSampler, and 2 of them (using shuffle) look fine."
    )
    found = built_in_classifier().shares(text, 10)
    words = {word for label in found for words in label.because for word in words.lower().split()}
    assert "distributedsampler" in words
    assert not any(word.isdigit() for word in words) and not words & {"after", "each", "using", "same", "look", "fine"}


def test_the_fewer_terms_a_text_has_the_less_sure_is_the_model():
    terms = "leak\nport\nrank\nstep\nnode\nhost"
    model = TextModel("", {}, ["a", "b"], [0.0, 0.0], 0.1, terms, bytes([16] * 6), bytes([1] * 6), bytes([0] * 6),
                      bytes([150] * 6))  # fmt: skip
    few, many = (TextClassifier(model).shares(text, 1)[0] for text in ("leak port rank", " ".join(terms.split())))
    assert few.label == many.label == "a" and 0.5 < few.share < many.share


SAME_WORD = """\
freeze freezes freezing
stop stopped stops
run running
cache caches cached
copy copies copied
node nodes
process processes processing
loss losses
initialize initialization
random randomly"""


@pytest.mark.parametrize("words", SAME_WORD.splitlines())
def test_forms_of_a_word_have_one_stem(words: str):
    assert len({stem_of(word) for word in words.split()}) == 1


@pytest.mark.parametrize("pair", ["status state", "parallel parallax", "rank ran", "bus business", "note node"])
def test_other_words_have_other_stems(pair: str):
    assert len({stem_of(word) for word in pair.split()}) == 2


@pytest.mark.parametrize("name", ["rank", "gpu", "node", "nodes", "gpus"])
def test_the_number_of_a_rank_gpu_or_node_is_any_number(name: str):
    assert [term.name for term in terms_of(f"{name} 7", synonymous_stems(KNOWLEDGE.synonyms))][1] == "#"


def test_terms_are_stems_and_pairs_at_their_place():
    assert stem_of("Hanging".lower()) == stem_of("hangs") == "hang"
    text = "all_reduce hangs"
    assert [text[term.begin : term.end] for term in terms_of(text, {})] == [
        "all", "reduce", "hangs", "all_reduce", "reduce hangs",
    ]  # fmt: skip


def test_single_letters_long_numbers_and_hashes_are_no_words():
    text = "commit b6475625fbcaa2c3 hung after 1800042 ms on 8 GPUs at d34db33f, facade in x y"
    words = [term.name for term in terms_of(text, {}) if " " not in term.name]
    assert words == ["commit", "hung", "after", "ms", "8", "gpu", "facad"]


def test_single_words_of_a_group_of_synonyms_are_one_term():
    same = synonymous_stems([["hang", "hung", "stuck", "stands still"], ["node", "hung"]])
    assert same == {"hung": "hang", "stuck": "hang"}, "the first group counts, phrases do not"
    assert [term.name for term in terms_of("stuck again", same)] == ["hang", "again", "hang again"]
