"""Calls: of the program's functions, of what a condition chooses, of functions that are handed on, of libraries."""

import ast

from msgspec.structs import replace

from ..nodes import CompletedCall
from ..syntax import last_name
from .arguments import ArgumentEvaluator
from .array_types import function_type, method_type, note_array
from .evaluator_state import Named, Values
from .followed import is_followed
from .function_steps import Branch, Called, Noted, Rounds
from .handed_on import hands_on
from .keys import BY_RANK, Key, is_text
from .library_calls import CALLING_METHODS, CALLS_GIVEN, HOOKS, METHODS
from .names import GRADIENT
from .noted_calls import (
    DESTROY,
    INIT,
    LINES_TO_FILE,
    OF_GROUP,
    RANK_IN_GROUP,
    REPORT,
    SHOWN_BY_FIRST,
    TO_FILE,
    is_opened_to_write,
    is_past_wrapper,
    is_report,
    noted_device,
    noted_name,
    owner_of,
    reports_on_first,
)
from .rank_values import STARTS
from .values import (
    Bound,
    ClassRef,
    Either,
    FunctionRef,
    Instance,
    Library,
    Method,
    Partial,
    Super,
    Value,
    is_elements,
)

AT_EXIT = "atexit.register"
STARTING = {*STARTS, "Process"}
SHOWS = {"str", "repr", "print", "format"}
MEASURES = {
    "norm",
    "vector_norm",
    "sum",
    "mean",
    "max",
    "min",
    "item",
    "all",
    "any",
    "isfinite",
    "isnan",
    "numel",
    "len",
}


def may_be_other(key: Key) -> bool:
    """Return whether an object is one that the program makes on some way, and on another way one that is not known."""
    if key.op not in ("one of", "if"):
        return False
    sides = key.args if key.op == "one of" else key.args[1:]
    known = any(side.op == "instance" for side in sides)
    return known and any(_is_unknown(side) or may_be_other(side) for side in sides)


def _is_unknown(key: Key) -> bool:
    return not key.is_constant and key.op not in ("instance", "one of", "if")


def _may_be_overridden(method: Bound, called: ast.expr) -> bool:
    """Return whether a method is called on ``self``, and a class below its own in the file has another one."""
    if not isinstance(called, ast.Attribute) or not isinstance(called.value, ast.Name) or called.value.id != "self":
        return False
    owner = method.owner.obj
    if not isinstance(owner, Instance):
        return False
    return called.attr in owner.cls.module.parsed.overridden.get(owner.cls.node.name, ())


# Of Accelerate: what a function is handed to, and what calls it then, on the ranks that get there.
TAKES_SAVING_HOOK, SAVES_STATE = "register_save_state_pre_hook", "save_state"


