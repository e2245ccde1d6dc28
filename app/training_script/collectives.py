"""Which calls are collectives of ``torch.distributed``: operations every rank of the group has to enter.

Sends and receives are none: pipelines call them by rank on purpose. Source: the API reference of torch 2.13.
"""

import ast

from .names import Names
from .syntax import call_argument

# name: where ``group`` stands among the positional arguments
GROUP_PLACE = {
    "all_gather": 2,
    "all_gather_coalesced": 2,
    "all_gather_into_tensor": 2,
    "all_gather_object": 2,
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
    "reduce_scatter_tensor": 3,
    "scatter": 3,
    "scatter_object_list": 3,
}


def collective_name(call: ast.Call, names: Names) -> str | None:
    """The name of the collective over all ranks that ``call`` is, or None.

    A call with a group of its own is left out: its members alone may have to enter it.
    """
    module, _, name = names.qualified(call.func).rpartition(".")
    if module not in ("torch.distributed", "torch.distributed.distributed_c10d") or name not in GROUP_PLACE:
        return None
    group = call_argument(call, "group", GROUP_PLACE[name])
    if group is None or (isinstance(group, ast.Constant) and group.value is None):
        return name
    return name if names.qualified(group).endswith(("group.WORLD", "GroupMember.WORLD")) else None
