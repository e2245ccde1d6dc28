"""Evaluate assignments, imports, definitions and the statements that leave a block."""

import ast
import re
from collections.abc import Sequence

from msgspec.structs import replace

from ..nodes import child_nodes
from ..rank_names import one_rank_decorator
from ..syntax import FUNCTIONS, last_name, unpacked_at_once
from ..torch_classes import of_torch
from .budget import OverBudget
from .caught_errors import error_of
from .collective_effects import is_agreed
from .definitions import is_harmless
from .followed import is_followed
from .function_steps import Leave, Noted
from .iterables import UNORDERED_FACT
from .keys import BY_RANK, DIFFERS, LOCAL, UNTIL_KNOWN, Key, is_place
from .names import CARRIED, POOLED, UNWRAPPED, as_own
from .noted_calls import FLAG_NAMES, FLAG_OF_SOME, MEETING_POINT, NEW_PART, PART_OF_SOME, is_flag
from .outer_names import OuterNameEvaluator
from .values import NO_FACTS, ClassRef, Context, FunctionRef, Instance, Module, Record, Value, is_elements

OF_MODEL = re.compile(r"weight|bias|param|model|net|module|encoder|decoder|backbone|head|layer|embed", re.IGNORECASE)
OF_FIRST = {"compare", "and", "or", "not", "if"}  # conditions


class _MethodNames(dict[type[ast.stmt], str]):
    """The methods that evaluate each kind of statement, those of outlines included."""

    def __missing__(self, kind: type[ast.stmt]) -> str:
        self[kind] = name = f"_{kind.__name__}_statement"
        return name


METHOD_NAMES = _MethodNames()


