"""Conditions on the rank in other files, shown at the calls of the scripts that lead to them, each once."""

from pathlib import Path

import pytest
from ddpwizard.app.review.files import FoundFile
from ddpwizard.app.review.many_files import review_files
from ddpwizard.app.review.settings import ReviewSettings
from ddpwizard.app.review.types import ReviewedFile
from helpers.review_snippets import KNOWLEDGE

MAIN = """\
import torch
import torch.distributed as dist
{imports}

def main():
    dist.init_process_group("gloo")
    {body}

if __name__ == "__main__":
    main()
"""
METER = """\
import torch
import torch.distributed as dist

class Meter:
    def __init__(self):
        self.total = 0.0

    def average(self):
        total = torch.tensor(self.total)
        dist.all_reduce(total)
        return total.item()
"""
LOG = """\
class Log:
    def __init__(self, enabled):
        self.enabled = enabled

    def write(self, values):
        if not self.enabled:
            return
        for name, value in values.items():
            print(name, {shown})
"""
BASE = """\
import torch.distributed as dist

class Trainer:
    def fit(self):
        for epoch in range(3):
            {call}

    def validate(self):
        raise NotImplementedError
"""
VISION = """\
import torch
import torch.distributed as dist
from parts.base import Trainer

class Vision(Trainer):
    def validate(self):
        loss = torch.ones(1)
        dist.all_reduce(loss)
        return loss.item()
"""
HOOKS = """\
import torch.distributed as dist

class Hooks:
    def __init__(self, hooks):
        self.hooks = hooks if {chosen} else []

    def call(self):
        for hook in self.hooks:
            hook.run()

class Barrier:
    def run(self):
        dist.barrier()
"""
DECORATOR = """\
import functools
import torch.distributed as dist

def first(function):
    @functools.wraps(function)
    def inner(*args):
        {body}
    return inner
"""
REPORT = """\
import torch.distributed as dist
from deco import first

@first
def report(loss):
    dist.all_reduce(loss)
"""
PROJECTS: dict[str, tuple[str, str, dict[str, str], dict[str, str]]] = {
    "a log of rank 0 that computes": (
        "from log import Log\nfrom meter import Meter",
        "Log(dist.get_rank() == 0).write({'loss': Meter()})",
        {"log.py": LOG.format(shown="value.average()"), "meter.py": METER},
        {"log.py": LOG.format(shown="value"), "meter.py": METER},
    ),
    "a method of a class below": (
        "from parts.vision import Vision",
        "Vision().fit()",
        {
            "parts/__init__.py": "",
            "parts/base.py": BASE.format(call="if dist.get_rank() == 0:\n                print(self.validate())"),
            "parts/vision.py": VISION,
        },
        {
            "parts/__init__.py": "",
            "parts/base.py": BASE.format(
                call="loss = self.validate()\n            if dist.get_rank() == 0:\n                print(loss)"
            ),
            "parts/vision.py": VISION,
        },
    ),
    "hooks of one rank": (
        "from hooks import Barrier, Hooks",
        "Hooks([Barrier()]).call()",
        {"hooks.py": HOOKS.format(chosen="dist.get_rank() == 0")},
        {"hooks.py": HOOKS.format(chosen="dist.is_initialized()")},
    ),
    "a decorator of another file": (
        "from report import report",
        "report(torch.ones(1))",
        {
            "deco.py": DECORATOR.format(body="if dist.get_rank() == 0:\n            function(*args)"),
            "report.py": REPORT,
        },
        {"deco.py": DECORATOR.format(body="function(*args)"), "report.py": REPORT},
    ),
}


def reviewed(folder: Path, files: dict[str, str]) -> dict[str, list[str]]:
    """Return the rules of the errors and warnings in each file of a project that has some."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    paths = [FoundFile(path, ReviewSettings()) for path in sorted(folder.rglob("*.py"))]
    found = [each for each in review_files(paths, KNOWLEDGE) if isinstance(each, ReviewedFile)]
    shown = {
        str(Path(each.path).relative_to(folder)): [
            finding.rule for finding in each.findings if finding.severity != "info"
        ]
        for each in found
    }
    return {name: rules for name, rules in shown.items() if rules}


@pytest.mark.parametrize(("imports", "body", "bad", "good"), PROJECTS.values(), ids=PROJECTS.keys())
def test_a_condition_of_another_file_is_found_once(
    tmp_path: Path, imports: str, body: str, bad: dict[str, str], good: dict[str, str]
) -> None:
    main = {"main.py": MAIN.format(imports=imports, body=body)}
    ((_, (rule,)),) = reviewed(tmp_path, main | bad).items()
    assert rule in ("DW401", "DW403", "DW404")
    assert reviewed(tmp_path, main | good) == {}


def test_of_several_scripts_that_lead_to_one_condition_the_first_shows_it(tmp_path: Path) -> None:
    imports, body, bad, _ = PROJECTS["a method of a class below"]
    main = MAIN.format(imports=imports, body=body)
    assert [*reviewed(tmp_path, {"eval.py": main, "main.py": main} | bad)] == ["eval.py"]


def test_a_counter_that_lets_all_ranks_pass_by_is_not_found(tmp_path: Path) -> None:
    helper = """\
import os
import torch.distributed as dist
ALONE = 0

def once(function):
    global ALONE
    ALONE += 1
    if int(os.environ["LOCAL_RANK"]) == 0:
        function()
    ALONE -= 1

def wait():
    if ALONE >= 1 or not dist.is_initialized():
        return
    dist.barrier()
"""
    main = MAIN.format(imports="from helper import once, wait", body="once(prepare)") + "\n"
    main = main.replace("def main", "def prepare():\n    print(1)\n    wait()\n\n\ndef main")
    assert reviewed(tmp_path, {"main.py": main, "helper.py": helper}) == {}


def test_a_script_without_words_of_ranks_is_read_where_its_project_starts_them(tmp_path: Path) -> None:
    files = {
        "main.py": "from comm import start\nfrom keep import Keeper\n\nif __name__ == '__main__':\n    start()\n"
        "    Keeper('out').save(1)\n",
        "comm.py": "import torch.distributed as dist\n\ndef start():\n    dist.init_process_group('gloo')\n",
        "keep.py": "import torch\n\nclass Keeper:\n    def __init__(self, folder):\n        self.folder = folder\n"
        "    def save(self, state):\n        torch.save(state, self.folder + '/last.pt')\n",
    }
    assert reviewed(tmp_path, files) == {"main.py": ["DW501"]}


def test_what_a_module_does_on_ranks_that_its_script_chooses_is_not_of_all(tmp_path: Path) -> None:
    keep = """\
import glob
import os
import torch.distributed as dist

class Keeper:
    def __init__(self, writes):
        self.writes = writes

    def prune(self):
        if self.writes:
            for path in sorted(glob.glob("out/*.pt"))[:-2]:
                os.remove(path)
        dist.barrier()
"""
    body = "Keeper({}).prune()"
    for chosen, rules in (("dist.get_rank() == 0", {}), ("True", {"keep.py": ["DW412"]})):
        main = MAIN.format(imports="from keep import Keeper", body=body.format(chosen))
        assert reviewed(tmp_path, {"main.py": main, "keep.py": keep}) == rules
