"""The scopes of a script and everything bound in them, read in one pass."""

import ast
from collections import defaultdict
from collections.abc import Iterable
from typing import Literal, NamedTuple

from .nodes import child_nodes, walk
from .source import ScriptSource
from .syntax import COMPREHENSIONS, FUNCTIONS, Function, dotted_name

# The nodes that bind names.
BINDING = {ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.AugAssign, ast.For, ast.AsyncFor, ast.comprehension}
BINDING |= {*FUNCTIONS, ast.ClassDef, ast.Import, ast.ImportFrom, ast.withitem, ast.ExceptHandler}
BINDING |= {ast.MatchAs, ast.MatchStar, ast.MatchMapping, ast.Global, ast.Nonlocal}
SCOPES = {*FUNCTIONS, ast.Lambda, ast.ClassDef, *COMPREHENSIONS}


class Binding(NamedTuple):
    """One binding of a name. ``at`` is the binding node, ``place`` the position in the tuple that ``value`` gives."""

    kind: Literal["assign", "param", "import", "def", "other"]
    at: ast.AST
    value: ast.expr | None = None
    place: int | None = None


class Scope:
    """One scope: the module, a class, a function, a lambda or a comprehension."""

    def __init__(self, node: ast.AST, parent: "Scope | None") -> None:
        self.node, self.parent = node, parent
        self.bindings: dict[str, list[Binding]] = defaultdict(list)
        self.elsewhere: dict[str, Literal["global", "nonlocal"]] = {}

    @property
    def function(self) -> Function | None:
        """The function whose body this scope is, or None."""
        return self.node if isinstance(self.node, FUNCTIONS) else None


class Scopes:
    """All scopes of one file. ``attributes`` holds the bindings of dotted names, those of ``self`` by their class."""

    def __init__(self, source: ScriptSource) -> None:
        self.source = source
        self.module = Scope(source.tree, None)
        self.scope_of: dict[ast.AST, Scope] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        self.attributes: dict[tuple[ast.ClassDef | None, str], list[Binding]] = defaultdict(list)
        self.star_import = False
        self._visit(source.tree.body, self.module)

    def enclosing_class(self, scope: Scope) -> ast.ClassDef | None:
        """Return the class that ``self`` refers to in ``scope``, or None."""
        at: Scope | None = scope
        while at:
            if isinstance(at.node, ast.ClassDef):
                return at.node
            at = at.parent
        return None

    def _visit(self, nodes: Iterable[ast.AST], scope: Scope) -> None:
        pending = [*nodes][::-1]
        while pending:
            node = pending.pop()
            self.scope_of[node] = scope
            kind = type(node)  # which is faster than ``isinstance``: every node of the script comes here
            if kind in BINDING:
                self._bind(node, scope)
            if kind not in SCOPES:
                pending += child_nodes(node)[::-1]
            elif isinstance(node, (*FUNCTIONS, ast.Lambda)):
                self._enter_function(node, scope)
            elif isinstance(node, ast.ClassDef):
                self._visit([*node.decorator_list, *node.bases, *node.keywords], scope)
                self._visit(node.body, Scope(node, scope))
            else:
                self._visit(child_nodes(node), Scope(node, scope))

    def _enter_function(self, node: Function | ast.Lambda, scope: Scope) -> None:
        inner = Scope(node, scope)
        spec = node.args
        self._visit([d for d in [*spec.defaults, *spec.kw_defaults] if d], scope)
        positional = [*spec.posonlyargs, *spec.args]
        defaults: list[ast.expr | None] = [None] * (len(positional) - len(spec.defaults)) + list(spec.defaults)
        for argument, default in [
            *zip(positional, defaults, strict=True),
            *zip(spec.kwonlyargs, spec.kw_defaults, strict=True),
        ]:
            inner.bindings[argument.arg].append(Binding("param", argument, default))
        for argument in (spec.vararg, spec.kwarg):
            if argument:
                inner.bindings[argument.arg].append(Binding("other", argument))
        for argument in walk(spec):
            self.scope_of.setdefault(argument, inner)
        if isinstance(node, ast.Lambda):
            self._visit([node.body], inner)
        else:
            self._visit(node.decorator_list, scope)
            self._visit(node.body, inner)

    def _bind(self, node: ast.AST, scope: Scope) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind_target(target, value, None, node, scope)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._bind_target(target, value, None, node, scope)
            case ast.NamedExpr(target=target, value=value):
                owner: Scope = scope
                while isinstance(owner.node, COMPREHENSIONS) and owner.parent:
                    owner = owner.parent
                self._bind_target(target, value, None, node, owner)
            case ast.AugAssign(target=target):
                self._bind_target(target, None, None, node, scope)
            case ast.For(target=target) | ast.AsyncFor(target=target) | ast.comprehension(target=target):
                self._bind_target(target, None, None, node, scope)
            case ast.withitem(optional_vars=ast.expr() as target):
                self._bind_target(target, None, None, node, scope)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                scope.bindings[name].append(Binding("def", node))
                if isinstance(node, ast.ClassDef):
                    self.classes[name] = node
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                for alias in names:
                    self.star_import |= alias.name == "*"
                    scope.bindings[alias.asname or alias.name.split(".")[0]].append(Binding("import", node))
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                scope.bindings[name].append(Binding("other", node))
            case ast.MatchMapping(rest=str(name)):
                scope.bindings[name].append(Binding("other", node))
            case ast.Global(names=names):
                scope.elsewhere |= dict.fromkeys(names, "global")
            case ast.Nonlocal(names=names):
                scope.elsewhere |= dict.fromkeys(names, "nonlocal")

    def _bind_target(
        self, target: ast.expr, value: ast.expr | None, place: int | None, at: ast.AST, scope: Scope
    ) -> None:
        kind = "assign" if value else "other"
        match target:
            case ast.Name(id=name):
                where = scope.elsewhere.get(name)
                owner = self.module if where == "global" else scope.parent if where == "nonlocal" else scope
                (owner or scope).bindings[name].append(Binding(kind, at, value, place))
            case ast.Attribute():
                path = dotted_name(target)
                owner = self.enclosing_class(scope) if path.startswith("self.") else None
                self.attributes[owner, path].append(Binding(kind, at, value, place))
            case ast.Starred(value=inner):
                self._bind_target(inner, None, None, at, scope)
            case ast.Tuple(elts=items) | ast.List(elts=items):
                starred = any(isinstance(item, ast.Starred) for item in items)
                given = value.elts if isinstance(value, (ast.Tuple, ast.List)) and place is None else None
                for number, item in enumerate(items):
                    if given and len(given) == len(items) and not starred:
                        self._bind_target(item, given[number], None, at, scope)
                    else:
                        follow = value is not None and place is None and not starred
                        self._bind_target(item, value if follow else None, number if follow else None, at, scope)
