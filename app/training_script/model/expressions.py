"""Evaluate the expressions of a program to symbolic values."""

import ast
import re
from collections.abc import Sequence

from msgspec.structs import replace

from ..nodes import child_nodes
from ..syntax import last_name
from .budget import OverBudget
from .compared_values import ComparisonEvaluator
from .containers import facts_of_all
from .function_steps import Branch, Pause, Read
from .iterables import MAKES_NAMES, OF_TEXTS
from .keys import BY_RANK, CLOCK, DIFFERS, Key, is_place, is_text
from .library_calls import FUNCTIONS, MASKS, TRANSPARENT
from .library_functions import across
from .module_api import DDP_API, OF_TRANSFORMERS, PRETRAINED
from .names import CARRIED
from .names_of_ranks import OfSome
from .noted_calls import NOTED_FUNCTIONS
from .rank_values import GET_RANK
from .shown_times import COARSE, is_coarse
from .values import (
    Either,
    FunctionRef,
    Instance,
    Library,
    Module,
    Record,
    Value,
    is_elements,
)

BUILTINS = {"exit", "quit", "len", "range", "min", "max", "enumerate", "zip", "print", "next", "getattr", "open"}
BUILTINS |= {"hasattr", "isinstance", "map", "dict", "hash", "set", "frozenset", "vars", "setattr", "slice"}
MASK = re.compile(r"(?:\w+_)?(?:mask|keep|valid)(?:_\w+)?")
METHOD_NAMES = {kind: f"_{kind.__name__}" for kind in ast.expr.__subclasses__()}


def is_mask(index: ast.expr) -> bool:
    """Return whether an index keeps the elements that fulfil a condition."""
    if isinstance(index, ast.UnaryOp):
        return isinstance(index.op, ast.Invert)
    if isinstance(index, ast.BinOp):
        return isinstance(index.op, (ast.BitAnd, ast.BitOr)) and is_mask(index.left) and is_mask(index.right)
    return isinstance(index, ast.Compare) or (isinstance(index, ast.Call) and last_name(index.func) in MASKS)


def _is_named_mask(index: ast.expr, key: Key) -> bool:
    """Return whether an index is called a mask, and comes with the data or from a function that is not known."""
    named = isinstance(index, ast.Name | ast.Attribute) and MASK.fullmatch(last_name(index))
    return bool(named) and key.op in ("at", "attribute", "element", "item", "local")


def is_mask_of_data(index: Key) -> bool:
    """Return whether an index is a condition on the elements of a tensor, or a part of one."""
    match index.op, index.args:
        case "compare", _:
            return True
        case "item", (Key() as held, Key(op="slice")):
            return is_mask_of_data(held)
        case _:
            return False


def _has_ranks_as_factor(number: Key) -> bool:
    """Return whether a number is that of the ranks, or a product with it."""
    product = number.op == "binary" and number.args[0] == "Mult"
    return number.op == "world" or (product and any(map(_has_ranks_as_factor, number.args[1:])))


