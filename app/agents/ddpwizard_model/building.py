"""The user's model, its repeated blocks and its inputs."""

import json
import sys

from .protocol import RequestRefused, import_function, require_module


def build_model(request):
    """Build the user's model: from the factory, or from a config.json by transformers."""
    if request["factory"]:
        return require_module(import_function(request["factory"])(), request["factory"])
    try:
        import transformers
    except ImportError:
        raise RequestRefused(
            "transformers, which builds a config.json, is not installed in " + sys.executable
        ) from None
    if request["config"].startswith("{"):
        config = transformers.AutoConfig.for_model(**json.loads(request["config"]))
    else:
        config = transformers.AutoConfig.from_pretrained(request["config"], local_files_only=True)
    config.use_cache = False
    attention = "eager" if request["attention"] == "eager" else "sdpa"
    named = getattr(transformers, (config.architectures or [""])[0], None)
    if named is not None:
        return named._from_config(config, attn_implementation=attention)
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention)


def repeated_blocks(model):
    """Return the largest group of modules of one class that a list or sequence of the model repeats, or []."""
    import torch

    best, held = [], 0
    for holder in model.modules():
        if not isinstance(holder, (torch.nn.ModuleList, torch.nn.Sequential)):
            continue
        kinds = {}
        for child in holder.children():
            kinds.setdefault(type(child), []).append(child)
        for children in kinds.values():
            size = sum(p.numel() for child in children for p in child.parameters())
            if len(children) > 1 and size > held:
                best, held = children, size
    return best


def make_batch(model, request):
    """Return one micro-batch as positional and named arguments: the user's own, or token ids."""
    import torch

    if request["batch"]:
        given = import_function(request["batch"])()
        if isinstance(given, dict):
            return (), given
        return (tuple(given) if isinstance(given, (tuple, list)) else (given,)), {}
    if not any(isinstance(module, torch.nn.Embedding) for module in model.modules()):
        raise RequestRefused("it takes no tokens: give a function that returns its inputs with --batch PKG.MOD:FN")
    tokens = torch.zeros(request["micro_batch"], request["seq_len"], dtype=torch.int64)
    return ((), {"input_ids": tokens, "labels": tokens}) if request["config"] else ((tokens,), {})
