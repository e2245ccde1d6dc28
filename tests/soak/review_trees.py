"""Review every Python file of whole trees: none may crash a rule, take too long, or get a patch that does not parse.

    python tests/soak/review_trees.py [--all-about-ranks] [DIR…]   default: the standard library and site-packages

With --all-about-ranks each file gets an import of torch.distributed at its end, so that it is evaluated even if it has
nothing to do with distributed training. A row for each file that is slow, not reviewed, or followed only in part;
the exit code is 1 if a file crashed, took more than its time, or got a patch that does not parse.
"""

import signal
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ddpwizard.app.errors import UserError
from ddpwizard.app.review.file_review import every_error_in_one_line, review_source
from ddpwizard.app.review.files import FoundFile, files_to_review
from ddpwizard.app.review.patches.apply_edits import apply_edits
from ddpwizard.app.review.settings import ReviewSettings
from ddpwizard.app.training_script.source import parse, read_source
from ddpwizard.knowledge.loader import read_knowledge

LEAST_S = 1.0  # allowed for a file of any size
MOST_S_PER_LINE = 0.002
ENDLESS_S = 60.0
ABOUT_RANKS = "\nimport torch.distributed\n"
CRASHES = ("an error of ddpwizard", "nested too deeply")


class Endless(BaseException):
    """A file took more than ``ENDLESS_S``."""


def review(path: Path, *, about_ranks: bool) -> str:
    """Review a file; return what is notable about it, "" if nothing is.

    Raises:
        AssertionError: A patch does not parse.
        UserError: The file is not reviewed.
    """
    with every_error_in_one_line(str(path)):
        text = read_source(path)[1]
        if about_ranks and path.suffix == ".py":
            text += ABOUT_RANKS
        reviewed = review_source(text, str(path), SETTINGS, KNOWLEDGE)
        edited = [each for each in reviewed.findings if each.fix and each.fix.edits]
    for finding in edited:
        assert finding.fix
        after = apply_edits(text, finding.fix.edits)
        try:
            parse(after, str(path)) if path.suffix == ".py" else None
        except UserError as error:
            raise AssertionError(f"{finding.rule}: {error.message}") from error
    PATCHES.update(each.rule for each in edited)
    FINDINGS.update(each.rule for each in reviewed.findings)
    return "" if reviewed.complete else "cut"


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise ``Endless`` in the block after this CPU time."""

    def end(*_: object) -> None:
        raise Endless

    signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def outcome(path: Path, *, about_ranks: bool) -> tuple[str, float]:
    """Return what is notable about the review of a file ("" if nothing is), and the CPU time that it took."""
    began = time.process_time()
    try:
        with at_most(ENDLESS_S):
            kind = review(path, about_ranks=about_ranks)
    except Endless:
        kind = "ENDLESS"
    except AssertionError as error:
        kind = f"BAD PATCH {error}"
    except UserError as error:
        crashed = any(each in error.message for each in CRASHES)
        kind = f"{'CRASH' if crashed else 'skipped'} {error.message.replace(str(path), '')}"
    return kind, time.process_time() - began


def main(arguments: list[str]) -> int:
    """Review the trees and print the rows; return the exit code."""
    about_ranks = "--all-about-ranks" in arguments
    given = [Path(each) for each in arguments if not each.startswith("--")]
    trees = given or [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")]
    kinds: Counter[str] = Counter()
    total_s = 0.0
    for found in files_to_review(trees, lambda _: SETTINGS):
        if not isinstance(found, FoundFile):
            print(f"skipped\t{found.message}")
            continue
        kind, took_s = outcome(found.path, about_ranks=about_ranks)
        total_s += took_s
        count_lines = found.path.read_bytes().count(b"\n")
        slow = took_s > max(LEAST_S, MOST_S_PER_LINE * count_lines)
        kinds.update([kind.partition(" ")[0] or "reviewed", *(["SLOW"] if slow else [])])
        if kind or slow:
            print(f"{'SLOW ' if slow else ''}{kind}\t{took_s:.2f} s\t{count_lines} lines\t{found.path}", flush=True)
    print(f"{total_s:.0f} s of CPU time:", ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()))
    print("findings:", *(f"{rule} {count} ({PATCHES[rule]} patches)" for rule, count in sorted(FINDINGS.items())))
    return int(any(kind.isupper() for kind in kinds))


SETTINGS = ReviewSettings()
PATCHES: Counter[str] = Counter()
FINDINGS: Counter[str] = Counter()

if __name__ == "__main__":
    KNOWLEDGE = read_knowledge()
    sys.exit(main(sys.argv[1:]))
