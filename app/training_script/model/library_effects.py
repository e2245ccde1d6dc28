"""Calls of libraries and of unknown functions: the collectives that they are, and what they return."""

import ast
import builtins
import re
import sys

from .. import rank_names
from ..syntax import last_name
from .amounts import SHUFFLED, is_shared_out, lengthwise
from .buffers import has_buffers
from .followed import with_more
from .function_steps import Noted
from .keys import BY_RANK, DIFFERS, LOCAL, OF_BRANCHES, TOUCHED, Key, parts
from .library_calls import (
    FILLED_NAMES,
    FORWARD,
    FULL_TENSOR,
    FUNCTIONS,
    GENERATORS,
    LOCAL_RESULTS,
    METHODS,
    OF_FILE,
    RANDOM,
    RANDOM_TENSORS,
    SEEDS,
    SELECTED,
    SELECTING_METHODS,
    SELECTIONS,
    SHUFFLES,
    TIMES,
    TRANSPARENT,
    TRANSPARENT_METHODS,
    UNIQUE,
    Effect,
)
from .names import CARRIED, UNWRAPPED, Named, Values
from .noted_calls import OTHER_FORWARD, UNORDERED
from .rank_values import RankEvaluator
from .sequences import Event
from .values import NO_FACTS, Either, Generated, Instance, Library, Method, Record, Value, is_elements

KNOWN_MODULES = {*sys.stdlib_module_names, "torch", "numpy", "tqdm", "wandb", "yaml", "tensorboardX"}
NAMESPACES = {"argparse.Namespace", "types.SimpleNamespace"}
SUBGROUPS = {"torch.distributed.new_subgroups", "torch.distributed.new_subgroups_by_enumeration"}
OF_SUBGROUP = frozenset({"group", "members", "own"})
QUEUES = {"queue.Queue", "queue.SimpleQueue", "multiprocessing.Queue", "torch.multiprocessing.Queue"}
LOADS = {"json.load", "pickle.load", "numpy.load", "yaml.safe_load", "safetensors.torch.load_file"}
BATCH = "a batch"
GATHERS = {"all_gather", "all_gather_into_tensor"}  # without gradients for what they gather
POOLED = frozenset({"pooled"})  # of all ranks
UNORDERED_FACT = frozenset({"unordered"})
SENT = "sent"  # by one rank to all
SAME = {"shared", "filled"}  # results of collectives
WRAPPED = {"ddp", "engine", "apex"}
SHARDED = {"fsdp", "engine", "prepared"}
COUNTED = {"range", "built", "changed", "appended"}  # sequences whose length may follow from data of one rank
KNOWN_METHODS = re.compile(
    r"add_argument|add_scalar|append|close|copy|cpu|critical|cuda|debug|detach|error|eval|exception|extend|float|flush"
    r"|format|get|info|int|items?|join|keys|log|numpy|open|pop|print|put|read|split|startswith|strip|to|values|warn(?:ing)?"
    r"|write"
)

BUILTINS = frozenset(dir(builtins))


