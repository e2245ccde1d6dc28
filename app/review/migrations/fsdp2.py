"""``--to fsdp2``: DDP to FSDP2. A script without DDP is migrated to DDP first."""

import ast
import difflib

from ...training_script.syntax import FUNCTIONS, call_argument, last_name
from ..rank_bindings import is_under_rank_condition
from . import ddp
from .blocks import repeated_blocks
from .facts import TrainingFacts
from .helper_code import MIGRATION, HelperCode, taken_names
from .imported_code import ImportedCode
from .losses import is_model_call
from .rewriting import Rewriting
from .shard_model import shard_model
from .sharded_state import gather_state, read_full_norm
from .types import Note, Refusal
from .weight_reads import refuse_weight_reads

SHARDED = ("fully_shard", "FullyShardedDataParallel", "FSDP")
SHARDS_ALREADY = "it shards a model already"
GRADIENT = ".grad has the part of this rank only: use torch.nn.utils.clip_grad_norm_"
HOST_BYTES = "ranks × 4 bytes/parameter"


def rewrite(text: str, path: str) -> tuple[str, list[Note]]:
    """Return the script for FSDP2 and the reports on it.

    Raises:
        Refusal: Something in it cannot be kept.
    """
    if TrainingFacts(text, path).wraps:
        return _from_ddp(text, path)
    with_ddp, reports = ddp.rewrite(text, path)
    try:
        after, more = _from_ddp(with_ddp, path)
    except Refusal as refusal:
        raise Refusal(_line_before(with_ddp, text, refusal.note.line), refusal.note.message) from refusal
    return after, [*reports, *(Note(_line_before(with_ddp, text, note.line), note.message) for note in more)]


def _from_ddp(text: str, path: str) -> tuple[str, list[Note]]:
    facts = TrainingFacts(text, path)
    _check(facts)
    blocks = repeated_blocks(facts)
    helpers = HelperCode(
        {"fsdp2_setup.py.in": {"several", *_precision_tags(facts)}, MIGRATION: set()},
        {
            "BUILT_BYTES": HOST_BYTES,
            "DTYPE": _dtype(facts),
            "SHARD_BLOCK": f"fully_shard(module, {_options(facts)})",
            "OF_ROOT": _options(facts),
        },
        taken_names(facts.names),
    )
    made = Rewriting(facts, helpers)
    shard_model(made, blocks)
    refuse_weight_reads(made)
    gather_state(made)
    read_full_norm(made)
    if not blocks:
        made.report(facts.model, "no repeated block was found: the model is sharded as one unit, and gathered whole")
    return made.text(), made.reports


def _check(facts: TrainingFacts) -> None:
    for call in facts.calls:
        if last_name(call.func) in SHARDED:
            raise Refusal(call.lineno, SHARDS_ALREADY)
    if len(facts.wraps) > 1:
        raise Refusal(facts.wraps[1].lineno, "a second DDP model: shard each by hand")
    if len(facts.models) > 1:
        raise Refusal(facts.models[1].lineno, "the optimizer trains several models: shard each by hand")
    _check_gradients(facts)
    for call in facts.calls:
        function = facts.names.function(call)
        runs_model = is_model_call(facts, call) or (
            isinstance(function, FUNCTIONS)
            and any(isinstance(node, ast.Call) and is_model_call(facts, node) for node in ast.walk(function))
        )
        if runs_model and is_under_rank_condition(facts.script, call):
            raise Refusal(call.lineno, "only some ranks run the model here: a sharded model needs all of them")


def _check_gradients(facts: TrainingFacts) -> None:
    imported = ImportedCode(facts)
    for node in facts.nodes:
        if _reads_gradient(node) and not isinstance(facts.source.parents[node], ast.Compare):
            raise Refusal(getattr(node, "lineno", 1), GRADIENT)
    for call in facts.calls:
        if any(facts.is_model(each) for each in (*call.args, *(keyword.value for keyword in call.keywords))):
            for each in imported.used_by(call.func):
                if found := next((node for node in ast.walk(each.node) if _reads_gradient(node)), None):
                    raise Refusal(call.lineno, f"{GRADIENT} ({each.place(found)})")


def _reads_gradient(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr="grad", ctx=ast.Load()):
            return True
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value="grad"), *_]):
            return True
    return False


def _autocasts(facts: TrainingFacts) -> list[ast.Call]:
    return [call for call in facts.calls if last_name(call.func) == "autocast"]


def _precision_tags(facts: TrainingFacts) -> set[str]:
    return {"mixed", "autocast"} if _autocasts(facts) else set()


def _dtype(facts: TrainingFacts) -> str:
    """Return the dtype of autocast; without one, that of autocast on CUDA."""
    given = (call_argument(call, "dtype", 1) for call in _autocasts(facts))
    return next((last_name(each) for each in given if each is not None and "float16" in last_name(each)), "float16")


def _options(facts: TrainingFacts) -> str:
    return "mesh=mesh, mp_policy=precision" if _autocasts(facts) else "mesh=mesh"


def _line_before(after: str, before: str, line: int) -> int:
    """Return the line of a script before its migration to DDP that a line of the result comes from."""
    matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines())
    for _, first, last, start, end in matcher.get_opcodes():
        if start < line <= end:
            return min(first + line - start, max(last, first + 1))
    return 1
