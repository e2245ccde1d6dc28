"""Collectives as effects of library calls: their events, what they fill, and the groups, loaders and wrappers made."""

import ast

from msgspec.structs import replace

from ..syntax import last_name
from .amounts import DISTINCT, sized_by_data
from .buffers import has_buffers
from .effects import Effect
from .evaluator_state import Named, Values
from .keys import BY_RANK, DIFFERS, LOCAL, TOUCHED, Key, parts
from .lengths import is_same_data, number
from .library_calls import FILLED_NAMES, FORWARD, LISTED
from .members import PAIR
from .names import CARRIED, POOLED, UNWRAPPED
from .rank_values import RankEvaluator
from .sequences import Event
from .values import NO_FACTS, ClassRef, FunctionRef, Instance, Value, reduces_by

GATHERS = {"all_gather", "all_gather_into_tensor"}  # without gradients for what they gather
OF_PLACES = "torch.utils.data.SubsetRandomSampler", "torch.utils.data.sampler.SubsetRandomSampler"
SENT = "sent"  # by one rank to all
SUMMED = "summed"  # over all ranks
LOADED = "checkpoint.load"
OF_ONE_RANK = "the result of reduce"
SAME = {"shared", "filled"}  # results of collectives
SHARDED = {"fsdp", "engine", "prepared"}


