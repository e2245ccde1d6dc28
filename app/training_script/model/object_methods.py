"""Methods of objects that the program does not define: what they return, and what they change in place."""

import ast
import re

from msgspec.structs import replace

from ..syntax import dotted_name
from .amounts import DISTINCT, SHUFFLED, UNCOUNTED, is_dealt_out
from .collective_effects import is_received
from .evaluator_state import Named, Values
from .followed import with_more
from .iterables import UNORDERED_FACT
from .keys import BY_RANK, CLOCK, DIFFERS, LOCAL, TOUCHED, Key
from .length_differences import differ
from .lengths import ELEMENTWISE, RESHAPE, keeps_rows, length
from .library_calls import (
    ASKS_FOR_END,
    FULL_TENSOR,
    LISTED,
    LISTING_METHODS,
    METHODS,
    PROGRESS,
    RANDOM,
    SELECTING_METHODS,
    TRANSPARENT_METHODS,
    TURN,
)
from .library_functions import OF_SUBGROUP, FunctionOfLibraryEvaluator
from .log_levels import LOGGER
from .members import PAIR
from .names import CARRIED, POOLED, roles_of
from .noted_calls import OTHER_FORWARD
from .shown_times import COARSE, SHOWN_TIMES, shows_coarsely
from .tensor_kinds import CAST, CASTS, MADE, PLACES, names_type
from .values import NO_FACTS, Either, Generated, Instance, Mapped, Method, Record, Table, Value

SHARD = frozenset({"shard"})  # the part of a tensor that this rank holds
OF_ANY_LENGTH = {"flatten", "view", "reshape", "squeeze", "unsqueeze", *ELEMENTWISE}
OF_MAPPING = ("keys", "items", "values", "get")  # of which every rank has the same names
READS_PATH = ("open", "read_text", "read_bytes")
OF_GRAPH = frozenset({"graph", "reduced", "unreduced"})
RUNS_ASIDE = re.compile(r"\w*(?:fut|future|thread|promise)", re.IGNORECASE)


