"""Which expressions of a script are this process's rank, and of which kind."""

import ast
import re
from typing import Literal, NamedTuple

from .names import Names
from .syntax import FUNCTIONS, call_argument, dotted_name, nodes_of_body

RankKind = Literal["global", "local", "node", "group"]
VARIABLES: dict[str, RankKind] = {
    "RANK": "global",
    "SLURM_PROCID": "global",
    "OMPI_COMM_WORLD_RANK": "global",
    "PMI_RANK": "global",
    "LOCAL_RANK": "local",
    "SLURM_LOCALID": "local",
    "OMPI_COMM_WORLD_LOCAL_RANK": "local",
    "MPI_LOCALRANKID": "local",
    "GROUP_RANK": "node",
    "NODE_RANK": "node",
    "SLURM_NODEID": "node",
}
OF_GLOBAL = r"(?:global|world|ddp|dist|my|cur|current|proc|process|mpi|trainer)_?"
GLOBAL_NAME = re.compile(rf"(?:{OF_GLOBAL})?rank(?:_id)?|(?:global_)?process_index")
LOCAL_NAME = re.compile(r"(?:\w+_)?local_?rank|local_process_index")
NODE_NAME = re.compile(r"(?:node|machine|host|group)_rank")
GROUP_NAME = re.compile(r"(?:tp|pp|dp|cp|ep|sp|mp|tensor|pipeline|data|model|expert|stage)_(?:\w+_)?rank")
GET_RANK = re.compile(r"get_(?:global_|world_)?rank|Get_rank")
GET_LOCAL = re.compile(r"get_(?:node_)?local_(?:process_)?rank")
DEVICE_COUNT = re.compile(
    r"device_count|n(?:um)?_?gpus?(?:_per_node)?|gpus_per_node|local_world_size|nproc(?:_per_node)?", re.IGNORECASE
)


class RankValue(NamedTuple):
    """What an expression is a rank of; ``sure`` when the script shows where it is from, not only by its name.

    ``variable`` is the environment variable it is read from, if that is how.
    """

    kind: RankKind
    sure: bool
    variable: str = ""


