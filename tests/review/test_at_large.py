"""``make review-at-large``: findings in the newest commit of repositories, compared with verdicts by reading."""

import subprocess
import sys
from pathlib import Path

from at_large.precision import Row, precision, read_verdicts

AT_LARGE = Path(__file__).parents[1] / "at_large"
BUGGY = "import torch.distributed as dist\nif dist.get_rank() == 0:\n    dist.barrier()\n"
FOUND = [Row("owner/name", "a" * 40, "train.py", line, "DW401", "error") for line in (1, 2, 3)]


def git(directory: Path, *arguments: str) -> str:
    options = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    command = ["git", "-C", str(directory), *options, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_reviews_what_is_committed(tmp_path: Path):
    clone = tmp_path / "owner+name"
    (clone / "src").mkdir(parents=True)
    (clone / "src" / "train.py").write_text(BUGGY)
    git(clone, "init", "--quiet")
    git(clone, "add", ".")
    git(clone, "commit", "--quiet", "--message", "first")
    (clone / "src" / "train.py").write_text("")
    command = [sys.executable, str(AT_LARGE), str(clone), str(tmp_path / "missing")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    commit = git(clone, "rev-parse", "HEAD")
    assert f"owner/name\t{commit}\tsrc/train.py\t3\tDW401\terror\tunjudged" in done.stdout.splitlines()
    assert "left out: " in done.stderr


def test_precision_of_the_judged_findings(tmp_path: Path):
    verdicts = tmp_path / "verdicts.tsv"
    rows = [f"owner/name\t{'a' * 40}\ttrain.py\t{line}\tDW401\terror\t{verdict}\twhy" for line, verdict in JUDGED]
    verdicts.write_text("\n".join([HEADER, *rows]) + "\n")
    result = precision(FOUND, read_verdicts(verdicts), "error", bar=0.95)
    assert (result.count_true, result.count_judged, result.count_unjudged) == (1, 2, 1)
    assert result.below


HEADER = "repository\tcommit\tpath\tline\trule\tseverity\tverdict\treason"
JUDGED = ((1, "true"), (2, "false"))


def test_every_verdict_is_readable_and_has_a_reason():
    kept = AT_LARGE / "verdicts.tsv"
    lines = kept.read_text().splitlines()
    assert lines[0] == HEADER
    assert len(read_verdicts(kept)) == len(lines) - 1
    assert all(len(line.split("\t")) == 8 and line.split("\t")[-1] for line in lines[1:])