class EffectEvaluator(RankEvaluator):
    """Effects of library calls."""

    def effect(self, effect: Effect, node: ast.Call, values: Values, named: Named, owner: Value | None) -> Value:
        """Note the event of a library call and return its result."""
        site = self.site(node)
        if owner and "unbuffered" in owner.facts and effect.event == FORWARD:
            return self.unknown(node, *values, *named.values(), facts=effect.result)
        alone = named.get("use_local_synchronization")  # only the members of a new group make it
        if not self._is_switched_on(effect, named):
            return self.unknown(node, *values, *named.values(), facts=effect.result)
        if effect.event and self._in_all_ranks(effect, values, named) and not (alone and alone.key is self.keys.true):
            wrapped = not effect.of_sharded or any(value.facts & SHARDED for value in values)
            if effect.event == FORWARD and owner:
                wrapped = "buffered" in owner.facts
            sure = effect.sure and not (owner and owner.facts >= {"ddp", "fsdp"})  # the wrapper of one of two branches
            of = named.get("ranks") or (values[0] if values else None) if effect.event == "new_group" else None
            self.items.append(
                Event(effect.event, site, effect.implied, sure, wrapped, self.on_demand, of.key if of else None)
            )
        if effect.fills is not None and (filled := filled_argument(node, effect)):
            sent = values[1] if len(values) > 1 else named.get("tensor") or named.get("input_tensor")
            drops = effect.event in GATHERS and sent is not None and "graph" in sent.facts
            facts = POOLED | ({"gathered"} if drops else NO_FACTS) if effect.event in GATHERS else NO_FACTS
            if effect.event == "all_reduce" and values:
                facts = values[0].facts & CARRIED  # autograd knows nothing of it
            self.fill(filled, *_made_by(effect, values, named), facts=facts)
        if effect.event == "reduce" and effect.group is not None and (place := node.args[0] if node.args else None):
            self.rebind_result(place, Value(self.keys.local(OF_ONE_RANK, *self.place(node))))
        if effect.event == LOADED and values and node.args:
            self.rebind_result(node.args[0], self._loaded_entries(values[0], node))
        if "loader" in effect.result:
            return self._loader(node, values, named)
        if "fsdp" in effect.result and effect.event and node.args and last_name(node.func) == "fully_shard":
            target = node.args[0]
            self.rebind_result(target, Value(values[0].key, frozenset({"fsdp"}), values[0].obj))
        if effect.drops and values:
            return Value(values[0].key, effect.result if values[0].facts & {"ddp", "prepared"} else NO_FACTS)
        if "prepared" in effect.result:
            prepared = [
                Value(self.keys.make("prepared", value.key), value.facts - {"loader", "whole"} | {"prepared"})
                for value in values
            ]
            self.shared.inner |= {
                made.key: value.obj
                for made, value in zip(prepared, values, strict=True)
                if isinstance(value.obj, Instance)
            }
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
            held = model.obj if isinstance(model.obj, Instance) else None
            self.shared.inner[made.key] = held if self.shared.inner.get(made.key, held) == held else None
            buffered = has_buffers(model.key, self.shared.classes)
            if sent := named.get("broadcast_buffers"):
                buffered = buffered if sent.key is self.keys.true else False if sent.key is self.keys.false else None
            elif buffered is None and self.shared.normalises:
                buffered = True
            if buffered is not None:
                return replace(made, facts=made.facts | {"buffered" if buffered else "unbuffered"})
        return made

    def _is_switched_on(self, effect: Effect, named: Named) -> bool:
        """Return whether a call has the argument without which it does not communicate."""
        given = named.get(effect.only_with) if effect.only_with else None
        return not effect.only_with or (given is not None and given.key is self.keys.true)

    def _loaded_entries(self, given: Value, node: ast.Call) -> Value:
        """Return a mapping after a distributed checkpoint has filled it: what is kept under one name is alike."""
        if given.key.op != "mapping":
            return given
        pairs = zip(given.key.args[::2], given.key.args[1::2], strict=True)
        loaded = self.keys.make("filled", *self.place(node))
        entries = [(name, loaded if value.differs_by and not name.differs_by else value) for name, value in pairs]
        return replace(given, key=self.keys.make("mapping", *(each for entry in entries for each in entry)), obj=None)

    def _note_wrapped(self, node: ast.Call, model: Value) -> None:
        """Note that the name and the attributes that hold a model hold from now on the one inside of a wrapper."""
        inner = replace(model, facts=model.facts | UNWRAPPED)
        if node.args and isinstance(node.args[0], ast.Name) and node.args[0].id in self.env:
            self.env[node.args[0].id] = inner
        if self.function and self.function.owner:
            self.shared.count_stores += 1
            here = {name: self.env[name] for name in self.set_here if name in self.env}
            classes = [each.attributes for each in self._class_of_self(self.function.owner).ancestry()]
            for held, known in (*zip(classes, classes, strict=True), (self.env, here)):
                same = [name for name, each in known.items() if each.key is model.key and each.obj is model.obj]
                held |= dict.fromkeys(same, inner)

    def _class_of_self(self, owner: ClassRef) -> ClassRef:
        """Return the class of the object whose method this is, which may inherit the method from its ``owner``."""
        own = self.env.get(self.parameters[0]) if self.parameters else None
        return own.obj.cls if own is not None and isinstance(own.obj, Instance) else owner

    def _membership(self, effect: Effect, values: Values, named: Named) -> frozenset[str]:
        """Return whether a new group has only some of the ranks as members."""
        if "group" not in effect.result:
            return NO_FACTS
        ranks = named.get("ranks") or (values[0] if values else None)
        everyone = ranks is None or ranks.key is self.keys.none or _is_all_ranks(ranks.key)
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
        if isinstance(target, ast.Subscript) and not self._is_entry(target):
            target = target.value
        value = Value(self.keys.make("filled", *self.place(target), *by), facts)
        match target:
            case ast.Subscript():
                self.bind(target, value)
            case ast.Name(id=name):
                self.env[name] = value
                if name in self.parameters:
                    self.filled.add(self.parameters.index(name))
            case ast.Attribute(value=inner, attr=name):
                owner = self.evaluate(inner)
                if isinstance(owner.obj, Instance):
                    self.shared.count_stores += 1
                    self.set_attribute_here(owner, name, value, owner.obj.cls.attribute(name))
                    owner.obj.cls.attributes[name] = value
                else:
                    self.env[f"{id(owner.key)}.{name}"] = value

    def _is_entry(self, target: ast.Subscript) -> bool:
        """Return whether something is the entry of a mapping under a name."""
        named = isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str)
        return named and self.evaluate(target.value).key.op == "mapping"

    def rebind_result(self, target: ast.expr, result: Value) -> None:
        """A tensor that is named, or held by an object, holds the result of a call from now on."""
        if isinstance(target, ast.Name) and target.id in self.env:
            self.env[target.id] = result
        elif isinstance(target, ast.Attribute) and isinstance((owner := self.evaluate(target.value)).obj, Instance):
            self.set_attribute_here(owner, target.attr, result, owner.obj.cls.attribute(target.attr))
        elif isinstance(target, ast.Subscript) and self._is_entry(target):
            self.bind(target, result)

    def rebind(self, target: ast.expr | None, owner: Value, values: list[Value], change: str) -> None:
        """A value changed in place depends on what was added to it."""
        if isinstance(target, ast.Name) and target.id in self.env and values:
            key = self.keys.make(change, owner.key, *(value.key for value in values))
            facts = owner.facts.union(*(value.facts & CARRIED for value in values))
            self.env[target.id] = Value(key, facts)
        elif isinstance(target, ast.Attribute) and owner.obj == () and change == "appended" and values:
            self._fill_attribute(target, owner, values[0])
        elif isinstance(target, (ast.Attribute, ast.Subscript)) and values:
            key = self.keys.make(change, owner.key, *(value.key for value in values))
            self.rebind_result(target, Value(key, owner.facts.union(*(value.facts & CARRIED for value in values))))

    def _fill_attribute(self, target: ast.Attribute, empty: Value, added: Value) -> None:
        """An empty list that an object holds gets elements: as many on each rank, unless its data decide it."""
        obj, path = self.evaluate(target.value).obj, self.path[-1]
        if isinstance(obj, Instance) and target.attr in obj.cls.attributes:
            key = self.keys.make("appended", empty.key, added.key)
            over = (each.key for each in self.loops if each.key.differs_by & LOCAL)
            chosen = next((part for key in over for part in parts(key) if part.op in ("selected", DISTINCT)), None)
            test = path if path.differs_by & LOCAL else chosen
            made = Value(self.keys.make("if", test, key, empty.key) if test else key)
            self.shared.count_stores += obj.cls.attributes[target.attr].key is not made.key
            obj.cls.attributes[target.attr] = made

    def _loader(self, node: ast.Call, values: Values, named: Named) -> Value:
        sampler = named.get("sampler") or named.get("batch_sampler")
        key = self.keys.make("loader", *self.place(node))
        dataset = named.get("dataset") or (values[0] if values else None)
        if dataset and not (sampler and "sampler" in sampler.facts):
            batch = named.get("batch_size") or (values[1] if len(values) > 1 else self.constant(1))
            own = isinstance(sampler.obj, Instance) if sampler else False
            picked = _picked_by(sampler.key) if sampler else None
            held = picked or self._held_by(sampler if sampler and own else dataset, node)
            batch = self.constant(1) if own and "batch_sampler" in named else batch
            drops = named.get("drop_last") or (values[8] if len(values) > 8 else self.constant(False))
            size = () if batch.key.differs_by & DIFFERS or not drops.key.is_constant else (batch.key,)
            size = (*size, drops.key) if drops.key is self.keys.true else size
            key = self.keys.make("loader", *self.place(node), held, *size)
            shuffle = named.get("shuffle") or (values[2] if len(values) > 2 else self.constant(False))
            in_order = sampler is None and "**" not in named and shuffle.key is self.keys.false
            if in_order and is_same_data(held):
                return Value(key, frozenset({"loader", "whole"}))
        elif dataset and sized_by_data(dataset.key):
            key = self.keys.make("loader", *self.place(node), dataset.key)
        return Value(key, frozenset({"loader"}))

    def _held_by(self, dataset: Value, node: ast.AST) -> Key:
        """Return what decides how many samples a loader gets from a dataset."""
        found = dataset.obj.cls.find("__iter__") if isinstance(dataset.obj, Instance) else None
        if found:
            function = FunctionRef(found[0].module, found[1], found[0].env, found[0])
            return self.call_function(function, [dataset], {}, self.site(node)).key
        size = self.length_of(dataset, node).key
        if size.op == "length" and size.args[0] in self.shared.contents:
            return size.args[0]
        known = isinstance(dataset.obj, Instance) and (number(size, PAIR[0]) is not None or size.differs_by & BY_RANK)
        return self.keys.make("range", size) if known else dataset.key

    def _loaded(self, node: ast.AST, path: Value, facts: frozenset[str] = NO_FACTS) -> Value:
        """Return the content of a file: the same for all ranks, unless its name has the rank in it."""
        chosen = any(part.op == "local" and part.args[0] == LISTED for part in parts(path.key))
        differs_by = LOCAL if chosen else TOUCHED if path.key.differs_by & (BY_RANK | TOUCHED) else 0
        return self.content(Value(self.keys.make("at", *self.place(node), differs_by=differs_by), facts), path.key)

    def content(self, made: Value, path: Key) -> Value:
        """Note that a value is read from a file, by its path or from what was read before; return the value."""
        read_from = self.shared.contents.get(path, path)
        if read_from.differs_by & BY_RANK:
            self.shared.contents[made.key] = read_from
        return made


