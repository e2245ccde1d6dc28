"""Templates of generated scripts: whole files with tagged lines and placeholders.

``  #? tag`` at the end of a line, or ``#? if tag`` and ``#? end`` around several lines, keeps them only if the tag is
set (``!tag``: only if it is not; ``a|b``: either; several words: all of them). ``{{NAME}}`` is replaced by its value.
``#? include NAME`` inserts the lines of ``shared.py.in`` from ``#? part NAME`` to the next part.
"""

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from .python_source import parse_python

TEMPLATES = Path(__file__).parents[2] / "assets" / "templates"
PART = re.compile(r"^#\? part ", re.MULTILINE)
INCLUDE = re.compile(r"^#\? include (\w+)\n", re.MULTILINE)


def render_template(name: str, tags: Collection[str], values: Mapping[str, str]) -> str:
    """Return the template ``name`` with the lines that ``tags`` select and its placeholders filled in."""
    template = INCLUDE.sub(_shared_part, (TEMPLATES / name).read_text(encoding="utf-8"))
    made = "\n".join(select_template_lines(template, set(tags))) + "\n"
    for key, value in values.items():
        made = made.replace("{{" + key + "}}", value)
    return made


def _shared_part(include: re.Match[str]) -> str:
    parts = PART.split((TEMPLATES / "shared.py.in").read_text(encoding="utf-8"))
    return next(lines for name, _, lines in (part.partition("\n") for part in parts) if name == include[1])


def template_functions(name: str, tags: Collection[str], names: Collection[str]) -> list[str]:
    """Return the code of some functions of the template ``name``, in its order."""
    code = render_template(name, tags, {})
    found = (node for node in parse_python(code).body if isinstance(node, ast.FunctionDef) and node.name in names)
    return [ast.get_source_segment(code, node) or "" for node in found]


def select_template_lines(template: str, tags: set[str]) -> Iterator[str]:
    """Yield the lines of a template that the tags select, without their directives."""
    inside = True
    for line in template.splitlines():
        directive = line.strip()
        if directive.startswith("#? if "):
            inside = _condition_holds(directive.removeprefix("#? if "), tags)
        elif directive == "#? end":
            inside = True
        else:
            text, _, condition = line.partition("  #? ")
            if inside and _condition_holds(condition, tags):
                yield text


def _condition_holds(condition: str, tags: set[str]) -> bool:
    return all(
        word[1:] not in tags if word.startswith("!") else bool(tags & set(word.split("|")))
        for word in condition.split()
    )
