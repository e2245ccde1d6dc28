"""The training program of a script, read once: its model, optimizer, loaders, loops, device and main block."""

import ast
from collections.abc import Iterator
from functools import cached_property

from ...training_script.syntax import (
    COMPREHENSIONS,
    FUNCTIONS,
    LOOPS,
    Function,
    call_argument,
    dotted_name,
    is_main_block,
    last_name,
)
from ...training_script.torch_classes import DDP_CLASSES, LOADER_CLASSES, is_optimizer
from ..rule_context import Script
from .origins import loader_roots, roots
from .types import Refusal

PARAMETERS = {"parameters", "named_parameters"}
DEVICES = {"torch.device", "torch.accelerator.current_accelerator"}
Loop = ast.For | ast.AsyncFor | ast.While


class TrainingFacts:
    """Facts of a training script for migrations, each found when it is asked for."""

    def __init__(self, text: str, path: str) -> None:
        """Read ``text``.

        Raises:
            UserError: It is not valid Python.
        """
        self.script = Script(text, path)
        self.source, self.names = self.script.source, self.script.names

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of the script, in the order of the text."""
        return [*ast.walk(self.source.tree)]

    @cached_property
    def calls(self) -> list[ast.Call]:
        """Every call, in the order of the text."""
        found = [node for node in self.nodes if isinstance(node, ast.Call)]
        return sorted(found, key=lambda call: (call.lineno, call.col_offset))

    def named(self, call: ast.Call) -> str:
        """Return the qualified name of what ``call`` calls, or "" if it is nothing imported."""
        return self.names.qualified(call.func)

    # ---- training step

    @cached_property
    def backwards(self) -> list[ast.Call]:
        """The calls of ``backward``."""
        return [
            call
            for call in self.calls
            if isinstance(call.func, ast.Attribute) and call.func.attr == "backward" and not self._in_autograd(call)
        ]

    @cached_property
    def backward(self) -> ast.Call:
        """The first call of ``backward``."""
        if not self.backwards:
            raise Refusal(1, "no call of backward: the training loop is not in this file; migrate the file that has it")
        return self.backwards[0]

    @cached_property
    def training_loops(self) -> list[Loop]:
        """The loops around the first backward pass, inner ones first, through the calls of its functions."""
        return [*self._loops_around(self.backward)]

    @cached_property
    def batch_loop(self) -> Loop:
        """The innermost loop that gets a new batch in each iteration."""
        if not self.training_loops:
            raise Refusal(self.backward.lineno, "no loop around this backward pass")
        innermost = next(self._repetitions_around(self.backward), None)
        if isinstance(innermost, COMPREHENSIONS):
            raise Refusal(innermost.lineno, "a comprehension runs the training step: make it a for loop")
        for loop in self.training_loops:
            if isinstance(loop, ast.For) and self.loaders_of(loop.iter):
                return loop
        return self.training_loops[0]

    @cached_property
    def training_functions(self) -> list[Function]:
        """The functions that run in the batch loop and call ``backward``, or whose caller does."""
        found: list[Function] = []
        for call in self.backwards:
            at: ast.AST = call
            while (function := self.names.enclosing_function(at)) and self.batch_loop not in self._above(at):
                if function in found:
                    break
                found.append(function)
                callers = self.names.arguments.get(function, [])
                if not callers:
                    break
                at = callers[0][0]
        return found

    @cached_property
    def in_training(self) -> set[ast.AST]:
        """The nodes of the batch loop and of the functions that do its training step."""
        return {node for part in (self.batch_loop, *self.training_functions) for node in ast.walk(part)}

    # ---- objects

    @cached_property
    def optimizer_steps(self) -> dict[str, ast.Call]:
        """The first ``step()`` of each optimizer, by the names that the optimizers have there."""
        found: dict[str, ast.Call] = {}
        for call in self.calls:
            match call.func:
                case ast.Attribute(value=value, attr="step") if self.is_optimizer(value):
                    found.setdefault(dotted_name(value), call)
                case ast.Attribute(attr="step") if call.args and self.is_optimizer(call.args[0]):
                    found.setdefault(dotted_name(call.args[0]), call)
        return found

    @cached_property
    def optimizers(self) -> list[ast.Call]:
        """The calls that make the optimizer; several are alternatives."""
        return [call for call in self.calls if self._makes_optimizer(call)]

    @cached_property
    def model(self) -> ast.expr:
        """The expression for the model where the optimizer gets its parameters."""
        found = [expr for call in self.optimizers for expr in self._models_of(call)]
        if not found:
            raise Refusal(
                self._line_of_optimizer(), "no optimizer gets model.parameters() here: the model is not known"
            )
        return found[0]

    @cached_property
    def models(self) -> list[ast.expr]:
        """One expression for each different model that the optimizers train."""
        found: list[tuple[ast.expr, set[ast.AST]]] = []
        for call in self.optimizers:
            for expr in self._models_of(call):
                made = roots(self.names, expr)
                if all(made.isdisjoint(other) for _, other in found):
                    found.append((expr, made))
        return [expr for expr, _ in found]

    @cached_property
    def parameter_reads(self) -> list[ast.Call]:
        """The calls of ``parameters`` and ``named_parameters`` whose values the optimizers get."""
        return [read for call in self.optimizers for read, _ in self._parameters_given(call)]

    @cached_property
    def model_roots(self) -> set[ast.AST]:
        """The calls and parameters that the model comes from."""
        return self.roots_of(self.model)

    def roots_of(self, model: ast.expr) -> set[ast.AST]:
        """Return the calls and parameters that a model comes from; ``self`` is every object of its class."""
        if dotted_name(model) != "self":
            return roots(self.names, model)
        owner = self.names.enclosing_class(self.names.scope_of[model])
        return {call for call in self.calls if owner is not None and self.names.class_of(call) is owner}

    def is_model(self, expr: ast.expr) -> bool:
        """Return whether ``expr`` is a name of the model outside its own class."""
        if not dotted_name(expr) or self._in_module_class(expr):
            return False
        return not self.model_roots.isdisjoint(roots(self.names, expr))

    @cached_property
    def loaders(self) -> list[ast.Call]:
        """Every DataLoader."""
        return [call for call in self.calls if self.named(call) in LOADER_CLASSES]

    @cached_property
    def training_loaders(self) -> list[ast.Call]:
        """The loaders of the batch loop."""
        found = {id(call): call for loop in self._batch_loops() for call in self.loaders_of(loop.iter)}
        for node in ast.walk(self.batch_loop):
            if isinstance(node, ast.Call) and dotted_name(node.func) == "next" and node.args:
                found |= {id(call): call for call in self.loaders_of(node.args[0])}
        return [*found.values()]

    def loaders_of(self, expr: ast.expr) -> list[ast.Call]:
        """Return the calls of DataLoader whose batches an iteration over ``expr`` gives."""
        return [
            leaf
            for leaf in loader_roots(self.names, expr)
            if isinstance(leaf, ast.Call) and self.named(leaf) in LOADER_CLASSES
        ]

    @cached_property
    def data_parallel(self) -> list[ast.Call]:
        """The calls of DataParallel."""
        return [call for call in self.calls if self.named(call).endswith(".DataParallel")]

    @cached_property
    def wraps(self) -> list[ast.Call]:
        """The calls of DistributedDataParallel."""
        return [call for call in self.calls if self.named(call) in DDP_CLASSES]

    # ---- device and start

    @cached_property
    def devices(self) -> list[ast.Assign]:
        """The statements that choose the device: ``device = torch.device(…)``, or a text such as ``"cuda"``."""
        return [node for node in self.nodes if isinstance(node, ast.Assign) and self._chooses_device(node)]

    @cached_property
    def main_block(self) -> ast.If | None:
        """The ``if __name__ == "__main__":`` of the script."""
        return next((node for node in self.source.tree.body if is_main_block(node)), None)

    @property
    def start_body(self) -> list[ast.stmt]:
        """The statements that run when the script starts: the main block, or else the script itself."""
        return self.main_block.body if self.main_block else self.source.tree.body

    # ---- private

    def _line_of_optimizer(self) -> int:
        """Return the line where an optimizer is made whose model is not known, else 1."""
        steps = (call.func for call in self.calls if last_name(call.func) == "step")
        of_steps = (
            leaf for each in steps if isinstance(each, ast.Attribute) for leaf in self.names.origins(each.value)
        )
        return next((each.lineno for each in (*self.optimizers, *of_steps) if isinstance(each, ast.expr)), 1)

    def _batch_loops(self) -> Iterator[ast.For | ast.AsyncFor]:
        for call in self.backwards:
            for loop in self._loops_around(call):
                if isinstance(loop, (ast.For, ast.AsyncFor)) and self.loaders_of(loop.iter):
                    yield loop
                    break

    def _loops_around(self, node: ast.AST) -> Iterator[Loop]:
        return (each for each in self._repetitions_around(node) if isinstance(each, LOOPS))

    def _repetitions_around(self, node: ast.AST, depth: int = 6) -> Iterator[ast.AST]:
        """Yield the loops and comprehensions around a node and around the calls of its functions, inner ones first."""
        for above in self._above(node):
            if isinstance(above, (*LOOPS, *COMPREHENSIONS)):
                yield above
            elif isinstance(above, FUNCTIONS):
                callers = self.names.arguments.get(above, []) or self.callers_of_method(above)
                if depth and callers:
                    yield from self._repetitions_around(callers[0][0], depth - 1)
                return

    def callers_of_method(self, function: Function) -> list[tuple[ast.Call, dict[str, ast.expr]]]:
        """Return the calls ``x.name(…)`` of a method, if only one class has one of this name."""
        if not isinstance(self.source.parents.get(function), ast.ClassDef):
            return []
        same = [node for node in self.nodes if isinstance(node, FUNCTIONS) and node.name == function.name]
        if len(same) != 1:
            return []
        methods = (call for call in self.calls if isinstance(call.func, ast.Attribute))
        return [(call, {}) for call in methods if last_name(call.func) == function.name]

    def _above(self, node: ast.AST) -> Iterator[ast.AST]:
        while (above := self.source.parents.get(node)) is not None:
            yield above
            node = above

    def _in_autograd(self, call: ast.Call) -> bool:
        return isinstance(call.func, ast.Attribute) and self.names.qualified(call.func).startswith("torch.autograd.")

    def _in_module_class(self, node: ast.AST) -> bool:
        """Return whether ``node`` is in a class that has a ``forward``."""
        return any(
            isinstance(above, ast.ClassDef)
            and any(isinstance(each, FUNCTIONS) and each.name == "forward" for each in above.body)
            for above in self._above(node)
        )

    def _makes_optimizer(self, call: ast.Call) -> bool:
        name = self.named(call)
        in_library = is_optimizer(name) and "swa_utils" not in name and last_name(call.func)[:1].isupper()
        by_name = last_name(call.func).lower().endswith(("adam", "adamw", "sgd", "lion", "muon", "adafactor"))
        return (in_library or by_name) and bool(call.args or call.keywords)

    def is_optimizer(self, expr: ast.expr) -> bool:
        """Return whether ``expr`` is a name of an optimizer."""
        return bool(dotted_name(expr)) and any(
            leaf in self.optimizers
            or (isinstance(leaf, ast.Call) and isinstance(leaf.func, ast.Attribute) and leaf.func.attr in self._makers)
            for leaf in roots(self.names, expr)
        )

    @cached_property
    def _makers(self) -> set[str]:
        """The names of the methods that make an optimizer."""
        around = (self.names.enclosing_function(call) for call in self.optimizers)
        return {each.name for each in around if each and isinstance(self.source.parents[each], ast.ClassDef)}

    def _models_of(self, optimizer: ast.Call) -> Iterator[ast.expr]:
        """Yield the models whose parameters an optimizer gets."""
        for _, model in self._parameters_given(optimizer):
            yield self._whole_model(model)

    def _parameters_given(self, optimizer: ast.Call) -> Iterator[tuple[ast.Call, ast.expr]]:
        """Yield the calls of ``parameters`` whose values an optimizer gets, directly or by names, with the model."""
        given = call_argument(optimizer, "params", 0)
        pending, seen = [given] if given is not None else [], set[ast.AST]()
        while pending:
            for node in ast.walk(pending.pop()):
                if node in seen:
                    continue
                seen.add(node)
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PARAMETERS:
                    yield node, node.func.value
                elif isinstance(node, ast.Name) and len(seen) < 200:
                    pending += [each.value for each in self.names.bindings(node) if each.value is not None]

    def _whole_model(self, expr: ast.expr) -> ast.expr:
        """Return ``model`` of ``model.head.block``: the part that is bound to a name."""
        while isinstance(expr, ast.Attribute) and not self.names.bindings(expr):
            expr = expr.value
        return expr

    def _chooses_device(self, node: ast.Assign) -> bool:
        if len(node.targets) != 1 or not dotted_name(node.targets[0]):
            return False
        value = node.value
        parts = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
        is_device = any(isinstance(each, ast.Call) and self.named(each) in DEVICES for each in parts)
        texts = [each.value for each in parts if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        return is_device or any(text.startswith(("cuda", "mps")) for text in texts) or texts == ["cpu"]
