"""Parse numbers from text that may hold anything: command lines, environment variables, /proc."""

MOST_RANKS = 100_000  # of a job: each takes memory, and any process may claim any number
DIGITS = 9  # enough for ranks, pids, ports and counts; int() of a hostile text of digits takes very long


def parse_count(text: str | None, digits: int = DIGITS) -> int | None:
    """Return the number that ``text`` writes in ASCII digits, at most ``digits`` of them, or None.

    Signs, separators, exponents and blanks inside are refused; blanks around the number are not.
    """
    plain = (text or "").strip()
    return int(plain) if plain.isascii() and plain.isdecimal() and len(plain) <= digits else None
