"""Verdicts on findings, and the share of the judged findings that are true."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

SHORT_COMMIT = 12
BARS = {"error": 0.95, "warning": 0.80}

Key = tuple[str, str, str, int, str]


class Row(NamedTuple):
    """One finding in a commit of a repository."""

    repository: str
    commit: str
    path: str
    line: int
    rule: str
    severity: str

    @property
    def key(self) -> Key:
        return self.repository, self.commit[:SHORT_COMMIT], self.path, self.line, self.rule


class Precision(NamedTuple):
    """The judged findings of a severity, and how many have no verdict."""

    severity: str
    count_true: int
    count_judged: int
    count_unjudged: int
    bar: float

    @property
    def below(self) -> bool:
        return self.count_true < self.bar * self.count_judged

    def __str__(self) -> str:
        share = f"{self.count_true / self.count_judged:.1%}" if self.count_judged else "-"
        return (
            f"{self.severity + 's':<9} {self.count_true} of {self.count_judged} judged are true: {share:>6}"
            f"   limit {self.bar:.0%}   {'BELOW' if self.below else 'ok':<5}   {self.count_unjudged} unjudged"
        )


def read_verdicts(path: Path) -> dict[Key, bool]:
    """Return the verdict on each finding that was judged by reading the code."""
    with path.open(newline="") as file:
        return {
            (row["repository"], row["commit"][:SHORT_COMMIT], row["path"], int(row["line"]), row["rule"]): {
                "true": True,
                "false": False,
            }[row["verdict"]]
            for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        }


def precision(rows: Sequence[Row], verdicts: Mapping[Key, bool], severity: str, bar: float) -> Precision:
    """Return the precision of the findings of a severity."""
    judged = [verdicts.get(row.key) for row in rows if row.severity == severity]
    return Precision(severity, judged.count(True), len(judged) - judged.count(None), judged.count(None), bar)
