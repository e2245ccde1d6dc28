"""``make calibrate CASES="FILE…"``: measure what each class of evidence is worth on labelled cases.

Each case is a JSON line with ``id``, ``text``, ``cause`` (or ``out-of-scope``), ``also_ok`` and ``source``. A
multiplier for each class of evidence and a temperature for each support are fitted by coordinate descent, with a
penalty for their distance from what the entries document; the priors follow how often each cause is right. The scores
come from folds that they were not fitted on; cases of one source are in one fold. They are printed for all cases and
for each file. For each clue and signature it counts how often it was right, and lists the clues to remove: those that
were wrong more often than right.

    python tests/bench/calibrate.py CASES.jsonl… [--write] [-v]
"""

import datetime
import json
import math
import sys
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from ddpwizard.app.diagnosis.evidence_weights import (
    ANSWER,
    CLASSES,
    CLUES,
    LIKENESS,
    LOG_FINDING,
    ROOT_SIGNATURE,
    SYMPTOM_SIGNATURE,
    weight_table,
)
from ddpwizard.app.diagnosis.intake import read_sources
from ddpwizard.app.diagnosis.ranking import DOCUMENTED_TEMPERATURE, Ranking, rank_causes
from ddpwizard.app.evidence import LIKELY, Evidence, RankedCause, is_led_from_outside
from ddpwizard.app.logs.read import source_of_text
from ddpwizard.knowledge.calibration import CALIBRATION_FILE, Calibration
from ddpwizard.knowledge.loader import read_knowledge
from ddpwizard.knowledge.schema import Knowledge
from ddpwizard.knowledge.training_texts import OUT_OF_SCOPE

FOLDS = 5
STEPS = (0.7, 1.4)  # tried for each number in turn
ROUNDS = 3
SHRINKAGE = 0.01  # penalty for a number e times the documented one
UNSEEN_CASES = 1.0  # added to the number of cases of each cause
PRIOR_SHARE = 0.65  # of the logarithm of how frequent a cause is: the cases are few, and collected in several ways
LEAST_FIRES = 4  # of a clue that may be listed for removal
# A finding in a log counts at most as much as the verdict on a running job, however often it is right. Root signatures
# and the temperature of logs end where the mean share is what is right of the labelled logs (93 %). A free fit goes
# on, as the few wrong ones are wrong at any share: no labelled log fits two causes equally well, and a bare SIGKILL,
# which does, would be decided at 99 %.
MOST = {LOG_FINDING: 1.0, ROOT_SIGNATURE: 1.4}
LEAST = {"log": DOCUMENTED_TEMPERATURE}
SUPPORTS = ("log", "words", "other")
FITTED = tuple(  # texts show too little of the others
    name for name in CLASSES if name not in (ANSWER, LIKENESS, SYMPTOM_SIGNATURE, CLUES["weak"], CLUES["against"])
)


class ReadCase(NamedTuple):
    """A labelled case and what was read in it. ``right``: the causes that are accepted. ``is_real``: it is about
    distributed training."""

    id: str
    source: str
    right: frozenset[str]
    evidence: list[Evidence]
    in_scope: bool
    is_real: bool


class Outcome(NamedTuple):
    """The diagnosis of a case. ``in_scope``: the answer treats it as one about distributed training."""

    case: ReadCase
    first: list[str]
    share: float
    support: str
    in_scope: bool

    @property
    def place(self) -> int:
        """The place (from 0) of the first right cause among the first three, 9 where there is none."""
        found = (place for place, id_ in enumerate(self.first) if id_ in self.case.right)
        return next(found, 9) if self.in_scope else 9

    @property
    def is_kept_out(self) -> bool:
        """True if a case about something else is called so, has no likely cause, or an accepted one."""
        return not self.in_scope or self.share < LIKELY or self.place == 0


