"""Divergences in a module that depend on what the scripts of its project pass to its functions."""

import ast
from pathlib import Path
from typing import Any

import pytest
from ddpwizard.app.review.rule_context import Script
from ddpwizard.app.training_script.model import users

SCORE = """\
import torch.distributed as dist

def score(net, batches):
    if dist.get_rank() > 0:
        return None
    return sum(net(batch).sum() for batch in batches)
"""
MAIN = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from tools.scoring import score

def main():
    dist.init_process_group("gloo")
    net = DistributedDataParallel(torch.nn.Linear(2, 2))
    print(score(net, [torch.ones(1, 2)]))

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """Return a module of a project whose script is at the top."""
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    (tmp_path / "train.py").write_text(MAIN)
    (tmp_path / "tools").mkdir()
    path = tmp_path / "tools" / "scoring.py"
    path.write_text(SCORE)
    return path


def lines(path: Path, text: str) -> list[int]:
    """Return the lines of the events that some ranks do not reach."""
    return [each.first.site.line for each in Script(text, str(path)).divergences_in_use]


def test_a_wrapped_model_that_a_script_passes_is_known_in_the_module(module: Path) -> None:
    assert Script(SCORE, str(module)).divergences.found == []
    assert lines(module, SCORE) == [6]


def test_a_module_that_uses_no_library_is_followed_in_the_script_that_does(module: Path) -> None:
    module.write_text("def score(net, rank):\n    if rank > 0:\n        return\n    net(1)\n")
    (module.parent.parent / "train.py").write_text(MAIN.replace("[torch.ones(1, 2)]", "dist.get_rank()"))
    assert lines(module, module.read_text()) == [4]


def test_a_model_that_the_script_unwraps_parts_no_ranks(module: Path) -> None:
    script = module.parent.parent / "train.py"
    script.write_text(MAIN.replace("score(net,", "score(net.module,"))
    assert lines(module, SCORE) == []


def test_the_text_of_the_module_counts_before_its_file(module: Path) -> None:
    assert lines(module, SCORE.replace("net(batch)", "net.module(batch)")) == []
    assert lines(module, "\n" + SCORE) == [7]


def test_a_changed_script_is_read_again(module: Path) -> None:
    assert lines(module, SCORE) == [6]
    (module.parent.parent / "train.py").write_text(MAIN.replace("score(net", "print(net") + "\n")
    assert lines(module, SCORE) == []


def test_a_reviewed_script_is_not_evaluated_again(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Script(MAIN, str(module.parent.parent / "train.py")).divergences.complete
    reviewed = Script(SCORE, str(module))
    assert reviewed.evaluated.complete
    monkeypatch.setattr(users, "Evaluated", None)
    assert [each.first.site.line for each in reviewed.divergences_in_use] == [6]


def test_a_script_that_does_not_come_to_a_module_is_evaluated_once_for_all(
    module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = module.with_name("other.py")
    other.write_text(SCORE)
    (module.parent.parent / "train.py").write_text("from torch import other\n" + MAIN)
    evaluated: list[Path] = []

    class Counted(users.Evaluated):
        def __init__(self, tree: ast.Module, path: Path, *rest: str, **options: Any) -> None:
            evaluated.append(path)
            super().__init__(tree, path, *rest, **options)

    monkeypatch.setattr(users, "Evaluated", Counted)
    tree = ast.parse(SCORE)
    with users.unchanged_files():
        assert len(users.evaluated_in_use(tree, module)) == 1
        assert users.evaluated_in_use(tree, other) == []
    assert len(evaluated) == 1


def test_a_script_is_evaluated_once_for_the_modules_that_it_uses(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other_score = "from tools.loss import score as other\nother(None, [])\n"
    (module.parent.parent / "train.py").write_text(MAIN + other_score)
    other = module.with_name("loss.py")
    other.write_text(SCORE)
    evaluate, evaluated = users.Evaluated, list[Path]()

    def evaluate_noted(tree: ast.Module, path: Path, *args: Any, **options: Any) -> users.Evaluated:
        evaluated.append(path)
        return evaluate(tree, path, *args, **options)

    monkeypatch.setattr(users, "Evaluated", evaluate_noted)
    with users.unchanged_files():
        for path in (other, module):
            script = Script(SCORE, str(path))
            assert [each.source.path for each in script.in_use] == [str(path)]
            script.forget()
        assert evaluated == [module.parent.parent / "train.py"]


def test_another_text_of_a_module_is_evaluated_for_itself(module: Path) -> None:
    changed = SCORE.replace("> 0", "> 1")
    with users.unchanged_files():
        kept, tried = Script(SCORE, str(module)), Script(changed, str(module))
        (of_file,), (of_text,) = kept.in_use, tried.in_use
        assert of_text.evaluated is not of_file.evaluated
        tried.forget()
        assert of_file.runs
        kept.forget()


def test_a_script_that_imports_another_module_of_the_same_name_does_not_read_this_one(module: Path) -> None:
    script = module.parent.parent / "train.py"
    (script.parent / "other").mkdir()
    (script.parent / "other" / "scoring.py").write_text(SCORE)
    script.write_text(MAIN.replace("tools.scoring", "other.scoring"))
    other = script.parent / "other" / "scoring.py"
    with users.unchanged_files():
        assert users.readers(module) == users.readers(other) == [script]
        assert lines(module, SCORE) == []
        assert lines(other, SCORE) == [6]
        assert users.readers(module) == []
        assert users.readers(other) == [script]


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("def main(): ...\nmain()\n", True),
        ("async def main(): ...\nmain()\n", True),
        ("def main(): ...\n", False),
        ("def main_loop(): ...\nmain()\n", False),
        ("def main(): ...\n    main()\n", False),
        ("if __name__ == '__main__':\n    pass\n", True),
    ],
)
def test_a_file_that_calls_a_function_of_its_own_is_a_script(text: str, runs: bool) -> None:
    assert users.runs_as_script(text) is runs
