"""``ddpwizard review``: output, written files and errors."""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from helpers.buggy_script import BUGGY_SCRIPT
from helpers.command import ddpwizard, loaded_modules, refused

ROOT = Path(__file__).parent.parent.parent
FOUND = [(21, "DW401"), (28, "DW101"), (29, "DW201"), (32, "DW203"), (41, "DW401")]
FIELDS = ["rule", "cause", "path", "line", "column", "end_line", "message", "why", "severity", "confidence"]
FIELDS += ["branch", "related", "fix"]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(BUGGY_SCRIPT)
    return path


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    path = tmp_path / "clean.py"
    path.write_text("import torch\nprint(torch)\n")
    return path


def findings(*arguments: str, cwd: Path, code: int = 1) -> list[dict[str, Any]]:
    done = ddpwizard("review", *arguments, "--json", cwd=cwd)
    assert done.returncode == code, done.stderr
    document = json.loads(done.stdout)
    assert document["schema"] == "ddpwizard.review/1"
    return document["findings"]


class TestFindings:
    def test_text_output_has_place_source_reason_and_fix(self, script: Path) -> None:
        done = ddpwizard("review", "train.py", "--ascii", cwd=script.parent)
        assert done.returncode == 1
        assert "train.py:21:13 DW401 all_reduce is reached by rank 0 alone" in done.stdout
        assert "    >    21              dist.all_reduce(loss)\n" in done.stdout
        assert "         19          if rank == 0:\n" in done.stdout
        assert "patch hoist-collective, unsafe: the collective and its inputs now run on all ranks" in done.stdout
        assert "patch move-before-wrap, safe\n" in done.stdout
        assert "5 found in 1 file; 5 with a patch (4 of them unsafe)" in done.stdout
        assert done.stdout.isascii()
        assert script.read_text() == BUGGY_SCRIPT

    def test_json_has_the_public_fields(self, script: Path) -> None:
        found = findings("train.py", cwd=script.parent)
        assert [(f["line"], f["rule"]) for f in found] == FOUND
        assert all(list(f) == FIELDS for f in found)
        assert all(list(f["fix"]) == ["id", "safety", "why_unsafe", "diff"] for f in found)
        assert {f["path"] for f in found} == {str(script)}
        assert found[2]["fix"]["safety"] == "safe"
        assert found[2]["fix"]["why_unsafe"] is None
        assert found[0]["fix"]["diff"].startswith("--- a/train.py\n+++ b/train.py\n")

    def test_review_without_findings(self, clean: Path) -> None:
        done = ddpwizard("review", str(clean))
        assert (done.returncode, done.stderr) == (0, "")
        assert "Nothing found in 1 file" in done.stdout
        assert findings(str(clean), cwd=clean.parent, code=0) == []

    def test_rule_option_limits_the_rules(self, script: Path) -> None:
        found = findings("train.py", "--rule", "DW203", "--rule", "DW101", cwd=script.parent)
        assert [f["rule"] for f in found] == ["DW101", "DW203"]

    def test_directory_argument_reviews_its_python_files(self, script: Path, clean: Path) -> None:
        (script.parent / "pkg").mkdir()
        script.rename(script.parent / "pkg" / "deep.py")
        found = findings(".", cwd=clean.parent)
        assert {Path(f["path"]).name for f in found} == {"deep.py"}

    def test_control_characters_of_a_script_are_not_shown(self, tmp_path: Path) -> None:
        text = "import torch.distributed as dist\nif dist.get_rank() == 0:\n    dist.barrier()  # \x1b[31mred\x07\n"
        (tmp_path / "t.py").write_text(text)
        for more in ([], ["--format", "github"]):
            done = ddpwizard("review", "t.py", *more, cwd=tmp_path)
            assert done.returncode == 1
            assert not set(done.stdout + done.stderr) & {"\x1b", "\x07"}

    def test_file_that_is_too_large_is_named_without_a_guess_at_the_reason(self, tmp_path: Path) -> None:
        path = tmp_path / "table.py"
        table = "sizes = [\n" + "    1,\n" * 160_000 + "]\n"
        path.write_text(f"import torch.distributed as dist\n{table}rank = dist.get_rank\n")
        done = ddpwizard("review", str(path))
        assert done.returncode == 0
        assert "table.py: too large or too deeply nested" in done.stderr and "calls" not in done.stderr

    def test_sarif_format(self, script: Path) -> None:
        done = ddpwizard("review", "train.py", "--format", "sarif", cwd=script.parent)
        assert done.returncode == 1
        log = json.loads(done.stdout)
        run = log["runs"][0]
        assert log["version"] == "2.1.0"
        assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["DW101", "DW201", "DW203", "DW401"]
        result = run["results"][0]
        place = result["locations"][0]["physicalLocation"]
        assert (result["ruleId"], result["ruleIndex"], result["level"]) == ("DW401", 3, "error")
        assert place["artifactLocation"] == {"uri": "train.py"}
        assert place["region"] == {"startLine": 21, "startColumn": 13, "endLine": 21}

    def test_both_ways_of_the_ranks_are_named(self, tmp_path: Path) -> None:
        (tmp_path / "sums.py").write_text("import torch.distributed as dist\ndef total(x):\n    dist.all_reduce(x)\n")
        text = "import torch.distributed as dist\nfrom sums import total\nif dist.get_rank() == 1:\n    total(x)\n"
        (tmp_path / "train.py").write_text(text)
        (found,) = findings("train.py", cwd=tmp_path)
        places = [(Path(each["path"]).name, each["line"], each["message"]) for each in found["related"]]
        assert places == [
            ("train.py", 3, "rank 1 and rank 0 part here"),
            ("train.py", 4, "rank 1 calls the function that leads to all_reduce"),
            ("sums.py", 3, "rank 1 waits in all_reduce"),
            ("train.py", 3, "rank 0 goes on here without all_reduce"),
        ]
        log = json.loads(ddpwizard("review", "train.py", "--format", "sarif", cwd=tmp_path).stdout)
        related = log["runs"][0]["results"][0]["relatedLocations"]
        shown = [each["physicalLocation"]["artifactLocation"]["uri"] for each in related]
        assert shown == ["train.py", "train.py", "sums.py", "train.py"]
        assert related[2]["message"] == {"text": "rank 1 waits in all_reduce"}

    def test_github_format(self, script: Path) -> None:
        done = ddpwizard("review", "train.py", "--format", "github", cwd=script.parent)
        lines = done.stdout.splitlines()
        assert done.returncode == 1
        assert len(lines) == 5
        start = "::error file=train.py,line=21,endLine=21,col=13,title=DW401 rank-conditional-collective::all_reduce is"
        assert lines[0].startswith(start)