class LibraryEvaluator(RankEvaluator):
    """Calls of what the program does not define."""

    def _opaque(self, callee: Value, node: ast.Call, values: Values, named: Named) -> Value:
        """Return the result of a call that cannot be followed: the rank in its arguments is not in the result."""
        if self._is_harmless(callee, node):
            return self.unknown(node, callee, *values, *named.values())
        self.unknown_calls += 1
        result = self.unknown(node, callee, *values, *named.values())
        result = result._replace(facts=result.facts - UNORDERED_FACT)  # what it makes of a set is not known
        foreign = result.key.spread & LOCAL and not isinstance(node.func, ast.Attribute)
        return result._replace(facts=result.facts | {"foreign"}) if foreign else result

    def _is_harmless(self, callee: Value, node: ast.Call) -> bool:
        """Return whether a call surely makes no collective."""
        if name := self.qualified(callee):
            return name.partition(".")[0] in KNOWN_MODULES or name in BUILTINS
        if isinstance(node.func, ast.Name):
            return node.func.id in BUILTINS
        return isinstance(node.func, ast.Attribute) and bool(KNOWN_METHODS.fullmatch(node.func.attr))

    def _computed(self, name: str, values: list[Value], facts: frozenset[str] = NO_FACTS) -> Value:
        carried = frozenset[str]().union(*(value.facts for value in values)) & CARRIED if values else NO_FACTS
        return Value(self.keys.make("call", name, *(value.key for value in values)), facts | carried)

    def _library(self, name: str, callee: Value, node: ast.Call, values: Values, named: Named) -> Value:
        last = name.rpartition(".")[2]
        if name in FUNCTIONS:
            return self.effect(FUNCTIONS[name], node, values, named, None)
        if rank := self.rank_of_library(name, values, named):
            return rank
        if name in ("os.getenv", "os.environ.get") and values and values[0].key.is_constant:
            variable = values[0].key.value
            found = (
                self.variable(variable, Value(callee.key, obj=Library("os.environ")))
                if isinstance(variable, str)
                else None
            )
            return found or self.unknown(node)
        if name == "deepspeed.initialize":
            engine = Value(self.keys.make("at", *self.place(node)), frozenset({"engine"}))
            rest = [self.unknown(node) for _ in range(3)]
            return Value(engine.key, obj=(engine, *rest))
        if name in SUBGROUPS:
            own = Value(self.keys.make("at", *self.place(node)), OF_SUBGROUP)
            return Value(own.key, obj=(own, self.unknown(node)))
        if name in NAMESPACES and not values:
            return Value(self.keys.make("at", *self.place(node)), obj=Record(named))
        if name == "dict" and named and not values and "**" not in named:
            pairs = (each for text, value in named.items() for each in (self.keys.constant(text), value.key))
            return Value(self.keys.make("mapping", *pairs), obj=Record(named))
        if name in LOCAL_RESULTS:
            if LOCAL_RESULTS[name] == RANDOM and self.shared.seeded and not self._is_seeded_by_rank(name):
                return self.unknown(node)
            return Value(self.keys.local(LOCAL_RESULTS[name], *self.place(node)))
        if name in QUEUES:
            return Value(self.keys.make("at", *self.place(node)), frozenset({"queue"}))
        if name in GENERATORS and (not values or values[0].key.spread & DIFFERS):
            return Value(self.keys.local(RANDOM, *self.place(node)))
        if name == "hash":
            return self.unknown(node, *values)
        if name in TIMES:
            return Value(self.keys.make("at", *self.place(node), spread=TOUCHED))
        if name in SEEDS and values:
            change = set.add if values[0].key.spread & BY_RANK else set.discard
            change(self.shared.seeded_by_rank, SEEDS[name])
        if name in RANDOM_TENSORS:
            generator = named.get("generator")
            if generator.key.spread & LOCAL if generator else "torch" in self.shared.seeded_by_rank:
                return Value(self.keys.local(RANDOM, *self.site(node)[:3]))
        if last in UNIQUE:
            return Value(self.keys.local(last, *self.place(node)))
        if name in ("os.path.exists", "os.path.isfile", "os.path.isdir") and values:
            return self._exists(name, values[0], node)
        if name in TRANSPARENT and values and name != "sorted":
            return values[0]
        if name in SELECTIONS and values:
            return self.selected(values[0], node)
        if name == "torch.numel" and values:
            return self.extent(values[0], node)
        if name in SHUFFLES and node.args and not (self.shared.seeded and not self._is_seeded_by_rank(name)):
            order = self.keys.make("at", *self.place(node), spread=TOUCHED)  # a seed may be set elsewhere
            self.rebind(node.args[0], values[0], [Value(order)], SHUFFLED)
            return self.constant(None)
        if name in ("len", "range", "min", "max", "sum", "divmod", "pow"):
            if name == "len" and values and is_elements(values[0].obj):
                return self.constant(len(values[0].obj))
            if name == "len" and values and values[0].key.op == "selected":
                return Value(self.keys.local(SELECTED, *self.place(node)))
            facts = frozenset[str]().union(*(value.facts for value in values)) & CARRIED
            if name != "len" or not values:
                return Value(self.keys.make(name, *(value.key for value in values)), facts)
            counted = lengthwise(self.keys, values[0].key)
            if counted.spread & LOCAL:
                return self._length(counted, node)
            return Value(self.keys.make("length", counted), facts)
        if (
            name == "getattr"
            and len(values) > 1
            and isinstance(values[1].key.value if values[1].key.is_constant else None, str)
        ):
            return self.attribute(values[0], values[1].key.args[0], node)
        if name == "hasattr" and len(values) > 1 and values[1].key is self.keys.constant("module"):
            return self.constant(True) if values[0].facts & WRAPPED else self.unknown(node)
        if name == "isinstance" and len(values) > 1:
            if "ddp" in values[0].facts and self.qualified(values[1]).endswith("DistributedDataParallel"):
                return self.constant(True)
            return self.unknown(node)  # data of one rank have the same type on every rank
        if name in ("set", "frozenset"):
            return self.unknown(node, *values, facts=UNORDERED_FACT)
        if name == "sorted" and values:
            return values[0]._replace(facts=values[0].facts - UNORDERED_FACT)
        if name == "enumerate" and values and "unordered" in values[0].facts:
            self.note_order(node, values[0])
        if name == "enumerate" and values:
            return Value(self.keys.make("enumerate", values[0].key), obj=(values[0],))
        if name == "next" and values and isinstance(values[0].obj, Generated):
            return self.unknown(node)  # by hand, and mostly without an end
        if name == "next" and values:
            return self.element(values[0], node.args[0])
        if name == "zip" and values:
            return Value(self.keys.make("zip", *(value.key for value in values)), obj=tuple(values))
        if last == "join" and isinstance(callee.obj, Library):
            return self._computed(name, values)
        if not name.startswith(("torch.", "numpy.", "math.")) or name.startswith("torch.distributed"):
            known = self.by_name(last, called=True) if not values and not named else None
            if known:
                return known
        if name.startswith(("torch.cuda.", "torch.distributed.")) and rank_names.is_distributed_flag(last):
            return self.constant(True)
        if name in LOADS and values:
            return self._loaded(node, values[0])
        if name.startswith("torch."):
            given = [*values, *named.values()]
            if name in ("torch.matmul", "torch.mm") and len(given) == 2:
                return across(given[0], given[1], self._computed(name, given))
            return self._computed(name, given) if given else self.unknown(node)
        return self._opaque(callee, node, values, named)

    def _is_seeded_by_rank(self, name: str) -> bool:
        """Return whether each rank has random numbers of its own in the module of a function."""
        return name.partition(".")[0] in self.shared.seeded_by_rank

    def _exists(self, name: str, path: Value, node: ast.AST) -> Value:
        """Return whether a file exists: data of one rank if the module itself writes it."""
        if any(part.is_constant and part.value in self.module.parsed.written for part in parts(path.key)):
            return Value(self.keys.local(OF_FILE, *self.place(node), path.key))
        return self._computed(name, [path])

    def _length(self, key: Key, node: ast.AST) -> Value:
        """Return the length of data of one rank: the same on all, unless their values decide what is in a sequence."""
        if key.op == "built":
            iterables = key.args[1 : 1 + key.args[0]]
            return Value(self.keys.make("length", *iterables))
        by_name = isinstance(node, ast.Call) and bool(node.args) and is_loader_by_name(node.args[0])
        if (key.op in COUNTED or not is_of_batch(key)) and not (by_name and key.op != "loader"):
            return Value(self.keys.make("length", key))
        return self.unknown(node)  # loaders give all ranks batches of one size

    def note_order(self, node: ast.expr, held: Value) -> None:
        """Note that the order of a set is taken."""
        call = node if isinstance(node, ast.Call) else ast.copy_location(ast.Call(node, [], []), node)
        self.items.append(Noted(UNORDERED, self.site(node), call, None, [held], {}, self.constant(None)))

    def _pieces(self, whole: Value, count: Value, node: ast.AST) -> Value:
        """Return a tensor in so many pieces."""
        spread = self.unknown(node, whole).key.spread
        return Value(self.keys.make("pieces", *self.place(node), count.key, spread=spread), whole.facts & CARRIED)

    def _loaded(self, node: ast.AST, path: Value, facts: frozenset[str] = NO_FACTS) -> Value:
        """Return the content of a file: the same for all ranks, unless its name has the rank in it."""
        spread = TOUCHED if path.key.spread & (BY_RANK | TOUCHED) else 0
        return Value(self.keys.make("at", *self.place(node), spread=spread), facts)

    def selected(self, owner: Value, node: ast.AST) -> Value:
        """Return the elements of a tensor that fulfil a condition: their number is data of one rank."""
        if owner.key.is_constant or owner.key.op in SAME:
            return self.unknown(node, owner)
        return Value(self.keys.make("selected", owner.key, *self.place(node)), owner.facts & CARRIED)

    def _method(self, method: Method, callee: Value, node: ast.Call, values: Values, named: Named) -> Value:
        owner, name = method.owner, method.name
        for role in sorted(owner.facts & METHODS.keys()) if owner.facts else ():
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
        if name == "sort" and isinstance(node.func, ast.Attribute) and "unordered" in owner.facts:
            self.bind(node.func.value, owner._replace(facts=owner.facts - UNORDERED_FACT))
            return self.constant(None)
        if name == "full_tensor":
            return self.effect(FULL_TENSOR, node, values, named, owner)
        if name == "manual_seed" and values and values[0].key.spread & BY_RANK:
            return Value(self.keys.local(RANDOM, *self.site(node)[:3]))
        if name in ("exists", "is_file", "is_dir") and not values:
            return self._exists(name, owner, node)
        if name in SELECTING_METHODS:
            return self.selected(owner, node)
        if name in ("get", "get_nowait") and "queue" in owner.facts:
            return Value(self.keys.make("at", *self.place(node), spread=TOUCHED))  # what a thread has put there
        if name in ("chunk", "tensor_split") and values:
            return self._pieces(owner, values[0], node)
        if name in ("numel", "nelement", "size", "dim"):
            return self.extent(owner, node)
        if name in TRANSPARENT_METHODS:
            return Value(owner.key, owner.facts)
        if name == "get" and values and values[0].key.is_constant and isinstance(values[0].key.value, str):
            return self.variable(values[0].key.args[0], owner) or self.item(owner, values[0].key, node)
        if name in ("items", "values") and isinstance(owner.obj, Record) and not values and not named:
            fields = owner.obj.fields
            parts = tuple([Value(each.key, obj=(self.constant(text), each)) for text, each in fields.items()])
            return self.unknown(node, owner)._replace(obj=parts if name == "items" else tuple(fields.values()))
        if name == "get" and values and owner.key.op == "mapping":
            default = values[1].key if len(values) > 1 else self.keys.none
            return Value(self.keys.make("item", owner.key, values[0].key, default))
        if name in ("add_", "mul_", "div_", "sub_", "append", "extend", "update"):
            target = node.func.value if isinstance(node.func, ast.Attribute) else None
            change = "appended" if name == "append" else "changed"
            more = with_more(owner.obj, values, extends=name != "append") if name in ("append", "extend") else None
            if target is not None and more is not None:
                self.collect(target, owner, Value(self.keys.make(change, owner.key, values[0].key), obj=more))
                return self.constant(None)
            self.rebind(target, owner, values, change)
            return owner
        if not values and not named and name != "rank" and (known := self.by_name(name, called=True)):
            return known
        if owner.facts & {"prepared"}:
            return self.unknown(node, owner, *values)
        return self._opaque(owner, node, values, named)

    def collect(self, target: ast.expr, before: Value, after: Value) -> None:
        """Bind a sequence with a further element; of an attribute under the conditions around, as nothing joins it."""
        if isinstance(target, ast.Attribute) and not self.path[-1].is_constant:
            after = after._replace(obj=Either(self.path[-1], after, before))
        self.bind(target, after)

    def rebind(self, target: ast.expr | None, owner: Value, values: list[Value], change: str) -> None:
        """A value changed in place depends on what was added to it."""
        if isinstance(target, ast.Name) and target.id in self.env and values:
            key = self.keys.make(change, owner.key, *(value.key for value in values))
            facts = owner.facts.union(*(value.facts & CARRIED for value in values))
            self.env[target.id] = Value(key, facts)

    def effect(self, effect: Effect, node: ast.Call, values: Values, named: Named, owner: Value | None) -> Value:
        """Note the event of a library call and return its result."""
        site = self.site(node)
        if owner and "unbuffered" in owner.facts and effect.event == FORWARD:
            return self.unknown(node, *values, *named.values(), facts=effect.result)
        alone = named.get("use_local_synchronization")  # only the members of a new group make it
        if effect.event and self._in_all_ranks(effect, values, named) and not (alone and alone.key is self.keys.true):
            wrapped = not effect.of_sharded or any(value.facts & SHARDED for value in values)
            if effect.event == FORWARD and owner:
                wrapped = "buffered" in owner.facts
            sure = effect.sure and not (owner and owner.facts >= {"ddp", "fsdp"})  # the wrapper of one of two branches
            self.items.append(Event(effect.event, site, effect.implied, sure, wrapped, self.on_demand))
        if effect.fills is not None and (filled := filled_argument(node, effect)):
            sent = values[1] if len(values) > 1 else named.get("tensor") or named.get("input_tensor")
            drops = effect.event in GATHERS and sent is not None and "graph" in sent.facts
            facts = POOLED | ({"gathered"} if drops else NO_FACTS) if effect.event in GATHERS else NO_FACTS
            if effect.event == "all_reduce" and values:
                facts = values[0].facts & CARRIED  # autograd knows nothing of it
            self.fill(filled, *([SENT] if effect.event.startswith("broadcast") else []), facts=facts)
        if "loader" in effect.result:
            return self._loader(node, values, named)
        if "fsdp" in effect.result and effect.event and node.args and last_name(node.func) == "fully_shard":
            target = node.args[0]
            if isinstance(target, ast.Name) and target.id in self.env:
                self.env[target.id] = Value(self.env[target.id].key, frozenset({"fsdp"}))
        if effect.drops and values:
            return Value(values[0].key, effect.result if values[0].facts & {"ddp", "prepared"} else NO_FACTS)
        if "prepared" in effect.result:
            prepared = [
                Value(self.keys.make("prepared", value.key), value.facts - {"loader"} | {"prepared"})
                for value in values
            ]
            if len(prepared) == 1:
                return prepared[0]
            return Value(self.keys.make("sequence", *(each.key for each in prepared)), obj=tuple(prepared))
        if effect.same or effect.group is not None:
            op = "shared" if effect.event and effect.same else "at"
            parts = (effect.event,) if op == "shared" else ()
            return Value(self.keys.make(op, *parts, *site[:3]), effect.result | self._membership(effect, values, named))
        if "checkpoint" in effect.result and values:
            return self._loaded(node, values[0], effect.result)
        made = self.unknown(node, *values, *named.values(), facts=effect.result)
        if "ddp" in effect.result and (model := named.get("module") or (values[0] if values else None)):
            self._note_wrapped(node, model)
            buffered = has_buffers(model.key, self.shared.classes)
            if sent := named.get("broadcast_buffers"):
                buffered = buffered if sent.key is self.keys.true else False if sent.key is self.keys.false else None
            elif buffered is None and self.shared.normalises:
                buffered = True
            if buffered is not None:
                return made._replace(facts=made.facts | {"buffered" if buffered else "unbuffered"})
        return made

    def _note_wrapped(self, node: ast.Call, model: Value) -> None:
        """Note that the name and the attributes that hold a model hold from now on the one inside of a wrapper."""
        inner = model._replace(facts=model.facts | UNWRAPPED)
        if node.args and isinstance(node.args[0], ast.Name) and node.args[0].id in self.env:
            self.env[node.args[0].id] = inner
        if self.function and self.function.owner:
            held = self.function.owner.attributes
            held |= {name: inner for name, value in held.items() if value.key is model.key and value.obj is model.obj}

    def _membership(self, effect: Effect, values: Values, named: Named) -> frozenset[str]:
        """Return whether a new group has only some of the ranks as members."""
        if "group" not in effect.result:
            return NO_FACTS
        ranks = named.get("ranks") or (values[0] if values else None)
        everyone = (
            ranks is None
            or ranks.key is self.keys.none
            or (ranks.key.op == "range" and ranks.key.args[-1].op == "world")
        )
        return NO_FACTS if everyone else frozenset({"members"})

    def _in_all_ranks(self, effect: Effect, values: Values, named: Named) -> bool:
        """Return whether the call is one of all ranks: only members have to enter a collective of another group."""
        group = named.get("group") if effect.group is not None else named.get("process_group")
        if effect.group is not None and group is None and effect.group < len(values):
            group = values[effect.group]
        if group is None or group.key is self.keys.none or ("group" in group.facts and "members" not in group.facts):
            return True
        return self.qualified(group).endswith(("group.WORLD", "GroupMember.WORLD"))

    def fill(self, target: ast.expr, *by: str, facts: frozenset[str] = NO_FACTS) -> None:
        """After a collective its result is the same on every rank."""
        if isinstance(target, ast.Subscript):
            target = target.value
        value = Value(self.keys.make("filled", *self.place(target), *by), facts)
        match target:
            case ast.Name(id=name):
                self.env[name] = value
                if name in self.parameters:
                    self.filled.add(self.parameters.index(name))
            case ast.Attribute(value=inner, attr=name):
                owner = self.evaluate(inner)
                if isinstance(owner.obj, Instance):
                    owner.obj.cls.attributes[name] = value
                self.env[f"{id(owner.key)}.{name}"] = value

    def _loader(self, node: ast.Call, values: Values, named: Named) -> Value:
        sampler = named.get("sampler") or named.get("batch_sampler")
        key = self.keys.make("loader", *self.place(node))
        if not (sampler and "sampler" in sampler.facts) and (
            dataset := named.get("dataset") or (values[0] if values else None)
        ):
            key = self.keys.make("loader", *self.place(node), dataset.key)
        return Value(key, frozenset({"loader"}))

    def count(self, iterable: Value, node: ast.AST) -> Key:
        """Return what decides the number of rounds over an iterable."""
        if is_elements(iterable.obj) and iterable.key.op == "sequence":
            return self.keys.constant(len(iterable.obj))
        key = iterable.key
        if (limit := limit_of(key)) is not None:
            return self.keys.make("length", limit)
        if key.op == "built":
            return self._length(key, node).key
        if is_shared_out(key):
            return self.unknown(node).key
        if "world" in iterable.facts or (key.spread & LOCAL and key.op not in COUNTED):
            return self.unknown(node).key  # shared out by the number of ranks, or not known to have a length of its own
        return self.keys.make("length", lengthwise(self.keys, key))

    def element(self, iterable: Value, node: ast.AST) -> Value:
        """Return what a loop over an iterable gets in a round."""
        key = iterable.key
        if "loader" in iterable.facts or is_loader_by_name(node):
            return Value(self.keys.local(BATCH, *self.place(node)))
        if isinstance(iterable.obj, Generated):
            return iterable.obj.element
        if key.op == "enumerate":
            number = Value(self.keys.make("number", *self.place(node), spread=key.spread & BY_RANK))
            inner = iterable.obj[0] if is_elements(iterable.obj) else Value(key)
            element = self.element(inner, node.args[0] if isinstance(node, ast.Call) and node.args else node)
            return Value(self.keys.make("sequence", number.key, element.key), obj=(number, element))
        if key.op == "zip" and is_elements(iterable.obj):
            sources = (
                node.args
                if isinstance(node, ast.Call) and len(node.args) == len(iterable.obj)
                else [node] * len(iterable.obj)
            )
            parts = tuple(self.element(part, source) for part, source in zip(iterable.obj, sources, strict=True))
            return Value(self.keys.make("sequence", *(part.key for part in parts)), obj=parts)
        if key.spread & LOCAL and key.op not in COUNTED and is_call_of(node, "keys", "items"):
            name, held = self.unknown(node), Value(self.keys.make("element", key, *self.place(node)))
            if is_call_of(node, "keys"):
                return name  # data of one rank are held under the same names on every rank
            return Value(self.keys.make("sequence", name.key, held.key), obj=(name, held))
        if key.op == "range":
            return Value(self.keys.make("number", *self.place(node), spread=key.spread))
        return Value(self.keys.make("element", key, *self.place(node)), iterable.facts & CARRIED)


