"""``make review-at-large DIRS="DIR…"``: review whole repositories and compare the findings with verdicts by reading.

    python tests/at_large DIR…        git work trees or git directories, as committed in HEAD

Prints every error and warning as ``repository commit path line rule severity verdict``, then the precision of both.
The verdicts are in ``verdicts.tsv``; ``second_reader.tsv`` has those of a reader who judged 50 of the findings again
and had not seen the first. Exit code 1 if a precision is below its bar, 2 if nothing could be reviewed.
"""

import sys
import tempfile
from pathlib import Path

from commit_files import NotAGitDirectory, lay_out
from ddpwizard.app.review.files import FoundFile, files_to_review
from ddpwizard.app.review.many_files import review_files
from ddpwizard.app.review.settings import ReviewSettings
from ddpwizard.app.review.types import SkippedFile
from ddpwizard.knowledge.loader import read_knowledge
from ddpwizard.knowledge.schema import Knowledge
from precision import BARS, Row, precision, read_verdicts

VERDICTS = Path(__file__).with_name("verdicts.tsv")
COLUMNS = "repository\tcommit\tpath\tline\trule\tseverity\tverdict"


def review_commit(directory: Path, knowledge: Knowledge) -> list[Row]:
    """Return the errors and warnings in the newest commit of a repository.

    Raises:
        NotAGitDirectory: There is no commit.
    """
    with tempfile.TemporaryDirectory(prefix="ddpwizard-at-large-") as folder:
        top = Path(folder).resolve()
        repository, commit = lay_out(directory, top)
        found = files_to_review([top], lambda _: ReviewSettings(base=top))
        files = [each for each in found if isinstance(each, FoundFile)]
        rows: list[Row] = []
        for result in review_files(files, knowledge):
            if isinstance(result, SkippedFile):
                print(f"left out: {repository} {Path(result.path).relative_to(top)}: {result.reason}", file=sys.stderr)
                continue
            path = str(Path(result.path).relative_to(top))
            for finding in result.findings:
                if finding.severity != "info":
                    rows.append(Row(repository, commit, path, finding.line, finding.rule, finding.severity))
    return rows


def main(directories: list[str]) -> int:
    """Print the findings in each repository and their precision; return the exit code."""
    knowledge, verdicts = read_knowledge(), read_verdicts(VERDICTS)
    rows: list[Row] = []
    count_read = 0
    print(COLUMNS)
    for directory in directories:
        try:
            found = review_commit(Path(directory), knowledge)
        except NotAGitDirectory as error:
            print(f"left out: {error}", file=sys.stderr)
            continue
        count_read += 1
        rows += found
        for row in found:
            verdict = verdicts.get(row.key)
            print(*row, "unjudged" if verdict is None else str(verdict).lower(), sep="\t", flush=True)
    if not count_read:
        return 2
    print()
    precisions = [precision(rows, verdicts, severity, bar) for severity, bar in BARS.items()]
    print(*precisions, sep="\n")
    return int(any(each.below for each in precisions))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
