"""Patches in files of every form: ``git apply`` takes the diff, and all bytes but the changed lines stay."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ddpwizard.app.training_script.source import BOM
from helpers.command import ddpwizard
from helpers.patched_files import HEAD, SCRIPTS_WITH_PATCH, patched_script
from helpers.review_snippets import apply_fixes

SCRIPTS = {
    "DW101": HEAD + 'rank = int(os.environ.get("RANK", 0))\ntorch.cuda.set_device(rank)',
    "DW201": HEAD + "def wrap(device):\n    net = torch.nn.Linear(1, 1)\n    ddp = DistributedDataParallel(net)  # Ä\n"
    "    ddp.to(device)\n    return ddp",
    "DW203": HEAD
    + "loader = DataLoader(data, sampler=DistributedSampler(data))\nfor _ in range(3):\n    for batch in loader:  # Ö\n"
    "        model(batch).backward()",
    "DW401": HEAD
    + 'def f(rank, x):\n    if rank == 0:\n        print("ß")\n        dist.all_reduce(x)\n        print(x)',
}
FORMS: dict[str, Callable[[str], bytes]] = {
    "lf": lambda text: (text + "\n").encode(),
    "no-newline-at-the-end": lambda text: text.encode(),
    "crlf": lambda text: (text + "\n").replace("\n", "\r\n").encode(),
    "bom": lambda text: (BOM + text + "\n").encode(),
    "bom-crlf": lambda text: (BOM + text + "\n").replace("\n", "\r\n").encode(),
    "tabs": lambda text: (text + "\n").replace("    ", "\t").encode(),
    "latin-1": lambda text: (text + "\n").replace("utf-8", "latin-1").encode("latin-1"),
}


def all_in_one(text: str) -> bytes:
    return (BOM + text).replace("    ", "\t").replace("\n", "\r\n").encode()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with each script in each form, patched by ``git apply``."""
    root = tmp_path_factory.mktemp("project")
    for rule, text in SCRIPTS.items():
        for form, encode in FORMS.items():
            (root / f"{rule}-{form}.py").write_bytes(encode(text))
    # The other patches, in a form that has it all: a byte order mark, CRLF and tabs.
    for name, text in SCRIPTS_WITH_PATCH.items():
        (root / f"{name}.py").write_bytes(all_in_one(text))
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    command = [sys.executable, "-m", "ddpwizard", "review", ".", "--diff"]
    shown = subprocess.run(command, cwd=root, capture_output=True, check=False, timeout=180)
    assert shown.returncode == 1, shown.stderr
    applied = subprocess.run(["git", "apply", "-"], cwd=root, input=shown.stdout, capture_output=True, check=False)
    assert applied.returncode == 0, applied.stderr
    return root


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rule", SCRIPTS)
def test_diff_applies_and_changes_nothing_else(rule: str, form: str, project: Path) -> None:
    after, done = apply_fixes(SCRIPTS[rule])
    assert [finding.rule for finding in done] == [rule]
    assert (project / f"{rule}-{form}.py").read_bytes() == FORMS[form](after)


@pytest.mark.parametrize("name", SCRIPTS_WITH_PATCH)
def test_every_patch_keeps_the_form_of_the_file(name: str, project: Path) -> None:
    after, done = patched_script(name)
    assert done
    assert (project / f"{name}.py").read_bytes() == all_in_one(after)


def test_second_review_finds_nothing(project: Path) -> None:
    again = ddpwizard("review", ".", cwd=project)
    assert again.returncode == 0, again.stdout
