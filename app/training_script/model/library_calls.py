"""Calls of libraries that concern other ranks: data for the evaluation of programs.

Sources: the API references of torch 2.13, accelerate 1.x, lightning fabric 2.x, deepspeed 0.18, horovod 0.28.
"""

from ..collectives import GROUP_PLACE
from .effects import Effect, facts
from .library_collectives import OF_FUNCTIONS, OF_METHODS

FILLED = {
    **dict.fromkeys(("all_reduce", "broadcast", "broadcast_object_list", "all_gather", "all_gather_object"), 0),
    **dict.fromkeys(("all_gather_into_tensor", "all_reduce_coalesced", "all_gather_coalesced"), 0),
    **dict.fromkeys(("gather", "gather_object"), 1),
}
# The same arguments by name.
FILLED_NAMES = {
    **dict.fromkeys(("all_reduce", "broadcast"), ("tensor",)),
    **dict.fromkeys(("all_reduce_coalesced",), ("tensors",)),
    "broadcast_object_list": ("object_list",),
    "all_gather": ("tensor_list",),
    "all_gather_object": ("object_list",),
    "all_gather_into_tensor": ("output_tensor",),
    "all_gather_coalesced": ("output_tensor_lists",),
    "gather": ("gather_list",),
    "gather_object": ("object_gather_list",),
}
DDP = Effect("the constructor of DDP", facts("ddp"), implied=True)
FSDP = Effect("the constructor of FSDP", facts("fsdp"), implied=True)
FORWARD, BACKWARD = "the forward pass of DDP", "the backward pass"
SAMPLER = Effect(result=facts("sampler"), same=True)
SAVE = "torch.distributed.checkpoint."

FUNCTIONS: dict[str, Effect] = {
    **{
        f"{module}.{name}": Effect(name, group=place, fills=FILLED.get(name))
        for module in ("torch.distributed", "torch.distributed.distributed_c10d")
        for name, place in GROUP_PLACE.items()
    },
    **{
        f"torch.distributed.nn.{inner}{name}": Effect(name, facts(*made), same=True, group=None)
        for inner in ("", "functional.")
        for name, made in (("all_reduce", ()), ("all_gather", ("pooled",)), ("broadcast", ()))
    },
    "torch.distributed.new_group": Effect("new_group", facts("group"), same=True),
    **{
        f"torch.distributed.{name}": Effect(result=facts("store"), same=True)
        for name in (
            *("TCPStore", "FileStore", "HashStore", "PrefixStore"),
            *(f"{inner}_get_default_store" for inner in ("", "distributed_c10d.")),
        )
    },
    "torch.nn.parallel.DistributedDataParallel": DDP,
    "torch.nn.parallel.distributed.DistributedDataParallel": DDP,
    "apex.parallel.DistributedDataParallel": Effect("the constructor of DDP", facts("apex"), implied=True),
    "torch.distributed.fsdp.FullyShardedDataParallel": FSDP,
    "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel": FSDP,
    "torch.distributed.fsdp.fully_shard": FSDP,
    "torch.distributed._composable.fsdp.fully_shard": FSDP,
    "torch.utils.data.distributed.DistributedSampler": SAMPLER,
    "torch.utils.data.DistributedSampler": SAMPLER,
    "torch.utils.data.DataLoader": Effect(result=facts("loader")),
    "torch.utils.data.dataloader.DataLoader": Effect(result=facts("loader")),
    "torch.load": Effect(result=facts("checkpoint")),
    "accelerate.Accelerator": Effect(result=facts("accelerator"), same=True),
    "accelerate.PartialState": Effect(result=facts("accelerator"), same=True),
    "lightning.fabric.Fabric": Effect(result=facts("fabric"), same=True),
    "lightning.Fabric": Effect(result=facts("fabric"), same=True),
    "lightning_fabric.Fabric": Effect(result=facts("fabric"), same=True),
    **{
        name: Effect(result=facts("trainer"), same=True)
        for name in (
            *("transformers.Trainer", "transformers.Seq2SeqTrainer"),
            *(f"trl.{kind}Trainer" for kind in ("SFT", "DPO", "ORPO", "KTO", "CPO", "GRPO", "RLOO", "Reward")),
            "sentence_transformers.SentenceTransformerTrainer",
        )
    },
    **{
        f"{SAVE}{name}": Effect(f"checkpoint.{name}", implied=True)
        for name in ("save", "load", "async_save", "save_state_dict", "load_state_dict")
    },
    **{
        f"{SAVE}state_dict.{name}": Effect(name, implied=True, sure=False, of_sharded=True)
        for name in ("get_state_dict", "get_model_state_dict", "get_optimizer_state_dict")
    },
    **{
        f"horovod.torch.{name}": Effect(name, same=name != "alltoall", implied=name.startswith("broadcast_"))
        for name in (
            *("allreduce", "allreduce_", "allgather", "broadcast", "broadcast_", "alltoall", "barrier", "join"),
            *("broadcast_parameters", "broadcast_optimizer_state", "broadcast_object", "allgather_object"),
        )
    },
    **{
        f"accelerate.utils.{name}": Effect(name, same=True)
        for name in ("gather", "gather_object", "broadcast", "broadcast_object_list", "reduce", "wait_for_everyone")
    },
    **OF_FUNCTIONS,
}