class TestPatching:
    def test_diff_output_is_a_patch_that_applies(self, script: Path) -> None:
        done = ddpwizard("review", "train.py", "--diff", cwd=script.parent)
        assert done.returncode == 1
        assert done.stdout.startswith("--- a/train.py\n+++ b/train.py\n@@ ")
        assert "train.py:29 DW201 safe" in done.stderr
        assert script.read_text() == BUGGY_SCRIPT
        patch = shutil.which("patch")
        if not patch:
            pytest.skip("patch is not installed")
        subprocess.run([patch, "-p1"], input=done.stdout.encode(), cwd=script.parent, check=True, timeout=180)
        assert findings("train.py", cwd=script.parent, code=0) == []

    def test_diff_keeps_the_encoding_of_the_file(self, tmp_path: Path) -> None:
        git = shutil.which("git")
        if not git:
            pytest.skip("git is not installed")
        head = "# coding: latin-1\r\nimport torch.distributed as dist\r\n"
        before = head + "if dist.get_rank() == 0:\r\n    dist.barrier()  # é\r\n"
        (tmp_path / "t.py").write_bytes(before.encode("latin-1"))
        command = [sys.executable, "-m", "ddpwizard", "review", "t.py", "--diff"]
        made = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=180, check=False)
        subprocess.run([git, "apply", "-"], input=made.stdout, cwd=tmp_path, check=True, timeout=180)
        assert (tmp_path / "t.py").read_bytes() == (head + "dist.barrier()  # é\r\n").encode("latin-1")

    def test_fix_applies_safe_fixes_and_counts_remaining_findings(self, script: Path) -> None:
        done = ddpwizard("review", "train.py", "--fix", cwd=script.parent)
        assert done.returncode == 1
        assert "1 fixed, 4 left in 1 file" in done.stdout
        assert "applied move-before-wrap (DW201) to train.py" in done.stderr
        assert "\n+++ b/train.py\n" in done.stderr, "what is written is shown"
        assert script.read_text() == BUGGY_SCRIPT.replace("DDP(Net())\n    model.cuda()", "DDP(Net().cuda())")

    def test_unsafe_fixes_remove_all_findings_and_undo_restores_the_file(self, script: Path) -> None:
        done = ddpwizard("review", "train.py", "--fix", "--unsafe-fixes", cwd=script.parent)
        assert done.returncode == 0, done.stdout
        assert re.search(r"(?m)^5 fixed, none left in 1 file\. Rules: ", done.stdout), done.stdout
        id_ = done.stderr.split("ddpwizard undo ")[1].strip()
        assert script.read_text() != BUGGY_SCRIPT
        assert ddpwizard("undo", "--yes", id_).returncode == 0
        assert script.read_text() == BUGGY_SCRIPT

    def test_several_files_are_one_apply(self, script: Path) -> None:
        other = script.parent / "other.py"
        other.write_text(BUGGY_SCRIPT)
        assert findings(".", "--fix", "--unsafe-fixes", cwd=script.parent, code=0) == []
        assert ddpwizard("undo", "--yes").returncode == 0
        assert script.read_text() == other.read_text() == BUGGY_SCRIPT

    def test_fix_without_applicable_patch_is_reported(self, clean: Path) -> None:
        done = ddpwizard("review", str(clean), "--fix")
        assert done.returncode == 0
        assert "nothing applied" in done.stderr


