"""Programs whose ranks part, and programs that look like it: found by evaluating the program, not by its text.

The truth of each was measured: ``tests/real_jobs/test_divergences.py`` runs them on two ranks over gloo.
"""

import ast
from pathlib import Path

import pytest
from ddpwizard.app.training_script.model.divergences import divergences
from ddpwizard.app.training_script.model.evaluated import Evaluated
from helpers.diverging_programs import DIVERGING, SAME, source


def places(tmp_path: Path, code: str) -> list[tuple[str, str]]:
    """Return the kind of each event that not all ranks reach, with its line."""
    script = tmp_path / "train.py"
    text = source(code)
    script.write_text(text)
    found = divergences(Evaluated(ast.parse(text), script, text)).found
    return [
        (each.first.kind, Path(each.first.site.path).read_text().splitlines()[each.first.site.line - 1])
        for each in found
    ]


@pytest.mark.parametrize("name", DIVERGING)
def test_ranks_that_part_are_found(name: str, tmp_path: Path) -> None:
    assert places(tmp_path, DIVERGING[name])


@pytest.mark.parametrize("name", SAME)
def test_ranks_that_do_the_same_are_not(name: str, tmp_path: Path) -> None:
    assert places(tmp_path, SAME[name]) == []


def test_a_function_of_another_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "metrics.py").write_text(
        "import torch.distributed as dist\ndef total(x):\n    dist.all_reduce(x)\n    return x\n"
    )
    code = "from metrics import total\nif rank == 0:\n    print(total(torch.ones(1)))\n"
    assert places(tmp_path, code) == [("all_reduce", "    dist.all_reduce(x)")]


def test_a_package_with_relative_imports_is_followed(tmp_path: Path) -> None:
    package = tmp_path / "lib"
    package.mkdir()
    (package / "__init__.py").write_text("from .sync import wait as hold\n")
    (package / "sync.py").write_text("import torch.distributed as dist\ndef wait():\n    dist.barrier()\n")
    assert places(tmp_path, "import lib\nif rank == 1:\n    lib.hold()\n") == [("barrier", "    dist.barrier()")]


def test_files_that_import_each_other_end(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import torch.distributed as dist\nfrom b import g\ndef f():\n    g()\n    dist.barrier()\n"
    )
    (tmp_path / "b.py").write_text("import a\nrank = 0\ndef g():\n    a.f()\n")
    assert [kind for kind, _ in places(tmp_path, "import a\nif rank == 0:\n    a.f()\n")] == ["barrier"]
