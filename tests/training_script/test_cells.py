"""Notebooks as Python text, and edits of that text as edits of the file."""

import json
from typing import Any

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.review.patches.apply_edits import apply_edits
from ddpwizard.app.training_script.cells import Notebook, read_notebook
from ddpwizard.app.training_script.edits import Edit
from hypothesis import given
from hypothesis import strategies as st


def code(source: str | list[str]) -> dict[str, Any]:
    """Return a code cell."""
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": source}


def notebook(*cells: dict[str, Any], indent: int | None = 1, **metadata: Any) -> str:
    """Return the text of a notebook."""
    document = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(document, indent=indent, ensure_ascii=False) + "\n"


MARKDOWN = {"cell_type": "markdown", "metadata": {}, "source": ["# Title"]}
MIXED = notebook(
    MARKDOWN,
    code(
        [
            "%matplotlib inline\n",
            "!pip install \\\n",
            "  torch\n",
            "import torch\n",
            "x = ('%s'\n",
            "%  3)\n",
            "torch.nn?",
        ]
    ),
    code("%%bash\nls -l"),
    code(["%%time\n", "if x:\n", "    %ls\n", "files = !ls"]),
    code([]),
    code(["y = 1\n", "z = 'é'"]),
)


def own_code(text: str) -> Notebook:
    """Return the code that a notebook runs itself."""
    return read_notebook(text, "t.ipynb")[0]


def edited(text: str, old: str, new: str) -> str:
    """Return a notebook in which a piece of code is replaced."""
    read = own_code(text)
    at = read.code.index(old)
    after = apply_edits(text, read.edits_of_file([Edit(at, at + len(old), new)]))
    json.loads(after)
    return after


def changed_lines(before: str, after: str) -> tuple[list[str], list[str]]:
    """Return the lines that are only in one of two texts."""
    old, new = before.splitlines(), after.splitlines()
    return [line for line in old if line not in new], [line for line in new if line not in old]


def test_lines_of_ipython_and_cells_in_other_languages_are_no_code() -> None:
    assert own_code(MIXED).code.splitlines() == [
        *("pass", "pass", "", "import torch", "x = ('%s'", "%  3)", "pass"),
        *("pass", "if x:", "    pass", "pass"),
        *("y = 1", "z = 'é'"),
    ]


def test_place_of_a_line_is_its_cell_and_the_line_of_the_file() -> None:
    read = own_code(MIXED)
    place = read.place(read.code.splitlines().index("y = 1") + 1)
    assert (place.cell, place.line) == (6, 1)
    assert MIXED.splitlines()[place.file_line - 1].strip() == '"y = 1\\n",'
    assert read.lines[0] == "%matplotlib inline"


@pytest.mark.parametrize(
    ("old", "new", "gone", "added"),
    [
        ("y = 1\n", "", ['"y = 1\\n",'], []),
        ("y = 1", "y = 2", ['"y = 1\\n",'], ['"y = 2\\n",']),
        ("z = 'é'\n", "q\nr\n", ["\"z = 'é'\""], ['"q\\n",', '"r"']),
        ("import torch\n", "import torch\nimport os\n", [], ['"import os\\n",']),
    ],
)
def test_edit_changes_only_its_lines_in_the_file(old: str, new: str, gone: list[str], added: list[str]) -> None:
    removed, inserted = changed_lines(MIXED, edited(MIXED, old, new))
    assert [line.strip() for line in removed] == gone
    assert [line.strip() for line in inserted] == added


def test_edit_of_a_source_that_is_one_string_and_of_one_line_files() -> None:
    text = notebook(code("a = 1\nb = 2"), indent=None)
    assert edited(text, "a = 1", "a = 3") == text.replace("a = 1", "a = 3")
    assert edited(text, "b = 2\n", "") == text.replace("\\nb = 2", "")


def test_line_behind_the_last_one_is_a_line_of_its_own() -> None:
    text = notebook(code(["a = 1"]))
    read = own_code(text)
    end = len(read.code)
    after = apply_edits(text, read.edits_of_file([Edit(end, end, "b = 2\n")]))
    assert json.loads(after)["cells"][0]["source"] == ["a = 1\n", "b = 2"]


def test_edits_that_cannot_be_made_in_the_file_are_refused() -> None:
    with pytest.raises(UserError, match="several cells"):
        edited(MIXED, "pass\ny = 1", "")
    with pytest.raises(UserError, match="line of IPython"):
        edited(MIXED, "    pass\n", "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "t.ipynb:1: .*not a valid notebook"),
        ("[" * 100_000, "nested too deeply: not a valid notebook"),
        ("[]", "without cells"),
        ('{"cells": 3}', "without cells"),
        (notebook(language_info={"name": "R"}), "a notebook in r"),
        (notebook(kernelspec={"language": "julia"}), "a notebook in julia"),
        (notebook(MARKDOWN, code(["x = 1\n", "y ="])), "t.ipynb:cell 2:2: not valid Python"),
    ],
)
def test_what_is_no_python_notebook_is_refused_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        own_code(text)


@given(st.lists(st.lists(st.sampled_from(["x = 1", "y = '\\\\'", "# é \u2028", "%ls", ""]), max_size=4), max_size=4))
def test_every_replaced_line_reads_back(cells: list[list[str]]) -> None:
    text = notebook(*(code("\n".join(lines).splitlines(keepends=True)) for lines in cells))
    read = own_code(text)
    for number, line in enumerate(read.code.split("\n")[:-1], 1):
        assert line in (read.lines[number - 1], "pass")
        if line == "x = 1":
            at = sum(len(each) + 1 for each in read.code.split("\n")[: number - 1])
            after = own_code(apply_edits(text, read.edits_of_file([Edit(at, at + 5, "z = 22")])))
            assert after.code == read.code[:at] + "z = 22" + read.code[at + 5 :]


WRITTEN = notebook(
    code(["%%writefile train.py\n", "import torch\n", "x = 1\n"]),
    code("import torch\n!torchrun train.py"),
    code(["%%writefile -a train.py\n", "y = x\n"]),
    code(["%%writefile other/model.py\n", "x = 2"]),
    code("%%writefile notes.md\n# Title"),
)


def test_scripts_that_cells_write_are_read_each_on_its_own() -> None:
    parts = read_notebook(WRITTEN, "t.ipynb")
    assert [part.code for part in parts] == ["import torch\npass\n", "\nimport torch\nx = 1\n\ny = x\n", "\nx = 2\n"]
    assert parts[1].place(5)[:2] == (3, 2)
    at = parts[1].code.index("y = x")
    after = apply_edits(WRITTEN, parts[1].edits_of_file([Edit(at, at + 5, "y = 3")]))
    assert changed_lines(WRITTEN, after) == (['    "y = x\\n"'], ['    "y = 3\\n"'])


def test_line_that_names_the_written_file_is_not_changed() -> None:
    script = read_notebook(WRITTEN, "t.ipynb")[1]
    with pytest.raises(UserError, match="IPython"):
        script.edits_of_file([Edit(0, 1, "x = 3\n")])


def test_written_script_that_is_no_python_is_refused_with_its_cell() -> None:
    with pytest.raises(UserError, match=r"t\.ipynb:cell 1:2: not valid Python"):
        read_notebook(notebook(code("%%writefile a.py\nprint 1")), "t.ipynb")
