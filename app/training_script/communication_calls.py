"""The names of torch.distributed's calls that need other ranks."""

POINT_TO_POINT = {"send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list"}
COLLECTIVES = POINT_TO_POINT | {
    *("all_reduce", "all_gather", "all_gather_object", "all_gather_into_tensor", "all_gather_coalesced"),
    *("all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier", "broadcast", "broadcast_object_list"),
    *("gather", "gather_object", "monitored_barrier", "new_group", "new_subgroups", "reduce", "reduce_scatter"),
    *("reduce_scatter_tensor", "scatter", "scatter_object_list", "split_group", "init_process_group"),
    *("destroy_process_group", "all_gather_single", "reduce_scatter_single", "new_subgroups_by_enumeration"),
}