class RankValues:
    """Rank questions about one file."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self._ranks: dict[ast.AST, RankValue | None] = {}

    def rank(self, expr: ast.AST) -> RankValue | None:
        """The rank that ``expr`` is, or None."""
        if expr not in self._ranks:
            self._ranks[expr] = None  # a name that stands for itself ends here
            self._ranks[expr] = self._rank(expr)
        return self._ranks[expr]

    def _rank(self, expr: ast.AST) -> RankValue | None:
        match expr:
            case ast.Call(func=ast.Name(id="int" | "str"), args=[inner]):
                return self.rank(inner)
            case ast.Call():
                return self._called(expr)
            case ast.Subscript(value=value, slice=ast.Constant(value=str(name))):
                known = VARIABLES.get(name)
                return RankValue(known, True, name) if known and dotted_name(value).endswith("environ") else None
            case ast.BinOp(left=left, op=ast.Mod(), right=right):
                inner = self.rank(left)
                if inner and DEVICE_COUNT.search(ast.unparse(right)):
                    return RankValue("local", True)
                return None
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                # node * gpus_per_node + local index, the way scripts that spawn count through nodes
                for product_, other in ((left, right), (right, left)):
                    inner = self.rank(other)
                    if (
                        isinstance(product_, ast.BinOp)
                        and isinstance(product_.op, ast.Mult)
                        and inner
                        and inner.kind == "local"
                    ):
                        return RankValue("global", inner.sure)
                return None
            case ast.IfExp(body=body, orelse=orelse):
                return _agreed([self.rank(e) for e in (body, orelse) if not isinstance(e, ast.Constant)])
            case ast.BoolOp(op=ast.Or(), values=values):
                return _agreed([self.rank(e) for e in values if not isinstance(e, ast.Constant)])
            case ast.Name() | ast.Attribute():
                return self._named(expr)
            case ast.arg(arg=name):
                return rank_by_name(name)
        return None

    def _called(self, call: ast.Call) -> RankValue | None:
        full = self.names.qualified(call.func)
        last = dotted_name(call.func).rpartition(".")[2]
        if full in ("os.getenv", "os.environ.get") or dotted_name(call.func).endswith("environ.get"):
            name = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
            known = VARIABLES.get(name) if isinstance(name, str) else None
            return RankValue(known, True, str(name)) if known else None
        if full == "torch.distributed.get_rank":
            group = call_argument(call, "group", 0)
            plain = group is None or (isinstance(group, ast.Constant) and group.value is None)
            return RankValue("global" if plain else "group", True)
        if full == "torch.distributed.get_node_local_rank":
            return RankValue("local", True)
        if full.startswith("horovod.") and last in ("rank", "local_rank"):
            return RankValue("local" if last == "local_rank" else "global", True)
        function = self.names.function(call)
        if function and function.name != "__init__":
            returned = [n.value for n in nodes_of_body(function) if isinstance(n, ast.Return) and n.value]
            return _agreed([self.rank(e) for e in returned if not isinstance(e, ast.Constant)])
        if call.args or call.keywords:
            return None
        if GET_LOCAL.fullmatch(last):
            return RankValue("local", False)
        return RankValue("global", False) if GET_RANK.fullmatch(last) else None

    def _named(self, expr: ast.Name | ast.Attribute) -> RankValue | None:
        name = expr.id if isinstance(expr, ast.Name) else expr.attr
        if isinstance(expr, ast.Attribute) and name in ("process_index", "local_process_index"):
            made = [ast.unparse(leaf) for leaf in self.names.origins(expr.value)]
            sure = all("Accelerator(" in text or "PartialState(" in text or "accelerator" in text for text in made)
            return RankValue("local" if name.startswith("local") else "global", sure)
        bindings = self.names.bindings(expr)
        if not bindings:
            return rank_by_name(name)
        found: list[RankValue | None] = []
        for binding in bindings:
            if binding.kind == "param":
                found.append(self._parameter(binding.at))
            elif binding.kind == "import":
                found.append(rank_by_name(name))
            elif binding.value is None:
                return None
            elif binding.place is not None:
                leaves = [leaf for leaf in self.names.origins(expr) if not isinstance(leaf, ast.Constant)]
                inner = [self.rank(leaf) for leaf in leaves if leaf is not expr and not isinstance(leaf, ast.Name)]
                found.append(_agreed(inner) if inner and all(inner) else rank_by_name(name))
            elif not is_constant_default(binding.value):
                followed = self.rank(binding.value)
                # A call nobody here knows, stored under the name of a rank, is taken by that name.
                unknown = isinstance(binding.value, (ast.Call, ast.Subscript, ast.Attribute))
                found.append(followed or (rank_by_name(name) if unknown else None))
        return _agreed(found)

    def _parameter(self, at: ast.AST) -> RankValue | None:
        assert isinstance(at, ast.arg)
        function = self.names.source.parents[self.names.source.parents[at]]
        if not isinstance(function, FUNCTIONS):
            return None
        positional = [*function.args.posonlyargs, *function.args.args]
        if function in self.names.spawned and positional and positional[0] is at:
            return RankValue("local", True)
        given = [values[at.arg] for _, values in self.names.arguments.get(function, []) if at.arg in values]
        given = [value for value in given if not is_constant_default(value)]
        return _agreed([self.rank(value) for value in given]) if given else rank_by_name(at.arg)


def rank_by_name(name: str) -> RankValue | None:
    lower = name.lower().lstrip("_")
    patterns: list[tuple[re.Pattern[str], RankKind]] = [
        (LOCAL_NAME, "local"),
        (NODE_NAME, "node"),
        (GLOBAL_NAME, "global"),
        (GROUP_NAME, "group"),
    ]
    for pattern, kind in patterns:
        if pattern.fullmatch(lower):
            return RankValue(kind, False)
    return None


def _agreed(found: list[RankValue | None]) -> RankValue | None:
    """The one rank all of them are, the less sure one where they differ in that."""
    if not found or not all(found) or len({item.kind for item in found if item}) != 1:
        return None
    return min((item for item in found if item), key=lambda item: item.sure)


def is_constant_default(value: ast.expr) -> bool:
    """A constant: a default for runs that are not distributed."""
    return isinstance(value, ast.Constant) or (
        isinstance(value, ast.UnaryOp) and isinstance(value.operand, ast.Constant)
    )