def across(left: Value, right: Value, product: Value) -> Value:
    """Return a product of matrices, with whether it is of the rows of this rank and those of all."""
    facts = product.facts - {"pooled", "across"}
    if "pooled" in right.facts:
        facts |= {"pooled"} if "pooled" in left.facts else {"across"}
    return product._replace(facts=facts)


def filled_argument(node: ast.Call, effect: Effect) -> ast.expr | None:
    """Return the argument of a collective that holds its result, given by place or by name."""
    if effect.fills is not None and effect.fills < len(node.args):
        return node.args[effect.fills]
    return next((each.value for each in node.keywords if each.arg in FILLED_NAMES.get(effect.event, ())), None)


def limit_of(key: Key) -> Key | None:
    """Return the number at which a slice cuts sequences of different lengths to one, if it is the same on all ranks."""
    if key.op != "item" or key.args[1].op != "slice":
        return None
    first, last, step = key.args[1].args
    counts = last.op not in ("constant", "unary") or (last.is_constant and type(last.value) is int and last.value >= 0)
    whole = first.is_constant and first.value in (None, 0) and step.is_constant and step.value in (None, 1)
    return last if whole and counts and not last.spread & DIFFERS else None


def is_received(key: Key) -> bool:
    """Return whether a value, or what it is a part of, was sent by one rank to all."""
    while key.op == "item":
        key = key.args[0]
    return key.op == "filled" and key.args[-1] == SENT


