"""One finding for each mistake: of two rules that see the same one on a line, the rule that names it owns it."""

from collections import defaultdict
from collections.abc import Iterable

from .rule_context import Violation

# Rule: the rules that find, on the same line, only what comes of its mistake.
CONSEQUENCES = {
    "DW232": ("DW461",),  # a sampler for other ranks
    "DW260": ("DW401", "DW403"),  # the call of a trainer
    "DW406": ("DW472",),  # a file of which each rank learns for itself
    "DW417": ("DW461",),  # the list of another length
    "DW425": ("DW461",),  # the result of another size
    "DW450": ("DW443",),  # the order of groups
    "DW456": ("DW405", "DW406"),  # the rank that does not come to a collective
    "DW460": ("DW421", "DW470"),  # a call that does not take its argument has no result, and pickles nothing
    "DW461": ("DW419", "DW431"),  # a call that raises sends and receives no message
    "DW464": ("DW101", "DW201"),  # a model on the CPU has no number of a GPU
    "DW471": ("DW401",),  # the ranks that wait for their turn
    "DW498": ("DW434",),  # a count that only one rank has, and reports
}


def without_consequences(found: Iterable[tuple[str, Violation]]) -> list[tuple[str, Violation]]:
    """Return the violations but those of which another rule has found the reason on the same line."""
    found = list(found)
    rules = defaultdict[int, set[str]](set)
    for rule, violation in found:
        rules[violation.line].add(rule)
    owned = {line: {each for rule in of_line for each in CONSEQUENCES.get(rule, ())} for line, of_line in rules.items()}
    return [(rule, violation) for rule, violation in found if rule not in owned[violation.line]]