class StatementEvaluator(OuterNameEvaluator):
    """Evaluation of the simple statements in one function."""

    def hoist(self, body: Sequence[ast.stmt]) -> None:
        """Make the functions and classes of a block known: a function may call one that is defined later."""
        for stmt in body:
            if isinstance(stmt, FUNCTIONS):
                self._define(stmt, decorated=False)
            elif isinstance(stmt, ast.ClassDef):
                self._ClassDef_statement(stmt)

    def _define(self, stmt: "ast.FunctionDef | ast.AsyncFunctionDef", *, decorated: bool = True) -> None:
        at_module = self.env is self.module.env
        scope = {} if at_module else self.live_scope()
        key = self.keys.make("function", self.module.path, stmt.lineno)
        function = FunctionRef(self.module, stmt, scope)
        if not at_module and not self.path[-1].differs_by & DIFFERS:
            self.shared.inner_functions.append(function)
        self.env[stmt.name] = Value(key, obj=self.with_decorators(function) if decorated else function)

    def with_decorators(self, function: FunctionRef) -> FunctionRef:
        """Return the function that the decorators of a function make of it, as far as they are of the program."""
        made = Value(self.keys.make("function", self.module.path, function.node.lineno), obj=function)
        decorators = getattr(function.node, "decorator_list", [])
        around = 0  # how many are context managers, in which every call runs
        for decorator in reversed(decorators):
            by = self.evaluate(decorator)
            around += isinstance(by.obj, Context) and not is_harmless(decorator)
            if isinstance(by.obj, FunctionRef):
                assert isinstance(made.obj, FunctionRef)
                given = replace(made, obj=made.obj._replace(decorated=True))
                result = self.call_function(by.obj, [given], {}, self.site(decorator))
                if isinstance(result.obj, FunctionRef) and result.obj.node is not function.node:
                    made = replace(result, obj=result.obj._replace(wraps=function))
        if made.obj is function and around and around == sum(not is_harmless(each) for each in decorators):
            return function._replace(decorated=not any(one_rank_decorator(last_name(each)) for each in decorators))
        return made.obj

    def _ClassDef_statement(self, stmt: ast.ClassDef) -> None:
        known = self.env.get(stmt.name)
        if known and isinstance(known.obj, ClassRef) and known.obj.node is stmt:
            known.obj.bases = [self.evaluate(base) for base in stmt.bases]  # imports came in between
            return
        bases = [self.evaluate(base) for base in stmt.bases]
        cls = ClassRef(self.module, stmt, bases, {} if self.env is self.module.env else self.live_scope())
        for each in stmt.body:
            match each:
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                ) if not (isinstance(value, ast.Call) and last_name(value) == "field"):
                    cls.attributes[name] = self.named(name, self.evaluate(value))
                case _:
                    pass
        self.shared.defined.append(cls)
        if self.env is not self.module.env and not self.path[-1].differs_by & DIFFERS:
            self.shared.inner_functions += [
                FunctionRef(self.module, method, cls.env, cls) for method in cls.methods.values()
            ]
        self.env[stmt.name] = Value(self.keys.make("class", self.module.path, stmt.lineno), obj=cls)

    def block(self, stmts: Sequence[ast.stmt]) -> bool:
        """Evaluate statements; return whether the block leaves in any case."""
        for stmt in stmts:
            self.budget.left -= 1  # as ``spend``, without a call for each statement
            if self.budget.left < 0:
                raise OverBudget
            method = getattr(self, METHOD_NAMES[type(stmt)], None)
            if method is None:
                for child in child_nodes(stmt):
                    if isinstance(child, ast.expr):
                        self.evaluate(child)
            elif method(stmt):
                return True
            if self.items and type(self.items[-1]) is Leave and self.has_ended():
                return True
        return False

    def has_ended(self) -> bool:
        """Return whether the last step ends the program or raises an error."""
        last = self.items[-1] if self.items else None
        return type(last) is Leave and last.kind in ("exit", "raise")

    def _FunctionDef_statement(self, stmt: ast.FunctionDef) -> None:
        self._define(stmt)

    def _AsyncFunctionDef_statement(self, stmt: ast.AsyncFunctionDef) -> None:
        self._define(stmt)

    def _Import_statement(self, stmt: ast.Import) -> None:
        for alias in stmt.names:
            self._import(alias)

    def _import(self, alias: ast.alias) -> None:
        first = alias.name.partition(".")[0]
        shown = alias.name if alias.asname else first
        module = self.program.imported(shown, 0, self.module)
        self.env[alias.asname or first] = self._imported(shown, module)

    def _imported(self, name: str, module: Module | None) -> Value:
        if module is not None:
            return Value(self.keys.make("module", module.path), obj=module)
        return self.library(name)

    def _ImportFrom_statement(self, stmt: ast.ImportFrom) -> None:
        for alias in stmt.names:
            self._import_from(stmt, alias)

    def _import_from(self, stmt: ast.ImportFrom, alias: ast.alias) -> None:
        module = self.program.imported(stmt.module or "", stmt.level, self.module)
        name = alias.asname or alias.name
        full = f"{stmt.module}.{alias.name}" if stmt.module else alias.name
        if module is None and name == "*":
            self.module.stars.append(stmt.module or "")
        elif module is None:
            inner = self.program.imported(full, stmt.level, self.module)
            self.env[name] = self._imported(full if stmt.level else of_torch(full), inner)
        elif alias.name == "*":
            for bound in sorted(self.program.exported(module)):
                if each := self.module_value(module, bound):
                    self.env[bound] = each
        else:
            found = self.module_value(module, alias.name)
            if found is None:
                folder = self.program.imported(full, stmt.level, self.module)
                found = self._imported("", folder) if folder else Value(self.keys.make("name", module.path, alias.name))
            self.env[name] = self.named(name, found)

    def bind_name(self, name: str, stmt: ast.stmt) -> None:
        """Evaluate a statement at the top of a module for one of the names that it binds: no other is imported."""
        match stmt:
            case ast.Import(names=names):
                self._import(next(each for each in names if name == (each.asname or each.name.partition(".")[0])))
            case ast.ImportFrom(names=names):
                self._import_from(stmt, next(each for each in names if name == (each.asname or each.name)))
            case _:
                self.block([stmt])

    def _Assign_statement(self, stmt: ast.Assign) -> None:
        if type(stmt.value) is ast.Tuple and (pairs := unpacked_at_once(stmt)):
            unpacked = [(target, self.evaluate(value)) for target, value in pairs]
            for target, value in unpacked:
                self.bind(target, value)
            return
        value = self.evaluate(stmt.value)
        for target in stmt.targets:
            is_switch = isinstance(target, ast.Name) and target.id in self.module.parsed.switches
            self.bind(target, Value(self.keys.true) if is_switch else value)  # as in a run of several ranks

    def _AnnAssign_statement(self, stmt: ast.AnnAssign) -> None:
        if stmt.value is not None:
            self.bind(stmt.target, self.evaluate(stmt.value))

    def _AugAssign_statement(self, stmt: ast.AugAssign) -> None:
        load = ast.copy_location(ast.BinOp(left=_as_load(stmt.target), op=stmt.op, right=stmt.value), stmt)
        self.bind(stmt.target, self._BinOp(load))

    def bind(self, target: ast.expr, value: Value) -> None:
        if "members" in value.facts and self.loops and self.path[-1].differs_by & BY_RANK:
            value = as_own(value)
        match target:
            case ast.Name(id=name):
                self.env[name] = self.named(name, value)
                if name in self.globals:
                    self.bind_global(name, self.env[name])
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                known = self._spread_over(value.obj, elements) if is_elements(value.obj) else None
                for place, element in enumerate(elements):
                    if isinstance(element, ast.Starred):
                        element = element.value
                    part = self.item(value, self.keys.constant(place), element)
                    self.bind(element, known[place] if known else replace(part, facts=value.facts - UNORDERED_FACT))
            case ast.Attribute(value=owner, attr=name):
                held = self.evaluate(owner)
                if name == "requires_grad" and (isinstance(owner, ast.Name) or OF_MODEL.search(ast.unparse(owner))):
                    self._note_store(target, "requires_grad_", held, value)
                if _is_module(value) and self._is_in_wrapper(owner):
                    self._note_store(target, NEW_PART, held, value)
                elif _is_module(value) and self.path[-1].differs_by & BY_RANK:
                    self._note_store(target, PART_OF_SOME, held, value, name)
                elif name in FLAG_NAMES and is_flag(held, owner, name):
                    self._note_store(target, FLAG_OF_SOME, held, value, name)
                self._store(held, name, self.named(name, value))
                if isinstance(held.obj, Instance):
                    self.shared.of_some.store(held.obj.cls, name, self.path[-1], self.site(target))
            case ast.Subscript(value=owner, slice=ast.Constant(value=str() as name)):
                held = self.evaluate(owner)
                if name == "WORLD_SIZE" and self.qualified(held) == "os.environ" and len(self.path) == 1:
                    self.shared.is_single = value.key.is_constant and str(value.key.value) == "1"
                if name == "RANK" and self.qualified(held) == "os.environ" and len(self.path) == 1:
                    self.shared.is_one_rank |= value.key.op == "rank" and value.key.args[1] == UNTIL_KNOWN
                if name in MEETING_POINT and self.qualified(held) == "os.environ":
                    self._note_store(target, name, held, value)
                self._store(held, name, self.named(name, value))
            case ast.Subscript(value=owner, slice=index):
                held = self.evaluate(owner)
                at = self.evaluate(index).key
                if isinstance(held.obj, Record) and _is_name(at) and is_followed(value.obj):
                    self.shared.count_stores += at.value not in held.obj.fields
                    held.obj.fields[at.value] = value  # a table of functions that decorators fill
                if isinstance(owner, ast.Name) and owner.id in self.env and _begins_with_own(at, value.key):
                    held = self.env[owner.id] = replace(held, facts=held.facts - POOLED)
                if self.keep_under(owner, held, at):
                    return
                own_name = at.differs_by & BY_RANK and _is_mapping(held.key)
                by_some = self.path[-1].differs_by & BY_RANK and not value.key.is_constant
                if isinstance(owner, ast.Name) and by_some and (replaced := _with_element(held, at, value.key)):
                    self.env[owner.id] = Value(
                        self.keys.make("sequence", *replaced), held.facts | value.facts & CARRIED
                    )
                elif (
                    isinstance(owner, ast.Name)
                    and owner.id in self.env
                    and (value.key.differs_by & DIFFERS or by_some or own_name)
                ):
                    held = Value(self.keys.make("changed", held.key, at if own_name else value.key), held.facts)
                    self.env[owner.id] = held
                elif is_place(at) and held.key.differs_by & DIFFERS and not value.key.differs_by & DIFFERS:
                    self.env[f"{id(held.key)}.{at.value}"] = value  # alike on all ranks, unlike the other elements
                moved = POOLED if at.differs_by & BY_RANK else NO_FACTS
                if isinstance(owner, ast.Name) and owner.id in self.env and value.facts & CARRIED - held.facts - moved:
                    self.env[owner.id] = replace(held, facts=held.facts | (value.facts & CARRIED - moved))
            case _:
                pass

    def _spread_over(self, values: tuple[Value, ...], targets: list[ast.expr]) -> tuple[Value, ...] | None:
        """Return the values that targets get, a starred one those that are left; None if the numbers do not fit."""
        starred = next((place for place, each in enumerate(targets) if isinstance(each, ast.Starred)), None)
        if starred is None or len(values) < len(targets) - 1:
            return values if len(values) == len(targets) else None
        end = len(values) - (len(targets) - starred - 1)
        rest = values[starred:end]
        held = Value(self.keys.make("sequence", *(each.key for each in rest)), obj=rest)
        return (*values[:starred], held, *values[end:])

    def _is_in_wrapper(self, owner: ast.expr) -> bool:
        """Return whether an object is the model inside of DDP, or a part of it."""
        while UNWRAPPED.isdisjoint(self.evaluate(owner).facts):
            if not isinstance(owner, ast.Attribute):
                return False
            owner = owner.value
        return True

    def _note_store(
        self, target: ast.Attribute | ast.Subscript, name: str, owner: Value, value: Value, attribute: str = ""
    ) -> None:
        """Note an assignment as the call of a method that does the same, with the attribute as a named argument."""
        method = ast.copy_location(ast.Attribute(target.value, name, ast.Load()), target)
        call = ast.copy_location(ast.Call(method, [], []), target)
        named = {attribute: value} if attribute else {}
        self.items.append(Noted(f".{name}", self.site(target), call, owner, [value], named, owner))

    def _store(self, owner: Value, name: str, value: Value) -> None:
        if isinstance(owner.obj, (Instance, ClassRef)):
            if "ddp" in owner.facts:
                self.env[f"{id(owner.key)}.{name}"] = value  # it is set on DDP, not on the model inside
            cls = owner.obj.cls if isinstance(owner.obj, Instance) else owner.obj
            self.set_attribute_here(owner, name, value, cls.attribute(name))
            if self.is_made_here(owner):
                self.stored |= {name: value} if len(self.path) == 1 else {}
            known, path = cls.attributes.get(name), self._path_behind_returns()
            if known is not None and path.differs_by & LOCAL and value.obj is None and not value.facts:
                value = Value(self.keys.either(path, value.key, known.key))
            first = known is not None and (known.key is self.keys.none or _is_number_before(known.key, value.key))
            if known is not None and first and path.differs_by & BY_RANK and not path.differs_by & LOCAL:
                value = replace(value, key=self.keys.either(path, value.key, known.key))  # as before on the other ranks
            if known is not None and known.key is not value.key:
                if known.key.is_constant and not value.key.is_constant:
                    known = None
                elif value.key.is_constant and known.facts:
                    value = known
                elif is_agreed(known.key) != is_agreed(value.key):  # it is read after it was reduced over the ranks
                    value = known if is_agreed(known.key) else value
                    known = None
            if known is not None and known.key is not value.key:
                key = self.keys.make("one of", known.key, value.key)
                filled = () in (known.obj, value.obj) and None in (known.obj, value.obj)  # of a list that is emptied
                value = Value(key, known.facts | value.facts, None if filled else value.obj or known.obj)
            before = cls.attributes.get(name)
            self.shared.count_stores += before is None or before.key is not value.key
            cls.attributes[name] = value
        else:
            self.env[f"{id(owner.key)}.{name}"] = value
            if value.key.op == "rank":
                self.shared.ranks[f"{id(owner.key)}.{name}"] = value
            elif value.key.op in OF_FIRST and value.key.differs_by & BY_RANK and value.obj is None:
                self.shared.of_first[f"{id(owner.key)}.{name}"] = value

    def _path_behind_returns(self) -> Key:
        """Return the condition under which a statement is reached: also that no rank has returned before it."""
        path = self.path[-1]
        for condition, _ in self.returned:
            if condition.differs_by & BY_RANK:
                path = self.keys.make("and", path, self.keys.make("not", condition))
        return path

    def _Expr_statement(self, stmt: ast.Expr) -> None:
        value = stmt.value
        if isinstance(value, (ast.BoolOp, ast.IfExp)) or not isinstance(value, ast.Constant):
            self.evaluate(value)

    def _Return_statement(self, stmt: ast.Return) -> bool:
        value = self.evaluate(stmt.value)
        if self.loops and self.path[-1].differs_by & BY_RANK:
            value = as_own(value)
        self.returned.append((self.path[-1], value))
        self.leave_names()
        self.items.append(Leave("return", self.site(stmt)))
        return True

    def _Raise_statement(self, stmt: ast.Raise) -> bool:
        match stmt.exc:
            case ast.Call(func=ast.Name(id="SystemExit"), args=given):
                self.exit_program(stmt.exc, [self.evaluate(each) for each in given])
            case error:
                if error:
                    self.evaluate(error)
                self.items.append(Leave("raise", self.site(stmt), error_of(error)))
        return True

    def _Break_statement(self, stmt: ast.Break) -> bool:
        self.left_rounds.append(dict(self.env))
        self.items.append(Leave("break", self.site(stmt)))
        return True

    def _Continue_statement(self, stmt: ast.Continue) -> bool:
        self.skipped.append(self.keys.make("not", self.path[-1]))
        self.left_rounds.append(dict(self.env))
        self.items.append(Leave("next", self.site(stmt)))
        return True


