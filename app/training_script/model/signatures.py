"""Arguments of the calls by which ranks communicate: their names in order, and the kind of value that each takes.

Source: the functions of torch 2.13 and what they do with other values, measured with two ranks over gloo.
"""

from functools import cache
from typing import NamedTuple

_TO = "dst:number= group:group= {more}group_dst:number="
_FROM = "src:number= group:group= {more}group_src:number="
_ASYNC, _TAG, _DEVICE = "async_op:= ", "tag:number= ", "device:= "

# Call: its parameters, each as name:kind, with = behind it if it may be left out.
_CALLS = {
    "init_process_group": "backend:= init_method:text= timeout:duration= world_size:number= rank:number= store:store= "
    "group_name:= pg_options:= device_id:= _ranks:=",
    "new_group": "ranks:numbers= timeout:duration= backend:= pg_options:= use_local_synchronization:= group_desc:= "
    "device_id:= sort_ranks:=",
    "new_subgroups": "group_size:number= group:group= timeout:duration= backend:= pg_options:= group_desc:=",
    "new_subgroups_by_enumeration": "ranks_per_subgroup_list:numbers timeout:duration= backend:= pg_options:= "
    "group_desc:=",
    "split_group": "parent_pg:group= split_ranks:numbers= timeout:duration= pg_options:= group_desc:= backend:=",
    "all_reduce": "tensor:tensor op:operation= group:group= async_op:=",
    "broadcast": "tensor:tensor " + _FROM.format(more=_ASYNC),
    "reduce": "tensor:tensor dst:number= op:operation= group:group= async_op:= group_dst:number=",
    "all_gather": "tensor_list:tensors tensor:tensor group:group= async_op:=",
    "all_gather_into_tensor": "output_tensor:tensor input_tensor:tensor group:group= async_op:=",
    "all_gather_single": "output_tensor:tensor input_tensor:tensor group:group= async_op:=",
    "all_gather_object": "object_list:objects obj: group:group=",
    "gather": "tensor:tensor gather_list:tensors= " + _TO.format(more=_ASYNC),
    "gather_object": "obj: object_gather_list:objects= " + _TO.format(more=""),
    "scatter": "tensor:tensor scatter_list:tensors= " + _FROM.format(more=_ASYNC),
    "scatter_object_list": "scatter_object_output_list:objects scatter_object_input_list:sent= "
    + _FROM.format(more=""),
    "reduce_scatter": "output:tensor input_list:tensors op:operation= group:group= async_op:=",
    "reduce_scatter_tensor": "output:tensor input:tensor op:operation= group:group= async_op:=",
    "reduce_scatter_single": "output:tensor input:tensor op:operation= group:group= async_op:=",
    "all_to_all": "output_tensor_list:tensors input_tensor_list:tensors group:group= async_op:=",
    "all_to_all_single": "output:tensor input:tensor output_split_sizes:numbers= input_split_sizes:numbers= "
    "group:group= async_op:=",
    "broadcast_object_list": "object_list:boxed " + _FROM.format(more=_DEVICE),
    "send": "tensor:tensor " + _TO.format(more=_TAG),
    "isend": "tensor:tensor " + _TO.format(more=_TAG),
    "recv": "tensor:tensor " + _FROM.format(more=_TAG),
    "irecv": "tensor:tensor " + _FROM.format(more=_TAG),
    "send_object_list": "object_list:boxed " + _TO.format(more=_DEVICE) + " use_batch:=",
    "recv_object_list": "object_list:objects " + _FROM.format(more=_DEVICE) + " use_batch:=",
    "P2POp": "op:message tensor:tensor peer:number= group:group= tag:number= group_peer:number=",
    "batch_isend_irecv": "p2p_op_list:numbers",
    "barrier": "group:group= async_op:= device_ids:= timeout:seconds=",
    "monitored_barrier": "group:group= timeout:seconds= wait_all_ranks:=",
    "TCPStore": "host_name:text port:number world_size:number= is_master:= timeout:seconds= wait_for_workers:= "
    "multi_tenant:= master_listen_fd:number= use_libuv:=",
    "FileStore": "file_name:text world_size:number=",
}
_OTHERS = {
    "torch.utils.data.distributed.DistributedSampler": "dataset: num_replicas:number= rank:number= shuffle:= "
    "seed:number= drop_last:=",
    "torch.nn.parallel.DistributedDataParallel": "module:module device_ids:numbers= output_device:= dim:= "
    "broadcast_buffers:= init_sync:= process_group:group= bucket_cap_mb:= find_unused_parameters:= check_reduction:= "
    "gradient_as_bucket_view:= static_graph:=",
    "torch.multiprocessing.spawn": "fn:process args:tuple= nprocs:number= join:= daemon:= start_method:=",
    "torch.distributed.device_mesh.init_device_mesh": "device_type:text mesh_shape:numbers mesh_dim_names:numbers= "
    "backend_override:=",
    "torch.distributed.optim.ZeroRedundancyOptimizer": "params:parameters optimizer_class: process_group:group=",
    "torch.distributed.checkpoint.save": "state_dict:mapping * checkpoint_id:= storage_writer:= planner:= "
    "process_group:group= no_dist:= use_collectives:=",
    "torch.distributed.checkpoint.load": "state_dict:mapping * checkpoint_id:= storage_reader:= planner:= "
    "process_group:group= no_dist:=",
    "torch.distributed.checkpoint.async_save": "state_dict:mapping * checkpoint_id:= storage_writer:= planner:= "
    "process_group:group= async_checkpointer_type:= async_stager:= no_dist:= use_collectives:=",
    "store.wait": "keys:keys timeout:seconds=",
    "store.get": "key:text",
    "store.set": "key:text value:data",
    "store.add": "key:text amount:number",
    "store.set_timeout": "timeout:seconds",
    ".wait": "timeout:seconds=",
    ".register_comm_hook": "state: hook:hook",
}
_SAME = {
    "torch.utils.data.DistributedSampler": "torch.utils.data.distributed.DistributedSampler",
    "torch.nn.parallel.distributed.DistributedDataParallel": "torch.nn.parallel.DistributedDataParallel",
    "torch.distributed.init_device_mesh": "torch.distributed.device_mesh.init_device_mesh",
    "torch.multiprocessing.spawn.spawn": "torch.multiprocessing.spawn",
}
# The arguments of which exactly one says who has the tensor; both for all calls, none only for those that are not here.
ONE_OF = (("src", "group_src"), ("dst", "group_dst"), ("peer", "group_peer"))
NEED_ONE = {f"torch.distributed.{name}" for name in ("broadcast", "reduce", "send", "isend")}
# What the process group is found by: one of them.
EXCLUSIVE = {"torch.distributed.init_process_group": ("init_method", "store")}


