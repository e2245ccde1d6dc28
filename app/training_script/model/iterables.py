"""Iterables: what a loop over one gets in a round, and what decides the number of rounds."""

import ast

from ..syntax import dotted_name, last_name
from .amounts import (
    BATCH,
    DISTINCT,
    NEARLY_EQUAL,
    PIECES_OF_SIZE,
    UNCOUNTED,
    has_unknown_stop,
    is_dealt_by_test,
    is_dealt_out,
    is_dealt_stream,
    is_dealt_to_workers,
    is_of_batch,
    is_of_data,
    is_shared_out,
    lengthwise,
    rows_of,
    sized_by_data,
)
from .collective_effects import EffectEvaluator
from .distinct_names import is_written_out, same_number
from .function_steps import Noted
from .keys import BY_RANK, DIFFERS, LOCAL, OF_BRANCHES, Key, is_place
from .length_differences import differ, may_differ
from .lengths import KEEPING, length, number
from .library_calls import ENDLESS, INDEX
from .members import PAIR
from .names import CARRIED
from .names_of_ranks import OfSome
from .noted_calls import NONE_OF_SOME, UNORDERED
from .values import Generated, Instance, Record, Value, is_elements

# Sequences and mappings whose length may follow from data of one rank.
COUNTED = {"range", "built", "changed", "appended", "extended", DISTINCT}
UNORDERED_FACT = frozenset({"unordered"})
OF_TEXTS = frozenset({"texts"})  # whose hashes are other ones in each process
MAKES_NAMES = frozenset({"defaultdict"})  # a mapping that keeps a name which is read
MAPPING = frozenset({"mapping"})  # empty at first


