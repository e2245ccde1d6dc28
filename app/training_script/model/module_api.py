"""The public attributes of DistributedDataParallel and of its base class Module, as of torch 1.10 to 2.13."""

# What a model of transformers has, and DDP around it has not (4.57, modeling_utils.py and generation/utils.py).
OF_TRANSFORMERS = {
    *("config", "generation_config", "generate", "get_input_embeddings", "get_output_embeddings"),
    *("resize_token_embeddings", "save_pretrained", "push_to_hub", "enable_input_require_grads"),
    *("gradient_checkpointing_enable", "gradient_checkpointing_disable", "tie_weights", "num_parameters"),
}
PRETRAINED = "pretrained"  # a model of transformers
DDP_API = {
    *("T_destination", "add_module", "apply", "bfloat16", "broadcast_bucket_size", "broadcast_buffers"),
    *("bucket_bytes_cap", "buffer_hook", "buffers", "call_super_init", "children", "compile", "cpu", "cuda"),
    *("ddp_join_enabled", "device", "device_ids", "device_mesh", "device_type", "dim", "double"),
    *("dump_patches", "eval", "extra_repr", "find_unused_parameters", "float", "forward"),
    *("forward_sync_buffers", "gather", "get_buffer", "get_extra_state", "get_parameter", "get_submodule"),
    *("gradient_as_bucket_view", "half", "ipu", "is_multi_device_module", "join", "join_device", "join_hook"),
    *("join_process_group", "load_state_dict", "logger", "mixed_precision", "module", "modules"),
    *("modules_buffers", "mtia", "named_buffers", "named_children", "named_module_buffers", "named_modules"),
    *("named_parameters", "no_sync", "output_device", "parameters", "parameters_to_ignore", "process_group"),
    *("reducer", "register_backward_hook", "register_buffer", "register_comm_hook", "register_forward_hook"),
    *("register_forward_pre_hook", "register_full_backward_hook", "register_full_backward_pre_hook"),
    *("register_load_state_dict_post_hook", "register_load_state_dict_pre_hook", "register_module"),
    *("register_parameter", "register_state_dict_post_hook", "register_state_dict_pre_hook"),
    *("require_backward_grad_sync", "require_forward_param_sync", "requires_grad_", "scatter"),
    *("set_extra_state", "set_submodule", "share_memory", "state_dict", "static_graph", "to", "to_empty"),
    *("to_kwargs", "train", "training", "type", "will_sync_module_buffers", "xpu", "zero_grad"),
}
