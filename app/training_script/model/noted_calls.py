"""The calls that rules of the review ask for, by qualified name, or by the name of the method."""

import ast
import re

from ..collectives import GROUP_PLACE, POINT_TO_POINT
from ..nodes import walk
from ..syntax import last_name
from ..torch_classes import CLIPS, DATA_PARALLEL, DDP_CLASSES, GRAPH_LOADERS, LOADER_CLASSES, OPTIMIZERS
from . import library_effects
from .keys import Key
from .library_calls import GENERATORS, LISTING_METHODS, LISTINGS
from .module_api import DDP_API
from .signatures import CALLS
from .values import Bound, FunctionRef, Library, Method, Value

STORE = "store."  # before the name of a method of the key-value store
# The classes of gradient scalers, with the position of ``enabled`` among their arguments.
GRAD_SCALERS = {
    "torch.amp.GradScaler": 5,
    "torch.amp.grad_scaler.GradScaler": 5,
    "torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler": 5,
    "torch.cuda.amp.GradScaler": 4,
    "torch.cuda.amp.grad_scaler.GradScaler": 4,
}
FINITE = ("torch.isfinite", "torch.isnan", "torch.isinf", ".isfinite", ".isnan", ".isinf")  # test each element
SETTINGS_OF_TRAINERS = ("TrainingArguments", "Seq2SeqTrainingArguments")
NOTED_FUNCTIONS = {
    *("torch.save", "torch.load", "safetensors.torch.save_file", "os.mkdir", "os.makedirs", "wandb.log"),
    *("shutil.copy", "shutil.copyfile", "shutil.copy2", *library_effects.FUNCTIONS),
    *("torch.manual_seed", "torch.cuda.set_device", "torch.cuda.device_count"),
    *("torch.distributed.init_process_group", "torch.distributed.destroy_process_group", *LISTINGS),
    *(f"torch.distributed.{name}" for name in (*POINT_TO_POINT, *GROUP_PLACE) if name != "new_group"),
    *CLIPS,
    *DATA_PARALLEL,
    *("copy.deepcopy", "copy.copy", "hash", "next", *GENERATORS),
    *FINITE,
    *(f"transformers.{name}" for name in SETTINGS_OF_TRAINERS),
    "time.sleep",
    "torch.optim.swa_utils.update_bn",
    *(name for name in CALLS if not name.startswith((".", STORE))),
    *(f"torch.distributed.checkpoint.{name}" for name in ("save", "load", "async_save")),
    *(f"torch.distributed.checkpoint.{name}" for name in ("FileSystemWriter", "FileSystemReader")),
    *(f"torch.distributed.checkpoint.state_dict.get_{name}_state_dict" for name in ("model", "optimizer")),
    "torch.distributed.algorithms.model_averaging.averagers.PeriodicModelAverager",
    "torch.distributed.optim.ZeroRedundancyOptimizer",
    "torch.distributed.HashStore",
    *(f"torch.distributed.tensor.parallel.{inner}parallelize_module" for inner in ("", "api.")),
    *("torch.nn.functional.cross_entropy", "torch.nn.functional.nll_loss"),
    *DDP_CLASSES,
    "torch.distributed.fsdp.FullyShardedDataParallel",
    "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel",
    *("torch.distributed.fsdp.fully_shard", "torch.distributed._composable.fsdp.fully_shard"),
    *LOADER_CLASSES,
    *GRAPH_LOADERS,
    *("torch.utils.data.distributed.DistributedSampler", "torch.utils.data.DistributedSampler"),
    *("torch.utils.data.random_split", "torch.utils.data.dataset.random_split"),
    *GRAD_SCALERS,
    *("deepspeed.initialize", "deepspeed.init_distributed", "accelerate.Accelerator", "horovod.torch.init"),
    *("lightning.Fabric", "lightning.fabric.Fabric", "lightning_fabric.Fabric"),
    "torch.nn.SyncBatchNorm.convert_sync_batchnorm",
    *(
        f"torch.distributed.algorithms._checkpoint.checkpoint_wrapper.{name}"
        for name in ("apply_activation_checkpointing", "checkpoint_wrapper")
    ),
}
PAST_WRAPPER = "the forward pass of the model inside of DDP"
MEETING_POINT = ("MASTER_PORT", "MASTER_ADDR")  # variables that all ranks need with one value
NEW_PART = "part"  # of a model in DDP, by an assignment to an attribute
PART_OF_SOME = "part of some ranks"  # of a model, by an assignment that other ranks do not make
# Methods that compute what a loss is made of.
OTHER_FORWARD = re.compile(r"(?:\w+_)?(?:loss(?:es)?|forward|features|logits|training_step)(?:_\w+)?")
FLAG_OF_SOME = "a flag of some ranks"  # of a trainer, set under a condition
# Flags of trainers that say how they go on, by the role of what has them: transformers gives callbacks ``control``.
FLAGS = {"control": {"should_training_stop", "should_epoch_stop", "should_save", "should_evaluate"}}
FLAGS |= {"lightning": {"should_stop"}}
FLAG_NAMES = FLAGS["control"] | FLAGS["lightning"]
UNORDERED = "the order of a set"
INIT = "torch.distributed.init_process_group"
DESTROY = "torch.distributed.destroy_process_group"
OF_GROUP = ("torch.distributed.get_rank", "torch.distributed.get_world_size")  # noted where there is no group
RANK_IN_GROUP = "the rank in a group"
REPORT = "a report"  # of one rank
OF_SOME_RANKS = "a name that some ranks lack"
NONE_OF_SOME = "a use of an object that is None on some ranks"
REPORTS = {"print", "json.dump", "json.dumps", "logging.info", "wandb.log", "tqdm.tqdm.write"}
REPORTING_METHODS = {"write", "write_text", "info", "add_scalar", "log", "log_metrics"}
REPORTERS, SHOWN_BY_FIRST = ("accelerator", "fabric"), ("print", "log")
TO_FILE = "a write to a file"  # that the program has opened to write
LINES_TO_FILE = ("csv.writer", "csv.DictWriter")
WRAPPED_FORWARD = "the forward pass of a model in DDP"
FIRST_GPU, CURRENT_GPU = "on GPU 0", "on the current GPU"
NOTED_PREFIXES = (
    OPTIMIZERS,
    *library_effects.DATASETS,
    "torchvision.datasets.",
    "transformers.get_",
    "transformers.optimization.get_",
)
WRAPPERS = {"ddp", "fsdp", "engine", "apex", "prepared"}
NOTED_METHODS = {
    *(
        "save_pretrained",
        "state_dict",
        "load_state_dict",
        *("mkdir", "read_text", "read_bytes", "add_scalar", "add_scalars", *library_effects.METHODS),
        *LISTING_METHODS,
        "parameters",
        "named_parameters",
        "zero_grad",
        "no_sync",
    ),
    *(name.removeprefix(".") for name in FINITE if name.startswith(".")),
    *("wait", "consolidate_state_dict", "register_comm_hook", "to_local"),
    *("gather", "gather_for_metrics", "unscale_", "scale", "step", "backward", "clip_grad_norm_"),
    *(
        *("prepare", "prepare_data_loader", "setup_dataloaders"),
        "set_grad_checkpointing",
        "gradient_checkpointing_enable",
        "requires_grad_",
        "set_epoch",
        *("save_state", "save_checkpoint"),
        "eval",
        "train",
    ),
}