class CallEvaluator(ArgumentEvaluator):
    """Evaluation of the calls in one function."""

    def _Call(self, node: ast.Call) -> Value:
        if isinstance(node.func, ast.Name) and node.func.id == "super" and (inherited := self._super()):
            return inherited
        callee = self._callee(node.func)
        written_out, values, named = self.arguments(node)
        return self._invoked(callee, written_out, values, named)

    def _invoked(self, callee: Value, node: ast.Call, values: Values, named: Named) -> Value:
        """Return the result of a call, and note what rules ask for."""
        obj = callee.obj
        made_of = type(obj)
        if made_of is Either:
            return self.chosen(obj, node, lambda side: self._invoked(side, node, list(values), dict(named)))
        if made_of is Partial:
            return self._invoked(
                obj.function, self.with_arguments(obj.node, node), [*obj.values, *values], {**obj.named, **named}
            )
        name: str = obj.name if made_of is Library else ""
        if name == "functools.partial" and values and (is_followed(values[0].obj) or self.qualified(values[0])):
            made = Partial(values[0], node, tuple(values[1:]), named)
            return Value(self.keys.make("partial", values[0].key, *self.place(node)), obj=made)
        if (name or made_of is Method) and (handed := self._handed_on(name, callee, node, values, named)):
            return handed
        if made_of is Method and obj.name == "step" and values and is_followed(values[0].obj):
            self._invoked(values[0], ast.copy_location(ast.Call(node.func, [], []), node), [], {})  # the closure
        if name == "map" and len(values) > 1 and (is_followed(values[0].obj) or self.qualified(values[0])):
            return self._mapped(node, values)
        if name in ("sys.exit", "os._exit", "exit", "quit"):
            self.exit_program(node, values)
            return self.unknown(node)
        outcome = self.called(callee, node, values, named)
        if self.no_grad and "unreduced" in outcome.facts:
            outcome = replace(outcome, facts=outcome.facts - {"unreduced"})
        named_call = noted_name(callee) or noted_device(callee, values, named)
        if named_call and not (named_call == ".requires_grad_" and self._is_of_activation(callee, node)):
            made = named_call, self.site(node), node, owner_of(callee), values, named, outcome, self.on_demand
            self.items.append(Noted(*made))
            if type(node) is CompletedCall:
                self.shared.completed.append(node)
        if name and name in (INIT, DESTROY):
            self.shared.has_group = name == INIT
        if (name == "open" and is_opened_to_write(values, named)) or self._writes(callee, values, named):
            self._note_file(name, callee, node, values, named, outcome)
        if name == OF_GROUP[0] and (values or named):
            self.items.append(Noted(RANK_IN_GROUP, self.site(node), node, None, values, named, outcome))
        if name in OF_GROUP and not self.shared.has_group:
            self.items.append(Noted(name, self.site(node), node, None, values, named, outcome))
        if self.path[-1].differs_by & BY_RANK and is_report(callee):
            self.items.append(Noted(REPORT, self.site(node), node, owner_of(callee), values, named, outcome))
        elif made_of is Method and obj.name in SHOWN_BY_FIRST and reports_on_first(callee):
            report = Noted(REPORT, self.site(node), node, owner_of(callee), values, named, outcome)
            self.items.append(Branch(self.keys.is_first("global"), self.site(node), [report], []))
        return outcome

    def _is_of_activation(self, callee: Value, node: ast.Call) -> bool:
        """Return whether a method of what a forward pass has computed is called, which is no parameter."""
        owner = owner_of(callee)
        return (
            self.function is not None
            and getattr(self.function.node, "name", "") == "forward"
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and owner is not None
            and owner.key.op not in ("element", "item")
        )

    def _writes(self, callee: Value, values: Values, named: Named) -> bool:
        """Return whether a call that is not followed gets a file that was opened to write."""
        files = self.shared.files
        if not files:
            return False
        owner = owner_of(callee)
        gets = (owner is not None and owner.key in files) or any(
            value.key in files for value in (*values, *named.values())
        )
        return gets and not is_followed(callee.obj)

    def _note_file(
        self, name: str, callee: Value, node: ast.Call, values: Values, named: Named, outcome: Value
    ) -> None:
        """Remember a file that is opened to write, its number, or what gives it lines; note what is written."""
        if name in ("open", *LINES_TO_FILE) or last_name(node.func) == "fileno":
            self.shared.files.add(outcome.key)
        if name != "open":
            self.items.append(Noted(TO_FILE, self.site(node), node, owner_of(callee), values, named, outcome))

    def _super(self) -> Value | None:
        function = self.function
        if function is None or function.owner is None or not self.parameters:
            return None
        owner = self.env[self.parameters[0]]
        cls = owner.obj.cls if isinstance(owner.obj, Instance) else function.owner
        return Value(self.keys.make("super", id(cls)), obj=Super(cls, owner, function.node))

    def _callee(self, node: ast.expr) -> Value:
        """Return the function that is called; what its name would suggest as a variable does not count."""
        value = self.evaluate(node)
        if isinstance(node, ast.Name) and value.obj is None and self.lookup(node.id) is None:
            return Value(self.keys.make("name", self.module.path, node.id))
        return value

    def called(self, callee: Value, node: ast.Call, values: Values, named: Named) -> Value:
        obj = callee.obj
        made_of = type(obj)
        if made_of is FunctionRef:
            hands_on_all = obj.node.args.vararg is not None
            if hands_on_all and (handed := self.handed_on(obj, node, values, named)) is not None:
                return handed
            result = self.call_function(obj, values, named, self.site(node), node.args)
            last = self.items[-1] if self.items else None
            if self.function and isinstance(last, Called) and hands_on(node, self.function.node):
                self.items[-1] = last._replace(hands_on=True)
            return result
        if made_of is Bound:
            hands_on_all = obj.function.node.args.vararg is not None
            if hands_on_all and (handed := self.handed_on(obj.function, node, values, named)) is not None:
                return handed
            result = self.call_function(obj.function, [obj.owner, *values], named, self.site(node), node.args)
            last = self.items[-1] if self.items else None
            held = obj.held and may_be_other(obj.held.key)
            if isinstance(last, Called) and (held or _may_be_overridden(obj, node.func)):
                self.items[-1] = last._replace(perhaps=True)
            return self._past_wrapper(result) if is_past_wrapper(callee) else result
        if made_of is ClassRef:
            return self.instantiate(obj, values, named, self.site(node))
        if made_of is Instance:
            method = obj.cls.find("__call__") or obj.cls.find("forward")
            if method:
                if "fsdp" in callee.facts:  # fully_shard changes the object, which keeps its class
                    self.effect(METHODS["fsdp"]["__call__"], node, values, named, callee)
                function = self.method_of(*method)
                result = self.call_function(function, [callee, *values], named, self.site(node), node.args)
                return self._past_wrapper(result) if is_past_wrapper(callee) else result
        for role in sorted(callee.facts & METHODS.keys()) if callee.facts else ():
            if effect := METHODS[role].get("__call__"):
                return self.effect(effect, node, values, named, callee)
        last = last_name(node.func)
        if last in STARTING and (started := self.started(node, values, named)):
            return started
        if last == TAKES_SAVING_HOOK and values:
            self.shared.saving_hooks[values[0].key] = values[0]
        if last == SAVES_STATE:
            for hook in [*self.shared.saving_hooks.values()]:
                self._run_hook(hook.obj, node)
        if made_of is Library:
            for value, shown in zip(values, node.args, strict=False) if obj.name in SHOWS else ():
                self.as_text(value, shown)
            made = self._library(obj.name, callee, node, values, named)
            if obj.name.startswith("numpy."):
                note_array(self.keys, made.key, function_type(self.keys, obj.name, values, named))
            return _measured(made, obj.name)
        if made_of is Method:
            if obj.name == "format" and is_text(obj.owner.key):
                shown = (*values, *named.values())
                for value in shown:
                    self.as_text(value, node)
                return Value(self.keys.make("text", obj.owner.key, *(value.key for value in shown)))
            made = self._method(obj, callee, node, values, named)
            if obj.owner.key in self.keys.array_types or obj.owner.key in self.keys.generators:
                note_array(self.keys, made.key, method_type(self.keys, obj.owner.key, obj.name, values, named))
            return _measured(made, obj.name)
        if last == "init_device_mesh" and (mesh := self.mesh(values, named)):
            return mesh
        if _is_loss(callee.key) and any("graph" in value.facts for value in values):
            options = [Value(each) for each in callee.key.args[1:] if isinstance(each, Key) and is_text(each)]
            return self._computed(str(callee.key.args[0]), [*values, *named.values(), *options])
        known = self.by_name(last, called=True) if not values and not named else None
        return known or self._opaque(callee, node, values, named)

    def _run_hook(self, hook: object, node: ast.Call) -> None:
        """Follow what a library calls, with values that are not known here."""
        if isinstance(hook, Bound):
            self.call_function(hook.function, [hook.owner], {}, self.site(node))
        elif isinstance(hook, FunctionRef):
            self.call_function(hook, [], {}, self.site(node))

    def _past_wrapper(self, result: Value) -> Value:
        """Return the result of a forward pass whose gradients DDP does not reduce."""
        if self.no_grad:
            return result
        obj = result.obj
        parts = tuple(map(self._past_wrapper, obj)) if is_elements(obj) else obj
        return replace(result, facts=result.facts | {"unreduced"}, obj=parts)

    def _handed_on(self, name: str, callee: Value, node: ast.Call, values: Values, named: Named) -> Value | None:
        """Follow a function that is handed to one which calls it: a thread, a pool, the end of the program."""
        place, word = CALLS_GIVEN.get(name, (99, ""))
        if type(callee.obj) is Method:
            place = CALLING_METHODS.get(callee.obj.name, 99)
            if callee.obj.name in HOOKS and self.path[-1].differs_by & BY_RANK:
                place = 0  # a hook of some ranks
        if place == 99 and not word:
            return None
        function = named.get(word) or (values[place] if place < len(values) else None)
        if function is None or not is_followed(function.obj) or is_elements(function.obj):
            return None
        given = named["args"].obj if "args" in named else tuple(values[place + 1 :])
        rest = {text: value for text, value in named.items() if text not in (word, "args", "kwargs", "daemon", "name")}
        call = ast.copy_location(ast.Call(node.func, [], []), node)
        before = len(self.items)
        result = self._invoked(function, call, [*given] if is_elements(given) else [], rest)
        if name == AT_EXIT or (isinstance(callee.obj, Method) and callee.obj.name == "callback"):
            later = self.keys.make("later", *self.place(node))  # it has not run where the text goes on
            self.items[before:] = [Branch(later, self.site(node), self.items[before:], [])]
        return result

    def _mapped(self, node: ast.Call, values: Values) -> Value:
        """Return what a function gives for the elements of sequences: it is called in a loop."""
        function, *sources = values
        elements = [self.element(source, text) for source, text in zip(sources, node.args[1:], strict=False)]
        outside, self.items = self.items, []
        each = ast.copy_location(ast.Call(func=node.args[0], args=node.args[1:], keywords=[]), node)
        result = self._invoked(function, each, elements, {})
        body, self.items = self.items, outside
        if body:
            count = self.count(sources[0], node.args[1] if len(node.args) > 1 else node)
            self.items.append(Rounds(count, self.site(node), body, [], free=False, test_led=False))
        return Value(self.keys.make("built", 1, sources[0].key, result.key))


def _is_loss(key: Key) -> bool:
    """Return whether an object is a loss of torch."""
    name = str(key.args[0]) if key.op == "call" else ""
    return name.startswith("torch.nn.") and name.endswith("Loss")


def _measured(result: Value, name: str) -> Value:
    """Return the result of a call, which is no gradient if it measures some."""
    if "gradient" in result.facts and name.rpartition(".")[2] in MEASURES:
        return replace(result, facts=result.facts - GRADIENT)
    return result
