"""``ddpwizard review``: output, written files and errors."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.buggy_script import BUGGY_SCRIPT
from helpers.command import ddpwizard, loaded_modules, refused

FOUND = [(21, "DW401"), (28, "DW101"), (29, "DW201"), (32, "DW203"), (41, "DW401")]
FIELDS = ["rule", "cause", "path", "line", "column", "end_line", "message", "why", "severity", "confidence", "fix"]


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
        assert "4 found in 1 file" in done.stdout
        assert "applied move-before-wrap (DW201) to train.py" in done.stderr
        assert "\n+++ b/train.py\n" in done.stderr, "what is written is shown"
        assert script.read_text() == BUGGY_SCRIPT.replace("DDP(Net())\n    model.cuda()", "DDP(Net().cuda())")

    def test_unsafe_fixes_remove_all_findings_and_undo_restores_the_file(self, script: Path) -> None:
        done = ddpwizard("review", "train.py", "--fix", "--unsafe-fixes", cwd=script.parent)
        assert done.returncode == 0, done.stdout
        id_ = done.stderr.split("ddpwizard undo ")[1].strip()
        assert script.read_text() != BUGGY_SCRIPT
        assert ddpwizard("undo", id_).returncode == 0
        assert script.read_text() == BUGGY_SCRIPT

    def test_several_files_are_one_apply(self, script: Path) -> None:
        other = script.parent / "other.py"
        other.write_text(BUGGY_SCRIPT)
        assert findings(".", "--fix", "--unsafe-fixes", cwd=script.parent, code=0) == []
        assert ddpwizard("undo").returncode == 0
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
            (["train.py", "--to", "fsdp2"], "No such option"),
        ],
    )
    def test_wrong_usage(self, script: Path, arguments: list[str], message: str) -> None:
        (script.parent / "empty").mkdir()
        assert message in refused(ddpwizard("review", *arguments, cwd=script.parent), 2)
        assert script.read_text() == BUGGY_SCRIPT

    def test_unreadable_files_of_a_directory_are_listed_and_skipped(self, script: Path) -> None:
        (script.parent / "old.py").write_text("print 'x'\n")
        done = ddpwizard("review", ".", cwd=script.parent)
        assert done.returncode == 1
        assert "left out: " in done.stderr
        assert "old.py:1: not valid Python" in done.stderr

    def test_directory_with_only_unreadable_files_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "old.py").write_text("print 'x'\n")
        assert "not valid Python" in refused(ddpwizard("review", ".", cwd=tmp_path), 2)


def test_review_command_imports_nothing_heavy() -> None:
    loaded = loaded_modules("import ddpwizard.app.commands.review")
    assert not loaded & {"torch", "textual", "networkx", "rich", "libcst", "psutil"}
