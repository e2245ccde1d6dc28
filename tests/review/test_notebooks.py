"""Cells of notebooks are reviewed like the script that they make."""

import ast
import json
from pathlib import Path

import pytest
from ddpwizard.app.review.file_review import review_file
from helpers.measured_programs import PROGRAMS
from helpers.review_snippets import KNOWLEDGE

# Programs whose statements are all in cells, without a function that a guard calls.
WITHOUT_MAIN = [
    *("any_of_flags", "background_saves", "checkpoint_per_rank", "chosen_teacher", "digits_ddp", "library_start"),
    *("positional_sampler", "samplers_first", "subgroup_broadcast", "unused_on_main"),
]
SAVES = "torch.save(torch.ones(3), 'last.pt')\n"
GROUP = "import torch\nimport torch.distributed as dist\ndist.init_process_group('nccl')\n"


def notebook(text: str, path: Path) -> Path:
    """Write a script as a notebook with a cell for each statement."""
    lines, at = text.splitlines(keepends=True), 0
    sources: list[list[str]] = []
    for statement in ast.parse(text).body:
        sources.append(lines[at : statement.end_lineno])
        at = statement.end_lineno or at
    cells = [{"cell_type": "code", "source": source, "metadata": {}, "outputs": []} for source in sources]
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    return path


def rules(path: Path) -> list[str]:
    return sorted(each.rule for each in review_file(path, KNOWLEDGE))


@pytest.mark.parametrize("name", WITHOUT_MAIN)
def test_cells_have_the_findings_of_the_script(name: str, tmp_path: Path) -> None:
    for kind in ("broken", "healthy"):
        text = (PROGRAMS / kind / f"{name}.py").read_text()
        script = tmp_path / f"{name}.py"
        script.write_text(text)
        found = rules(script)
        assert bool(found) is (kind == "broken")
        assert rules(notebook(text, tmp_path / "cells.ipynb")) == found


def test_cells_that_make_a_process_group_are_of_several_ranks(tmp_path: Path) -> None:
    text = GROUP + "model = torch.nn.Linear(2, 2).cuda()\n" + SAVES
    assert rules(notebook(text, tmp_path / "cells.ipynb")) == ["DW102", "DW501"]
    one = text.replace("('nccl')", "('nccl', rank=0, world_size=1)")
    assert rules(notebook(one, tmp_path / "cells.ipynb")) == []


def test_cells_that_a_library_sets_up_run_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "ranks.py").write_text(GROUP.replace("dist.init", "def start():\n    dist.init"))
    text = "import torch\nfrom ranks import start\nstart()\n" + SAVES
    assert rules(notebook(text, tmp_path / "cells.ipynb")) == []
    script = tmp_path / "train.py"
    script.write_text(text)
    assert rules(script) == ["DW501"]


def test_function_of_a_cell_is_not_found_by_a_new_process(tmp_path: Path) -> None:
    text = "import torch.distributed as dist\nimport torch.multiprocessing as mp\n\ndef work(rank):\n"
    text += "    dist.init_process_group('gloo', rank=rank, world_size=2)\n\nmp.spawn(work, nprocs=2)\n"
    found = [each for each in review_file(notebook(text, tmp_path / "cells.ipynb"), KNOWLEDGE) if each.rule == "DW466"]
    assert [each for each in found if "module" in each.message and "__main__" not in each.message]
    assert "DW466" not in rules(
        notebook(text.replace("nprocs=2", "nprocs=2, start_method='fork'"), tmp_path / "f.ipynb")
    )
