"""Values of names and attributes: the one assigned in the program, else the one that the name suggests."""

import ast

from msgspec.structs import replace

from ...launchers.rank_variables import LOCAL_WORLD_SIZES, RANK_SCOPES, WORLD_SIZES
from .. import rank_names
from ..syntax import last_name
from .amounts import BATCH, is_of_data, is_of_parts, rows_of
from .distinct_names import is_written_out
from .evaluator_state import EvaluatorState
from .followed import is_followed
from .keys import BY_RANK, DIFFERS, LOCAL, TOUCHED, UNTIL_KNOWN, Key
from .library_calls import FIRST_ATTRIBUTES, FIRST_OF_ARGUMENTS, INDEX, RANK_ATTRIBUTES, SELECTED
from .library_collectives import ROLES_OF_ATTRIBUTES
from .values import (
    NO_FACTS,
    Bound,
    ClassRef,
    Either,
    FunctionRef,
    Generated,
    Instance,
    Library,
    Mapped,
    Method,
    Module,
    Record,
    Super,
    Table,
    Value,
    is_elements,
)

CARRIED = frozenset(
    {"graph", "gathered", "unordered", "pooled", "across", "divided", "reduced", "unreduced", "world", "checkpoint"}
)
POOLED = frozenset({"pooled"})  # of all ranks, from the first one on
CARRIED |= {"of_engine", "group", "members", "own", "gradient", "shard", "alike", "dtensor"}
CARRIED_ALONG = CARRIED - {"unordered"}  # to an attribute
ALIKE = frozenset({"alike"})  # drawn from numbers that are the same on all ranks
GRADIENT = frozenset({"gradient"})  # of a parameter
MOST_NESTED = 4  # conditions that choose one object
OWN_GROUP = frozenset({"own"})  # a group that depends on the rank
SIGNAL = "a signal"
BY_WORLD = frozenset({"world"})  # computed with the number of ranks
OF_PROCESSES = frozenset({"accelerator", "fabric", "lightning", "trainer", "engine"})  # that know the ranks
UNWRAPPED = frozenset({"unwrapped"})  # the model inside of a wrapper
OF_LOADER = frozenset({"batch_size", "batch_sampler", "dataset", "num_workers", "sampler"})
# Objects whose attribute ``rank`` is this process's rank.
OWNERS = {"args", "opt", "opts", "options", "cfg", "config", "conf", "self", "cls", "hparams", "params", "flags", "ctx"}
OWNERS |= {
    "state",
    "env",
    "dist",
    "comm",
    "trainer",
    "accelerator",
    "fabric",
    "strategy",
    "dist_args",
    "settings",
    "hvd",
}