class TestRefusals:
    @pytest.mark.parametrize(
        ("name", "data", "message"),
        [
            ("old.py", b"import os\nprint 'x'\n", "old.py:2: not valid Python"),
            ("data.py", b"\x7fELF\0\0\0", "data.py: a binary file"),
            ("bytes.py", b"x = 1\ny = '\xff'\n", "bytes.py:2: not utf-8 text"),
            ("cookie.py", b"# coding: martian\n", "cookie.py: unknown encoding"),
        ],
    )
    def test_invalid_script_is_an_error(self, tmp_path: Path, name: str, data: bytes, message: str) -> None:
        (tmp_path / name).write_bytes(data)
        assert message in refused(ddpwizard("review", name, cwd=tmp_path), 2)
        asked = ddpwizard("review", name, "--json", cwd=tmp_path)
        assert json.loads(asked.stdout)["schema"] == "ddpwizard.error/1"

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ([], "Missing argument"),
            (["gone.py"], "gone.py: No such file or directory"),
            (["empty"], "no Python file"),
            (["train.py", "--rule", "DW999"], "no such rule"),
            (["train.py", "--diff", "--fix"], "--diff writes nothing"),
            (["train.py", "--unsafe-fixes"], "--fix"),
            (["train.py", "--format", "sarif", "--json"], "standard output"),
            (["train.py", "--format", "sarif", "--diff"], "standard output"),
            (["train.py", "--diff", "--json"], "standard output"),
            (["train.py", "--to", "tpu"], "is not"),
        ],
    )
    def test_wrong_usage(self, script: Path, arguments: list[str], message: str) -> None:
        (script.parent / "empty").mkdir()
        assert message in refused(ddpwizard("review", *arguments, cwd=script.parent), 2)
        assert script.read_text() == BUGGY_SCRIPT


