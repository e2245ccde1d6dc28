"""``learn``: the chapter or lab that is named."""

import json

import pytest
from helpers.command import ddpwizard, refused


@pytest.mark.parametrize("options", [(), ("--plain",), ("--list",), ("--json",)])
def test_an_unknown_lab_is_an_error(options: tuple[str, ...]):
    done = ddpwizard("learn", "7.77", *options)
    assert "no chapter or lab '7.77' → did you mean 7.7" in refused(done, 2)
    if "--json" in options:
        assert json.loads(done.stdout)["schema"] == "ddpwizard.error/1"
    else:
        assert not done.stdout


def test_without_a_similar_name_the_list_is_named():
    assert "ddpwizard learn --list" in refused(ddpwizard("learn", "zzzzzz"), 2)


def test_the_nearest_chapter_is_suggested_and_no_answer_of_a_lab():
    assert "did you mean hangs" in refused(ddpwizard("learn", "hang"), 2)
    assert "missing-set-epoch" not in refused(ddpwizard("learn", "missing-set-epch"), 2)
