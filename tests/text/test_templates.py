"""Templates with tagged lines and placeholders."""

import pytest
from ddpwizard.app.text import templates

LINES = """a  #? one
b  #? !one
c  #? one|two three
#? if two
d
    #? end
e {{NAME}}
"""


@pytest.mark.parametrize(
    ("tags", "selected"),
    [({"one"}, ["a", "e {{NAME}}"]), ({"two", "three"}, ["b", "c", "d", "e {{NAME}}"]), (set(), ["b", "e {{NAME}}"])],
)
def test_lines_are_selected_by_their_tags(tags: set[str], selected: list[str]) -> None:
    assert list(templates.select_template_lines(LINES, tags)) == selected


def test_render_replaces_placeholders_of_values_too(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made.in").write_text(LINES)
    monkeypatch.setattr(templates, "TEMPLATES", tmp_path)
    made = templates.render_template("made.in", {"two"}, {"NAME": "x {{OTHER}}", "OTHER": "y"})
    assert made == "b\nd\ne x y\n"
