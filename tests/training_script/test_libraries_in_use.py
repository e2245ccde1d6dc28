"""Programs that are evaluated because they use a library by which ranks communicate, and those that are not."""

from pathlib import Path

import pytest
from ddpwizard.app.training_script.model.libraries_in_use import IMPORT, LibrariesInUse, import_statements
from ddpwizard.app.training_script.source import ScriptSource

FILES = {
    "pyproject.toml": "",
    "tools/plain.py": "import json\nTEXT = '''\nimport torch\n'''\n",
    "tools/wrapped.py": "import \\\n    os, torch\n",
    "tools/role.py": "def save(accelerator):\n    accelerator.wait_for_everyone()\n",
    "tools/marked.py": "\ufeffimport torch\n",
    "tools/same_line.py": "if True: import torch\n",
    "tools/__init__.py": "from .plain import TEXT\n",
    "tools/chain.py": "from tools import wrapped as other\n",
    "cycle.py": "import cycle_back\n",
    "cycle_back.py": "from cycle import x\n",
    "broken.py": "import torch (\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("code", "uses"),
    [
        ("import torch.distributed as dist\n", True),
        ("def f():\n    from torch import nn\n", True),
        ("# import torch\nprint('import torch')\n", False),
        ("from tools.plain import TEXT\nimport tools.missing, json\n", False),
        ("import tools.wrapped as w\n", True),
        ("from tools import (\n    plain,\n    role,\n)\n", True),
        ("import tools.marked\n", True),
        ("import tools.same_line\n", True),
        ("from tools import chain\n", True),
        ("import cycle\n", False),
        ("def shown(accelerator):\n    print(accelerator)\n", False),
        ("import broken\n", False),
        ("class Mine(base.Trainer): ...\n", True),
    ],
)
def test_a_program_uses_a_library_if_a_file_of_it_imports_one(code: str, uses: bool, project: Path) -> None:
    script = project / "train.py"
    libraries = LibrariesInUse()
    for _ in range(2):  # what is kept gives the same
        assert libraries.uses_library(script, ScriptSource(code, str(script))) is uses


@pytest.mark.parametrize(
    "text",
    [
        "import a; import b\nx = 1; import c, d\n",
        "from a import (\n    b,  # import c\n    imported,\n)\nfrom .. import important\n",
        "if x: from a import b; import c\nimporting = {1: 2, 3: import_(4)}\n",
        "import a, \\\n    b\nfrom a import b, \\\n    c\n# import d\nprint('x: import e')\n",
        "from a import b import c\nfrom import a\nimport",
    ],
)
def test_imports_are_those_that_the_pattern_finds_in_the_text(text: str) -> None:
    assert [each.span() for each in import_statements(text)] == [each.span() for each in IMPORT.finditer(text)]