def _with_element(held: Value, at: Key, value: Key) -> list[Key] | None:
    """Return the elements of a sequence of None with one of them replaced, None if it is another one."""
    elements = list(held.key.args) if held.key.op == "sequence" else []
    known = at.is_constant and type(at.value) is int and -len(elements) <= at.value < len(elements)
    if not known or not all(each.is_constant and each.value is None for each in elements):
        return None
    elements[at.value] = value
    return elements


def _begins_with_own(at: Key, value: Key) -> bool:
    """Return whether the first element of a sequence becomes that at the place of this rank."""
    first = at.is_constant and at.value == 0 and type(at.value) is int
    return first and value.op == "item" and bool(value.args[1].differs_by & BY_RANK)


def _is_number_before(known: Key, value: Key) -> bool:
    """Return whether a number that is written out gets a value that is not."""
    return known.is_constant and type(known.value) is int and not value.is_constant


def _is_name(key: Key) -> bool:
    return key.is_constant and isinstance(key.value, str)


def _is_module(value: Value) -> bool:
    """Return whether a value is an object that may be a part of a model."""
    return isinstance(value.obj, Instance) or (
        value.key.op == "call" and str(value.key.args[0]).startswith("torch.nn.")
    )


def _as_load(target: ast.expr) -> ast.expr:
    """Return the target of an augmented assignment as an expression that is read."""
    if isinstance(target, ast.Attribute):
        return ast.copy_location(ast.Attribute(value=target.value, attr=target.attr, ctx=ast.Load()), target)
    return target


def _is_mapping(key: Key) -> bool:
    """Return whether a value is a mapping that the program writes out, with what it got since then."""
    while key.op == "changed":
        key = key.args[0]
    return key.op == "mapping"