def read_case(row: dict[str, Any], knowledge: Knowledge) -> ReadCase:
    """Read the text of a case."""
    found = read_sources([source_of_text(row["text"], "<stdin>")], knowledge)
    right = frozenset({row["cause"], *row.get("also_ok", [])})
    source = row.get("source", "")
    return ReadCase(
        row["id"],
        source if "://" in source else row["id"],
        right,
        found.evidence,
        found.in_scope,
        row["cause"] != OUT_OF_SCOPE,
    )


def ranked(case: ReadCase, knowledge: Knowledge, calibration: Calibration) -> Ranking:
    """Return the ranking of a case."""
    return rank_causes(knowledge, weight_table(knowledge, calibration), case.evidence, calibration)


def loss(cases: Sequence[ReadCase], knowledge: Knowledge, calibration: Calibration) -> float:
    """Return the mean squared error of the share of the first cause, with the penalty of the calibration."""
    weights, total = weight_table(knowledge, calibration), 0.0
    for case in cases:
        first = rank_causes(knowledge, weights, case.evidence, calibration).causes[0]
        total += (first.confidence - _is_accepted(first, case)) ** 2
    numbers = [*calibration.multipliers.values()]
    numbers += [value / DOCUMENTED_TEMPERATURE for value in calibration.temperatures.values()]
    return total / len(cases) + SHRINKAGE * sum(math.log(number) ** 2 for number in numbers)


def _is_accepted(cause: RankedCause, case: ReadCase) -> bool:
    return cause.id in case.right or not (case.is_real or cause.distributed)


def priors_of(cases: Sequence[ReadCase], knowledge: Knowledge) -> dict[str, float]:
    """Return the nats by which each cause is more or less frequent than the mean in the cases.

    A case with several accepted causes counts for each of them in parts. A cause without a case may be newer than the
    labels: nothing is known of how frequent it is.
    """
    counts = dict.fromkeys(knowledge.causes, UNSEEN_CASES)
    for case in cases:
        accepted = [id_ for id_ in case.right if id_ in counts]
        for id_ in accepted:
            counts[id_] += 1 / len(accepted)
    mean = sum(counts.values()) / len(counts)
    labelled = frozenset[str]().union(*(case.right for case in cases))
    return {
        id_: round(PRIOR_SHARE * math.log(count / mean), 2) if id_ in labelled else 0.0 for id_, count in counts.items()
    }


def fit(cases: Sequence[ReadCase], knowledge: Knowledge) -> Calibration:
    """Return the calibration with the priors of the cases and the smallest loss that coordinate descent finds."""
    priors = priors_of(cases, knowledge)
    numbers = dict.fromkeys(FITTED, 1.0) | dict.fromkeys(SUPPORTS, DOCUMENTED_TEMPERATURE)

    def calibration_of(values: dict[str, float]) -> Calibration:
        return Calibration(
            multipliers={name: round(values[name], 3) for name in FITTED},
            temperatures={name: round(values[name], 3) for name in SUPPORTS},
            priors=priors,
        )

    best = loss(cases, knowledge, calibration_of(numbers))
    for _ in range(ROUNDS):
        before = best
        for name in numbers:
            for step in STEPS:
                value = min(max(numbers[name] * step, LEAST.get(name, 0.0)), MOST.get(name, math.inf))
                tried = numbers | {name: value}
                if (score := loss(cases, knowledge, calibration_of(tried))) < best - 1e-6:
                    numbers, best = tried, score
        if before - best < 1e-3:
            break
    return calibration_of(numbers)


def diagnosed(cases: Sequence[ReadCase], knowledge: Knowledge, calibration: Calibration) -> list[Outcome]:
    """Return the outcome of each case."""
    weights = weight_table(knowledge, calibration)
    found = [(case, rank_causes(knowledge, weights, case.evidence, calibration)) for case in cases]
    return [
        Outcome(
            case,
            [cause.id for cause in ranking.causes if cause.because][:3],
            ranking.causes[0].confidence,
            ranking.support,
            case.in_scope and not is_led_from_outside(ranking.causes),
        )
        for case, ranking in found
    ]