# Libraries by which ranks communicate.
LIBRARIES = {name.partition(".")[0] for name in FUNCTIONS}
# Those that are not read where they are found next to a script, as in their own repository.
UNREAD = {name.partition(".")[0] for name in FUNCTIONS.keys() - OF_FUNCTIONS.keys()}

# Methods of distributed tensors.
FULL_TENSOR = Effect("full_tensor", implied=True, same=True)
# By the role of the object: its methods.
METHODS: dict[str, dict[str, Effect]] = {
    "ddp": {
        "forward": Effect(FORWARD, facts("graph"), implied=True, sure=False),
        "__call__": Effect(FORWARD, facts("graph"), implied=True, sure=False),
    },
    "apex": {name: Effect(result=facts("graph")) for name in ("forward", "__call__")},  # only its backward communicates
    "fsdp": {
        "forward": Effect("the forward pass of FSDP", facts("graph"), implied=True),
        "__call__": Effect("the forward pass of FSDP", facts("graph"), implied=True),
        "state_dict": Effect("the state_dict of FSDP", implied=True),
        "clip_grad_norm_": Effect("clip_grad_norm_ of FSDP", implied=True, same=True),
    },
    "engine": {
        "__call__": Effect(result=facts("graph", "of_engine")),
        "backward": Effect("the backward pass of DeepSpeed", implied=True),
        "step": Effect("the step of DeepSpeed", implied=True),
        "save_checkpoint": Effect("save_checkpoint of DeepSpeed", implied=True),
        "load_checkpoint": Effect("load_checkpoint of DeepSpeed", implied=True),
        **{
            name: Effect(f"{name} of DeepSpeed", implied=True, sure=False)
            for name in ("save_16bit_model", "save_fp16_model", "consolidated_16bit_state_dict")
        },
    },
    "graph": {"backward": Effect(BACKWARD, implied=True)},
    "accelerator": {
        **{name: Effect(name, same=True) for name in ("wait_for_everyone", "gather", "gather_for_metrics", "reduce")},
        "backward": Effect("accelerator.backward", implied=True),
        "prepare": Effect(result=facts("prepared"), same=True),
        "unwrap_model": Effect(result=facts("unwrapped"), drops=True),
        "save_state": Effect("accelerator.save_state", implied=True, sure=False),
        "get_state_dict": Effect("accelerator.get_state_dict", implied=True, sure=False),
        "main_process_first": Effect("the barrier of main_process_first", implied=True),
        "local_main_process_first": Effect("the barrier of local_main_process_first", implied=True),
        "pad_across_processes": Effect("pad_across_processes", implied=True),
        "check_trigger": Effect("accelerator.check_trigger", same=True, implied=True),
    },
    "prepared": {name: Effect(result=facts("reduced")) for name in ("forward", "__call__")},
    "unwrapped": {
        **{name: Effect(result=facts("unreduced")) for name in ("forward", "__call__")},
        **{name: Effect(result=facts("unwrapped")) for name in ("get_decoder", "get_encoder", "get_base_model")},
    },
    "fabric": {
        **{name: Effect(name, same=True) for name in ("barrier", "all_reduce", "all_gather", "broadcast")},
        **{name: Effect(f"fabric.{name}", implied=True) for name in ("backward", "save", "load")},
        "setup_dataloaders": Effect(result=facts("prepared"), same=True),
    },
    # An engine of DeepSpeed that has divided the parameters (stage 3 of ZeRO).
    "divided_engine": {
        "__call__": Effect("the forward pass of DeepSpeed", facts("graph", "of_engine"), implied=True),
    },
    "trainer": {
        **{name: Effect(f"Trainer.{name}", implied=True) for name in ("train", "evaluate", "predict")},
        **{name: Effect(f"Trainer.{name}", same=True) for name in ("_nested_gather", "_pad_across_processes")},
    },
    **OF_METHODS,
}
# Attributes of such objects: the kind of rank, the first process of a kind, or a size.
RANK_ATTRIBUTES = {
    "process_index": "global",
    "local_process_index": "local",
    "global_rank": "global",
    "local_rank": "local",
    "node_rank": "node",
}
FIRST_ATTRIBUTES = {
    "is_main_process": "global",
    "is_local_main_process": "local",
    "is_global_zero": "global",
    "is_world_process_zero": "global",
    "is_local_process_zero": "local",
}
# Properties of transformers.TrainingArguments (src/transformers/training_args.py): the process that writes.
FIRST_OF_ARGUMENTS = {"should_save": "global", "should_log": "local"}

# Functions that call what they are given: by this place, or this name.
CALLS_GIVEN: dict[str, tuple[int, str]] = {
    "threading.Thread": (1, "target"),
    "threading.Timer": (1, "function"),
    "atexit.register": (0, "func"),
    "torch.utils.checkpoint.checkpoint": (0, "function"),
    "asyncio.to_thread": (0, "func"),
}
CALLING_METHODS = {"submit": 0, "apply_async": 0, "run_in_executor": 1, "call_later": 1, "callback": 0}
# Methods of models and parameters that take a function which each pass calls.
HOOKS = {f"register_{name}hook" for name in ("", "forward_", "forward_pre_", "full_backward_", "full_backward_pre_")}
HOOKS |= {"register_post_accumulate_grad_hook"}

