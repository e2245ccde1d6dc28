"""Patches in files of every form: ``git apply`` takes the diff, and all bytes but the changed lines stay."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ddpwizard.app.training_script.source import BOM
from helpers.command import ddpwizard
from helpers.measured_programs import WITHOUT_PATCH, path_of, read_truth
from helpers.patched_programs import PROGRAMS
from helpers.review_snippets import apply_fixes

HEAD = """\
# -*- coding: utf-8 -*-
# Größe
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
"""
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
# What fails is repaired in these, and a mistake behind it is left to a person: the optimizer whose state one rank loads
# (DW225), and the counter of each round (DW480), which no longer matters behind the barrier.
LEFT = {"resume_epochs", "prepared_rounds"}
# The other patches, in a form that has it all: a byte order mark, CRLF and tabs.
OTHERS = {name: HEAD + program.text for name, program in PROGRAMS.items()} | {
    row.name: path_of("broken", row.name).read_text()
    for row in read_truth()
    if row.name not in WITHOUT_PATCH | LEFT and path_of("broken", row.name).is_file()
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
    for name, text in OTHERS.items():
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


@pytest.mark.parametrize("name", OTHERS)
def test_every_patch_keeps_the_form_of_the_file(name: str, project: Path) -> None:
    after, done = apply_fixes(OTHERS[name])
    assert done
    assert (project / f"{name}.py").read_bytes() == all_in_one(after)


def test_second_review_finds_nothing(project: Path) -> None:
    again = ddpwizard("review", ".", cwd=project)
    assert again.returncode == 0, again.stdout
