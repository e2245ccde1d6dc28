"""The part of a plan's set-up code that computes activations once more in the backward pass, by how much of them."""

RECOMPUTE = {
    "full": '''\
def recompute(model: torch.nn.Module, block: type[torch.nn.Module]) -> None:
    """Keep only the input of each block, and compute the block once more in the backward pass."""
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, block))
''',
    "selective-layer": '''\
def recompute(model: torch.nn.Module, block: type[torch.nn.Module]) -> None:
    """Keep only the input of every second block, and compute that block once more in the backward pass."""
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
    """Keep the output of attention and of every second matrix product; the rest is computed once more."""
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
    """Of each block keep its input and what keep_some names, and compute the rest once more in the backward pass."""
    apply_activation_checkpointing(
        model,
        checkpoint_wrapper_fn=lambda module: checkpoint_wrapper(module, context_fn=keep_some),
        check_fn=lambda module: isinstance(module, block),
    )
''',
}