class NameEvaluator(EvaluatorState):
    """Names and attributes in one function."""

    def unknown(self, node: ast.AST, *parts: Value, facts: frozenset[str] = NO_FACTS) -> Value:
        """Return a value of which only the dependence on data of one rank is known."""
        differs_by = 0
        for part in parts:
            key = part.key
            if key.differs_by:
                differs_by |= key.differs_by & LOCAL
                if key.differs_by & (BY_RANK | TOUCHED):
                    differs_by |= LOCAL if is_of_data(key) else TOUCHED
            if part.facts:
                facts |= part.facts & CARRIED
        return Value(self.keys.make("at", *self.place(node), differs_by=differs_by), facts)

    def by_name(self, name: str, called: bool = False) -> Value | None:
        """Return what a name suggests: a rank, a first process, a size, a flag of distributed runs."""
        known = self.shared.suggested_of_calls if called else self.shared.suggested
        if name not in known:
            known[name] = self._by_name(name, called)
        return known[name]

    def _by_name(self, name: str, called: bool) -> Value | None:
        match rank_names.meaning(name, called):
            case "rank", kind:
                return Value(self.keys.rank(kind))
            case "first", kind:
                return Value(self.keys.is_first(kind))
            case "last", _:
                last = self.keys.make("binary", "Sub", self.keys.make("world", "global"), self.keys.constant(1))
                return Value(self.keys.make("compare", "Eq", self.keys.rank("global"), last))
            case "size", kind:
                return Value(self.keys.make("world", kind), BY_WORLD)
            case "flag", _:
                return self.constant(True)
            case _:
                return None

    def named(self, name: str, value: Value) -> Value:
        """Return a value that gets a name: what it is, or what the name says if that is not known."""
        key = value.key
        if key.op not in ("at", "constant") or value.obj is not None or value.facts or key.differs_by & DIFFERS:
            return value
        if key.op == "constant" and not (key.value in (0, -1, None) and rank_names.rank_kind(name)):
            return value
        suggested = self.by_name(name) or value
        if value.key.is_constant and suggested.key.op == "rank":
            return Value(self.keys.rank(suggested.key.args[0], UNTIL_KNOWN))
        return suggested

    def lookup(self, name: str) -> Value | None:
        module = self.module
        if self.env is not module.env and (found := self.env.get(name) or self.outer.get(name)):
            return found
        found = module.env.get(name) or (None if module.evaluated else self.module_value(module, name))
        return found and self._held(module, name, found)

    def _held(self, module: Module, name: str, value: Value) -> Value:
        """Return the value of a name of a module, unknown if it is None until some function assigns it."""
        if name in module.parsed.rebound and name in module.parsed.signalled:
            return Value(self.keys.local(SIGNAL, module.path, name))
        if value.key is self.keys.none and name in module.parsed.rebound and self.env is not module.env:
            return self.by_name(name) or Value(self.keys.make("name", module.path, name))
        return value

    def attribute(self, owner: Value, name: str, node: ast.AST) -> Value:
        obj = owner.obj
        made_of = type(obj)  # which is faster than ``isinstance``: most expressions come here
        if made_of is Library:
            return self.library(f"{obj.name}.{name}")
        if made_of is Module:
            return self.module_value(obj, name) or self.unknown(node)
        if made_of is Instance and name in obj.cls.module.parsed.signalled:
            return Value(self.keys.local(SIGNAL, obj.cls.module.path, name))
        if made_of is Instance and self.set_here and (held := self.held_here(owner, name)):
            return held
        if name in self.stored and self.is_made_here(owner):
            return self.stored[name]
        if made_of is Instance and (found := self.attribute_of_instance(obj, name)) is not None:
            return replace(found, obj=found.obj._replace(held=owner)) if isinstance(found.obj, Bound) else found
        if made_of is ClassRef and (method := obj.find(name)):
            function = FunctionRef(method[0].module, method[1], method[0].env, method[0])
            of_class = any(last_name(each) == "classmethod" for each in method[1].decorator_list)
            return Value(self.keys.make("method", id(method[1])), obj=Bound(function, owner) if of_class else function)
        if made_of is ClassRef and (held := obj.attribute(name)):
            return held
        if made_of is ClassRef and name == "apply" and (method := obj.find("forward")) and _is_autograd(obj):
            function = FunctionRef(method[0].module, method[1], method[0].env, method[0])
            return Value(self.keys.make("method", id(method[1])), obj=Bound(function, owner))  # with the class as ctx
        place = f"{id(owner.key)}.{name}"
        stored = self.held_at(place)
        if stored is not None:
            return stored
        if made_of is Record and name in obj.fields:
            return obj.fields[name]
        if made_of is Super:
            return self._inherited(obj, name) or self.unknown(node)
        if owner.facts and owner.facts & OF_PROCESSES:
            if name in RANK_ATTRIBUTES:
                return Value(self.keys.rank(RANK_ATTRIBUTES[name], name))
            if name in FIRST_ATTRIBUTES:
                return Value(self.keys.is_first(FIRST_ATTRIBUTES[name]))
        if name in OF_LOADER and owner.key.op == "local" and owner.key.args[0] == BATCH:
            return self.unknown(node)  # of one of several loaders: what goes over them gets no data
        if name == "shape":
            return self.extent(owner, node)
        if (made_of is Instance or owner.facts) and (role := role_of_attribute(roles_of(owner), name)):
            return Value(self.keys.make("attribute", self.without_rank(owner.key, node), name), frozenset({role}))
        if name in ("accelerator", "fabric") and not owner.facts:
            return Value(self.keys.make("attribute", self.without_rank(owner.key, node), name), frozenset({name}))
        if name == "module" and owner.facts & {"ddp", "engine", "apex", "prepared"}:
            key, inner = self.keys.make("attribute", owner.key, name), self.shared.inner.get(owner.key)
            return Value(key, UNWRAPPED if owner.facts & {"ddp", "prepared"} else NO_FACTS, inner)
        if not owner.facts and not is_elements(obj):
            kind = rank_names.rank_kind(name)
            if kind and (kept := self.shared.ranks.get(place)) and kept.key.args[0] != kind:
                return kept  # whatever its name says
            if kind and (name != "rank" or self._owns_rank(node)):
                return Value(self.keys.rank(kind), obj=Method(owner, name) if name.startswith("get_") else None)
            if not kind and (kept := self.shared.of_first.get(place)):
                return kept
            if not kind and (suggested := self.by_name(name)):
                return Value(suggested.key, obj=Method(owner, name))
            if (
                name in FIRST_OF_ARGUMENTS
                and isinstance(node, ast.Attribute)
                and last_name(node.value).endswith("args")
            ):
                return Value(self.keys.is_first(FIRST_OF_ARGUMENTS[name]))
        facts = owner.facts & CARRIED_ALONG if name != "grad" else owner.facts & CARRIED | GRADIENT
        # What an object made with a rank holds is not its rank: the type of a device, the name of a file.
        default = self.shared.options.get(name) if owner.key.op == "options" else None
        key = self.keys.make(
            "attribute", self.without_rank(owner.key, node), name, *((default.key,) if default else ())
        )
        return Value(key, facts, Method(owner, name))

    def held_at(self, place: str) -> Value | None:
        """Return what a statement has put into a place, here or in the module or function around."""
        return self.env.get(place) or self.outer.get(place) or self.module.env.get(place)

    def held_here(self, owner: Value, name: str) -> Value | None:
        """Return what an attribute holds where a statement of this function has set it."""
        place = f"{id(owner.key)}.{name}"
        return self.env.get(place) if place in self.set_here else None

    def is_made_here(self, owner: Value) -> bool:
        """Return whether an object is the one that a constructor makes, in that constructor."""
        made = self.function is not None and getattr(self.function.node, "name", "") == "__init__"
        return made and bool(self.parameters) and owner is self.env.get(self.parameters[0])

    def extent(self, owner: Value, node: ast.AST) -> Value:
        """Return the size of a tensor: the same on every rank, except of elements selected by their values."""
        rows = rows_of(owner.key)
        if owner.key.op == "selected" or (rows is not None and rows.differs_by & LOCAL):
            return Value(self.keys.local(SELECTED, *self.place(node)))
        return Value(self.keys.make("at", *self.place(node)))

    def _inherited(self, obj: Super, name: str) -> Value | None:
        if found := obj.cls.find_above(obj.method, name):
            function = FunctionRef(found[0].module, found[1], found[0].env, obj.cls)
            return Value(self.keys.make("bound", id(found[1])), obj=Bound(function, obj.owner))
        return None

    def without_rank(self, key: Key, node: ast.AST) -> Key:
        """Return a value for something inside of what ``key`` is: it may differ between ranks only as their data do."""
        return self.unknown(node, Value(key)).key if key.differs_by & BY_RANK else key

    def item(self, owner: Value, index: Key, node: ast.AST) -> Value:
        """Return an element of a sequence or a mapping."""
        place = index.value if index.is_constant else None
        if place is None and self.qualified(owner) == "os.environ":
            return Value(self.keys.make("at", *self.place(node), differs_by=TOUCHED))  # which may be that of a rank
        if is_elements(owner.obj) and isinstance(place, int) and -len(owner.obj) <= place < len(owner.obj):
            return owner.obj[place]
        if isinstance(owner.obj, (Mapped, Generated)) and index.op != "slice":
            return owner.obj.element
        if isinstance(owner.obj, Table):
            known = zip(owner.obj.names, owner.obj.held, strict=True)
            if found := next((value for name, value in known if name.key is index), None):
                return found
        if "sampler" in owner.facts:
            return Value(self.keys.local(INDEX, *self.place(node)))
        if type(place) is int and owner.key.op == "if" and all(side.op == "sequence" for side in owner.key.args[1:]):
            test, *sides = owner.key.args
            if all(-len(side.args) <= place < len(side.args) for side in sides):
                return Value(self.keys.either(test, *(side.args[place] for side in sides)), owner.facts & CARRIED)
        if owner.key.op == "mapping" and (entry := self.keys.make("item", owner.key, index)).op != "item":
            return Value(entry, owner.facts & CARRIED)
        if type(place) is int and (column := self._column(owner.key, place)):
            return Value(column, owner.facts & CARRIED)
        kept = not index.is_constant or is_of_parts(owner.key) or is_written_out(owner.key)
        held = owner.key if kept else self.without_rank(owner.key, node)
        own = OWN_GROUP if "members" in owner.facts and index.differs_by & BY_RANK else NO_FACTS
        moved = POOLED if index.differs_by & BY_RANK else NO_FACTS  # what begins at the part of this rank
        value = Value(self.keys.make("item", held, index), (owner.facts & CARRIED - moved) | own)
        fields = owner.obj.fields.items() if isinstance(owner.obj, Record) else ()
        if 1 < len(fields) <= MOST_NESTED and is_followed(tuple([each for _, each in fields])):
            return self._one_of_fields(index, list(fields), value)
        return value

    def _column(self, row: Key, place: int) -> Key | None:
        """Return what is at one place in each row of a table, for the row that is chosen; None if it is no table."""
        if row.op != "item" or row.args[0].op not in ("sequence", "mapping") or len(row.args) != 2:  # or a default
            return None
        table, chosen = row.args
        rows = table.args[1 if table.op == "mapping" else 0 :: 2 if table.op == "mapping" else 1]
        if not rows or any(each.op != "sequence" or not -len(each.args) <= place < len(each.args) for each in rows):
            return None
        cells = [each.args[place] for each in rows]
        if all(each is cells[0] for each in cells):
            return cells[0]
        names = table.args[::2]
        held = cells if table.op == "sequence" else [each for pair in zip(names, cells, strict=True) for each in pair]
        return self.keys.make("item", self.keys.make(table.op, *held), chosen)

    def _one_of_fields(self, index: Key, fields: "list[tuple[str, Value]]", value: Value) -> Value:
        """Return a function or an object of a mapping of such, by a name that is not known."""
        (name, held), *rest = fields
        if not rest:
            return replace(value, facts=held.facts, obj=held.obj)
        test = self.keys.make("compare", "Eq", index, self.keys.constant(name))
        return replace(value, obj=Either(test, held, self._one_of_fields(index, rest, value)))

    def _owns_rank(self, node: ast.AST) -> bool:
        held = node.value if isinstance(node, ast.Attribute) else node.args[0] if isinstance(node, ast.Call) else None
        owner = last_name(held).lower().lstrip("_") if held else ""
        return owner in OWNERS or owner.endswith(("args", "config", "cfg", "opts", "info"))

    def variable(self, name: str, owner: Value) -> Value | None:
        """Return the rank or size in ``os.environ[name]`` or ``cfg[name]``."""
        of_process = self.qualified(owner).endswith("environ")
        if name in RANK_SCOPES and (of_process or name.isupper()):
            return Value(self.keys.rank(RANK_SCOPES[name], name if of_process else ""))
        if name in WORLD_SIZES or name in LOCAL_WORLD_SIZES:
            return Value(self.keys.make("world", "local" if name in LOCAL_WORLD_SIZES else "global"), BY_WORLD)
        if not owner.facts and (owner.obj is None or of_process) and rank_names.rank_kind(name):
            return Value(self.keys.rank(rank_names.rank_kind(name) or "global"))
        return None

    def scope(self) -> dict[str, Value]:
        """Return the names that a function defined here can see."""
        return {**self.outer, **self.env} if self.env is not self.module.env else {}


def roles_of(value: Value) -> frozenset[str]:
    """Return the facts of a value, with the roles of an object by the library classes that its class inherits from."""
    return value.facts | value.obj.cls.roles if isinstance(value.obj, Instance) else value.facts


def role_of_attribute(roles: frozenset[str], name: str) -> str | None:
    """Return the role of what an object with these roles holds, or is passed, under a name."""
    for role in roles:
        if role in ROLES_OF_ATTRIBUTES and name in ROLES_OF_ATTRIBUTES[role]:
            return ROLES_OF_ATTRIBUTES[role][name]
    return None


def _is_autograd(cls: ClassRef) -> bool:
    """Return whether a class is a function with a backward pass of its own."""
    return any(base.endswith("autograd.Function") for base in cls.library_bases())


def as_own(value: Value) -> Value:
    """Return a group that only some ranks have, or a sequence that holds it, as one of these ranks' own."""
    if "members" not in value.facts:
        return value
    held = tuple(map(as_own, value.obj)) if is_elements(value.obj) else value.obj
    return replace(value, facts=value.facts | OWN_GROUP, obj=held)
