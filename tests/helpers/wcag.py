"""The contrast of two colours by WCAG 2.2."""

from textual.color import Color

LEAST_CONTRAST = 4.5  # of a text, level AA


def contrast(one: Color, other: Color) -> float:
    """The contrast ratio of WCAG 2.2: 1 (the same) to 21 (black on white)."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: Color) -> float:
    """Relative luminance by WCAG 2.2."""
    parts = [part / 255 for part in (colour.r, colour.g, colour.b)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
