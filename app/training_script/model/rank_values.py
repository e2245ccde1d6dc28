"""Ranks as values: calls of libraries that return one, and what scripts compute from one."""

import ast

from msgspec.structs import replace

from .. import rank_names
from ..syntax import dotted_name, last_name
from .attributes import AttributeEvaluator
from .evaluator_state import Named, Values
from .function_steps import Called
from .keys import LOCAL, Key
from .values import Bound, FunctionRef, Value, is_elements

GET_RANK = ("torch.distributed.get_rank", "horovod.torch.rank", "mpi4py.MPI.COMM_WORLD.Get_rank")
OF_NODE = ("torch.distributed.get_node_local_rank", "horovod.torch.local_rank")
OF_GROUP = "the number of a rank in a group"
STARTS = {"spawn", "start_processes"}


class RankEvaluator(AttributeEvaluator):
    """Ranks in expressions of one function."""

    def rank_of_library(self, name: str, values: Values, named: Named) -> Value | None:
        """Return the rank or what is computed with it, as a call of a library returns it, or None."""
        if name in GET_RANK:
            group = named.get("group") or (values[0] if values else None)
            kind = "global" if group is None or group.key is self.keys.none else "group"
            return Value(self.keys.rank(kind, name))
        if name == "torch.distributed.get_group_rank":
            return Value(self.keys.make(OF_GROUP, *(each.key for each in (*values, *named.values()))))
        if name in OF_NODE or (name.startswith("horovod.") and name.endswith((".rank", ".local_rank"))):
            return Value(self.keys.rank("local" if name.endswith("local_rank") else "global", name))
        if name == "torch.cuda.device_count":
            return Value(self.keys.make("devices"))
        if name.endswith("init_device_mesh"):
            return self.mesh(values, named)
        return self._first_of_node(name.rpartition(".")[2], values, named)

    def rank_of_method(self, owner: Value, name: str, node: ast.Call, values: Values, named: Named) -> Value | None:
        """Return the rank that an object gives: a mesh, a process group, or the library of XLA."""
        if values:
            return self._first_of_node(name, values, named)
        if owner.key.op == "mesh" and name in ("get_rank", "get_local_rank"):
            of_all = name == "get_rank" or owner.key.args[0] == 1
            return Value(self.keys.rank("global" if of_all else "group", "init_device_mesh"))
        receiver = dotted_name(node.func).rpartition(".")[0].rpartition(".")[2].lower()
        is_group = receiver.endswith(("group", "mesh")) or receiver in ("pg", "mpu", "parallel_state", "ps")
        if is_group and (name == "rank" or rank_names.getter_kind(name)):
            return Value(self.keys.rank("group"))
        return self._first_of_node(name, values, named)

    def mesh(self, values: Values, named: Named) -> Value | None:
        """Return a mesh over all ranks, by its number of dimensions (torch 2.13, distributed/device_mesh.py)."""
        shape = named.get("mesh_shape") or (values[1] if len(values) > 1 else None)
        known = shape is not None and shape.key.op == "sequence"
        return Value(self.keys.make("mesh", len(shape.key.args))) if shape and known else None

    def started(self, node: ast.Call, values: Values, named: Named) -> Value | None:
        """Follow the function that processes are started with: by ``mp.spawn``, or each by ``Process``.

        What the process that starts them has found out, all of them get alike.
        """
        name = last_name(node.func)
        if name != "Process" and name not in STARTS:
            return None
        target = named.get("target") or named.get("fn") or (values[0] if values else None)
        if not target or not isinstance(target.obj, (FunctionRef, Bound)):
            return None
        given = _elements(named.get("args") or (values[1] if name in STARTS and len(values) > 1 else None))
        given = [replace(self.unknown(node), obj=each.obj) if each.key.differs_by & LOCAL else each for each in given]
        rank = Value(self.keys.rank("spawned", name))
        if name == "Process":
            given = [rank if value.key.op == "number" else value for value in given]  # the counter of a loop
        else:
            given = [rank, *given]
        before = len(self.items)
        if isinstance(target.obj, Bound):
            result = self.call_function(target.obj.function, [target.obj.owner, *given], {}, self.site(node))
        else:
            result = self.call_function(target.obj, given, {}, self.site(node))
        self.items[before:] = [
            item._replace(starts=True) if isinstance(item, Called) else item for item in self.items[before:]
        ]
        return result

    def _first_of_node(self, name: str, values: Values, named: Named) -> Value | None:
        if name != "is_master_ordinal":
            return None
        given = named.get("local") or (values[0] if values else None)
        return Value(self.keys.is_first("global" if given and given.key is self.keys.false else "local"))

    def rank_of_node(self, op: str, left: Key, right: Key, node: ast.BinOp) -> Key | None:
        """Return the rank that scripts compute: from the number of GPUs of a node, or from that of the node."""
        if op in ("Mod", "FloorDiv") and left.op == "rank" and left.args[0] == "global":
            if op == "Mod" and (_is_of_all_nodes(right) or (right.op == "world" and right.args[0] == "global")):
                return left
            by_devices = right.op == "devices" or rank_names.DEVICE_COUNT.search(last_name(node.right))
            return self.keys.rank("local" if op == "Mod" else "node", left.args[1]) if by_devices else None
        if op == "Add":
            for product, own in ((node.left, right), (node.right, left)):
                is_product = isinstance(product, ast.BinOp) and isinstance(product.op, ast.Mult)
                if is_product and own.op == "rank" and own.args[0] in ("local", "spawned"):
                    return self.keys.rank("global", own.args[1])
        return None


def _elements(value: Value | None) -> list[Value]:
    return list(value.obj) if value and is_elements(value.obj) else []


def _is_of_all_nodes(size: Key) -> bool:
    """Return whether a number is that of the GPUs of a node times something: the number of nodes."""
    if size.op != "binary" or size.args[0] != "Mult":
        return False
    return any(
        each.op == "devices" or (each.op == "attribute" and bool(rank_names.DEVICE_COUNT.fullmatch(each.args[1])))
        for each in size.args[1:]
    )