def filled_argument(node: ast.Call, effect: Effect) -> ast.expr | None:
    """Return the argument of a collective that holds its result, given by place or by name."""
    if effect.fills is not None and effect.fills < len(node.args):
        return node.args[effect.fills]
    return next((each.value for each in node.keywords if each.arg in FILLED_NAMES.get(effect.event, ())), None)


def is_received(key: Key) -> bool:
    """Return whether a value, or what it is a part of, was sent by one rank to all."""
    while key.op == "item":
        key = key.args[0]
    return key.op == "filled" and key.args[-1] == SENT


def is_agreed(key: Key) -> bool:
    """Return whether a value is made of the result of a collective and of nothing that differs between ranks."""
    return not key.differs_by & DIFFERS and any(part.op in SAME for part in parts(key))


def is_gathered(key: Key) -> bool:
    """Return whether a value is each of what a collective gave to all ranks in turn."""
    return key.op == "element" and any(part.op in SAME for part in parts(key))


def _is_all_ranks(ranks: Key) -> bool:
    """Return whether the members of a new group are the numbers from 0 to the number of ranks."""
    if ranks.op != "range":
        return False
    *first, last = ranks.args
    return last.op == "world" and all(each.is_constant and each.value == 0 for each in first)


def _made_by(effect: Effect, values: Values, named: Named) -> list[str]:
    """Return what a collective has done to what it fills."""
    if effect.event.startswith("broadcast"):
        return [SENT]
    op = named.get("op") or (values[1] if len(values) > 1 else None)
    summed = reduces_by(op, "SUM")
    return [SUMMED] if effect.event == "all_reduce" and summed else []


def _picked_by(sampler: Key) -> Key | None:
    """Return the places of samples that a sampler of torch is made with, None for other samplers."""
    match sampler.op, sampler.args:
        case "call", (str() as name, Key() as places, *_) if name.endswith(OF_PLACES):
            return places
        case _:
            return None
