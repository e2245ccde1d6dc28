"""Wrap the model as its strategy requires: DDP, FSDP2, activation checkpointing."""

import contextlib
import functools
import weakref

from .fake_tensors import gpu_rules
from .protocol import RequestRefused
from .tensors import autocast_dtype, flatten_tensors


def apply_checkpointing(model, blocks, autocast):
    """Recompute each of the blocks in the backward pass, where function modes are off."""
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
    """DDP's reducer with its initial buckets.

    To rebuild them it would read data received from other ranks, and nothing is sent here. Rebuilt buckets have the
    same size in another order.
    """

    def __init__(self, reducer):
        self._reducer = reducer

    def __getattr__(self, name):
        return getattr(self._reducer, name)

    def _rebuild_buckets(self):
        return False


def wrap_ddp(model, request):
    """Return the model under DDP, and the tensors that DDP allocated: its buckets."""
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
            model, init_sync=False, gradient_as_bucket_view=request["gradient_as_bucket_view"]
        )
    setattr(wrapped, "reducer", FixedBucketsReducer(wrapped.reducer))  # noqa: B010 (it takes another type of reducer)
    wrapped.register_comm_hook(None, nothing_sent)
    return wrapped, [each for each in (ref() for ref in made) if each is not None]


def wrap_fsdp2(model, blocks, mesh, request):
    """Shard each block and the rest over the mesh.

    Unless requested otherwise, the rest stays gathered from forward to backward: fully_shard's default for the root.
    """
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor import Shard

    mixed = request["dtype"].endswith("-mixed")
    policy = MixedPrecisionPolicy(param_dtype=autocast_dtype(request), reduce_dtype=torch.float32) if mixed else None
    by_columns = (lambda p: Shard(1) if p.dim() == 3 else None) if request["experts_by_columns"] else None
    shard = functools.partial(
        fully_shard, mesh=mesh, mp_policy=policy or MixedPrecisionPolicy(), shard_placement_fn=by_columns
    )
    after = request["reshard_after_forward"]
    for block in blocks:
        shard(block, reshard_after_forward=True if after is None else after)
    return shard(model, reshard_after_forward=False) if after is False else shard(model)


def make_mesh(request):
    """Return the mesh of ranks: one row, or for hybrid sharding rows that shard one copy each."""
    from torch.distributed.device_mesh import init_device_mesh

    ranks, size = request["ranks"], request["shard_size"]
    if request["kind"] != "hsdp":
        return init_device_mesh("cpu", (ranks,))
    return init_device_mesh("cpu", (ranks // size, size), mesh_dim_names=("replicate", "shard"))