class IterableEvaluator(EffectEvaluator):
    """Loops over loaders, ranges, sequences and what is made of them."""

    def count(self, iterable: Value, node: ast.AST) -> Key:
        """Return what decides the number of rounds over an iterable."""
        if is_elements(iterable.obj) and iterable.key.op == "sequence":
            return self.keys.constant(len(iterable.obj))
        key = iterable.key
        numbered = key.args[0] if key.op == "enumerate" else key
        if (members := same_number(numbered)) is not None:
            return self.keys.constant(members)
        if (limit := limit_of(key)) is not None:
            return self.keys.make("length", limit)
        if (key.differs_by & LOCAL or key.op == "range") and differ(counted := self.keys.make("length", key), number):
            return counted
        if key.differs_by & LOCAL and (size := sized_by_data(key)):
            return self.keys.make("length", size)
        if path := self.file_of(key):
            return self.keys.make("elements of a file", path)
        if key.differs_by & BY_RANK and may_differ(key, length):
            return self.keys.make("length", lengthwise(self.keys, key))
        if key.op == "loader" and key.differs_by & LOCAL and len(key.args) > 3 and key.args[3].op == "built":
            key = key.args[3]  # of the samples that an iterable dataset yields
            if is_dealt_out(key):
                return self.unknown(node).key
        if key.differs_by & BY_RANK and has_unknown_stop(key):
            return self.unknown(node).key
        if numbered.op == "built":
            return self._length(numbered, node).key
        held = key.args[3] if key.op == "loader" and len(key.args) > 3 else key
        dealt = is_dealt_stream(held) or is_dealt_by_test(held) or is_dealt_to_workers(held)
        if held is not key and dealt and not differ(self.keys.make("length", key), number):
            return self.unknown(node).key
        dealt = is_dealt_stream(key) and length(key, PAIR[0]) is None
        if is_shared_out(key) or dealt or key.args[:1] == (ENDLESS,):
            return self.unknown(node).key
        if key.op == "range" and not key.differs_by:
            return self.keys.make("length", key)
        if "world" in iterable.facts or (key.differs_by & LOCAL and key.op not in COUNTED):
            return self.unknown(node).key  # shared out by the number of ranks, or not known to have a length of its own
        return self.keys.make("length", lengthwise(self.keys, key))

    def file_of(self, key: Key) -> Key | None:
        """Return the path, with the rank in it, of the file that a sequence is read from; None if there is none."""
        while key not in self.shared.contents:
            match key.op, key.args:
                case "loader", (_, _, _, Key() as held, *_):
                    key = held
                case "built", (1, Key() as held, _):
                    key = held
                case "call", (str() as name, Key() as held, *_) if name in KEEPING:
                    key = held
                case (("enumerate" | "zip"), (Key() as held, *_)):
                    key = held
                case "item", (Key() as held, place) if is_place(place):
                    key = held
                case _:
                    return None
        return self.shared.contents[key]

    def element(self, iterable: Value, node: ast.AST) -> Value:
        """Return what a loop over an iterable gets in a round."""
        key = iterable.key
        if "whole" in iterable.facts:
            return self.unknown(node)  # the same on every rank
        if "sampler" in iterable.facts:
            return Value(self.keys.local(INDEX, *self.place(node)))
        if "loader" in iterable.facts or is_loader_by_name(node) or (key.op == "prepared" and _is_of_loader(key)):
            return Value(self.keys.local(BATCH, *self.place(node)))
        if isinstance(iterable.obj, Generated):
            return iterable.obj.element
        if key.op == "enumerate":
            counter = self.keys.make("number", *self.place(node))
            number = Value(self.keys.make("binary", "Add", counter, key.args[1]) if len(key.args) > 1 else counter)
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
        facts = iterable.facts & CARRIED
        if key.differs_by & LOCAL and key.op not in COUNTED and is_call_of(node, "keys", "items"):
            name, held = self.unknown(node), Value(self.keys.make("element", key, *self.place(node)), facts)
            if is_call_of(node, "keys"):
                return name  # data of one rank are held under the same names on every rank
            return Value(self.keys.make("sequence", name.key, held.key), obj=(name, held))
        if key.op == "range":
            differs_by = key.differs_by if len(key.args) > 1 else key.differs_by & ~BY_RANK  # from 0 on all ranks
            return Value(self.keys.make("number", *self.place(node), differs_by=differs_by))
        return Value(self.keys.make("element", key, *self.place(node)), facts)

    def _length(self, key: Key, node: ast.AST) -> Value:
        """Return the length of data of one rank: the same on all, unless their values decide what is in a sequence."""
        if key.op == "built":
            iterables = key.args[1 : 1 + key.args[0]]
            return Value(self.keys.make("length", *iterables))
        rows = rows_of(key)
        if rows is not None:
            return Value(rows)
        if key.op == "element" and _is_even(key.args[0]):
            return self.unknown(node)
        by_name = isinstance(node, ast.Call) and bool(node.args) and is_loader_by_name(node.args[0])
        if (key.op in COUNTED or not is_of_batch(key)) and not (by_name and key.op != "loader"):
            return Value(self.keys.make("length", key))
        return self.unknown(node)  # loaders give all ranks batches of one size

    def distinct(self, node: ast.AST, name: Key | None = None) -> Key:
        """Return a set or a mapping whose members are data of this rank, with a name if these are written out."""
        named = ((name,),) if name is not None and is_written_out(name) else ()
        return self.keys.make(DISTINCT, *self.place(node), *named, differs_by=LOCAL)

    def keep_under(self, target: ast.expr, held: Value, name: Key) -> bool:
        """Note that something is kept in a mapping or a set; return whether data of this rank are its name there."""
        is_empty = held.key.op == "mapping" and not held.key.args
        kept = is_empty or held.key.op == DISTINCT or held.facts & (MAPPING | UNORDERED_FACT)
        if not kept or not is_of_data(name):
            return False
        made = Value(self.distinct(target, name), held.facts)
        match target:
            case ast.Name(id=text) if text in self.env:
                self.env[text] = made
            case ast.Attribute(value=owner, attr=text) if isinstance(obj := self.evaluate(owner).obj, Instance):
                self.shared.count_stores += obj.cls.attributes.get(text, held).key is not made.key
                obj.cls.attributes[text] = made
            case _:
                return False
        return True

    def pieces(self, whole: Value, count: Value, node: ast.AST, dim: Value | None, *, equal: bool) -> Value:
        """Return a tensor in so many pieces. ``equal``: all but the last one are of one size."""
        differs_by = self.unknown(node, whole).key.differs_by
        counted = length(whole.key, PAIR[0]) is not None and (equal or number(count.key, PAIR[0]) is not None)
        counted = counted and _is_first(dim)
        held = () if not counted else (whole.key,) if equal else (NEARLY_EQUAL, whole.key)
        made = self.keys.make("pieces", *self.place(node), *held, count.key, differs_by=differs_by)
        return Value(made, whole.facts & CARRIED)

    def pieces_of_size(self, whole: Value, size: Value, node: ast.AST, dim: Value | None) -> Value | None:
        """Return a tensor in pieces of so many rows, None if its length or the size is not known."""
        if not _is_first(dim) or length(whole.key, PAIR[0]) is None or number(size.key, PAIR[0]) is None:
            return None
        differs_by = self.unknown(node, whole).key.differs_by
        made = self.keys.make(PIECES_OF_SIZE, *self.place(node), whole.key, size.key, differs_by=differs_by)
        return Value(made, whole.facts & CARRIED)

    def mapping(self, fields: dict[str, Value]) -> Value:
        """Return a mapping with these entries."""
        pairs = (each for text, value in fields.items() for each in (self.keys.constant(text), value.key))
        return Value(self.keys.make("mapping", *pairs), obj=Record(fields))

    def fields_of(self, held: Value, node: ast.AST) -> dict[str, Value] | None:
        """Return the attributes of an object by their names, None if they are not known."""
        if isinstance(held.obj, Record):
            return {name: self.attribute(held, name, node) for name in held.obj.fields}
        if not isinstance(held.obj, Instance):
            return None
        names = dict.fromkeys(name for each in held.obj.cls.ancestry() for name in each.attributes)
        return {name: self.attribute(held, name, node) for name in names}

    def note_order(self, node: ast.expr, held: Value) -> None:
        """Note that the order of a set is taken."""
        call = node if isinstance(node, ast.Call) else ast.copy_location(ast.Call(node, [], []), node)
        self.items.append(Noted(UNORDERED, self.site(node), call, None, [held], {}, self.constant(None)))

    def note_none(self, node: ast.expr, held: ast.expr, value: Value) -> None:
        """Note a use of what a condition on the rank makes an object on some ranks and None on others."""
        none = self.is_none(value.key) if value.key.differs_by & BY_RANK else self.keys.false
        if name := dotted_name(held) if none.differs_by & BY_RANK else "":
            some = OfSome(name, value, value, self.keys.make("not", none), self.site(node))
            if read := some.read_at(node, self.site(node), self.path[-1], self.keys):
                self.items.append(read._replace(name=NONE_OF_SOME))

    def is_none(self, key: Key) -> Key:
        """Return the condition under which something that is known to be an object elsewhere is None."""
        if key.op == "if":
            return self.keys.make("if", key.args[0], self.is_none(key.args[1]), self.is_none(key.args[2]))
        return self.keys.constant(key is self.keys.none)


