"""WCAG contrast of every text colour, and the ASCII replacements of signs."""

import pytest
from ddpwizard.screens.shell import theme
from helpers.wcag import LEAST_CONTRAST, contrast
from rich.cells import cell_len
from textual.color import Color
from textual.theme import Theme

LEAST_BODY_CONTRAST = 7.0
TEXTS = ("accent", "success", "warning", "error", "muted", "blue", "violet")


@pytest.mark.parametrize("colours", [theme.DARK, theme.LIGHT])
def test_every_text_colour_has_enough_contrast(colours: Theme) -> None:
    variables = colours.to_color_system().generate() | colours.variables
    background = Color.parse(variables["background"])
    for name in TEXTS:
        ratio = contrast(background, Color.parse(variables[name]))
        assert ratio >= LEAST_CONTRAST, f"{name}: {ratio:.1f}"
    assert contrast(background, Color.parse(variables["foreground"])) >= LEAST_BODY_CONTRAST


def test_contrast_is_that_of_wcag() -> None:
    assert contrast(Color.parse("#000000"), Color.parse("#ffffff")) == pytest.approx(21)
    assert contrast(Color.parse("#777777"), Color.parse("#ffffff")) == pytest.approx(4.48, abs=0.01)


def test_ascii_keeps_the_width_of_every_text() -> None:
    signs = "".join(chr(sign) for sign in theme.ASCII) + "é中"
    assert theme.to_ascii(signs).isascii()
    assert len(theme.to_ascii(signs)) == len(signs)
    assert all(cell_len(sign) == 1 for sign in signs[:-1])


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({}, "wizard-dark"),
        ({"COLORFGBG": "0;15"}, "wizard-light"),
        ({"COLORFGBG": "15;0"}, "wizard-dark"),
        ({"NO_COLOR": "", "COLORFGBG": "0;15"}, "ansi-dark"),
        ({"TEXTUAL_THEME": "wizard-light"}, "wizard-light"),
        ({"TEXTUAL_THEME": "no-such"}, "wizard-dark"),
    ],
)
def test_initial_theme(environ: dict[str, str], name: str) -> None:
    assert theme.initial_theme(environ) == name
