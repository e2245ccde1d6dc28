"""``make journeys``: real jobs that fail, each walked from ``ddpwizard`` to the proof of its fix in a pseudo-terminal.

    python tests/journeys             all journeys
    python tests/journeys NAME…       some of them
    python tests/journeys --show      with the last screen of each

Exit code 1 if a bar is missed, 2 for an unknown name. No other distributed job may run meanwhile.
"""

import os
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from ddpwizard.knowledge.loader import read_knowledge
from helpers.jobs import RunningJob
from journey import Crash, Journey, Result, places
from start import LOG, end_job, failed, user_environment
from table import JOURNEYS
from walk import Walk

PROVED_SHARE = 24 / 30
HEADS = ("Cause:", "Most likely:", "Perhaps:")  # of the first cause on the screens of a job and of a log
MEDIAN_S, MEDIAN_KEYS = 30.0, 8


def main(arguments: list[str]) -> int:
    """Run the journeys that are named, or all; print a line for each and the summary."""
    shown = "--show" in arguments
    names = [each for each in arguments if each != "--show"]
    unknown = set(names) - {each.name for each in JOURNEYS}
    if unknown:
        print(f"no journey {', '.join(sorted(unknown))}; there are: {', '.join(each.name for each in JOURNEYS)}")
        return 2
    results: list[Result] = []
    print(f"{'journey':20} cause  place  proved  by      s  keys")
    for journey in JOURNEYS:
        if not names or journey.name in names:
            with tempfile.TemporaryDirectory(prefix="journey-") as directory:
                result, screen = run(journey, Path(directory))
            results.append(result)
            print(row(result), flush=True)
            if shown:
                print(screen, flush=True)
    return summary(results)


def run(journey: Journey, directory: Path) -> tuple[Result, str]:
    """Start the job of a journey and walk; return the result and the last screen."""
    exported = journey.job.exported if isinstance(journey.job, Crash) else ()
    environ = {**user_environment(directory / "home"), **dict(exported)}
    job = directory / "job"
    job.mkdir()
    with failed(journey.job, job, environ) as earlier:
        walk = Walk(job, journey.edits, environ)
        with walk.terminal:
            return _walked(journey, walk, job, earlier)


def _walked(journey: Journey, walk: Walk, job: Path, earlier: RunningJob | None) -> tuple[Result, str]:
    titles = [read_knowledge().causes[id_].title for id_ in journey.causes]
    cause = place = proved = by_patch = False
    note = ""
    try:
        if isinstance(journey.job, Crash):
            walk.to_verdict_of_log(job / LOG)
        else:
            walk.to_verdict_of_job(journey.row)
        cause = any(f"{head} {title}" in walk.text for head in HEADS for title in titles)
        place = walk.to_fix(places(job, journey.at), journey.names)
        if earlier and isinstance(journey.job, Crash) and journey.job.leftover:
            walk.to_proof()  # it is still there
            end_job(earlier)
        else:
            if journey.run_first:
                walk.to_proof()
                named = walk.names_place(places(job, journey.at))
                assert named, f"the run for proof names no line: {walk.text}"
            by_patch = walk.to_applied()
        proved = walk.to_proof(journey.job.command if isinstance(journey.job, Crash) else "")
    except AssertionError as error:
        note = str(error).partition("\n")[0][:100]
    result = Result(
        name=journey.name,
        cause=cause,
        place=place,
        proved=proved,
        by_patch=by_patch,
        seconds=walk.seconds,
        keys=walk.keys,
        note=note,
    )
    return result, f"{walk.fix_text}\n{'=' * 80}\n{walk.terminal.text}\n"


def row(result: Result) -> str:
    """Return one line for a result."""
    by = "patch" if result.by_patch else "edit"
    marks = [("yes" if each else "NO") for each in (result.cause, result.place, result.proved)]
    figures = f"{by:5} {result.seconds:5.1f}  {result.keys:4}  {result.note}"
    return f"{result.name:20} {marks[0]:5}  {marks[1]:5}  {marks[2]:6}  {figures}"


def summary(results: list[Result]) -> int:
    """Print the figures against the bars; return the exit code."""
    count = len(results)
    proved = [each for each in results if each.proved]
    causes, named = sum(each.cause for each in results), sum(each.place for each in results)
    seconds = statistics.median(each.seconds for each in proved) if proved else float("inf")
    keys = statistics.median(each.keys for each in proved) if proved else float("inf")
    bars = [
        ("right cause", f"{causes} of {count}", causes == count),
        ("fix names file and line", f"{named} of {count}", named == count),
        ("proved", f"{len(proved)} of {count}", len(proved) >= PROVED_SHARE * count),
        ("median to the proof", f"{seconds:.1f} s", seconds <= MEDIAN_S),
        ("median of the keys", f"{keys:g}", keys <= MEDIAN_KEYS),
    ]
    print()
    for title, value, held in bars:
        print(f"{'ok  ' if held else 'MISS'} {title}: {value}")
    return 0 if all(held for *_, held in bars) else 1


if __name__ == "__main__":
    os.environ.pop("TMUX", None)
    sys.exit(main(sys.argv[1:]))