@pytest.fixture
def hard(script: Path) -> Path:
    """A directory with a script that has findings, and everything that cannot be reviewed."""
    at = script.parent
    (at / "broken.py").write_text("def f(:\n")
    (at / "chain.py").write_text(f"x = a{'.b()' * 10_000}\n")
    (at / "latin.py").write_bytes(b"# x\ny = '\xe9'\n")
    (at / "latin_declared.py").write_bytes(b"# coding: latin-1\ny = '\xe9'\n")
    (at / "nested.py").write_text("".join(f"{'    ' * n}if x:\n" for n in range(95)) + "    " * 95 + "pass\n")
    (at / "newer.py").write_text("x = 1\nlazy import torch\n")
    (at / "old.py").write_text("import os\nprint 'x'\n")
    (at / "n.ipynb").write_text("{")
    (at / "self.py").symlink_to("self.py")
    (at / "up").symlink_to(".")
    os.mkfifo(at / "pipe.py")
    return at


LEFT_OUT = {
    "broken.py": "line 1: not valid Python",
    "chain.py": "nested too deeply to be read",
    "latin.py": "line 2: not utf-8 text",
    "n.ipynb": "not a valid notebook",
    "newer.py": "line 2: uses lazy imports of Python 3.15",
    "old.py": "line 2: not valid Python: Missing parentheses",
    "pipe.py": "is not a regular file",
    "self.py": "Too many levels of symbolic links",
}


class TestFilesThatCannotBeReviewed:
    def test_each_is_one_line_and_the_others_are_reviewed(self, hard: Path) -> None:
        done = ddpwizard("review", ".", cwd=hard)
        assert done.returncode == 1
        lines = done.stderr.splitlines()
        assert len(lines) == len(LEFT_OUT), done.stderr
        assert all(line.startswith("left out: ") and any(name in line for name in LEFT_OUT) for line in lines)
        assert "old.py:2: not valid Python" in done.stderr
        assert f"5 found in 3 files; 5 with a patch (4 of them unsafe); {len(LEFT_OUT)} left out" in done.stdout

    def test_json_lists_them_with_the_reason(self, hard: Path) -> None:
        done = ddpwizard("review", ".", "--json", cwd=hard)
        document = json.loads(done.stdout)
        assert (len(document["findings"]), document["files"]) == (5, 3)
        skipped = {Path(item["path"]).name: item["reason"] for item in document["skipped"]}
        assert {Path(item["path"]).parent for item in document["skipped"]} == {hard}
        assert skipped.keys() == LEFT_OUT.keys()
        assert all(reason in skipped[name] for name, reason in LEFT_OUT.items()), skipped

    def test_sarif_and_github_list_them(self, hard: Path) -> None:
        log = json.loads(ddpwizard("review", ".", "--format", "sarif", cwd=hard).stdout)
        notes = log["runs"][0]["invocations"][0]["toolExecutionNotifications"]
        assert len(notes) == len(LEFT_OUT)
        assert notes[0]["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": "broken.py"}
        shown = ddpwizard("review", ".", "--format", "github", cwd=hard).stdout
        assert "::warning file=old.py,title=not reviewed::line 2: not valid Python" in shown

    def test_given_file_that_cannot_be_read_is_one_line_too(self, hard: Path) -> None:
        done = ddpwizard("review", "gone.py", "old.py", "train.py", "up", cwd=hard)
        assert done.returncode == 1
        assert "left out: cannot read gone.py: No such file or directory" in done.stderr
        assert "5 found" in done.stdout

    def test_nothing_readable_is_an_error(self, hard: Path) -> None:
        line = refused(ddpwizard("review", "old.py", "gone.py", "pipe.py", cwd=hard), 2)
        assert "old.py:2: not valid Python" in line
        assert "(and 2 more that cannot be reviewed)" in line

    def test_directory_that_cannot_be_read_is_one_line(self, hard: Path) -> None:
        (hard / "locked").mkdir(mode=0)
        (hard / "locked.py").write_text("x = 1\n")
        (hard / "locked.py").chmod(0)
        # As root the kernel refuses nothing: the command runs as another user there.
        user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.getuid() == 0 else []
        if user and not shutil.which("setpriv"):
            pytest.skip("setpriv is not installed")
        paths_above = [path for path in hard.parents if path.stat().st_uid == os.getuid() and path != Path("/")]
        modes = {path: path.stat().st_mode for path in (hard, *paths_above)}
        for path, mode in modes.items():
            path.chmod(mode | 0o755)
        try:
            done = subprocess.run(
                [*user, sys.executable, "-m", "ddpwizard", "review", "."],
                cwd=hard,
                capture_output=True,
                text=True,
                timeout=180,
                env={**os.environ, "HOME": str(hard), "XDG_CACHE_HOME": str(hard / "cache")},
                check=False,
            )
        finally:
            for path, mode in modes.items():
                path.chmod(mode)
        if "No module named" in done.stderr or "can't open file" in done.stderr:
            pytest.skip("another user cannot run this interpreter")
        assert done.returncode == 1, done.stderr
        assert "left out: locked: Permission denied" in done.stderr
        assert "left out: cannot read locked.py: Permission denied" in done.stderr


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    """A notebook whose second and third code cells hold the buggy script."""
    head, main = BUGGY_SCRIPT.split("def main():")
    sources = [["%pip install torch\n", "!ls"], head.splitlines(True), f"def main():{main}".splitlines(True)]
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "execution_count": 7, "metadata": {"x": 1}, "outputs": [], "source": source}
        for source in sources
    ]
    cells.insert(0, {"cell_type": "markdown", "metadata": {}, "source": "# Title"})
    path = tmp_path / "train.ipynb"
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n")
    return path