def is_gathered(key: Key) -> bool:
    """Return whether a value is each of what a collective gave to all ranks in turn."""
    return key.op == "element" and any(part.op in SAME for part in parts(key))


def is_of_batch(key: Key) -> bool:
    """Return whether a value is a batch of a loader or a part of one."""
    while key.op in ("item", "element", "attribute", "changed", "appended"):
        key = key.args[0]
    return key.op == "local" and key.args[0] == BATCH


def is_of_batches(key: Key) -> bool:
    """Return whether all that differs between ranks in a value are batches: loaders end on all ranks in one round."""
    pending, seen = [key], set[Key]()
    while pending:
        each = pending.pop()
        if each in seen or not each.spread & DIFFERS or is_of_batch(each):
            continue
        seen.add(each)
        inner = [arg for arg in each.args if isinstance(arg, Key)]
        if not inner or each.op not in OF_BRANCHES:
            return False
        pending += inner
    return True


def is_call_of(node: ast.AST, *names: str) -> bool:
    """Return whether an expression is the call of a method with one of ``names``."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names


def is_loader_by_name(node: ast.AST) -> bool:
    """Return whether an iterable is a loader by its name."""
    if isinstance(node, ast.Call) and last_name(node.func) in ("tqdm", "enumerate", "iter") and node.args:
        return last_name(node.func) != "enumerate" and is_loader_by_name(node.args[0])
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value).lower().endswith("loader")
    return isinstance(node, ast.Name | ast.Attribute) and last_name(node).lower().endswith("loader")
