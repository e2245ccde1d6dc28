"""The function of a setup script that enables activation checkpointing, by its kind."""

RECOMPUTE = {
    "full": '''\
def recompute(model: torch.nn.Module, block: type[torch.nn.Module]) -> None:
    """Keep only the input of each block, and recompute the block in the backward pass."""
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, block))
''',
    "selective-layer": '''\
def recompute(model: torch.nn.Module, block: type[torch.nn.Module]) -> None:
    """Keep only the input of every second block, and recompute that block in the backward pass."""
    chosen = [module for module in model.modules() if isinstance(module, block)][1::2]
    apply_activation_checkpointing(model, check_fn=lambda module: module in chosen)
''',
    "selective-op": '''\
ATTENTION = (
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
)
PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)


def keep_some() -> tuple:
    """Keep the output of attention and of every second matrix product; recompute the rest."""
    seen = {True: 0, False: 0}

    def policy(context, operation, *args, **kwargs) -> CheckpointPolicy:
        if operation in PRODUCTS:
            seen[context.is_recompute] += 1
            kept = seen[context.is_recompute] % 2 == 1
        else:
            kept = operation in ATTENTION
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def recompute(model: torch.nn.Module, block: type[torch.nn.Module]) -> None:
    """Keep the input of each block and what keep_some selects; recompute the rest in the backward pass."""
    apply_activation_checkpointing(
        model,
        checkpoint_wrapper_fn=lambda module: checkpoint_wrapper(module, context_fn=keep_some),
        check_fn=lambda module: isinstance(module, block),
    )
''',
}