def noted_name(callee: Value) -> str:
    """Return the name under which a call is noted, ``.name`` for a method, or "" if no rule asks for it."""
    obj = callee.obj
    made_of = type(obj)
    if is_past_wrapper(callee):
        return PAST_WRAPPER
    if is_wrapped_forward(callee):
        return WRAPPED_FORWARD
    if made_of is Library:
        noted = obj.name in NOTED_FUNCTIONS or obj.name.startswith(NOTED_PREFIXES)
        return obj.name if noted else ""
    if made_of is Method:
        if "store" in obj.owner.facts:
            return f"{STORE}{obj.name}"
        return f".{obj.name}" if obj.name in NOTED_METHODS else ""
    if made_of is Bound:
        name = getattr(obj.function.node, "name", "")
        # What save_pretrained writes is in its own statements.
        return f".{name}" if name in NOTED_METHODS and name != "save_pretrained" else ""
    return ""


def is_report(callee: Value) -> bool:
    """Return whether a call shows or writes what it is given."""
    obj = callee.obj
    return (isinstance(obj, Library) and obj.name in REPORTS) or (
        isinstance(obj, Method) and obj.name in REPORTING_METHODS
    )


def reports_on_first(callee: Value) -> bool:
    """Return whether a method of ``SHOWN_BY_FIRST`` is one of a library by which only the first rank shows values."""
    return type(callee.obj) is Method and not callee.obj.owner.facts.isdisjoint(REPORTERS)


