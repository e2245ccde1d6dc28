"""WCAG contrast of every text colour, and the ASCII replacements of signs."""

import pytest
from ddpwizard.screens.shell import theme
from rich.cells import cell_len
from textual.color import Color
from textual.theme import Theme

LEAST_CONTRAST = 4.5
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


def contrast(one: Color, other: Color) -> float:
    """The contrast ratio of WCAG 2.2: 1 (the same) to 21 (black on white)."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: Color) -> float:
    """Relative luminance by WCAG 2.2."""
    parts = [part / 255 for part in (colour.r, colour.g, colour.b)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


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
