"""Patches of conditions and calls that are written apart first: exits, expressions, functions that write."""

import shutil
import textwrap
from pathlib import Path

import pytest
from ddpwizard.app.review.file_review import review_file
from helpers.measured_programs import path_of
from helpers.patched_files import patch_program
from helpers.review_snippets import IMPORTS, KNOWLEDGE, refused, repaired

START = """
dist.init_process_group("gloo")
rank = dist.get_rank()
world = dist.get_world_size()
def mean(value):
    dist.all_reduce(value)
    return value / world
"""

PATCHED: dict[str, tuple[str, str, str]] = {
    "a round that some ranks leave": (
        "DW401",
        """
        for step in range(9):
            if step % 3 or rank > 0:
                continue
            # every third step
            total = mean(torch.ones(1))
            # for the log
            print(total)
        """,
        """
        for step in range(9):
            if not (step % 3):
                # every third step
                total = mean(torch.ones(1))
                if rank <= 0:
                    # for the log
                    print(total)
        """,
    ),
    "ranks that end as the others do": (
        "DW404",
        """
        def finish():
            if rank != 0:
                dist.destroy_process_group()
                return
            total = mean(torch.ones(1))
            print(total)
            dist.destroy_process_group()
        finish()
        """,
        """
        def finish():
            total = mean(torch.ones(1))
            if rank == 0:
                print(total)
            dist.destroy_process_group()
        finish()
        """,
    ),
    "a call in a message": (
        "DW401",
        """
        if rank == 0:
            print(f"mean {mean(torch.ones(1)).item():.2f}")
        """,
        """
        result = mean(torch.ones(1))
        if rank == 0:
            print(f"mean {result.item():.2f}")
        """,
    ),
    "a choice": (
        "DW401",
        """
        best = mean(torch.ones(1)) if rank == 0 else None
        """,
        """
        result = mean(torch.ones(1))
        best = result if rank == 0 else None
        """,
    ),
    "a short form of a condition": (
        "DW401",
        """
        rank == 0 and dist.barrier()
        """,
        """
        dist.barrier()
        """,
    ),
    "a function that gathers and writes": (
        "DW401",
        """
        def save(value, path):
            total = mean(value)
            with open(path, "w") as file:
                file.write(str(total))
            print(total)
        if rank == 0:
            save(torch.ones(1), "total.txt")
        """,
        """
        def save(value, path):
            total = mean(value)
            if not dist.is_initialized() or dist.get_rank() == 0:
                with open(path, "w") as file:
                    file.write(str(total))
            print(total)
        save(torch.ones(1), "total.txt")
        """,
    ),
}

REFUSED: dict[str, tuple[str, str, str]] = {
    "a call for each of several elements": (
        "DW401",
        """
        if rank == 0:
            print([mean(each) for each in [torch.ones(1), torch.ones(2)]])
        """,
        "has an effect",
    ),
    "a choice of what writes": (
        "DW401",
        """
        def save():
            total = mean(torch.ones(1))
            torch.save(total, "total.pt")
        done = save() if rank == 0 else None
        """,
        "part of an expression",
    ),
    "a function that returns what it has written": (
        "DW401",
        """
        def save(path):
            total = mean(torch.ones(1))
            written = open(path, "w")
            return written
        if rank == 0:
            save("total.txt")
        """,
        "also writes",
    ),
    "a function that another rank than the first calls": (
        "DW401",
        """
        def save(path):
            total = mean(torch.ones(1))
            torch.save(total, path)
        if rank == 1:
            save("total.pt")
        """,
        "also writes",
    ),
    "ranks that end in another way": (
        "DW404",
        """
        def finish():
            if rank != 0:
                print("done")
                return
            print(mean(torch.ones(1)))
            dist.destroy_process_group()
        finish()
        """,
        "more than leave",
    ),
}


@pytest.mark.parametrize("name", PATCHED)
def test_patch(name: str) -> None:
    rule, before, after = PATCHED[name]
    assert repaired(START + textwrap.dedent(before), rule) == START + textwrap.dedent(after)


@pytest.mark.parametrize("name", REFUSED)
def test_no_patch(name: str) -> None:
    rule, code, reason = REFUSED[name]
    assert reason in refused(START + textwrap.dedent(code), rule)


def test_module_whose_users_show_the_collective_is_reviewed_with_its_new_text(tmp_path: Path) -> None:
    program = Path(shutil.copytree(path_of("broken", "progress_callbacks"), tmp_path / "program"))
    (done,) = patch_program(program)
    assert (done.rule, Path(done.path).name) == ("DW401", "hooks.py")


@pytest.mark.parametrize(
    ("also", "safety"), [("os.makedirs('states', exist_ok=True)", "unsafe"), ("os.remove('old.pt')", "display")]
)
def test_function_of_another_file_that_deletes_is_not_called_on_every_rank(
    also: str, safety: str, tmp_path: Path
) -> None:
    (tmp_path / "states.py").write_text(f"{IMPORTS}\ndef share(value):\n    {also}\n    dist.all_reduce(value)\n")
    script = tmp_path / "train.py"
    script.write_text(f"{IMPORTS}from states import share\n{START}if rank == 0:\n    share(torch.ones(1))\n")
    (found,) = review_file(script, KNOWLEDGE)
    assert found.fix
    assert (found.rule, found.fix.safety) == ("DW401", safety)
