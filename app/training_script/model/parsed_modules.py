"""The syntax trees of imported modules, kept for the next scripts that import them, and what follows from a tree.

A module that mentions nothing of distributed training is not parsed.
"""

import ast
import re
from collections import Counter, OrderedDict
from functools import cached_property, lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from ...text.python_source import parse_deep
from ..nodes import nodes_below, walk
from ..project_imports import read_module
from ..syntax import FUNCTIONS, last_name
from .function_bodies import count_nodes, may_mention, outline
from .library_effects import MENTIONED
from .rank_mentions import mentions_ranks
from .signal_handlers import names_set_by_signals
from .written_files import WRITERS, written_names

# Of modules whose trees, or whose outlines, are kept for further scripts. A node takes 350 bytes of memory.
MOST_NODES, MOST_OUTLINE_NODES = 200_000, 90_000
BYTES_PER_NODE = 5  # of source
LONGEST_WHOLE = 60_000  # characters of an imported module; of a longer one, a program needs the fewest functions
LONGEST_SETTINGS = 8_000  # characters of a module without functions
LONGEST_HELPER = 2_500  # characters of a module that may call what it is given
GLOBAL = re.compile(r"global[ \t\\]")
MOST_DIGESTS = 8  # that are kept with their texts: each is asked for several times in a row
STARTS_GROUP = "init_process_group"
MODELS = ("nn.Module", "Dataset")  # of which scripts make copies on all ranks