def cross_validated(
    cases: Sequence[ReadCase], knowledge: Knowledge, read_fold: Callable[[ReadCase], int]
) -> list[Outcome]:
    """Return the outcome of each case with a calibration that was fitted on the other folds."""
    outcomes: list[Outcome] = []
    for fold in range(FOLDS):
        held = [case for case in cases if read_fold(case) == fold]
        rest = [case for case in cases if read_fold(case) != fold]
        if held and rest:
            outcomes += diagnosed(held, knowledge, fit(rest, knowledge))
    return outcomes


def fold_of(case: ReadCase) -> int:
    """Return the fold of a case: cases of one source are in one fold."""
    return zlib.crc32(case.source.encode()) % FOLDS


def scores_of(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Return the figures of the outcomes, as shares from 0 to 1."""
    real = [row for row in outcomes if row.case.is_real]
    other = [row for row in outcomes if not row.case.is_real]
    sure = [row for row in real if row.share >= 0.8 and row.in_scope]
    return {
        "first": _share([row.place == 0 for row in real]),
        "among three": _share([row.place < 3 for row in real]),
        "Brier": _share([(row.share - (row.place == 0)) ** 2 for row in real]),
        "out of scope": _share([row.is_kept_out for row in other]),
        "right where share is 0.8 or more": _share([row.place == 0 for row in sure]),
    }


def _share(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 4) if values else 0.0


def precision(cases: Sequence[ReadCase], knowledge: Knowledge) -> dict[str, list[bool]]:
    """Return for each clue and signature whether it was right, each time it was found."""
    found: dict[str, list[bool]] = defaultdict(list)
    for case in cases:
        for id_ in {item.id for item in case.evidence if item.id.startswith(("clue:", "log:"))}:
            cause = id_.partition(":")[2].rpartition("/")[0]
            if cause in knowledge.causes:
                found[id_].append(cause in case.right)
    return found


def clues_to_remove(found: Mapping[str, list[bool]]) -> list[str]:
    """Return the clues that were wrong more often than right, of those found often enough to tell."""
    return sorted(
        id_
        for id_, right in found.items()
        if id_.startswith("clue:") and len(right) >= LEAST_FIRES and 2 * sum(right) < len(right)
    )


def main(paths: list[str], write: bool, verbose: bool) -> int:
    """Fit, print the figures, and write ``calibration.json`` if asked to."""
    knowledge = read_knowledge()
    files = {path: [json.loads(line) for line in Path(path).read_text().splitlines() if line.strip()] for path in paths}
    cases = [read_case(row, knowledge) for rows in files.values() for row in rows]
    found = precision(cases, knowledge)
    for id_, right in sorted(found.items()):
        print(f"{id_:<48} {len(right):>4} {sum(right) / len(right):6.0%}")
    for id_ in clues_to_remove(found):
        print(f"remove {id_}: wrong more often than right")
    outcomes = cross_validated(cases, knowledge, fold_of)
    for row in outcomes if verbose else []:
        if row.place > 0 if row.case.is_real else not row.is_kept_out:
            print(f"{row.case.id:<34} want {sorted(row.case.right)} got {row.first} {row.share:.2f} {row.support}")
    for path, rows in files.items():
        ids = {row["id"] for row in rows}
        print(path, scores_of([row for row in outcomes if row.case.id in ids]))
    scores = scores_of(outcomes)
    fitted = fit(cases, knowledge)
    print("\n".join(f"{name}: {value}" for name, value in (scores | fitted.multipliers | fitted.temperatures).items()))
    if write:
        stored = msgspec.structs.replace(
            fitted, date=datetime.date.today().isoformat(), cases=len(cases), scores=scores
        )
        CALIBRATION_FILE.write_bytes(msgspec.json.format(msgspec.json.encode(stored), indent=2) + b"\n")
    return 0


if __name__ == "__main__":
    files = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    sys.exit(main(files, "--write" in sys.argv, "-v" in sys.argv))
