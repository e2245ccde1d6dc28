"""The files of the user's code in a case: their calls, and the names of their variables."""

import ast
import io
import tokenize
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from ..errors import UserError
from ..review.patches.apply_edits import apply_edits
from ..system.paths import relative_to_cwd
from ..text.python_source import parse_python
from ..training_script.edits import Edit
from ..training_script.source import ScriptSource, read_source
from ..training_script.syntax import dotted_name
from .types import FilePatch, Place

MOST_FILES = 24
MOST_BYTES = 400_000  # of one file

# The names that entries use in code, and the calls whose result has that name in the user's script.
CANONICAL = {
    "model": ("DistributedDataParallel", "FullyShardedDataParallel", "fully_shard", "deepspeed.initialize"),
    "optimizer": ("Adam", "AdamW", "SGD", "RMSprop", "Adagrad", "Adafactor", "ZeroRedundancyOptimizer"),
    "loader": ("DataLoader", "StatefulDataLoader"),
    "sampler": ("DistributedSampler",),
    "scaler": ("GradScaler", "ShardedGradScaler"),
    "criterion": ("CrossEntropyLoss", "MSELoss", "BCEWithLogitsLoss", "NLLLoss", "L1Loss", "BCELoss"),
    "scheduler": ("LambdaLR", "StepLR", "CosineAnnealingLR", "OneCycleLR", "LinearLR", "MultiStepLR"),
    "accelerator": ("Accelerator",),
    "trainer": ("Trainer",),
}


class UserFile:
    """One file of the user's code. ``text`` is its content on disk."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self.text = path, text
        self.source = ScriptSource.tolerant(text, path)

    def patched(self, edits: Sequence[Edit]) -> FilePatch:
        """Return the patch that makes these edits."""
        return FilePatch(path=self.path, before=self.text, after=apply_edits(self.text, edits))

    @cached_property
    def imports(self) -> dict[str, str]:
        """Meaning of each imported name: ``DDP`` is ``torch.nn.parallel.DistributedDataParallel``."""
        found: dict[str, str] = {}
        for node in ast.walk(self.source.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    found[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    found[alias.asname or alias.name] = f"{node.module or ''}.{alias.name}".lstrip(".")
        return found

    def qualified(self, expr: ast.expr) -> str:
        """Return the dotted name of an expression with the name of its import in full, or ""."""
        first, dot, rest = dotted_name(expr).partition(".")
        return self.imports.get(first, first) + dot + rest

    def calls(self, wanted: Collection[str]) -> list[ast.Call]:
        """Return the calls of these functions and classes (``torch.load``) and methods (``.backward``), in order."""
        found = [
            node
            for node in ast.walk(self.source.tree)
            if isinstance(node, ast.Call) and any(self._is_call_of(node, name) for name in wanted)
        ]
        return sorted(found, key=lambda call: (call.lineno, call.col_offset))

    def _is_call_of(self, call: ast.Call, name: str) -> bool:
        if name.startswith("."):
            return isinstance(call.func, ast.Attribute) and call.func.attr == name[1:]
        full = self.qualified(call.func)
        return full == name or full.endswith(f".{name}")

    def place(self, node: ast.expr | ast.stmt, label: str = "") -> Place:
        """Return the line of a node as a place."""
        return Place(path=self.path, line=node.lineno, text=self.line(node.lineno), label=label)

    def line(self, number: int) -> str:
        """Return a line of the file without its indentation."""
        return self.source.line(number).strip()


def read_user_files(paths: Iterable[str]) -> list[UserFile]:
    """Return the readable files among ``paths`` in order, and the modules next to them that they import."""
    found: dict[Path, UserFile] = {}
    waiting = [Path(path) for path in paths if path]
    while waiting and len(found) < MOST_FILES:
        path = waiting.pop(0)
        key = path.absolute()
        if key in found or path.suffix != ".py":
            continue
        try:
            if path.stat().st_size > MOST_BYTES:
                continue
            found[key] = UserFile(str(path), read_source(path)[1])
        except (OSError, UserError):
            continue
        waiting += _local_imports(found[key])
    return list(found.values())


def _local_imports(file: UserFile) -> Iterator[Path]:
    folder = Path(file.path).parent
    for full in dict.fromkeys(file.imports.values()):
        parts = full.split(".")
        for length in (len(parts), len(parts) - 1):
            if length and (path := folder.joinpath(*parts[:length]).with_suffix(".py")).is_file():
                yield path


def variable_names(files: Iterable[UserFile]) -> dict[str, str]:
    """Return the user's name for each canonical name that the entries use in code, where the script shows it."""
    names: dict[str, str] = {}
    for file in files:
        for node in ast.walk(file.source.tree):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                target = node.targets[0]
                target = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
                made = file.qualified(node.value.func).rpartition(".")[2]
                canonical = next((name for name, calls in CANONICAL.items() if made in calls), "")
                if canonical and (name := dotted_name(target)):
                    names.setdefault(canonical, name)
            elif isinstance(node, ast.Attribute) and node.attr == "backward" and (name := dotted_name(node.value)):
                names.setdefault("loss", name)
    return names


def rename_variables(code: str, names: Mapping[str, str]) -> str:
    """Return code with the user's names; text that is no Python stays as it is.

    Attributes (``x.model``) and keywords of a call (``sampler=…``) keep their name.
    """
    names = {canonical: name for canonical, name in names.items() if name != canonical}
    if not names:
        return code
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(code).readline))
        parse_python(code)
    except (tokenize.TokenError, SyntaxError, ValueError):
        return code
    lines = code.split("\n")
    depth, edits = 0, list[tuple[int, int, int, str]]()
    for at, token in enumerate(tokens):
        depth += (token.string in "([{") - (token.string in ")]}") if token.type == tokenize.OP else 0
        if token.type != tokenize.NAME or token.string not in names:
            continue
        before = tokens[at - 1].string if at else ""
        after = tokens[at + 1].string if at + 1 < len(tokens) else ""
        if before != "." and not (depth and after == "="):
            edits.append((token.start[0] - 1, token.start[1], token.end[1], names[token.string]))
    for row, start, end, name in reversed(edits):
        lines[row] = lines[row][:start] + name + lines[row][end:]
    return "\n".join(lines)


def shown_path(path: str) -> str:
    """Return the path of a file as it is shown: relative to the working directory where it is below it."""
    return relative_to_cwd(path)