class Parameter(NamedTuple):
    """An argument of a call. ``kind``: of the values that it takes, empty for any. ``by_name``: it has no place."""

    name: str
    kind: str
    needed: bool
    by_name: bool = False


CALLS = {f"torch.distributed.{name}": text for name, text in _CALLS.items()} | _OTHERS
CALLS |= {name: CALLS[same] for name, same in _SAME.items()}
# Signatures that are complete; those of others list what rules ask for.
_CHECKPOINT = ("save", "load", "async_save")
WHOLE = frozenset(f"torch.distributed.{name}" for name in (*_CALLS, *(f"checkpoint.{each}" for each in _CHECKPOINT)))
# A method that many objects have: the fact about the object, or the calls whose result it is asked of.
OF_ROLES = {".register_comm_hook": "ddp"}
OF_RESULTS = {
    ".wait": frozenset(f"torch.distributed.{name}" for name, text in _CALLS.items() if "async_op" in text)
    | {"torch.distributed.isend", "torch.distributed.irecv"}
}


@cache
def parameters_of(name: str) -> tuple[Parameter, ...]:
    """Return the parameters of a call."""
    placed, _, named = CALLS[name].partition(" * ")
    return tuple(
        Parameter(word, kind.removesuffix("="), not kind.endswith("="), by_name)
        for text, by_name in ((placed, False), (named, True))
        for word, _, kind in (each.partition(":") for each in text.split())
    )


def place_of(call: str, parameter: str) -> int:
    """Return the place of a parameter of a call."""
    return next(place for place, each in enumerate(parameters_of(call)) if each.name == parameter)