class TestNotebooks:
    def test_place_is_the_cell_and_its_line(self, notebook: Path) -> None:
        done = ddpwizard("review", ".", "--ascii", cwd=notebook.parent)
        assert done.returncode == 1
        assert "train.ipynb:cell 3:21:13 DW401 all_reduce is reached by rank 0 alone: cell 3 line 19" in done.stdout
        assert "    >    21              dist.all_reduce(loss)\n" in done.stdout

    def test_json_has_the_line_of_the_file(self, notebook: Path) -> None:
        found = findings(".", cwd=notebook.parent)
        assert [f["rule"] for f in found] == [rule for _, rule in FOUND]
        assert [f["cell"]["number"] for f in found] == [3, 4, 4, 4, 4]
        line = notebook.read_text().splitlines()[found[0]["line"] - 1]
        assert line.strip() == '"            dist.all_reduce(loss)\\n",'
        shown = ddpwizard("review", ".", "--format", "github", cwd=notebook.parent).stdout
        assert f"file=train.ipynb,line={found[0]['line']}," in shown

    def test_fixes_go_into_the_cells_and_undo_restores_the_file(self, notebook: Path) -> None:
        before = notebook.read_bytes()
        done = ddpwizard("review", "train.ipynb", "--fix", "--unsafe-fixes", cwd=notebook.parent)
        assert done.returncode == 0, done.stdout
        old, new = json.loads(before), json.loads(notebook.read_bytes())
        changed = [a["source"] != b["source"] for a, b in zip(old["cells"], new["cells"], strict=True)]
        assert changed == [False, False, True, True]
        for cell in (*old["cells"], *new["cells"]):
            del cell["source"]
        assert old == new
        assert ddpwizard("undo", "--yes", done.stderr.split("ddpwizard undo ")[1].strip()).returncode == 0
        assert notebook.read_bytes() == before

    def test_script_that_a_cell_writes_is_reviewed_as_a_file_of_its_own(self, tmp_path: Path) -> None:
        sources = [f"%%writefile train.py\n{BUGGY_SCRIPT}", "rank = 7\n!torchrun train.py"]
        cells = [{"cell_type": "code", "source": source} for source in sources]
        path = tmp_path / "train.ipynb"
        path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
        assert [f["rule"] for f in findings("train.ipynb", cwd=tmp_path)] == [rule for _, rule in FOUND]
        assert ddpwizard("review", "train.ipynb", "--fix", "--unsafe-fixes", cwd=tmp_path).returncode == 0
        first, second = (cell["source"] for cell in json.loads(path.read_text())["cells"])
        assert first.startswith("%%writefile train.py\n")
        assert first != sources[0]
        assert second == sources[1]

    def test_diff_applies(self, notebook: Path) -> None:
        git = shutil.which("git")
        if not git:
            pytest.skip("git is not installed")
        done = ddpwizard("review", "train.ipynb", "--diff", cwd=notebook.parent)
        assert "train.ipynb:cell 4:5 DW201 safe\n" in done.stderr
        subprocess.run([git, "apply", "-"], input=done.stdout.encode(), cwd=notebook.parent, check=True, timeout=180)
        assert findings("train.ipynb", cwd=notebook.parent, code=0) == []


