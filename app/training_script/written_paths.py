"""The files and directories that a script writes, moves or removes, as far as its text tells the path."""

import ast
import posixpath
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from .source import ScriptSource
from .syntax import call_argument, dotted_name, last_name

UNKNOWN = "…"  # a part of a path that only the run decides
DEPTH = 12
LOCAL_FILES = 60  # modules next to the script that are read as well


class WrittenPath(NamedTuple):
    """A call that writes. ``path`` is absolute, with ``…`` for unknown parts, or "" if nothing of it is known."""

    file: str
    line: int
    call: str
    path: str
    argument: str

    @property
    def is_known(self) -> bool:
        """True if the whole path is known."""
        return bool(self.path) and UNKNOWN not in self.path


# Functions by their last names: (keyword, place) of each argument that is a path written to.
FUNCTIONS: dict[str, list[tuple[str, int]]] = {
    "torch.save": [("f", 1)],
    "xm.save": [("file_or_path", 1)],
    "np.save": [("file", 0)],
    "numpy.save": [("file", 0)],
    "sqlite3.connect": [("database", 0)],
    "h5py.File": [("name", 0)],
    "joblib.dump": [("filename", 1)],
    "accelerator.save": [("f", 1)],
    "logging.basicConfig": [("filename", 99)],
    "shutil.move": [("src", 0), ("dst", 1)],
    "os.rename": [("src", 0), ("dst", 1)],
    "os.replace": [("src", 0), ("dst", 1)],
    "os.renames": [("old", 0), ("new", 1)],
}
for _name in ("copy", "copy2", "copyfile", "copytree"):
    FUNCTIONS[f"shutil.{_name}"] = [("dst", 1)]
for _name in ("remove", "unlink", "rmdir", "removedirs", "mkdir", "makedirs", "truncate", "chmod", "utime"):
    FUNCTIONS[f"os.{_name}"] = [("path", 0)]
for _name in ("symlink", "link"):
    FUNCTIONS[f"os.{_name}"] = [("dst", 1)]
FUNCTIONS["shutil.rmtree"] = [("path", 0)]
# Functions and methods whose last name says enough.
SAVERS: dict[str, list[tuple[str, int]]] = {
    "savez": [("file", 0)],
    "savez_compressed": [("file", 0)],
    "savetxt": [("fname", 0)],
    "save_file": [("filename", 1)],
    "savefig": [("fname", 0)],
    "imsave": [("fname", 0)],
    "to_csv": [("path_or_buf", 0)],
    "to_parquet": [("path", 0)],
    "to_json": [("path_or_buf", 0)],
    "to_pickle": [("path", 0)],
    "to_feather": [("path", 0)],
    "save_pretrained": [("save_directory", 0)],
    "save_to_disk": [("dataset_path", 0)],
    "save_state": [("output_dir", 0)],
    "save_model": [("output_dir", 0)],
    "save_checkpoint": [("save_dir", 0)],
    "SummaryWriter": [("log_dir", 0)],
    "FileHandler": [("filename", 0)],
    "RotatingFileHandler": [("filename", 0)],
    "FileStore": [("file_name", 0)],
    "FileSystemWriter": [("path", 0)],
    "copyfile": [("dst", 1)],
    "copytree": [("dst", 1)],
    "rmtree": [("path", 0)],
    "makedirs": [("name", 0)],
}
PATH_METHODS = {"write_text", "write_bytes", "touch", "mkdir", "rmdir", "unlink"}
MOVING_METHODS = {"rename", "replace", "symlink_to", "hardlink_to"}  # strings and tables have some of these as well
WRITING_MODES = set("wax+")
IN_MEMORY = {":memory:", "", "/dev/null"}


