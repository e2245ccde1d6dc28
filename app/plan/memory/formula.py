"""A term of a memory figure: a product with its numbers, as bytes and in readable form.

``8.03 B weights × 4 bytes ÷ 8 ranks``
"""

from typing import NamedTuple

from ...text.units import GIB, MIB

UNITS = {"MiB": MIB, "GiB": GIB}


class Factor(NamedTuple):
    """A number of a product and what it counts.

    ``divides``: the product is divided by it. If ``what`` names MiB or GiB, bytes are shown in that unit.
    """

    value: float
    what: str = ""
    divides: bool = False

    def __str__(self) -> str:
        what = self.what[:-1] if self.value == 1 and self.what.endswith("s") else self.what
        return f"{short_number(self.value / UNITS.get(what.partition(' ')[0], 1))} {what}".rstrip()


class Term(NamedTuple):
    """One product. ``part``: the field of the breakdown it belongs to; ``what``: its description."""

    part: str
    what: str
    factors: tuple[Factor, ...]
    bytes: float

    @property
    def formula(self) -> str:
        """The product as text: ``8.03 B weights × 4 bytes ÷ 8 ranks``."""
        text = str(self.factors[0])
        for each in self.factors[1:]:
            text += f" {'÷' if each.divides else '×'} {each}"
        return text

    def times(self, *more: Factor) -> "Term":
        """Return the term with further factors."""
        return term(self.part, self.what, *self.factors, *more)


def term(part: str, what: str, *factors: Factor) -> Term:
    """Return the term of a product."""
    product = 1.0
    for factor in factors:
        product = product / factor.value if factor.divides else product * factor.value
    return Term(part, what, factors, product)


def ranks(count: float, what: str = "ranks") -> tuple[Factor, ...]:
    """Return the factor of what is split over ranks; none for one rank."""
    return (Factor(count, what, divides=True),) if count != 1 else ()


def total_bytes(terms: "list[Term] | tuple[Term, ...]") -> float:
    """Return the sum of terms."""
    return sum(each.bytes for each in terms)


def short_number(value: float) -> str:
    """Format a number with four digits: ``8.03 B``, ``128,256``, ``1.12``, ``25.2 M``."""
    for unit, size in (("B", 1e9), ("M", 1e6)):
        if value >= size:
            return f"{value / size:,.4g} {unit}" if value < 1e4 * size else f"{value / size:,.0f} {unit}"
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.4g}"
