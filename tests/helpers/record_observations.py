"""Start jobs of ``hang_cases.py``, sample each where it hangs, and write the observation and the expected verdict.

``python tests/helpers/record_observations.py --into DIR NAME…`` (or ``all``) writes NAME.json and NAME.truth.json.
"""

import argparse
import sys
import tempfile
import time
import traceback
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parent.parent))

from helpers.hang_cases import HANGS, Hang
from helpers.hang_jobs import judged, named, standing, wrong


def record(hang: Hang, into: Path) -> list[str]:
    """One job's observation and truth, written; what of today's verdict is wrong."""
    with tempfile.TemporaryDirectory(prefix="job-") as directory, standing(hang, Path(directory)) as there:
        started = time.monotonic()
        try:
            report = judged(there)
        finally:
            (into / f"{hang.name}.truth.json").write_bytes(msgspec.json.format(msgspec.json.encode(there.truth)))
            (into / f"{hang.name}.output.txt").write_text("\n".join(there.job.output))
        took_s = time.monotonic() - started
        (into / f"{hang.name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(report.observed)))
    faults = wrong(there.truth, report)
    verdict = report.verdict
    print(f"{'FAIL' if faults else 'ok  '} {hang.name} ({took_s:.1f} s): {verdict.state} {verdict.cause} {verdict.why}")
    for fault in faults:
        print("  -", fault)
    for row in report.ranks:
        print("   ", row.rank, row.state, row.collective, row.where, row.note)
    return faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("names", nargs="+")
    options = parser.parse_args()
    options.into.mkdir(parents=True, exist_ok=True)
    for hang in HANGS if options.names == ["all"] else [named(name) for name in options.names]:
        try:
            record(hang, options.into)
        except Exception as problem:  # one job's failure must not keep the others from being recorded
            print(f"FAIL {hang.name}: {type(problem).__name__}: {problem}")
            traceback.print_exc()
        sys.stdout.flush()


if __name__ == "__main__":
    main()