class ParsedModule:
    """The syntax tree of a file, with its text if that is at hand."""

    def __init__(self, tree: ast.Module, text: str | None = None) -> None:
        self.tree, self._text = tree, text
        self._stored: dict[ast.AST, frozenset[str]] = {}  # by methods
        self._stored_by_others: dict[tuple[ast.ClassDef, str, str], bool] = {}
        self._called: dict[ast.AST, list[tuple[str, str]]] = {}

    def outlined(self, text: str) -> "ParsedModule":
        """Return the module with the outline of its syntax tree, which was parsed from ``text``."""
        module = ParsedModule(outline(self.tree, text))
        module.rebound, module.signalled, module.written = self.rebound, self.signalled, self.written
        module.switches = self.switches
        return module

    @cached_property
    def rebound(self) -> frozenset[str]:
        """The names that functions of the module assign."""
        if self._text is not None and not _has_global(self._text):
            return frozenset()
        return frozenset(name for each in nodes_below(self.tree) if type(each) is ast.Global for name in each.names)

    @cached_property
    def signalled(self) -> frozenset[str]:
        """The names and attributes that handlers of signals set."""
        return names_set_by_signals(self.tree) if self._may_mention("signal") else frozenset()

    @cached_property
    def mentioned(self) -> frozenset[str]:
        """The names and attributes that the module reads or sets."""
        below = nodes_below(self.tree)
        names = [node.id for node in below if type(node) is ast.Name]
        return frozenset(names + [node.attr for node in below if type(node) is ast.Attribute])

    @cached_property
    def switches(self) -> frozenset[str]:
        """The settings that are False in the text, and under which the module starts a process group."""
        if not self._may_mention(STARTS_GROUP):
            return frozenset()
        stores: Counter[str] = Counter()
        off: set[str] = set()
        asked: set[str] = set()
        for node in nodes_below(self.tree):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=False)):
                    off.add(name)
                case ast.Name(id=name, ctx=ast.Store()):
                    stores[name] += 1
                case ast.If(test=ast.Name(id=name), body=body):
                    calls = (each for stmt in body for each in walk(stmt) if isinstance(each, ast.Call))
                    asked |= {name} if any(last_name(call.func) == STARTS_GROUP for call in calls) else set()
                case _:
                    pass
        return frozenset(name for name in off & asked if stores[name] == 1)

    @cached_property
    def written(self) -> frozenset[str]:
        """The names of files that the module writes."""
        return written_names(self.tree) if self._may_mention(*WRITERS) else frozenset()

    def _may_mention(self, *words: str) -> bool:
        return self._text is None or any(word in self._text for word in words)

    @cached_property
    def stars(self) -> list[ast.ImportFrom]:
        """The imports of all names of another module, at the top of this one."""
        found = (stmt for name, stmt in self.bound_by.items() if name.startswith("*"))
        return [stmt for stmt in found if isinstance(stmt, ast.ImportFrom)]

    def called_in(self, node: ast.AST) -> list[tuple[str, str]]:
        """Return what a class or a function of the module calls: the last name of each call and the first one."""
        if node not in self._called:
            calls = (each.func for each in walk(node) if isinstance(each, ast.Call))
            self._called[node] = [*dict.fromkeys((last_name(func), _first_name(func)) for func in calls)]
        return self._called[node]

    def is_stored_by_others(self, name: str, cls: ast.ClassDef, than: str) -> bool:
        """Return whether a method of a class of the module that has another name than one sets an attribute."""
        known = self._stored_by_others.get((cls, name, than))
        if known is None:
            methods = (each for each in cls.body if isinstance(each, FUNCTIONS) and each.name != than)
            known = any(may_mention(method, name) and name in self._stored_in(method) for method in methods)
            self._stored_by_others[cls, name, than] = known
        return known

    def _stored_in(self, method: ast.AST) -> frozenset[str]:
        if method not in self._stored:
            self._stored[method] = frozenset(
                node.attr
                for node in walk(method)
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
            )
        return self._stored[method]

    @cached_property
    def stores(self) -> Counter[str]:
        """The attributes that statements of the module set, with how many do so."""
        stored = (each for each in self._nodes() if type(each) is ast.Attribute and isinstance(each.ctx, ast.Store))
        return Counter(each.attr for each in stored)

    @cached_property
    def texts(self) -> frozenset[str]:
        """The texts that the module has as constants."""
        constants = [each.value for each in self._nodes() if type(each) is ast.Constant]
        return frozenset(value for value in constants if type(value) is str)

    def _nodes(self) -> list[ast.AST]:
        """Return every node; of an outline they are not kept, as its bodies would be."""
        return nodes_below(self.tree) if self._text is not None else walk(self.tree)

    @cached_property
    def overridden(self) -> dict[str, set[str]]:
        """The methods of each class at the top of the module that classes below it define again."""
        classes = {each.name: each for each in self.tree.body if isinstance(each, ast.ClassDef)}
        found: dict[str, set[str]] = {}
        for each in classes.values():
            methods = {stmt.name for stmt in each.body if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef))}
            pending, above = [*each.bases], set[str]()
            while pending:
                base = pending.pop()
                if isinstance(base, ast.Name) and base.id in classes and base.id not in above:
                    above.add(base.id)
                    found.setdefault(base.id, set()).update(methods)
                    pending += classes[base.id].bases
        return found

    @cached_property
    def bound_by(self) -> dict[str, ast.stmt]:
        """The last statement at the top of the module that binds each name; star imports as ``*1``, ``*2``, …

        What the handler of an error binds counts only for names that nothing else binds.
        """
        found: dict[str, ast.stmt] = {}
        pending = [(stmt, False) for stmt in self.tree.body[::-1]]
        while pending:
            stmt, is_fallback = pending.pop()
            bound: list[str] = []
            inside: list[tuple[ast.stmt, bool]] = []
            match stmt:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    bound = [name]
                case ast.Import(names=names) | ast.ImportFrom(names=names):
                    for alias in names:
                        star = f"*{len(found)}"
                        bound.append(star if alias.name == "*" else alias.asname or alias.name.partition(".")[0])
                case ast.Assign(targets=targets):
                    bound = [n.id for t in targets for n in walk(t) if isinstance(n, ast.Name)]
                case ast.AnnAssign(target=ast.Name(id=name)):
                    bound = [name]
                case ast.If(body=body, orelse=orelse):
                    fallback, real = sorted((body, orelse), key=_count_lines)  # as for a library that is missing
                    inside = [(each, is_fallback) for each in (*fallback, *real)]
                case ast.Try(body=body, handlers=handlers, orelse=orelse):
                    inside = [(each, True) for handler in handlers for each in handler.body]
                    inside += [(each, is_fallback) for each in (*body, *orelse)]
                case ast.With(body=body):
                    inside = [(each, is_fallback) for each in body]
                case _:
                    pass
            pending += inside[::-1]
            for name in bound:
                if not (is_fallback and name in found):
                    found[name] = stmt
        return found


def _has_global(text: str) -> bool:
    """Return whether a statement ``global`` may begin somewhere in a text."""
    for each in GLOBAL.finditer(text):
        before = each.start() - 1
        while before >= 0 and text[before] in " \t\f":
            before -= 1
        if before < 0 or text[before] in "\r\n:;":
            return True
    return False


def _first_name(func: ast.expr) -> str:
    """Return the name at the start of a dotted one, "" if there is none."""
    while isinstance(func, ast.Attribute):
        func = func.value
    return func.id if isinstance(func, ast.Name) else ""


def _count_lines(block: list[ast.stmt]) -> int:
    return sum((stmt.end_lineno or stmt.lineno) - stmt.lineno + 1 for stmt in block)


Version = tuple[int, int]  # time of the last change, size