def _is_first(dim: Value | None) -> bool:
    """Return whether a tensor is cut along its rows."""
    return dim is None or (dim.key.is_constant and dim.key.value == 0)


def _is_even(pieces: Key) -> bool:
    """Return whether all ranks may have, or have, as many rows in pieces of one size."""
    if pieces.op != PIECES_OF_SIZE:
        return pieces.op == UNCOUNTED
    return len({length(pieces.args[-2], rank) for rank in PAIR}) == 1


def limit_of(key: Key) -> Key | None:
    """Return the number at which a slice cuts sequences of different lengths to one, if it is the same on all ranks."""
    while key.op == "enumerate":
        key = key.args[0]
    if key.op != "item" or key.args[1].op != "slice":
        return None
    first, last, step = key.args[1].args
    counts = last.op not in ("constant", "unary") or (last.is_constant and type(last.value) is int and last.value >= 0)
    whole = first.is_constant and first.value in (None, 0) and step.is_constant and step.value in (None, 1)
    return last if whole and counts and not last.differs_by & DIFFERS else None


def is_of_batches(key: Key) -> bool:
    """Return whether all that differs between ranks in a value are batches: loaders end on all ranks in one round."""
    pending, seen = [key], set[Key]()
    while pending:
        each = pending.pop()
        if each in seen or not each.differs_by & DIFFERS or is_of_batch(each):
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
    return isinstance(node, (ast.Name, ast.Attribute)) and last_name(node).lower().endswith("loader")


def _is_of_loader(prepared: Key) -> bool:
    """Return whether what a library has prepared is a loader, of which it shares out the batches."""
    return isinstance(prepared.args[0], Key) and prepared.args[0].op == "loader"
