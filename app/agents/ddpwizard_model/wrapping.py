"""The model as a strategy has it: under DDP, in shards, with blocks that are computed again."""

import contextlib
import functools
import weakref

from .fake_tensors import gpu_rules
from .protocol import RequestRefused
from .tensors import autocast_dtype, flatten_tensors


def apply_checkpointing(model, blocks, autocast):
    """Let each of the blocks be computed again in the backward pass, where modes of functions are off."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
        apply_activation_checkpointing,
        checkpoint_wrapper,
    )

    if not blocks:
        raise RequestRefused("it has no repeated blocks to compute again")
    chosen = {id(block) for block in blocks}
    again = functools.partial(
        checkpoint_wrapper,
        preserve_rng_state=False,
        context_fn=lambda: (contextlib.nullcontext(), gpu_rules(autocast)),
    )
    apply_activation_checkpointing(model, checkpoint_wrapper_fn=again, check_fn=lambda module: id(module) in chosen)


class FixedBucketsReducer:
    """DDP's reducer with the buckets that it made at first: to make new ones it would read what a rank was sent, and
    nothing is sent here. New ones hold as many bytes, in another order."""

    def __init__(self, reducer):
        self._reducer = reducer

    def __getattr__(self, name):
        return getattr(self._reducer, name)

    def _rebuild_buckets(self):
        return False


def wrap_ddp(model, request):
    """The model under DDP, and the tensors that it made for itself: its buckets."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    made = []

    class Made(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            made.extend(weakref.ref(each) for each in flatten_tensors(result))
            return result

    def nothing_sent(state, bucket):
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    with Made():
        wrapped = torch.nn.parallel.DistributedDataParallel(
            model, init_sync=False, gradient_as_bucket_view=request["bucket_view"]
        )
    setattr(wrapped, "reducer", FixedBucketsReducer(wrapped.reducer))  # noqa: B010 (it takes another type of reducer)
    wrapped.register_comm_hook(None, nothing_sent)
    return wrapped, [each for each in (ref() for ref in made) if each is not None]


def wrap_fsdp2(model, blocks, mesh, request):
    """Each block and the rest sharded over the mesh. Unless told otherwise, the rest is whole from forward to backward:
    fully_shard's default for the root."""
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mixed = request["dtype"].endswith("-mixed")
    policy = MixedPrecisionPolicy(param_dtype=autocast_dtype(request), reduce_dtype=torch.float32) if mixed else None
    shard = functools.partial(fully_shard, mesh=mesh, mp_policy=policy or MixedPrecisionPolicy())
    for block in blocks:
        shard(block, reshard_after_forward=request["reshard"])
    return shard(model) if request["reshard"] else shard(model, reshard_after_forward=False)


def make_mesh(request):
    """The ranks, in one row, or for hybrid sharding in rows that share one copy."""
    from torch.distributed.device_mesh import init_device_mesh

    ranks, size = request["ranks"], request["shard_size"]
    if request["kind"] != "hsdp":
        return init_device_mesh("cpu", (ranks,))
    return init_device_mesh("cpu", (ranks // size, size), mesh_dim_names=("replicate", "shard"))