class ExpressionEvaluator(ComparisonEvaluator):
    """Evaluation of the expressions in one function."""

    def evaluate(self, node: ast.expr | None) -> Value:
        if node is None:
            return self.constant(None)
        self.budget.left -= 1  # as ``spend``, without a call for each expression
        if self.budget.left < 0:
            raise OverBudget
        if method := getattr(self, METHOD_NAMES[type(node)], None):
            value = method(node)
        else:
            parts = [self.evaluate(child) for child in child_nodes(node) if isinstance(child, ast.expr)]
            value = self.unknown(node, *parts)
        if self.module.is_asked:
            if self.quick:
                self.seen.append((node, value))
            else:
                self.keep(node, value)
        return value

    def keep(self, node: ast.expr, value: Value) -> None:
        """Keep the value of an expression for those who ask for it."""
        if self.known is not None:
            self.known[node] = value
            return
        known = self.shared.values.setdefault(node, value.key)
        if known is not value.key:  # the function is called with other arguments as well
            self.shared.values[node] = self.keys.make("one of", known, value.key)

    def _Constant(self, node: ast.Constant) -> Value:
        return self.constant(node.value)

    def _Name(self, node: ast.Name) -> Value:
        found = self.lookup(node.id)
        if found is not None:
            of_some = self.shared.of_some
            if of_some.by_value and (read := of_some.of(node.id, found)):
                self._note_name(node, read)
            return self.in_branch(found) if found.key.op == "if" else found
        if starred := self.from_star(self.module, node.id):
            return starred
        if node.id in TRANSPARENT or node.id in BUILTINS:
            return Value(self.keys.make("name", node.id), obj=Library(node.id))
        return self.by_name(node.id) or Value(self.keys.make("name", self.module.path, node.id))

    def _note_name(self, node: ast.Name | ast.Attribute, of_some: OfSome) -> None:
        if read := of_some.read_at(node, self.site(node), self.path[-1], self.keys):
            self.items.append(read)

    def from_star(self, module: Module, name: str) -> Value | None:
        """Return what a library has under a name, if a module imports all names of it."""
        for each in module.stars:
            full = f"{each}.{name}"
            if full in FUNCTIONS or full in NOTED_FUNCTIONS or full in GET_RANK:
                return self.library(full)
        return None

    def _Attribute(self, node: ast.Attribute) -> Value:
        owner = self.evaluate(node.value)
        if owner.key.op == "if" and isinstance(node.ctx, ast.Load):
            self.note_none(node, node.value, owner)
        if isinstance(owner.obj, Either):
            return self.chosen(owner.obj, node, lambda side: self.attribute(side, node.attr, node))
        wrapped = "ddp" in owner.facts and "fsdp" not in owner.facts
        if (wrapped or self._is_of_prepared(owner, node)) and self._is_of_model(owner, node):
            self.items.append(Read(node.attr, self.site(node), node, owner))
        value = self.attribute(owner, node.attr, node)
        cls = owner.obj.cls if isinstance(owner.obj, Instance) and isinstance(node.ctx, ast.Load) else None
        if cls and (of_some := self.shared.of_some.attribute(cls, node.attr, value, self.keys)):
            self._note_name(node, of_some)
        return value

    def _is_of_model(self, owner: Value, node: ast.Attribute) -> bool:
        """Return whether an attribute is one of the model inside DDP, not of DDP, and nothing has set it on DDP."""
        own = node.attr in DDP_API or node.attr.startswith("_") or f"{id(owner.key)}.{node.attr}" in self.env
        return isinstance(node.ctx, ast.Load) and not own

    def _is_of_prepared(self, owner: Value, node: ast.Attribute) -> bool:
        """Return whether an attribute is one of the model that Accelerate has wrapped."""
        if owner.facts >= {"prepared", PRETRAINED} and node.attr in OF_TRANSFORMERS:
            return True
        inner = self.shared.inner.get(owner.key) if "prepared" in owner.facts else None
        if inner is None or not any(name.endswith("nn.Module") for name in inner.cls.library_bases()):
            return False
        return inner.cls.find(node.attr) is not None or inner.cls.attribute(node.attr) is not None

    def _Subscript(self, node: ast.Subscript) -> Value:
        owner = self.evaluate(node.value)
        if owner.key.op == "if":
            self.note_none(node, node.value, owner)
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            if found := self.variable(node.slice.value, owner):
                return found
            stored = self.held_at(f"{id(owner.key)}.{node.slice.value}")
            if stored is not None:
                return stored
            if isinstance(owner.obj, Record) and node.slice.value in owner.obj.fields:
                return owner.obj.fields[node.slice.value]
        index = self.evaluate(node.slice)
        if is_place(index.key) and (stored := self.held_at(f"{id(owner.key)}.{index.key.value}")) is not None:
            return stored
        if owner.facts >= MAKES_NAMES and isinstance(node.ctx, ast.Load):
            self.keep_under(node.value, owner, index.key)
        if owner.facts >= OF_TEXTS and index.key.differs_by & BY_RANK and "unordered" in owner.facts:
            self.note_order(node, owner)
        if is_mask(node.slice) or is_mask_of_data(index.key) or _is_named_mask(node.slice, index.key):
            return self.selected(owner, node)
        return self.item(owner, index.key, node)

    def _Slice(self, node: ast.Slice) -> Value:
        parts = [self.evaluate(part) for part in (node.lower, node.upper, node.step)]
        return Value(self.keys.make("slice", *(part.key for part in parts)))

    def _BoolOp(self, node: ast.BoolOp) -> Value:
        op = "and" if isinstance(node.op, ast.And) else "or"
        result = self.evaluate(node.values[0])
        for part in node.values[1:]:
            taken = result.key if op == "and" else self.keys.make("not", result.key)
            value, items = self.captured(part, taken)
            if items:
                self.items.append(Branch(taken, self.site(node), items, []))
            facts = result.facts | value.facts
            if op == "or" and not (result.key.differs_by | value.key.differs_by) & DIFFERS and value.obj is not None:
                result = Value(value.key, facts, value.obj)  # x or default
            else:
                obj = result.obj if op == "or" else None
                result = Value(self.keys.make(op, result.key, value.key), facts & CARRIED, obj)
        return result

    def _UnaryOp(self, node: ast.UnaryOp) -> Value:
        value = self.evaluate(node.operand)
        if isinstance(node.op, ast.Not):
            return Value(self.keys.make("not", value.key))
        if isinstance(node.op, ast.USub) and value.key.is_constant and isinstance(value.key.value, (int, float)):
            return self.constant(-value.key.value)
        return Value(self.keys.make("unary", type(node.op).__name__, value.key), value.facts & CARRIED)

    def _BinOp(self, node: ast.BinOp) -> Value:
        left, right = self.evaluate(node.left), self.evaluate(node.right)
        op = type(node.op).__name__
        if op == "Add" and isinstance(right.obj, Either) and is_elements(left.obj):
            return self.chosen(right.obj, node, lambda side: self._concatenated(left, side))
        if op == "Add" and is_elements(left.obj) and is_elements(right.obj):
            return self._concatenated(left, right)
        if rank := self.rank_of_node(op, left.key, right.key, node):
            return Value(rank)
        if op == "Mod" and is_text(left.key):
            self._as_texts(right.obj if is_elements(right.obj) else (right,), node.right)
        facts = (
            facts_of_all([left, right])
            if op == "Add" and left.key.op == "sequence" and left.key.args
            else left.facts | right.facts
        )
        value = Value(self.keys.make("binary", op, left.key, right.key), facts & CARRIED)
        if op == "MatMult":
            return across(left, right, value)
        if op == "Div" and _has_ranks_as_factor(right.key) and "graph" in left.facts:
            return replace(value, facts=value.facts | {"divided"})
        return replace(value, facts=value.facts - {"divided"}) if op == "Mult" and "world" in right.facts else value

    def _concatenated(self, left: Value, right: Value) -> Value:
        both = is_elements(left.obj) and is_elements(right.obj)
        key = self.keys.make("binary", "Add", left.key, right.key)
        return Value(key, obj=(*left.obj, *right.obj) if both else None)

    def _IfExp(self, node: ast.IfExp) -> Value:
        test = self.shared.settled(self.evaluate(node.test).key)
        then, first = self.captured(node.body, test)
        other, second = self.captured(node.orelse, self.keys.make("not", test))
        if test.is_constant:
            self.items += first if test.value else second
            return then if test.value else other
        agreed = self.agreed(test)
        if first or second:
            self.items.append(Branch(agreed, self.site(node), first, second))
        return self.joined(agreed, then, other, self.site(node))

    def _NamedExpr(self, node: ast.NamedExpr) -> Value:
        value = self.named(node.target.id, self.evaluate(node.value))
        self.env[node.target.id] = value
        return value

    def _Starred(self, node: ast.Starred) -> Value:
        return self.evaluate(node.value)

    def _Await(self, node: ast.Await) -> Value:
        return self.evaluate(node.value)

    def _Yield(self, node: ast.Yield) -> Value:
        value = self.evaluate(node.value)
        decorators = getattr(self.function.node, "decorator_list", ()) if self.function else ()
        if any(last_name(each) == "contextmanager" for each in decorators):
            self.items.append(Pause(self.site(node)))
        self._note_yield((*(each.key for each in self.loops), self.path[-1], *self.skipped), value)
        return self.unknown(node)

    def _YieldFrom(self, node: ast.YieldFrom) -> Value:
        value = self.evaluate(node.value)
        element = self.element(value, node.value)
        self._note_yield((*(each.key for each in self.loops), self.path[-1], *self.skipped, value.key), element)
        return self.unknown(node)

    def _note_yield(self, counts: tuple[Key, ...], element: Value) -> None:
        if self.quick:
            self.again = True
        else:
            self.yielded.append((counts, element))

    def _Lambda(self, node: ast.Lambda) -> Value:
        return Value(self.keys.make("lambda", *self.place(node)), obj=FunctionRef(self.module, node, self.scope()))

    def _JoinedStr(self, node: ast.JoinedStr) -> Value:
        return Value(self.keys.make("text", *map(self._part_of_text, node.values)))

    def _part_of_text(self, part: ast.expr) -> Key:
        if not isinstance(part, ast.FormattedValue):
            return self.evaluate(part).key
        shown = self.evaluate(part.value)
        self.as_text(shown, part)
        value = shown.key
        if value.op == CLOCK and part.format_spec and is_coarse(ast.unparse(part.format_spec)):
            return self.keys.make(COARSE, ast.unparse(part.format_spec))
        return self.keys.make("shown", value, ast.unparse(part.format_spec)) if part.format_spec else value

    def _as_texts(self, values: Sequence[Value], node: ast.expr) -> None:
        for each in values:
            self.as_text(each, node)

    def as_text(self, value: Value, node: ast.expr) -> None:
        """Follow the method by which an object of the program is shown as text."""
        if not isinstance(value.obj, Instance):
            return
        found = value.obj.cls.find("__str__") or value.obj.cls.find("__repr__")
        if found:
            function = FunctionRef(found[0].module, found[1], found[0].env, found[0])
            self.call_function(function, [value], {}, self.site(node))