THE_TIME = "the time"
OF_PROCESS = "a name of this process or host"
BUFFERS = ("io.BytesIO", "io.StringIO")
# Results that differ between ranks, with what they are.
LOCAL_RESULTS: dict[str, str] = {
    **dict.fromkeys(("time.time", "time.perf_counter", "time.monotonic", "time.time_ns"), THE_TIME),
    **dict.fromkeys(("random.random", "random.randint", "random.choice", "random.uniform"), "a random number"),
    **dict.fromkeys(("numpy.random.rand", "numpy.random.random", "numpy.random.randint"), "a random number"),
    **dict.fromkeys(("os.getpid", "socket.gethostname", "platform.node"), OF_PROCESS),
    "socket.socket": "a port of this process",
    **dict.fromkeys(BUFFERS, "memory of this process"),
    **dict.fromkeys(("tempfile.mkdtemp", "tempfile.mkstemp", "tempfile.TemporaryDirectory"), "a temporary file"),
    **dict.fromkeys(("tempfile.NamedTemporaryFile", "tempfile.TemporaryFile"), "a temporary file"),
}
# What names are made of: ranks may make the same ones, or different ones.
TIMES = {f"time.{name}" for name in ("strftime", "localtime", "gmtime", "ctime", "asctime")}
TIMES |= {f"datetime.datetime.{name}" for name in ("now", "utcnow", "today")}
RANDOM = "a random number"
# What seeds the generators of random numbers, by the module whose numbers it decides.
SEEDS = {
    "random.seed": "random",
    "numpy.random.seed": "numpy",
    "torch.manual_seed": "torch",
}
# Generators of random numbers: without a seed, or with one of its own, each rank has other numbers.
GENERATORS = {"random.Random", "numpy.random.default_rng", "numpy.random.RandomState"}
# What puts a list into a random order.
SHUFFLES = {"random.shuffle", "numpy.random.shuffle"}
# Tensors of random numbers, from the generator of torch or from one that is passed.
RANDOM_TENSORS = {f"torch.{name}" for name in ("rand", "randn", "randint", "randperm", "normal", "bernoulli")}
UNIQUE = {"uuid1", "uuid4", "token_hex", "mkdtemp", "mkstemp"}  # functions of any library that name what is new
# Calls that give back what they are given, as far as ranks are concerned.
TRANSPARENT = {
    "int",
    "float",
    "str",
    "bool",
    "iter",
    "reversed",
    "sorted",
    "list",
    "tuple",
    "abs",
    "round",
    "tqdm.tqdm",
}
TRANSPARENT |= {"tqdm.auto.tqdm", "copy.deepcopy", "copy.copy", "bytes", "bytearray"}
TRANSPARENT |= {"collections.deque", "torch.compile", "torch.jit.script"}
PARSES = {f"{module}.loads": f"{module}.dumps" for module in ("json", "pickle", "marshal")}
SERIALIZES = {*PARSES.values()}  # an object as a text or bytes
TRANSPARENT |= {*PARSES}
TRANSPARENT_METHODS = {
    "item",
    "cpu",
    "cuda",
    "to",
    "detach",
    "clone",
    "float",
    "long",
    "int",
    "tolist",
    "numpy",
    "contiguous",
}
TRANSPARENT_METHODS |= {"lower", "upper", "strip", "train", "eval", "copy", "get_loader", "half", "double", "bfloat16"}
# What makes one number of a list.
NUMBERS = {"bool", "float", "int"}
# What makes a mask of a tensor, and functions that keep only the elements that fulfil something.
MASKS = {"bool", "isfinite", "isnan", "isinf", "isin", "logical_and", "logical_or", "logical_not", "nonzero"}
MASKS |= {"eq", "ne", "gt", "ge", "lt", "le"}
SELECTIONS = {"torch.masked_select", "torch.nonzero", "torch.unique", "torch.argwhere"}
SELECTING_METHODS = {"masked_select", "nonzero", "unique"}
LISTINGS = {"os.listdir", "os.scandir", "glob.glob", "glob.iglob"}
LISTING_METHODS = {"glob", "rglob", "iterdir"}
ENDLESS = "itertools.cycle"
LISTED = "the files of this rank"
OF_FILE = "a file that the program writes"
# Methods of a future or a thread that ask whether it has ended, which each process learns at a time of its own.
ASKS_FOR_END = {"done", "is_alive"}
PROGRESS = "the progress of this process"
TURN = "a number that each caller gets in turn"  # from a counter in a store
SELECTED = "the number of elements that are selected"
INDEX = "an index of the part of this rank"
# Errors that are the same on every rank: they come from the installation or the configuration.
UNIFORM_ERRORS = {"ImportError", "ModuleNotFoundError", "AttributeError", "KeyError", "NameError", "StopIteration"}