def version_of(path: Path) -> Version | None:
    """Return the version of a file, None if there is none."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size


class _Kept(NamedTuple):
    module: ParsedModule
    digest: bytes
    count_nodes: int
    text: str = ""  # of a whole tree


class _Newest:
    """Modules by their paths, up to a number of nodes: those that were used last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Path, _Kept] = OrderedDict()
        self._count_nodes = 0

    def __contains__(self, path: Path) -> bool:
        return path in self._kept

    def get(self, path: Path, digest: bytes) -> ParsedModule | None:
        kept = self._kept.get(path)
        if kept is None or kept.digest != digest:
            return None
        self._kept.move_to_end(path)
        return kept.module

    def add(self, path: Path, kept: _Kept, most_nodes: int) -> list[tuple[Path, _Kept]]:
        """Keep a module; return those that are dropped for it."""
        self.drop(path)
        self._kept[path] = kept
        self._count_nodes += kept.count_nodes
        dropped: list[tuple[Path, _Kept]] = []
        while self._count_nodes > most_nodes:
            oldest, each = self._kept.popitem(last=False)
            self._count_nodes -= each.count_nodes
            dropped.append((oldest, each))
        return dropped

    def drop(self, path: Path) -> None:
        if kept := self._kept.pop(path, None):
            self._count_nodes -= kept.count_nodes


class ParsedModules:
    """The modules that were reviewed or imported last."""

    def __init__(self) -> None:
        self._whole, self._outlines = _Newest(), _Newest()
        self._as_read: dict[Path, tuple[Version, bytes]] = {}  # no digest: the file has nothing to do with ranks

    def get(self, path: Path, version: Version | None = None, *, any_text: bool = False) -> ParsedModule | None:
        """Return the module in a file, or None if it cannot be read or has nothing to do with ranks.

        ``version``: that of the file, if it is known. ``any_text``: also a module that does not mention ranks.
        """
        version = version or version_of(path)
        if version is None:
            return None
        known = self._as_read.get(path)
        if known and known[0] == version:
            if not known[1] and not any_text:
                return None
            if module := self._whole.get(path, known[1]) or self._outlines.get(path, known[1]):
                return module
        text = read_module(path) if any_text else _text_about_ranks(path)
        kept = None if text is None else self.of_text(path, text)
        module = kept if kept or text is None else _parsed(text)
        self._as_read[path] = version, _digest(text) if module and text is not None else b""
        if module is None or text is None:
            return None
        if not kept and len(text) > LONGEST_WHOLE:
            return self._outlined(path, _Kept(module, _digest(text), 0, text))
        self.keep(path, text, module)
        return module

    def __contains__(self, path: Path) -> bool:
        return path in self._whole or path in self._outlines

    def of_text(self, path: Path, text: str) -> ParsedModule | None:
        """Return the module that was parsed from this text of a file, if its whole tree is kept."""
        return self._whole.get(path, _digest(text)) if path in self._whole else None

    def keep(self, path: Path, text: str, module: ParsedModule) -> None:
        """Keep the module that was parsed from the text of a file; in the end only its outline, if it is imported."""
        self._outlines.drop(path)
        whole = _Kept(module, _digest(text), len(text) // BYTES_PER_NODE, text)
        for each, kept in self._whole.add(path, whole, MOST_NODES):
            if each in self._as_read:
                self._outlined(each, kept)

    def _outlined(self, path: Path, kept: _Kept) -> ParsedModule:
        """Keep the outline of a module only."""
        outlined = kept.module.outlined(kept.text)
        self._outlines.add(path, _Kept(outlined, kept.digest, count_nodes(outlined.tree)), MOST_OUTLINE_NODES)
        return outlined


PARSED_MODULES = ParsedModules()


def parse_again(path: Path) -> ParsedModule | None:
    """Return the module in a file with a syntax tree that no other has."""
    text = _text_about_ranks(path)
    return _parsed(text) if text is not None else None


def _parsed(text: str) -> ParsedModule | None:
    try:
        return ParsedModule(parse_deep(text.removeprefix("\ufeff")), text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _text_about_ranks(path: Path) -> str | None:
    """Return the text of a module that may concern ranks, or that holds settings or a few helpers."""
    text = read_module(path)
    if text is None or not (is_about_ranks(path, text) or _is_short(text)):
        return None
    return text


def is_about_ranks(path: Path, text: str) -> bool:
    """Return whether the module in a file may concern ranks."""
    return mentions_ranks(text) or path.name == "__init__.py" or any(each in text for each in (*MENTIONED, *MODELS))


def _is_short(text: str) -> bool:
    return len(text) <= LONGEST_HELPER or (len(text) <= LONGEST_SETTINGS and "def " not in text)


@lru_cache(MOST_DIGESTS)
def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
