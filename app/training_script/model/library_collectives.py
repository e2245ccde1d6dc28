"""Collectives that libraries around torch.distributed call, by the names of their functions and methods.

Sources: torch 2.13, accelerate 1.15, deepspeed 0.19, detectron2, mmengine, composer, timm, torcheval and fairscale, as
their source shows them; the API references of torchmetrics, ignite, monai, lightning 2.x and mpi4py 4.
"""

from ..collectives import GROUP_PLACE
from .effects import Effect, facts

# Every class of this library collects the state of all ranks when its result is computed.
METRICS = "torchmetrics"
METRIC = Effect(result=facts("metric"))
SHARDED_OPTIMIZER = Effect(result=facts("sharded_optimizer"), same=True)
AVERAGER = Effect(result=facts("averager"), same=True)
LIGHTNING = Effect(result=facts("lightning"), same=True)
_FSDP = ("fsdp", "fsdp.fully_sharded_data_parallel")

# By their modules: functions that return the same on every rank, and functions whose result only one rank has.
_RETURNING: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "detectron2.utils.comm": (("synchronize", "all_gather", "shared_random_seed"), ("gather", "reduce_dict")),
    "mmengine.dist": (
        ("all_gather", "all_gather_object", "all_reduce_dict", "barrier", "sync_random_seed"),
        ("gather", "gather_object", "collect_results", "collect_results_cpu", "collect_results_gpu"),
    ),
    "composer.utils.dist": (("all_gather", "all_gather_object", "barrier"), ()),
    "timm.utils": (("distribute_bn", "reduce_tensor"), ()),
    "timm.utils.distributed": (("distribute_bn", "reduce_tensor"), ()),
    "ignite.distributed": (("all_gather", "all_reduce", "barrier", "broadcast"), ()),
    "monai.utils": (("evenly_divisible_all_gather", "string_list_all_gather"), ()),
    "torcheval.metrics.toolkit": (
        (),
        (
            *("get_synced_metric", "get_synced_metric_collection", "get_synced_state_dict"),
            *("get_synced_state_dict_collection", "sync_and_compute", "sync_and_compute_collection"),
        ),
    ),
    "mpi4py.MPI.COMM_WORLD": (
        ("allreduce", "allgather", "bcast", "barrier", "Barrier", "Allreduce", "Bcast", "Allgather"),
        ("alltoall", "Alltoall", "gather", "Gather", "reduce", "Reduce", "scatter", "Scatter"),
    ),
}
# Functions that fill their first argument with the same on every rank.
_FILLING = {
    "mmengine.dist": ("all_reduce", "broadcast", "broadcast_object_list"),
    "composer.utils.dist": ("all_reduce", "broadcast", "broadcast_object_list"),
}

OF_FUNCTIONS: dict[str, Effect] = {
    **{
        f"{module}.{name}": Effect(name, same=same)
        for module, (everywhere, somewhere) in _RETURNING.items()
        for names, same in ((everywhere, True), (somewhere, False))
        for name in names
    },
    **{f"{module}.{name}": Effect(name, fills=0) for module, names in _FILLING.items() for name in names},
    **{
        f"deepspeed.comm.{name}": Effect(name, group=place, fills=0 if name in ("all_reduce", "broadcast") else None)
        for name, place in GROUP_PLACE.items()
        if name != "new_group"
    },
    "deepspeed.zero.GatheredParameters": Effect("GatheredParameters of DeepSpeed", implied=True, sure=False),
    **{
        f"torch.distributed.nn.{inner}{name}": Effect(name, same=False)
        for inner in ("", "functional.")
        for name in ("all_to_all", "all_to_all_single", "gather", "reduce", "reduce_scatter", "scatter")
    },
    **{
        f"torch.distributed.{module}.distribute_tensor": Effect("distribute_tensor", facts("dtensor"), implied=True)
        for module in ("tensor", "_tensor")
    },
    **{
        f"torch.distributed.{module}.FullyShardedDataParallel.{name}": Effect(f"{name} of FSDP", implied=True)
        for module in _FSDP
        for name in ("full_optim_state_dict", "optim_state_dict", "scatter_full_optim_state_dict", "summon_full_params")
    },
    **{
        f"torch.distributed.optim.{inner}ZeroRedundancyOptimizer": SHARDED_OPTIMIZER
        for inner in ("", "zero_redundancy_optimizer.")
    },
    **{f"fairscale.optim.{inner}OSS": SHARDED_OPTIMIZER for inner in ("", "oss.")},
    "torch.distributed.algorithms.model_averaging.utils.average_parameters": Effect("average_parameters", implied=True),
    "torch.distributed.algorithms.model_averaging.averagers.PeriodicModelAverager": AVERAGER,
    **{f"{module}.Trainer": LIGHTNING for module in ("lightning", "lightning.pytorch", "pytorch_lightning")},
}

# The classes of libraries whose methods a class of the program inherits: the role of its objects, by the name of the
# class in a library of the same trainer.
LIGHTNING_LIBRARIES = ("lightning", "pytorch_lightning")
TRAINER_LIBRARIES = ("transformers", "trl")
ROLES_OF_BASES = {"LightningModule": "lightning_module", "Callback": "lightning_callback"}
# What an object of a role holds under a name, and what a library passes to its methods: the role of that.
ROLES_OF_ATTRIBUTES: dict[str, dict[str, str]] = {
    "lightning_module": {"trainer": "lightning"},
    "lightning_callback": {"trainer": "lightning", "pl_module": "lightning_module"},
    "lightning": {"strategy": "lightning_strategy", "lightning_module": "lightning_module"},
}

# What a library passes to such methods by place: the roles of that.
ROLES_OF_ARGUMENTS = {"lightning_callback": ("lightning", "lightning_module")}

# Methods of such objects that the library itself calls on the rank that saves, and no other.
CALLED_ON_FIRST_RANK = {"trainer": {"_save"}}


def role_of_base(name: str) -> str | None:
    """Return the role of objects of classes that inherit from a class of a library, by its qualified name."""
    library, _, rest = name.partition(".")
    if library in TRAINER_LIBRARIES:
        return "trainer" if name.endswith("Trainer") else "trainer_callback" if name.endswith("Callback") else None
    return ROLES_OF_BASES.get(rest.rpartition(".")[2]) if library in LIGHTNING_LIBRARIES else None


OF_METHODS: dict[str, dict[str, Effect]] = {
    "metric": {"compute": Effect("the computation of the metric", implied=True, same=True)},
    "sharded_optimizer": {
        name: Effect(f"{name} of ZeroRedundancyOptimizer", implied=True) for name in ("consolidate_state_dict", "step")
    },
    "dtensor": {"redistribute": Effect("redistribute", facts("dtensor"), implied=True, sure=False)},
    "averager": {"average_parameters": Effect("average_parameters", implied=True, sure=False)},
    "lightning": {
        name: Effect(f"Trainer.{name}", implied=True)
        for name in ("fit", "validate", "test", "predict", "save_checkpoint")
    },
    "lightning_module": {
        "all_gather": Effect("all_gather", same=True),
        **{name: Effect(f"{name} with sync_dist", implied=True, only_with="sync_dist") for name in ("log", "log_dict")},
    },
    "lightning_strategy": {
        **{name: Effect(name, same=True) for name in ("all_gather", "barrier", "broadcast", "reduce")},
        "reduce_boolean_decision": Effect("reduce_boolean_decision", same=True, implied=True),
    },
}
