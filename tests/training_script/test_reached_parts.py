"""Programs that reach nothing for several ranks, in which no rule can find anything, are not evaluated."""

from pathlib import Path

import ddpwizard
import pytest
from ddpwizard.app.review.fact_rules import check_facts
from ddpwizard.app.review.rule_context import Script
from ddpwizard.app.review.rules import device_by_global_rank, divergences
from ddpwizard.app.training_script.model.reached_parts import is_of_several
from ddpwizard.app.training_script.model.runs import find_runs
from ddpwizard.app.training_script.model.sequences import Event

LABS = sorted(Path(ddpwizard.__file__).parent.glob("knowledge/labs/*/*.py"))
TOOLS = """\
import torch.distributed as dist
from torch.distributed import *

def size(model):
    return sum(each.numel() for each in model.parameters())

def average(tensor):
    dist.all_reduce(tensor)

def log(text):
    print(text, len(text))

def averaging(function):
    return lambda tensor: average(function(tensor))

class Meter:
    def update(self, value):
        self.total = value

    def total_of_all(self):
        average(self.total)

    def __enter__(self):
        barrier()

class Named(Meter):
    pass

average_later = average
"""
WITHOUT = {
    "a function without a collective": "import tools\ndef run(model):\n    return tools.size(model)\n",
    "an import that nothing uses": "import tools\ndef run():\n    return 1\n",
    "a class of which nothing is asked": "from tools import log\ndef run(meter):\n    log(meter.update(1))\n",
    "a module that is asked for a name": "import torch\ndef run():\n    return hasattr(torch, 'compile')\n",
    "a name of an accelerator that is no role": "def run():\n    accelerator = make()\n    accelerator.gather()\n",
    "an accelerator that has no rank": "def run(accelerator, loss):\n    loss.backward()\n    accelerator.sync()\n",
}
WITH = {
    "a function": "import tools\ndef run(value):\n    tools.average(value)\n",
    "another name": "from tools import average as mean\ndef run(value):\n    mean(value)\n",
    "another name there": "import tools\ndef run(value):\n    tools.average_later(value)\n",
    "a method": "from tools import Meter\ndef run():\n    Meter().total_of_all()\n",
    "a method of the class above": "from tools import Named\ndef run():\n    Named().total_of_all()\n",
    "a block": "from tools import Named\ndef run():\n    with Named():\n        pass\n",
    "a decorator": "from tools import averaging\n@averaging\ndef run(value):\n    return value\n",
    "a function that is handed on": "import tools\ndef run(each, values):\n    each(tools.average, values)\n",
    "a text": "import tools\ndef run(value):\n    getattr(tools, 'average')(value)\n",
    "all names of a module": "from tools import *\ndef run(value):\n    average(value)\n",
    "all names of a library": "from torch.distributed import *\ndef run(value):\n    all_reduce(value)\n",
    "a library under another name": "import torch\ncomm = torch.distributed\ndef run(x):\n    comm.barrier()\n",
    "an import in a function": "def run(value):\n    from tools import average\n    average(value)\n",
    "an object by the name of a parameter": "def run(accelerator, loss):\n    accelerator.backward(loss)\n",
    "an object by the name of an attribute": "def run(self, x):\n    held = self.accelerator\n    held.gather(x)\n",
    "a class of a trainer": "from transformers import Trainer\nclass Own(Trainer):\n    pass\n",
    "a sharded tensor": "def run(tensor):\n    return tensor.full_tensor()\n",
    "a mesh": "from torch.distributed.device_mesh import init_device_mesh\nmesh = init_device_mesh('cuda', (2,))\n",
}


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Return the place of a script next to a module that communicates."""
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    (tmp_path / "tools.py").write_text(TOOLS)
    return tmp_path / "train.py"


@pytest.mark.parametrize("text", WITHOUT.values(), ids=WITHOUT)
def test_a_program_that_reaches_nothing_for_several_ranks(script: Path, text: str) -> None:
    script.write_text(text)
    assert not is_of_several(script)
    assert not Script(text, str(script)).is_of_several


@pytest.mark.parametrize("text", WITH.values(), ids=WITH)
def test_a_program_that_reaches_something_for_several_ranks(script: Path, text: str) -> None:
    script.write_text(text)
    assert is_of_several(script)
    assert Script(text, str(script)).is_of_several


def test_the_text_of_a_script_counts_rather_than_its_file(script: Path) -> None:
    script.write_text(WITHOUT["an import that nothing uses"])
    assert Script(WITH["a function"], str(script)).is_of_several


@pytest.mark.parametrize("text", WITHOUT.values(), ids=WITHOUT)
def test_a_program_that_reaches_nothing_for_several_ranks_is_not_evaluated(script: Path, text: str) -> None:
    reviewed = Script(f"import torch\n{text}    device = torch.device('cuda')\n", str(script))
    assert reviewed.has_ranks
    assert [*divergences.check(reviewed), *check_facts(reviewed), *device_by_global_rank.check(reviewed)] == []
    assert "evaluated" not in vars(reviewed)


@pytest.mark.parametrize("path", LABS, ids=lambda path: path.parent.name)
def test_what_an_evaluation_comes_to_is_reached(path: Path) -> None:
    reviewed = Script(path.read_text(), str(path))
    runs = find_runs(reviewed.evaluated)
    if any(run.evidence or any(isinstance(each.fact, Event) for each in run.reached) for run in runs):
        assert reviewed.is_of_several