class TestSelection:
    def test_settings_of_the_project(self, script: Path, clean: Path) -> None:
        (script.parent / "gen").mkdir()
        shutil.copy(script, script.parent / "gen")
        (script.parent / "pyproject.toml").write_text(
            '[tool.ddpwizard.review]\nexclude = ["gen/"]\nignore = ["DW101", "DW9"]\nseverity = { DW203 = "info" }\n'
        )
        done = ddpwizard("review", ".", "--json", cwd=script.parent)
        assert done.stderr.count("\n") == 1
        assert "pyproject.toml: tool.ddpwizard.review.ignore: DW9 is no rule; it is left out" in done.stderr
        found = json.loads(done.stdout)["findings"]
        assert [f["rule"] for f in found] == ["DW401", "DW201", "DW203", "DW401"]
        assert [f["severity"] for f in found] == ["error", "error", "info", "error"]
        assert [f["rule"] for f in findings(".", "--rule", "DW101", cwd=script.parent)] == ["DW101"]
        assert "Rules: DW101." in ddpwizard("review", "clean.py", "--rule", "DW101", cwd=script.parent).stdout
        done = ddpwizard("review", "gen/train.py", "--force-exclude", cwd=script.parent)
        assert (done.returncode, done.stdout.split(". ")[0]) == (0, "Nothing found in 0 files")

    def test_ignored_and_excluded_files_are_not_reviewed(self, script: Path, clean: Path) -> None:
        (script.parent / ".gitignore").write_text("train.py\n")
        assert findings(".", cwd=script.parent, code=0) == []
        (script.parent / ".gitignore").unlink()
        assert findings(".", "--exclude", "tr*.py", cwd=script.parent, code=0) == []

    def test_comment_suppresses_and_an_unused_one_is_reported(self, script: Path) -> None:
        text = BUGGY_SCRIPT.replace("set_device(rank)", "set_device(rank)  # ddpwizard: ignore[DW101] one node")
        script.write_text(text.replace("import os\n", "import os  # ddpwizard: ignore[DW401]\n"))
        found = findings("train.py", cwd=script.parent)
        assert [(f["line"], f["rule"]) for f in found[:2]] == [(2, "DW001"), (21, "DW401")]
        assert "DW101" not in {f["rule"] for f in found}
        for more in ((), ("--format", "sarif"), ("--format", "github"), ("--diff",)):
            done = ddpwizard("review", "train.py", *more, cwd=script.parent)
            assert "DW001" in done.stdout + done.stderr

    def test_statistics_count_the_findings_of_each_rule(self, script: Path) -> None:
        done = ddpwizard("review", "train.py", "--statistics", cwd=script.parent)
        assert done.returncode == 1
        assert done.stdout.splitlines()[0].split()[:3] == ["2", "DW401", "A"]
        assert "train.py:21" not in done.stdout
        document = json.loads(ddpwizard("review", "train.py", "--statistics", "--json", cwd=script.parent).stdout)
        assert document["statistics"][0] == {"rule": "DW401", "findings": 2}

    def test_rules_are_listed_without_a_path(self) -> None:
        done = ddpwizard("review", "--rules")
        assert done.returncode == 0
        rows = {line.split()[0]: line for line in done.stdout.splitlines()}
        assert {"DW001", "DW101", "DW201", "DW203", "DW401"} <= rows.keys()
        assert "error" in rows["DW401"]
        document = json.loads(ddpwizard("review", "--rules", "--json").stdout)
        assert document["rules"][0].keys() >= {"rule", "severity", "title", "why", "fix"}

    def test_hook_for_pre_commit_reviews_the_files_that_it_gets(self, script: Path, clean: Path) -> None:
        (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
        program, *arguments = shlex.split(hook["entry"])
        assert program == "ddpwizard"
        assert set(hook["types_or"]) == {"python", "jupyter"}
        assert ddpwizard(*arguments, "train.py", "clean.py", cwd=script.parent).returncode == 1
        assert ddpwizard(*arguments, "clean.py", cwd=script.parent).returncode == 0


class TestManyFiles:
    def test_files_are_reviewed_in_several_processes_with_the_same_result(self, hard: Path) -> None:
        for at in range(60):
            (hard / f"copy{at:02}.py").write_text(BUGGY_SCRIPT if at % 9 == 0 else "import torch\n")
        one_cpu = {min(os.sched_getaffinity(0))}
        alone = subprocess.run(
            [sys.executable, "-m", "ddpwizard", "review", ".", "--json"],
            cwd=hard,
            capture_output=True,
            timeout=180,
            check=False,
            preexec_fn=lambda: os.sched_setaffinity(0, one_cpu),
        )
        assert json.loads(alone.stdout) == json.loads(ddpwizard("review", ".", "--json", cwd=hard).stdout)
        assert len(json.loads(alone.stdout)["findings"]) == 5 * 8

    def test_progress_is_shown_on_a_terminal(self, tmp_path: Path) -> None:
        many = "".join(f"    if rank == 0:\n        dist.all_reduce(x[{at}])\n" for at in range(20))
        for at in range(8):
            (tmp_path / f"slow{at}.py").write_text(f"import torch.distributed as dist\ndef main(rank, x):\n{many}")
        at_once = "from ddpwizard.app.text import progress as p; p.FIRST_AFTER_S, p.REDRAW_S = 0, 0.001"
        ours, theirs = os.openpty()
        code = f"{at_once}; from ddpwizard.__main__ import main; main()"
        command = [sys.executable, "-c", code, "review", ".", "--statistics"]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=theirs)
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while more := os.read(ours, 4096):
                shown += more
        os.close(ours)
        assert process.wait(60) == 1
        assert re.search(rb"\rreviewed \d+ of 8 files", shown)
        assert shown.endswith(b"\r")

    def test_interrupt_ends_all_processes_at_once(self, tmp_path: Path) -> None:
        many = "".join(f"    if rank == 0:\n        dist.all_reduce(x[{at}])\n" for at in range(200))
        for at in range(80):
            (tmp_path / f"slow{at}.py").write_text(f"import torch.distributed as dist\ndef main(rank, x):\n{many}")
        command = [sys.executable, "-m", "ddpwizard", "review", "."]
        process = subprocess.Popen(command, cwd=tmp_path, start_new_session=True, stderr=subprocess.PIPE)
        parent = psutil.Process(process.pid)
        while not (workers := parent.children()):
            assert process.poll() is None
            time.sleep(0.01)
        began = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(30) == 130
        assert time.monotonic() - began < 10  # all files take a minute
        assert process.stderr and b"Traceback" not in process.stderr.read()
        assert not [worker for worker in workers if worker.is_running()]


def test_review_command_imports_nothing_heavy() -> None:
    loaded = loaded_modules("import ddpwizard.app.commands.review")
    assert not loaded & {"torch", "textual", "networkx", "rich", "libcst", "psutil"}
