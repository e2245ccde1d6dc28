"""The blocks of a model that FSDP2 shards one by one: the layers that it repeats."""

import ast

from ...training_script.syntax import last_name
from .facts import TrainingFacts

LAYERS_OF = {"TransformerEncoder": "TransformerEncoderLayer", "TransformerDecoder": "TransformerDecoderLayer"}
CONTAINERS = {"ModuleList", "Sequential", "ModuleDict"}


def repeated_blocks(facts: TrainingFacts) -> list[str]:
    """Return the classes of the blocks, as the script can name them: its own, and layers of torch.nn."""
    found: dict[str, None] = {}
    for call in facts.calls:
        name = last_name(call.func)
        if name in CONTAINERS:
            found |= dict.fromkeys(_repeated_in(facts, call))
        elif name in LAYERS_OF and facts.named(call).startswith("torch.nn."):
            prefix = ast.unparse(call.func).removesuffix(name)
            found[prefix + LAYERS_OF[name]] = None
    return [*found]


def _repeated_in(facts: TrainingFacts, container: ast.Call) -> list[str]:
    """Return the classes of the script of which a container gets several objects."""
    made = [_own_class(facts, each) for each in ast.walk(container) if isinstance(each, ast.Call)]
    names = [name for name in made if name]
    in_comprehension = any(
        isinstance(each, (ast.ListComp, ast.GeneratorExp, ast.DictComp)) for each in ast.walk(container)
    )
    return [name for name in dict.fromkeys(names) if in_comprehension or names.count(name) > 1]


def _own_class(facts: TrainingFacts, call: ast.Call) -> str:
    owner = facts.names.class_of(call)
    at_top = owner is not None and facts.source.parents.get(owner) is facts.source.tree
    has_forward = owner is not None and facts.names.method(owner, "forward") is not None
    return owner.name if owner is not None and at_top and has_forward else ""
