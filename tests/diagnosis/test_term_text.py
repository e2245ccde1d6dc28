"""Terms of the glossary in a text."""

from ddpwizard.app.diagnosis.term_text import terms_in_text
from helpers.built_in_knowledge import built_in_knowledge


def test_terms_are_found_in_their_order_each_once() -> None:
    text = "The local rank chooses the GPU. The world-size is 4; each Rank\nenters the all reduce. Local ranks differ."
    found = terms_in_text(built_in_knowledge(), text)
    assert [name for name in found if name in ("local rank", "world size", "rank", "all-reduce")] == [
        "local rank",
        "world size",
        "rank",
        "all-reduce",
    ]
    assert len(found) == len(set(found))


def test_a_part_of_a_word_or_of_a_path_is_no_term() -> None:
    assert "rank" not in terms_in_text(built_in_knowledge(), "Frankly, it is my.rank_file and cranked.")


def test_the_longest_term_counts() -> None:
    found = terms_in_text(built_in_knowledge(), "global rank")
    assert "global rank" in found and "rank" not in found
