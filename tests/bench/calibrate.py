"""``make calibrate CASES=FILE``: accuracy of the first cause, and calibration of the probabilities.

Each case is a JSON line with ``id``, ``text``, ``cause`` (or ``out-of-scope``) and ``also_ok``. The temperature is
fitted on four fifths and evaluated on the rest, five times; the figures come from the parts not fitted on.

    python tests/bench/calibrate.py CASES.jsonl… [-v]
"""

import json
import statistics
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from ddpwizard.app.diagnosis import ranking
from ddpwizard.app.diagnosis.intake import read_sources
from ddpwizard.app.diagnosis.ranking import rank_causes, weight_table
from ddpwizard.app.logs.read import source_of_text
from ddpwizard.knowledge.loader import read_knowledge
from ddpwizard.knowledge.schema import Knowledge

FOLDS = 5
TEMPERATURES = [0.6 + 0.1 * step for step in range(25)]


class Outcome(NamedTuple):
    """Diagnosis of one case: the first causes, and the probability of the first at each temperature."""

    case: dict[str, Any]
    first: list[str]
    shares: list[float]
    in_scope: bool

    @property
    def place(self) -> int:
        """The place (from 0) of the first right cause among the first three, 9 where there is none."""
        right = {self.case["cause"], *self.case.get("also_ok", [])}
        return next((place for place, id_ in enumerate(self.first) if id_ in right), 9)


def outcome(case: dict[str, Any], knowledge: Knowledge, weights: ranking.Weights) -> Outcome:
    found = read_sources([source_of_text(case["text"], "<stdin>")], knowledge)
    shares: list[float] = []
    first: list[str] = []
    for temperature in TEMPERATURES:
        ranking.TEMPERATURE = temperature
        causes = rank_causes(knowledge, weights, found.evidence).causes
        first = [cause.id for cause in causes if cause.because][:3]
        shares.append(causes[0].confidence)
    return Outcome(case, first, shares, found.in_scope)


def brier(outcomes: list[Outcome], at: int) -> float:
    """The mean squared distance of the first share from having been right."""
    return statistics.mean((row.shares[at] - (row.place == 0 and row.in_scope)) ** 2 for row in outcomes)


def cross_validated(outcomes: list[Outcome]) -> tuple[float, list[float]]:
    """Brier score on the parts that the temperature was not chosen on, and the temperatures chosen."""
    scores: list[float] = []
    chosen: list[float] = []
    for fold in range(FOLDS):
        held = [row for place, row in enumerate(outcomes) if place % FOLDS == fold]
        rest = [row for place, row in enumerate(outcomes) if place % FOLDS != fold]
        best = min(range(len(TEMPERATURES)), key=lambda at: brier(rest, at))
        chosen.append(round(TEMPERATURES[best], 2))
        scores += [(row.shares[best] - (row.place == 0)) ** 2 for row in held]
    return statistics.mean(scores), chosen


def main(paths: list[str], verbose: bool) -> int:
    knowledge = read_knowledge()
    weights = weight_table(knowledge)
    now = ranking.TEMPERATURE
    rows = [json.loads(line) for path in paths for line in Path(path).read_text().splitlines() if line.strip()]
    outcomes = [outcome(case, knowledge, weights) for case in rows]
    real = [row for row in outcomes if row.case["cause"] != "out-of-scope"]
    out = [row for row in outcomes if row.case["cause"] == "out-of-scope"]
    at = min(range(len(TEMPERATURES)), key=lambda index: abs(TEMPERATURES[index] - now))
    claimed = [row for row in out if row.in_scope and row.shares[at] >= 0.5]
    missed = [row for row in real if row.place > 0 or not row.in_scope]
    if verbose:
        for row in [*missed, *claimed]:
            print(f"{row.case['id']:<34} want {row.case['cause']:<28} got {row.first} {row.shares[at]:.2f}")
    first, third = sum(row.place == 0 for row in real), sum(row.place < 3 for row in real)
    score, chosen = cross_validated(real)
    print(f"{len(real)} cases: first {first / len(real):.1%}, among three {third / len(real):.1%}")
    print(f"out of scope: {len(out) - len(claimed)} of {len(out)}")
    print(f"Brier {brier(real, at):.3f} at {now}; five-fold {score:.3f} with {chosen}")
    print("missed:", dict(Counter(row.case["cause"] for row in missed)))
    return 0


if __name__ == "__main__":
    sys.exit(main([arg for arg in sys.argv[1:] if arg != "-v"], "-v" in sys.argv))
