"""Let one rank print, show progress and write files."""

import ast
from collections.abc import Callable

from ...training_script.syntax import FUNCTIONS, call_argument, last_name
from .rewriting import Rewriting

WRITERS = {
    *("savefig", "imsave", "imwrite", "save_image", "to_csv", "to_parquet", "to_json", "to_pickle", "to_feather"),
    *("savez", "savez_compressed", "savetxt", "save_file", "save_pretrained", "save_to_disk"),
    *("makedirs", "mkdir", "write_text", "write_bytes", "touch", "unlink"),
}
WRITING_FUNCTIONS = {
    *("numpy.save", "json.dump", "pickle.dump", "os.remove", "os.rename", "os.replace", "os.symlink", "os.link"),
    *("shutil.rmtree", "shutil.copy", "shutil.copy2", "shutil.copyfile", "shutil.copytree", "shutil.move"),
}
READERS = {"open", "load", "load_file", "safe_open", "loadtxt", "read_csv", "read_json", "read_parquet", "read_pickle"}
LOGS = {"info", "debug", "log"}
PROGRESS = {"tqdm", "trange"}


def write_on_one_rank(made: Rewriting) -> None:
    """Rename the calls that print and save, and put other writes under a condition."""
    facts = made.facts
    for call in facts.calls:
        if _in_loader_process(made, call):
            continue
        if isinstance(call.func, ast.Name) and call.func.id == "print" and not facts.names.bindings(call.func):
            made.replace(call.func, made.helpers.name("print_once"))
        elif facts.named(call) == "torch.save":
            _save_once(made, call)
        elif last_name(call.func) in PROGRESS and call_argument(call, "disable") is None:
            made.add_argument(call, f"disable={made.helpers.name('dist')}.get_rank() != 0")
        elif facts.named(call) == "wandb.init" and call_argument(call, "mode") is None:
            made.add_argument(call, f'mode=None if {made.helpers.name("dist")}.get_rank() == 0 else "disabled"')
        elif _writes(made, call):
            _guard(made, call)


def log_once(made: Rewriting, insert: Callable[[str], None]) -> None:
    """Let the other ranks log warnings only, where the script logs; ``insert`` puts a line behind ``set_up``."""
    names = made.facts.names
    for call in made.facts.calls:
        match call.func:
            case ast.Attribute(value=owner, attr=attr) if attr in LOGS:
                leaves = names.origins(owner)
                named = [made.facts.named(leaf) for leaf in leaves if isinstance(leaf, ast.Call)]
                if names.qualified(owner) == "logging" or "logging.getLogger" in named:
                    insert(f"{made.helpers.name('log_on_rank_0')}()")
                    return
            case _:
                pass


def load_to_host(made: Rewriting) -> None:
    """Let ``torch.load`` put tensors on the host: else every rank puts those that rank 0 saved on rank 0's GPU."""
    for call in made.facts.calls:
        if made.facts.named(call) == "torch.load" and call_argument(call, "map_location", 1) is None:
            made.add_argument(call, 'map_location="cpu"')


def _save_once(made: Rewriting, call: ast.Call) -> None:
    if any(above in made.changed for above in _above(made, made.source.statement_of(call))):
        return
    if len(call.args) == 2 and not call.keywords:
        made.replace(call.func, made.helpers.name("save_once"))
    else:
        _guard(made, call)


def _writes(made: Rewriting, call: ast.Call) -> bool:
    if isinstance(call.func, ast.Name) and call.func.id == "open":
        return _opens_to_write(call)
    if last_name(call.func) in ("makedirs", "mkdir"):
        return not any(keyword.arg == "exist_ok" for keyword in call.keywords)
    return last_name(call.func) in WRITERS or made.facts.named(call) in WRITING_FUNCTIONS


def _opens_to_write(call: ast.Call) -> bool:
    mode = call_argument(call, "mode", 1)
    return isinstance(mode, ast.Constant) and str(mode.value)[:1] in ("w", "a", "x")


def _is_read_back(made: Rewriting, call: ast.Call) -> bool:
    """Return whether a call that reads gets the same path, or an argument written alike."""
    given = {ast.dump(each) for each in call.args if not isinstance(each, ast.Starred)}
    return any(
        last_name(other.func) in READERS
        and other.args
        and ast.dump(other.args[0]) in given
        and not _opens_to_write(other)
        for other in made.facts.calls
        if other is not call
    )


def _guard(made: Rewriting, call: ast.Call) -> None:
    """Put the statement of a call under a condition on the rank, where nothing else depends on it."""
    stmt = made.source.statement_of(call)
    if stmt in made.changed or any(above in made.changed for above in _above(made, stmt)):
        return
    is_simple = isinstance(stmt, ast.With) or (isinstance(stmt, ast.Expr) and stmt.value is call)
    if not is_simple or not made.source.alone(stmt) or not made.changed.isdisjoint(ast.walk(stmt)):
        made.report(call, "every rank writes this file: let rank 0 do it")
        return
    made.changed.add(stmt)
    dist = made.helpers.name("dist")
    made.insert_before(stmt, f"if {dist}.get_rank() == 0:")
    made.indent([stmt])
    if _is_read_back(made, call):
        made.insert_after(stmt, f"{dist}.barrier()  # the others read it")


def _above(made: Rewriting, stmt: ast.stmt) -> list[ast.AST]:
    found: list[ast.AST] = []
    at = made.source.parents.get(stmt)
    while at is not None and isinstance(at, ast.stmt):
        found.append(at)
        at = made.source.parents.get(at)
    return found


def _in_loader_process(made: Rewriting, call: ast.Call) -> bool:
    """Return whether a call is in a dataset, whose samples are read in processes without a process group."""
    above = made.source.parents.get(call)
    while above is not None:
        if isinstance(above, ast.ClassDef) and any(
            isinstance(each, FUNCTIONS) and each.name == "__getitem__" for each in above.body
        ):
            return True
        above = made.source.parents.get(above)
    return False