def find_written_paths(
    source: ScriptSource, cwd: str, words: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> list[WrittenPath]:
    """Return the writing calls of a script in the order of their lines.

    ``words`` are the script and its arguments, for the values of its options; a relative path counts from ``cwd``.
    """
    values = _Values(source, words, environ or {})
    found: list[WrittenPath] = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            for argument in _path_arguments(node):
                path = values.path(argument)
                if path is None and last_name(node.func) in MOVING_METHODS and argument is _receiver(node):
                    break  # no path, as far as can be seen: str.replace, DataFrame.rename
                if path in IN_MEMORY:
                    continue
                name = dotted_name(node.func) or last_name(node.func)
                found.append(WrittenPath(source.path, node.lineno, name, _absolute(path, cwd), source.code(argument)))
    return sorted(set(found), key=lambda each: (each.line, each.path))


def find_unread_writers(source: ScriptSource) -> list[tuple[int, str, str]]:
    """Return the line, the name and the effect of each call after which other writes than those read are possible."""
    found: list[tuple[int, str, str]] = []
    for node in ast.walk(source.tree):
        name = dotted_name(node.func) if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and (effect := _unread_effect(name)):
            found.append((node.lineno, name, effect))
    return sorted(found)


def _unread_effect(name: str) -> str:
    """Return what the call of a function does that makes writes unknown, or ""."""
    if name in ("os.chdir", "os.fchdir"):
        return "changes the working directory"
    starts = name.startswith(("subprocess.", "os.exec", "os.spawn", "os.posix_spawn"))
    return "starts another program" if starts or name in ("os.system", "os.popen", "pty.spawn") else ""


def files_of_script(script: Path, roots: Sequence[Path]) -> list[Path]:
    """Return the script and the modules below ``roots`` that it imports, directly or not."""
    found = [script]
    for path in found:
        try:
            source = ScriptSource.tolerant(path.read_text(encoding="utf-8", errors="replace"), str(path))
        except OSError:
            continue
        for name in _imported(source):
            for root in (path.parent, *roots):
                base = root.joinpath(*name.split("."))
                module = next((p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file()), None)
                if module and module not in found and len(found) < LOCAL_FILES:
                    found.append(module)
    return found


def _imported(source: ScriptSource) -> list[str]:
    names: list[str] = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            names += [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            names += [base, *(f"{base}.{each.name}".lstrip(".") for each in node.names)]
    parts = [name.split(".") for name in names if name]
    return [".".join(part[:end]) for part in parts for end in range(1, len(part) + 1)]


def _path_arguments(call: ast.Call) -> list[ast.expr]:
    """Return the arguments of a call that are paths written to."""
    name, dotted = last_name(call.func), dotted_name(call.func)
    if name == "open":
        return _opened(call, dotted)
    receiver = _receiver(call)
    if receiver is not None and name in PATH_METHODS and dotted not in FUNCTIONS:
        return [receiver]
    if receiver is not None and name in MOVING_METHODS and dotted not in FUNCTIONS:
        return [receiver, *call.args] if len(call.args) == 1 else []
    places = FUNCTIONS.get(dotted) or SAVERS.get(name) or []
    found = [call_argument(call, keyword, place) for keyword, place in places]
    return [each for each in found if each is not None]


def _opened(call: ast.Call, dotted: str) -> list[ast.expr]:
    """Return the path that ``open`` opens for writing: its first argument, or the object of ``Path.open``."""
    of_path = dotted not in ("open", "io.open", "gzip.open", "bz2.open", "lzma.open", "codecs.open", "fsspec.open")
    if dotted == "os.open":
        return call.args[:1]
    mode = call_argument(call, "mode", 0 if of_path else 1)
    if mode is None or (isinstance(mode, ast.Constant) and not WRITING_MODES & set(str(mode.value))):
        return []
    path = _receiver(call) if of_path else call_argument(call, "file", 0)
    return [path] if path is not None else []


def _receiver(call: ast.Call) -> ast.expr | None:
    return call.func.value if isinstance(call.func, ast.Attribute) else None


def _absolute(path: str | None, cwd: str) -> str:
    if not path or path.startswith(UNKNOWN):
        return ""
    return posixpath.normpath(posixpath.join(cwd, Path(path).expanduser()))


class _Values:
    """Texts that the expressions of a script have: constants, names bound once, options, environment variables."""

    def __init__(self, source: ScriptSource, words: Sequence[str], environ: Mapping[str, str]) -> None:
        self._file, self._environ, self._words = source.path, environ, words
        self._bound: dict[str, list[ast.expr]] = defaultdict(list)
        self._options: dict[str, str] = {}
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._bound[dotted_name(target)].append(node.value)
            elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value:
                self._bound[dotted_name(node.target)].append(node.value)
            elif isinstance(node, ast.Call) and last_name(node.func) == "add_argument":
                self._add_option(node, words)

    def path(self, node: ast.expr, depth: int = 0) -> str | None:
        """Return the text of a path with ``…`` for unknown parts, or None if nothing of it is known."""
        if depth > DEPTH:
            return None
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.JoinedStr(values=parts):
                return _joined([self._part(part, depth) for part in parts])
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return _joined([self.path(left, depth + 1), self.path(right, depth + 1)])
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return _path_joined([self.path(left, depth + 1), self.path(right, depth + 1)])
            case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod()):
                return text.partition("%")[0] + UNKNOWN
            case ast.Name() | ast.Attribute():
                return self._named(node, depth)
            case ast.Call():
                return self._call(node, depth)
            case ast.Subscript(value=value, slice=ast.Constant(value=str(name))) if _is_environ(value):
                return self._environ.get(name)
            case ast.Subscript(value=value, slice=ast.Constant(value=int(place))) if dotted_name(value) == "sys.argv":
                return self._words[place] if 0 <= place < len(self._words) else None
        return None

    def _part(self, part: ast.expr, depth: int) -> str | None:
        return self.path(part.value if isinstance(part, ast.FormattedValue) else part, depth + 1)

    def _named(self, node: ast.Name | ast.Attribute, depth: int) -> str | None:
        name = dotted_name(node)
        if name == "__file__":
            return self._file
        values = self._bound.get(name, [])
        if values:
            texts = {self.path(value, depth + 1) for value in values}
            return texts.pop() if len(texts) == 1 else None
        if isinstance(node, ast.Attribute):
            if node.attr == "parent" and (base := self.path(node.value, depth + 1)):
                return posixpath.dirname(base)
            return self._options.get(node.attr)
        return None

    def _call(self, node: ast.Call, depth: int) -> str | None:
        name, dotted = last_name(node.func), dotted_name(node.func)
        first = self.path(node.args[0], depth + 1) if node.args else None
        receiver = _receiver(node)
        if dotted.endswith("path.join") or name in ("Path", "PurePath"):
            return _path_joined([self.path(each, depth + 1) for each in node.args])
        if dotted.endswith("path.dirname"):
            return posixpath.dirname(first) if first else None
        if name in ("str", "fspath", "abspath", "realpath", "expanduser") and node.args:
            return first
        if _is_environ(receiver) or dotted == "os.getenv":
            default = self.path(node.args[1], depth + 1) if len(node.args) > 1 else None
            key = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else ""
            return self._environ.get(str(key), default)
        if receiver is not None and name in ("resolve", "absolute", "expanduser", "as_posix"):
            return self.path(receiver, depth + 1)
        if receiver is not None and name == "joinpath":
            return _path_joined([self.path(each, depth + 1) for each in (receiver, *node.args)])
        if receiver is not None and name in ("with_suffix", "with_name", "with_stem", "format"):
            base = self.path(receiver, depth + 1)
            return (
                f"{base.partition('{')[0] if name == 'format' else posixpath.dirname(base) + '/'}{UNKNOWN}"
                if base
                else None
            )
        return None

    def _add_option(self, call: ast.Call, words: Sequence[str]) -> None:
        """Keep the value of an option as the command line gives it, else its default."""
        flags = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        if not flags:
            return
        dest = call_argument(call, "dest")
        longest = max(flags, key=len).lstrip("-").replace("-", "_")
        name = str(dest.value) if isinstance(dest, ast.Constant) else longest
        value = next((v for flag in flags if (v := _given(flag, words)) is not None), None)
        default = call_argument(call, "default")
        if value is None and isinstance(default, ast.Constant) and isinstance(default.value, str):
            value = default.value
        if value is not None:
            self._options[name] = value


def _given(flag: str, words: Sequence[str]) -> str | None:
    for index, word in enumerate(words):
        if word == flag and index + 1 < len(words):
            return words[index + 1]
        if word.startswith(flag + "="):
            return word.partition("=")[2]
    return None


def _is_environ(node: ast.expr | None) -> bool:
    return node is not None and dotted_name(node) in ("os.environ", "environ")


def _joined(parts: Sequence[str | None]) -> str | None:
    """Join texts, with ``…`` for the unknown ones; None if the first one is unknown."""
    return "".join(UNKNOWN if part is None else part for part in parts) if parts and parts[0] is not None else None


def _path_joined(parts: Sequence[str | None]) -> str | None:
    if not parts or parts[0] is None:
        return None
    return posixpath.join(*(UNKNOWN if part is None else part for part in parts))
