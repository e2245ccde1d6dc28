"""The calls of ``torch.distributed`` that need other ranks. Source: the API reference of torch 2.13.

Every rank of the group has to enter a collective. Sends and receives are not collectives: pipelines call them by rank
on purpose.
"""

import ast

from .name_resolution import Names
from .syntax import call_argument

# Name: place of ``group`` among the positional arguments.
GROUP_PLACE = {
    "all_gather": 2,
    "all_gather_coalesced": 2,
    "all_gather_into_tensor": 2,
    "all_gather_object": 2,
    "all_gather_single": 2,
    "all_reduce": 2,
    "all_reduce_coalesced": 2,
    "all_to_all": 2,
    "all_to_all_single": 4,
    "barrier": 0,
    "broadcast": 2,
    "broadcast_object_list": 2,
    "gather": 3,
    "gather_object": 3,
    "monitored_barrier": 0,
    "new_group": 99,
    "reduce": 3,
    "reduce_scatter": 3,
    "reduce_scatter_single": 3,
    "reduce_scatter_tensor": 3,
    "scatter": 3,
    "scatter_object_list": 3,
}
POINT_TO_POINT = {"send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list"}
# Calls that make or end process groups. All ranks have to make them too, at the start and end of a job.
GROUP_CALLS = {
    *("init_process_group", "destroy_process_group", "new_subgroups", "new_subgroups_by_enumeration", "split_group"),
}
WAITING_CALLS = {*GROUP_PLACE, *POINT_TO_POINT, *GROUP_CALLS}
MODULES = ("torch.distributed", "torch.distributed.distributed_c10d")


def collective_name(call: ast.Call, names: Names) -> str | None:
    """Return the name of the collective over all ranks that ``call`` makes, or None.

    A call with a group of its own is left out: only its members have to enter it.
    """
    module, _, name = names.qualified(call.func).rpartition(".")
    if module not in MODULES or name not in GROUP_PLACE:
        return None
    group = call_argument(call, "group", GROUP_PLACE[name])
    if group is None or (isinstance(group, ast.Constant) and group.value is None):
        return name
    return name if names.qualified(group).endswith(("group.WORLD", "GroupMember.WORLD")) else None
