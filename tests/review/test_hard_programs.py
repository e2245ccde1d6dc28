"""Programs that are hard to follow: imports in circles, deep nesting, unusual text."""

import ast
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest
from ddpwizard.app.review.file_review import review_or_skip
from ddpwizard.app.review.settings import ReviewSettings
from ddpwizard.app.review.types import ReviewedFile
from helpers.built_in_knowledge import built_in_knowledge

KNOWLEDGE = built_in_knowledge()
START = "import torch\nimport torch.distributed as dist\ndist.init_process_group('gloo')\nrank = dist.get_rank()\n"
BUG = "if rank == 0:\n    dist.barrier()\n"
DIST = "import torch.distributed as dist\n"


def nested(line: str, count: int, inside: str) -> str:
    """Return ``count`` compound statements inside of each other."""
    return "".join(f"{' ' * n}{line.format(n=n)}\n" for n in range(count)) + " " * count + inside + "\n"


NO_FILES: Mapping[str, str] = MappingProxyType({})


class Hard(NamedTuple):
    """The text of ``train.py`` behind ``START``, the other files, and the rules that find something."""

    code: str
    files: Mapping[str, str] = NO_FILES
    rules: tuple[str, ...] = ()


FOUND = ("DW401",)
PROGRAMS = {
    "two files that import each other": Hard(
        "from b import g\ndef f():\n    g()\nif rank == 0:\n    f()\n",
        {"b.py": f"{DIST}from train import f\ndef g():\n    f()\n    dist.barrier()\n"},
        FOUND,
    ),
    "star imports in a circle": Hard(
        "from b import *\nif rank == 0:\n    g()\n",
        {"b.py": f"{DIST}from c import *\n", "c.py": f"{DIST}from b import *\nfrom train import *\ng = dist.barrier\n"},
        FOUND,
    ),
    "a file that imports itself": Hard("from train import *\nimport train\ntrain.train.train.f()\n" + BUG, rules=FOUND),
    "a package that imports its parts, which import it": Hard(
        "from p import f, M\nM().run()\nif rank == 0:\n    f()\n",
        {
            "p/__init__.py": f"{DIST}from .m import *\nfrom .q import *\nfrom . import p\nfrom ....... import x\n",
            "p/m.py": f"{DIST}from . import *\nfrom .n import *\nclass M(N):\n    pass\n",
            "p/n.py": f"{DIST}from .m import M\nclass N(M):\n    def run(self):\n        self.run()\n",
            "p/q/__init__.py": f"{DIST}from .. import *\nfrom ..q import *\ndef f():\n    dist.barrier()\n",
        },
        FOUND,
    ),
    "classes that inherit from each other": Hard(
        "from b import B\nclass A(B): pass\nA().run()\n" + BUG,
        {"b.py": f"{DIST}from train import A\nclass B(A): pass\n"},
        FOUND,
    ),
    "names for themselves": Hard(
        "x = y\ny = x\nx.f()\ng = lambda: g()\ng()\nclass C:\n    d = C\n    def __getattr__(self, name):\n"
        "        return getattr(self, name)\nC().q.r\ndef deco(f): return deco(deco)(f)\n@deco\n@deco\ndef h(): h(h)\n"
        + BUG,
        rules=FOUND,
    ),
    "a class that makes itself": Hard(
        "class M(type):\n    def __call__(cls, *a): return cls(*a)\nclass A(metaclass=M):\n"
        "    def __init__(self, *a): A(*a)\n    def __new__(cls): return A()\nA(1)\n" + BUG,
        rules=FOUND,
    ),
    "190 parentheses": Hard(f"x = {'(' * 190}rank{')' * 190}\n{BUG}", rules=FOUND),
    "90 conditions": Hard(nested("if rank == {n}:", 90, "dist.barrier()")),
    "90 functions": Hard(nested("def f{n}():", 90, "dist.barrier()")),
    "19 loops": Hard(nested("for x{n} in range(rank):", 19, "dist.barrier()"), rules=("DW217",)),
    "80 comprehensions": Hard(f"x = {'[' * 80}rank{' for i in y]' * 80}\n{BUG}", rules=FOUND),
    "400 additions": Hard(f"x = {' + '.join(['rank'] * 400)}\n{BUG}", rules=FOUND),
    "900 elif": Hard(
        "if x:\n    pass\n" + "".join(f"elif x == {n}:\n    pass\n" for n in range(900)) + BUG, rules=FOUND
    ),
    "2,000 terms": Hard(f"if {' and '.join(['rank == 0 or x'] * 2000)}:\n    dist.barrier()\n", rules=FOUND),
    "1,000 returns": Hard(
        "def f(x):\n" + "".join(f"    if x == {n}:\n        return 1\n" for n in range(1000)) + "f(rank)\n" + BUG,
        rules=FOUND,
    ),
    "a set of 200 texts": Hard(
        f"x = {{{', '.join(map(repr, map(str, range(200))))}}}\ny = {{*x, 'b'}}\n{BUG}", rules=FOUND
    ),
    "a variable that doubles": Hard("b = rank\n" + "b = b * b\n" * 1000 + "if b:\n    dist.barrier()\n"),
    "a string of a megabyte": Hard(f"x = '{'a' * 1_000_000}'\n{BUG}", rules=FOUND),
    "half a character": Hard("x = '\\ud800'\n" + BUG, rules=FOUND),
    "a condition over several lines": Hard("if rank \\\n  == 0:\n    dist \\\n    .barrier()\n", rules=FOUND),
    "several statements on a line": Hard("x = 1; y = 2\nif rank == 0: dist.barrier(); dist.barrier()\n", rules=FOUND),
    "old newlines": Hard(BUG.replace("\n", "\r"), rules=FOUND),
    "form feeds": Hard("\x0c\nx = 1\x0c\n" + BUG, rules=FOUND),
    "no last newline": Hard(BUG.rstrip("\n"), rules=FOUND),
    "only comments": Hard("# rank\n# dist.barrier()"),
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "setup.cfg").write_text("")
    return tmp_path


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_review_ends_with_patches_that_parse(name: str, directory: Path) -> None:
    hard = PROGRAMS[name]
    for path, text in {"train.py": START + hard.code, **hard.files}.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(text.encode())
    rules: set[str] = set()
    for path in ("train.py", *hard.files):
        reviewed = review_or_skip(directory / path, ReviewSettings(), KNOWLEDGE, ("safe", "unsafe"))
        assert isinstance(reviewed, ReviewedFile), reviewed
        if reviewed.patched:
            ast.parse(reviewed.patched.after)
        rules |= {finding.rule for finding in reviewed.findings} if path == "train.py" else set()
    assert rules == set(hard.rules)


LONG = {
    "lines": "x = rank + 1\nif x:\n    y = x\n" * 16_700,
    "functions": "".join(
        f"def f{n}(a):\n    if a == {n}:\n        dist.all_reduce(a)\n    f{n}(a)\n" for n in range(12_500)
    ),
    "values": f"x = [{', '.join(f'({n}, rank)' for n in range(50_000))}]\n",
}


@pytest.mark.calibration
@pytest.mark.parametrize("name", LONG)
def test_50_000_lines_are_reviewed_or_left_out_in_part(name: str, directory: Path) -> None:
    (directory / "train.py").write_text(START + LONG[name])
    assert isinstance(review_or_skip(directory / "train.py", ReviewSettings(), KNOWLEDGE), ReviewedFile)