class MethodEvaluator(FunctionOfLibraryEvaluator):
    """Calls of methods that the program does not define."""

    def _method(self, method: Method, callee: Value, node: ast.Call, values: Values, named: Named) -> Value:
        owner, name = method.owner, method.name
        roles = roles_of(owner) if type(owner.obj) is Instance else owner.facts
        for role in sorted(roles & METHODS.keys()) if roles else ():
            if effect := METHODS[role].get(name):
                if name == "backward" and role == "graph" and self.no_sync:
                    return self.constant(None)
                return self.effect(effect, node, values, named, owner)
        if "unwrapped" in owner.facts and OTHER_FORWARD.fullmatch(name):
            return self.unknown(node, owner, *values, facts=frozenset({"unreduced"}))
        if rank := self.rank_of_method(owner, name, node, values, named):
            return rank
        if name == "get_group" and owner.key.op in ("mesh", "item"):
            mesh = owner.key if owner.key.op == "mesh" else owner.key.args[0]
            of_part = mesh.op == "mesh" and mesh.args[0] > 1
            return self.unknown(node, facts=OF_SUBGROUP if of_part else NO_FACTS)
        if (
            name == "reverse"
            and not values
            and self.path[-1].differs_by & DIFFERS
            and isinstance(node.func, ast.Attribute)
        ):
            order = self.keys.make("at", *self.place(node))
            self.bind(node.func.value, replace(owner, key=self.keys.make(SHUFFLED, owner.key, order), obj=None))
            return self.constant(None)
        if name == "sort" and isinstance(node.func, ast.Attribute) and "unordered" in owner.facts:
            self.bind(node.func.value, replace(owner, facts=owner.facts - UNORDERED_FACT))
            return self.constant(None)
        if values and (name == "__getitem__" or (name == "get" and isinstance(owner.obj, Table))):
            return self.item(owner, values[0].key, node)
        if owner.key.op == CLOCK and name in SHOWN_TIMES:
            if shows_coarsely(name, values):
                return Value(self.keys.make(COARSE, *(value.key for value in values)))
            return Value(self.keys.make("call", name, owner.key))
        if name == "to_local":
            return self.unknown(node, owner, facts=SHARD)
        if name == "full_tensor":
            return self.effect(FULL_TENSOR, node, values, named, owner)
        if name == "manual_seed" and values and values[0].key.differs_by & BY_RANK:
            own = Value(self.keys.local(RANDOM, *self.site(node)[:3]))
            self.rebind(node.func.value if isinstance(node.func, ast.Attribute) else None, owner, [own], "changed")
            return own
        if name in ("exists", "is_file", "is_dir") and not values:
            return self._exists(name, owner, node)
        if name in SELECTING_METHODS:
            return self.selected(owner, node, in_parts="as_tuple" in named)
        if owner.key.op == "selected" and name in OF_ANY_LENGTH:
            return Value(owner.key, owner.facts & CARRIED)
        if name in ("put", "put_nowait") and "queue" in owner.facts and values:
            self._put(owner.key, values[0])
        if name in ("get", "get_nowait") and "queue" in owner.facts:
            unseen = Value(self.keys.make("at", *self.place(node), differs_by=TOUCHED))  # what a thread has put there
            return self.shared.queued.get(owner.key) or unseen
        if name in LISTING_METHODS and owner.key.differs_by & BY_RANK:
            return Value(self.keys.local(LISTED, *self.place(node)))
        if name in ("keys", "items", "values") and owner.key.op == DISTINCT:
            return Value(owner.key)
        if name in ("add", "setdefault") and values and isinstance(node.func, ast.Attribute):
            self.keep_under(node.func.value, owner, values[0].key)
        if name in ASKS_FOR_END and RUNS_ASIDE.fullmatch(dotted_name(node.func).rpartition(".")[0].rpartition(".")[2]):
            return Value(self.keys.local(PROGRESS, *self.place(node)))
        if name == "add" and "store" in owner.facts:
            return Value(self.keys.local(TURN, *self.place(node)))
        if name == "add_argument" and (default := named.get("default")) and default.key.is_constant:
            self.shared.options |= dict.fromkeys(option_names(values, named), default)
        if name == "parse_args":
            return Value(self.keys.make("options", *self.place(node)))
        if name == "sample" and len(values) == 2 and values[1].key.is_constant:
            drawn = self._opaque(owner, node, values, named)
            return replace(drawn, key=self._drawn(drawn.key, values[1].key, node))
        if name == "permutation" and values and ("alike" in owner.facts or owner.key.differs_by & LOCAL):
            return self.permuted(owner, node, values)
        if name == "shard" and (part := self.part_of_rank(owner, values, named, ("num_shards", "index"))):
            return part
        if name == "select" and values and values[0].key.op == "range" and values[0].key.differs_by & BY_RANK:
            return Value(self.keys.make("item", owner.key, values[0].key), owner.facts & CARRIED)
        if name in ("itertuples", "iterrows") and owner.key.differs_by & BY_RANK:
            return Value(self.keys.make("rows", owner.key, name), owner.facts & CARRIED)
        if name in ("chunk", "tensor_split", "split") and values:
            dim = named.get("dim") or (values[1] if len(values) > 1 else None)
            if name != "split":
                return self.pieces(owner, values[0], node, dim, equal=name == "chunk")
            if pieces := self.pieces_of_size(owner, values[0], node, dim):
                return pieces
        if name == "split" and values and is_dealt_out(owner.key) and length(owner.key, PAIR[0]) is None:
            differs_by = self.unknown(node, owner).key.differs_by
            return Value(self.keys.make(UNCOUNTED, *self.place(node), differs_by=differs_by), owner.facts & CARRIED)
        if name in ("numel", "nelement", "size", "dim"):
            return self.extent(owner, node)
        if name in ("clamp", "clamp_min"):
            bounds = [each.key for each in (*values, *named.values())]
            return Value(self.keys.make("max", owner.key, *bounds), owner.facts & CARRIED)
        if (name in CASTS or name in ("to", "type")) and (typed := self._cast(owner, name, values, named)):
            return typed
        if name in TRANSPARENT_METHODS:
            facts = owner.facts - OF_GRAPH if name == "detach" else owner.facts
            return Value(owner.key, facts, owner.obj if isinstance(owner.obj, Instance) else None)
        if name == "get" and values and values[0].key.is_constant and isinstance(values[0].key.value, str):
            return self.variable(values[0].key.args[0], owner) or self.item(owner, values[0].key, node)
        if name in ("items", "values") and isinstance(owner.obj, Mapped) and not values:
            return Value(owner.key, obj=Generated(self._of_mapping(owner.obj.element, node, pairs=name == "items")))
        if name in ("items", "keys", "values") and "checkpoint" in owner.facts and not values:
            return owner
        if name in ("items", "values") and isinstance(owner.obj, Record) and not values and not named:
            fields = owner.obj.fields
            parts = tuple([Value(each.key, obj=(self.constant(text), each)) for text, each in fields.items()])
            return replace(self.unknown(node, owner), obj=parts if name == "items" else tuple(fields.values()))
        if name == "get" and values and owner.key.op == "mapping":
            default = values[1].key if len(values) > 1 else self.keys.none
            return Value(self.keys.make("item", owner.key, values[0].key, default))
        if name == "update" and values and isinstance(node.func, ast.Attribute) and (of := _all_of(node.func.value)):
            if values[0].key.op != "built":  # of a comprehension, which forms names of its own
                self.set_any_attribute(self.evaluate(of), values[0])
            return self.constant(None)
        if name in ("add_", "mul_", "div_", "sub_", "append", "extend", "update"):
            target = node.func.value if isinstance(node.func, ast.Attribute) else None
            if name == "update" and target is not None and len(values) == 1 and is_received(values[0].key):
                self.rebind_result(target, values[0])  # the entries are those that one rank sent to all
                return self.constant(None)
            change = "appended" if name == "append" else "changed"
            more = with_more(owner.obj, values, extends=name != "append") if name in ("append", "extend") else None
            if target is not None and more is not None:
                self.collect(target, owner, Value(self.keys.make(change, owner.key, values[0].key), obj=more))
                return self.constant(None)
            if name == "extend" and (count := self._even_length(values)):
                values, change = [values[0], count], "extended"
            self.rebind(target, owner, values, change)
            return owner
        at_first = name == "insert" and values and values[0].key is self.keys.constant(0)
        if at_first and "pooled" in owner.facts and isinstance(node.func, ast.Attribute):
            self.rebind_result(node.func.value, replace(owner, facts=owner.facts - POOLED))
            return self.constant(None)
        if name == "unbind" and (not values or values[0].key is self.keys.constant(0)):
            return Value(owner.key, owner.facts & CARRIED)  # the rows of a tensor
        if not values and not named and name != "rank" and (known := self.by_name(name, called=True)):
            return known
        if owner.key.op == LOGGER and (known := self._of_logger(owner.key, name, values)):
            return known
        if owner.facts & {"prepared"}:
            return self.unknown(node, owner, *values)
        given = [each.key for each in (*values, *named.values())]
        if keeps_rows(name, given) and _has_known_rows(owner.key):
            return Value(self.keys.make("rows", owner.key, name, *given), owner.facts & CARRIED)
        if name in ("view", "reshape") and values and not owner.key.differs_by:
            made = self.keys.make("call", RESHAPE, owner.key, *given)
            if length(made, PAIR[0]) is not None:
                return Value(made, owner.facts & CARRIED)
        if name in PLACES:
            places = self._computed(f"torch.{name}", [self.unknown(node, owner, *values)])
            places.key.rows_of = owner.key if keeps_rows(name, given) else None
            return places
        made = self._opaque(owner, node, values, named)
        if not keeps_rows(name, given):
            made.key.rows_of = None  # the call that gives the object may begin at the same place
        elif made.key is not owner.key:
            made.key.rows_of = owner.key
        path = owner.key if name in READS_PATH else None if name in OF_MAPPING else self.file_of(owner.key)
        return self.content(made, path) if path else made

    def _of_logger(self, logger: Key, name: str, values: Values) -> Value | None:
        """Return what a method of a logger gives that asks for its level, or sets it."""
        levels, level = self.shared.log_levels, values[0].key if values else self.keys.none
        if name == "setLevel":
            levels.store(logger, level, self.path[-1])
            return self.constant(None)
        asked = {"isEnabledFor": levels.is_enabled(logger, level), "getEffectiveLevel": levels.of(logger)}.get(name)
        return asked and Value(asked)

    def _put(self, queue: Key, value: Value) -> None:
        """Keep what a queue gives: one of what was put there, unless a rank's own data go through it."""
        known = self.shared.queued.get(queue, value)
        if known is None or value.key.differs_by & LOCAL:
            self.shared.queued[queue] = None
        elif known.key is value.key:
            self.shared.queued[queue] = value
        else:
            both = self.keys.make("one of", known.key, value.key)
            self.shared.queued[queue] = Value(both, known.facts | value.facts)

    def _cast(self, owner: Value, name: str, values: Values, named: Named) -> Value | None:
        """Return a tensor in another type, if it is a new one or the type depends on the rank."""
        given = named.get("dtype") or (values[0] if values else None)
        to = self.keys.make("library", f"torch.{CASTS[name]}") if name in CASTS else given.key if given else None
        if to is None or not names_type(to):
            return None
        key = owner.key
        if to.differs_by & BY_RANK:
            return replace(owner, key=self.keys.make(CAST, key, to))
        is_typed = key.op == "call" and str(key.args[0]).removeprefix("torch.") in MADE | PLACES
        return replace(owner, key=self.keys.make("call", *key.args, to)) if is_typed else None

    def _even_length(self, values: Values) -> Value | None:
        """Return the number of elements of the first of these values, if all ranks have as many."""
        counts = {length(values[0].key, rank) for rank in PAIR} if values else {None}
        return self.constant(counts.pop()) if len(counts) == 1 and None not in counts else None

    def _of_mapping(self, held: Value, node: ast.AST, *, pairs: bool) -> Value:
        """Return what a loop over a mapping gets: what it holds, or pairs of that and its name."""
        name = self.unknown(node)
        return Value(self.keys.make("sequence", name.key, held.key), obj=(name, held)) if pairs else held

    def _drawn(self, drawn: Key, count: Key, node: ast.AST) -> Key:
        """Return so many members of a population: a sequence of that length if the number is written out."""
        known = type(count.value) is int and drawn.op != "local"
        return (
            self.keys.make("elements", count.value, *self.place(node), differs_by=drawn.differs_by) if known else drawn
        )

    def collect(self, target: ast.expr, before: Value, after: Value) -> None:
        """Bind a sequence with a further element; of an attribute under the conditions around, as nothing joins it."""
        path = self.path[-1]
        if isinstance(target, ast.Attribute) and not path.is_constant:
            again = isinstance(before.obj, Either) and before.obj.test is path and isinstance(after.obj, Either)
            then, other = (after.obj.then, before.obj.other) if again else (after, before)
            after = replace(after, obj=Either(path, then, other))
            self.stored |= {target.attr: after} if target.attr in self.stored else {}
        self.bind(target, after)


def _has_known_rows(tensor: Key) -> bool:
    """Return whether the number of rows is written out: it is the same on all ranks, or surely another on each."""
    return differ(tensor, length) if tensor.differs_by else length(tensor, PAIR[0]) is not None


def _all_of(held: ast.expr) -> ast.expr | None:
    """Return the object of which an expression is the mapping of all attributes."""
    match held:
        case ast.Attribute(value=owner, attr="__dict__") | ast.Call(func=ast.Name(id="vars"), args=[owner]):
            return owner
        case _:
            return None


def option_names(values: Values, named: Named) -> list[str]:
    """Return the attributes that an option of the command line is stored as."""
    if (stored := named.get("dest")) and stored.key.is_constant:
        return [str(stored.key.value)]
    texts = [str(each.key.value) for each in values if each.key.is_constant]
    return [text.lstrip("-").replace("-", "_") for text in texts if text.startswith("--")]
