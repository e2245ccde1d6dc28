"""Lengths that follow from what a program writes."""

from ddpwizard.app.training_script.model.keys import Keys
from ddpwizard.app.training_script.model.lengths import length
from ddpwizard.app.training_script.model.members import PAIR


def test_a_piece_of_a_tensor_of_unknown_length_has_no_known_length() -> None:
    keys = Keys()
    pieces = keys.make("pieces", "train.py", 1, 1, keys.constant(2))
    assert length(keys.make("item", pieces, keys.constant(0)), PAIR[0]) is None
