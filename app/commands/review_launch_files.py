"""``ddpwizard review --launch-files PATH…``: compare the files of one job."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ..errors import UserError
from ..exit_codes import ExitCode
from ..options import Options
from ..review.launch_files.conflicts import find_conflicts
from ..review.launch_files.read_files import read_job_files
from ..system.paths import relative_to_cwd
from ..text.json_output import print_json, public_document
from ..text.terminal import print_line


def review_launch_files(paths: Sequence[Path], options: Options) -> int:
    """Print each contradiction; return ``FOUND`` if there is one.

    Raises:
        UserError: A file cannot be read, or none describes a job.
    """
    files = read_job_files([*paths])
    if not any(file.compares for file in files):
        where = ", ".join(map(str, paths))
        raise UserError(
            f"{where} starts a job with variables only: there are no numbers to compare"
            if files
            else f"nothing in {where} describes how a job is started",
            "name its ds_config.json, accelerate.yaml, start script, hostfile or manifest, or their directory",
        )
    found = find_conflicts(files)
    if options.json:
        body = {
            "files": [{"path": str(Path(file.path).absolute()), "kind": file.kind} for file in files],
            "conflicts": [{"message": each.message, "where": each.where} for each in found],
        }
        print_json(public_document("agreement", None, body))
        return ExitCode.FOUND if found else ExitCode.OK
    for conflict in found:
        others = f" ({', '.join(conflict.where[1:])})" if len(conflict.where) > 1 else ""
        print_line(f"{conflict.where[0]}: {conflict.message}{others}")
    names = _short_names([file.path for file in files if file.compares])
    if not found:
        alone = f"{names[0]} does not contradict itself; there is nothing to compare it with."
        print_line(f"These agree: {', '.join(names)}." if len(names) > 1 else alone)
    for file in files:
        if not file.compares:
            print_line(f"Not compared: {relative_to_cwd(file.path)}, whose numbers are variables or are set elsewhere.")
    return ExitCode.FOUND if found else ExitCode.OK


def _short_names(paths: Sequence[str]) -> list[str]:
    """Return the names of files, with their directories where a name occurs twice."""
    counts = Counter(Path(path).name for path in paths)
    return [relative_to_cwd(path) if counts[Path(path).name] > 1 else Path(path).name for path in paths]
