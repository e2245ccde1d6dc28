"""Agent: build a user's model on the meta device and describe its shape.

Started as ``model_shape.py MODULE:FACTORY``, optionally followed by the factory's arguments as JSON: ``[[…], {…}]``.
Weights are not allocated and nothing is computed, but the module is imported and the factory called, as in the user's
own program. The answer is one JSON object on the descriptor named by DDPWIZARD_ANSWER_FD; on failure its ``problem``
contains the reason.
"""

import json
import os
import resource
import sys

AGENTS = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, AGENTS)

from ddpwizard_model import building, protocol  # noqa: E402

ADDRESS_LIMIT_BYTES = 24 * 2**30  # torch alone maps several GiB
CONFIG_LIMIT = 1000000  # characters
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "n_kv_head", "num_query_groups")
HEADS = ("num_attention_heads", "num_heads", "n_heads", "n_head", "nhead")


def build_on_meta(spec, arguments=((), {})):
    """Return the model of ``package.module:factory`` with these arguments, its weights on the meta device."""
    import torch

    factory = protocol.import_function(spec)
    with torch.device("meta"):
        model = factory(*arguments[0], **arguments[1])
    return protocol.require_module(model, spec)


def refuse_network():
    """Refuse connections to other hosts at once: nothing is downloaded to make a plan."""
    import socket

    connect, resolve = socket.socket.connect, socket.getaddrinfo

    def refusal(address):
        host = address[0] if isinstance(address, tuple) else address
        return OSError("connection to %r refused: nothing is downloaded while a plan is made" % (host,))

    def refused(self, address):
        if self.family != socket.AF_UNIX:
            raise refusal(address)
        return connect(self, address)

    def unresolved(host, *rest, **more):
        if host not in (None, "localhost", "127.0.0.1", "::1"):
            raise refusal(host)
        return resolve(host, *rest, **more)

    socket.socket.connect = socket.socket.connect_ex = refused  # type: ignore[method-assign]
    socket.getaddrinfo = unresolved


def read_shape(model):
    """Return what the planner needs: every parameter's shape, the repeated block, embeddings and attention heads."""
    import torch

    params = [
        {"shape": list(p.shape), "bytes": p.element_size(), "trained": p.requires_grad} for p in model.parameters()
    ]
    tables = [m.weight for m in model.modules() if isinstance(m, torch.nn.Embedding)]
    table = max(tables, key=lambda weight: weight.numel()) if tables else None
    blocks = building.repeated_blocks(model)
    block = blocks[0] if blocks else None
    linears = [m for m in (block or model).modules() if isinstance(m, torch.nn.Linear)]
    head = [m for m in model.modules() if isinstance(m, torch.nn.Linear) and table is not None]
    tied = any(m.weight is table for m in head)
    return {
        "name": type(model).__name__,
        "params": params,
        "block": type(block).__name__ if block is not None else "",
        "layers": len(blocks),
        "vocab": table.shape[0] if table is not None else 0,
        "hidden": table.shape[1] if table is not None else min((m.in_features for m in linears), default=0),
        "intermediate": max((m.out_features for m in linears), default=0),
        "gated": sum(1 for m in linears if m.out_features == max(n.out_features for n in linears)) > 1,
        "heads": first_attribute(model, HEADS),
        "kv_heads": first_attribute(model, KV_HEADS),
        "tied": tied,
        "config": config_as_dict(model),
    }


def config_as_dict(model):
    """Return the config of a transformers model as plain data, or {}."""
    config = getattr(model, "config", None)
    if config is None or not (getattr(config, "model_type", None) and hasattr(config, "to_dict")):
        return {}
    try:
        plain = json.dumps(config.to_dict(), default=str)
    except Exception:  # not such a config
        return {}
    return json.loads(plain) if len(plain) < CONFIG_LIMIT else {}


def first_attribute(model, names):
    """Return a number that a module or its config has under one of these names, or 0."""
    for holder in (getattr(model, "config", None), *model.modules()):
        for name in names:
            value = getattr(holder, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return 0


def main():
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_LIMIT_BYTES, ADDRESS_LIMIT_BYTES))
    with open("/proc/self/oom_score_adj", "w") as score:  # if memory runs out, this process is killed first, not a job
        score.write("1000")
    protocol.use_user_import_path(AGENTS)
    refuse_network()
    try:
        answer = read_shape(build_on_meta(sys.argv[1], *(json.loads(given) for given in sys.argv[2:3])))
    except BaseException as error:  # whatever the user's code raises, including SystemExit
        answer = {"problem": protocol.one_line(error)}
    protocol.send_answer(answer)


if __name__ == "__main__":
    main()
