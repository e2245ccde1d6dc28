"""Functions and classes that a migrated script uses: from the templates in ``assets``, with the imports they need."""

import ast
import re
import sys
from collections.abc import Collection, Iterable, Mapping

from ...text.python_source import parse_python
from ...text.templates import render_template
from ...training_script.name_resolution import Names
from ...training_script.source import ScriptSource

MIGRATION = "migration.py.in"
PLACEHOLDER = re.compile(r"\{\{\w+\}\}")  # of the example in a template, which is not copied


def taken_names(names: Names) -> set[str]:
    """Return the names that a script binds to something of its own."""
    return {
        name
        for scope in {*names.scope_of.values()}
        for name, bindings in scope.bindings.items()
        if any(binding.kind != "import" for binding in bindings)
    }


class HelperCode:
    """The functions of a few templates, by name. ``used`` collects the names that a migration calls."""

    def __init__(
        self, templates: Mapping[str, Collection[str]], values: Mapping[str, str], taken: Collection[str]
    ) -> None:
        """Read the functions of templates with these tags; the first one that has a name counts."""
        self._code: dict[str, str] = {}
        self._imports: dict[str, str] = {}
        self._taken = taken
        self.used: set[str] = set()
        for name, tags in templates.items():
            code = render_template(name, tags, {"FLOAT": "", **values})
            self._read(ScriptSource(PLACEHOLDER.sub("None", code), name))

    def name(self, name: str) -> str:
        """Return the name of a function or an import in the migrated script, and mark it as used."""
        self.used.add(name)
        return self._renamed(name)

    def functions(self) -> list[str]:
        """Return the code of the used functions and of those that they call, in the order of the templates."""
        needed = self._needed()
        return [self._with_new_names(code) for name, code in self._code.items() if name in needed]

    def imports(self, present: Mapping[str, str]) -> tuple[list[str], list[str]]:
        """Return the import lines of the used functions: of the standard library, then of others.

        Those that ``present`` (name to meaning) has are left out.
        """
        wanted: dict[tuple[bool, str], list[str]] = {}
        for name in sorted(self._needed() & self._imports.keys()):
            meaning = self._imports[name]
            if present.get(name) != meaning:
                is_other = meaning.partition(".")[0] not in sys.stdlib_module_names
                module, given = _import_of(meaning, self._renamed(name))
                wanted.setdefault((is_other, module), []).append(given)
        lines: tuple[list[str], list[str]] = [], []
        for (is_other, module), given in sorted(wanted.items()):
            one_line = [f"from {module} import {', '.join(given)}"]
            lines[is_other].extend(one_line if module else [f"import {each}" for each in given])
        return lines

    def _read(self, source: ScriptSource) -> None:
        for node in source.tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                lines = source.text.splitlines()[first - 1 : node.end_lineno]
                self._code.setdefault(node.name, "\n".join(lines) + "\n")
            elif isinstance(node, ast.Import):
                self._imports |= {each.asname or each.name.partition(".")[0]: each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom):
                self._imports |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}

    def _needed(self) -> set[str]:
        """Return the used names and every name that their code reads."""
        needed: set[str] = set()
        pending = [*self.used]
        while pending:
            name = pending.pop()
            if name not in needed:
                needed.add(name)
                pending += _names_in(self._code.get(name, ""))
        return needed

    def _renamed(self, name: str) -> str:
        return f"{name}_of_ranks" if name in self._taken else name

    def _with_new_names(self, code: str) -> str:
        for name in (*self._code, *self._imports):
            if self._renamed(name) != name:
                code = re.sub(rf"(?<![\w.]){name}\b", self._renamed(name), code)
        return code


def _names_in(code: str) -> Iterable[str]:
    return {node.id for node in ast.walk(parse_python(code)) if isinstance(node, ast.Name)}


def _import_of(meaning: str, name: str) -> tuple[str, str]:
    """Return the module of ``from … import``, or "" for a plain import, and what is imported."""
    module, _, last = meaning.rpartition(".")
    if not module or meaning == "torch.distributed":
        return "", meaning + (f" as {name}" if name != meaning else "")
    return module, last + (f" as {name}" if name != last else "")