def is_opened_to_write(values: list[Value], named: dict[str, Value]) -> bool:
    """Return whether a call of ``open`` with these arguments surely empties the file, or keeps it to be changed."""
    mode = named.get("mode") or (values[1] if len(values) > 1 else None)
    return mode is not None and mode.key.is_constant and str(mode.key.value).startswith(("w", "r+", "rb+"))


def is_wrapped_forward(callee: Value) -> bool:
    """Return whether a call is the forward pass of a model in DDP."""
    if type(callee.obj) is Method:
        return callee.obj.name == "forward" and "ddp" in callee.obj.owner.facts
    return "ddp" in callee.facts


def is_past_wrapper(callee: Value) -> bool:
    """Return whether a call is a forward pass of a model that has a wrapper, but is called without it."""
    obj, facts = callee.obj, callee.facts
    if type(obj) is Bound:
        return obj.held is not None and "unwrapped" in obj.held.facts and _computes(obj.function)
    if type(obj) is Method and (facts or obj.owner.facts) and OTHER_FORWARD.fullmatch(obj.name):
        facts = obj.owner.facts
    return "unwrapped" in facts and not facts & WRAPPERS


def _computes(method: FunctionRef) -> bool:
    """Return whether a method of a model returns something and is none that torch calls by itself."""
    node = method.node
    if isinstance(node, ast.Lambda) or node.name in DDP_API - {"forward"} or node.name.startswith("_"):
        return False
    without = {last_name(each) for each in node.decorator_list} & {"no_grad", "inference_mode", "property"}
    return not without and any(isinstance(each, ast.Return) and each.value for each in walk(node))


def noted_device(callee: Value, values: list[Value], named: dict[str, Value]) -> str:
    """Return FIRST_GPU for a call that puts something on GPU 0, CURRENT_GPU for a new tensor on "cuda", else ""."""
    obj = callee.obj
    given: Value | None = None
    if type(obj) is Method:
        if obj.name in ("to", "cuda"):
            given = named.get("device") or (values[0] if values else None)
    elif "device" in named and type(obj) is Library and obj.name.startswith("torch.") and "load" not in obj.name:
        given = named["device"]
    if given is None:
        return ""
    if isinstance(obj, Library) and given.key.is_constant and given.key.value == "cuda":
        return CURRENT_GPU
    number = isinstance(obj, Method) and obj.name == "cuda" and given.key.is_constant and given.key.value == 0
    return FIRST_GPU if number or _is_first_gpu(given.key) else ""


def _is_first_gpu(device: Key) -> bool:
    """Return whether a device is GPU 0, or GPU 0 wherever there is one."""
    if device.op == "call" and device.args[0] == "torch.device":
        return len(device.args) == 2 and _is_first_gpu(device.args[1])
    if device.op == "if":
        sides = [part.value if part.is_constant else None for part in device.args[1:]]
        return "cuda:0" in sides and set(sides) <= {"cuda:0", "cpu"}
    return device.is_constant and device.value == "cuda:0"


def is_flag(owner: Value, node: ast.expr, name: str) -> bool:
    """Return whether an attribute is a flag by which a trainer goes on."""
    of_control = isinstance(node, ast.Name) and node.id == "control"
    return name in FLAGS["control" if of_control else "lightning"] and (of_control or "lightning" in owner.facts)


def owner_of(callee: Value) -> Value | None:
    """Return the object of a method that is called."""
    if isinstance(callee.obj, Bound):
        return callee.obj.held or callee.obj.owner
    return callee.obj.owner if isinstance(callee.obj, Method) else None
