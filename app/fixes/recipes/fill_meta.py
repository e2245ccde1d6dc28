"""``fill-meta``: memory and initial values for a model on the meta device, in place of its move."""

import ast

from ...training_script.nodes import unused_name
from ...training_script.syntax import dotted_name
from ..facts import CaseFacts
from ..user_code import UserFile
from .error_statement import statement_of_error
from .types import RecipeResult

PHRASE = "torch.nn.Module.to_empty()"
NAMES = ("module", "layer", "each_module")
RESETS = "reset_parameters"


def fill_meta(facts: CaseFacts) -> RecipeResult:
    """Return the patch of the statement that moves the model, if it does nothing else."""
    found = statement_of_error(facts, PHRASE)
    if found is None:
        return RecipeResult()
    file, statement = found
    model, device = _moved(file, statement)
    name = unused_name(file.source.tree, NAMES)
    if not (model and device and name):
        return RecipeResult(places=[file.place(statement)])
    source, indent = file.source, file.source.indent(statement.lineno)
    step = source.one_level(indent)
    lines = [
        f"for {name} in {model}.modules():",
        f'{step}if hasattr({name}, "{RESETS}"):',
        f"{step}{step}{name}.{RESETS}()",
        f"{step}elif [*{name}.parameters(recurse=False), *{name}.buffers(recurse=False)]:",
        f'{step}{step}raise TypeError(f"{{type({name}).__name__}} has no {RESETS}() that initialises its parameters")',
    ]
    code = source.newline.join([f"{model}.to_empty(device={device})", *(indent + line for line in lines)])
    patch = file.patched([source.replace(statement, code)])
    return RecipeResult(patches=[patch], places=[file.place(statement)])


def _moved(file: UserFile, statement: ast.stmt) -> tuple[str, str]:
    """Return the model that a statement moves, and the code of the device; empty if it does anything else."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=held, attr=attr)) as call):
            model = dotted_name(held)
        case ast.Assign(targets=[target], value=ast.Call(func=ast.Attribute(value=held, attr=attr)) as call):
            model = dotted_name(held) if dotted_name(held) == dotted_name(target) else ""
        case _:
            return "", ""
    given = [*call.args, *(each.value for each in call.keywords if each.arg == "device")]
    if len(given) != len(call.args) + len(call.keywords) or len(given) > 1:
        return "", ""
    if attr == "cuda":
        return model, file.source.one_line(given[0]) if given else '"cuda"'
    return (model, file.source.one_line(given[0])) if attr == "to" and given and _is_device(given[0]) else ("", "")


def _is_device(given: ast.expr) -> bool:
    """Return whether an argument of ``to`` may be a device; ``torch.float16`` is none."""
    return not dotted_name(given).startswith("torch.")
