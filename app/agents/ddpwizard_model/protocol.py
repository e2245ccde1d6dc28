"""The agent's protocol: the user's functions, errors in one line, the answer."""

import importlib
import json
import os
import sys
from typing import Any


class RequestRefused(Exception):
    """A request that cannot be done, with the reason as text."""


def use_user_import_path(agents):
    """Make imports find modules in the working directory, and none in the directory of the agents."""
    sys.path[:] = [os.getcwd(), *(place for place in sys.path if place != agents)]


def import_function(spec):
    """Import the function that ``package.module:function`` names."""
    module_name, _, path = spec.partition(":")
    found: Any = importlib.import_module(module_name)
    for name in path.split("."):
        found = getattr(found, name)
    return found


def require_module(made, spec):
    """Return what the function ``spec`` returned if it is a model, else raise."""
    import torch

    if not isinstance(made, torch.nn.Module):
        raise TypeError("%s returned %s, not a torch.nn.Module" % (spec, type(made).__name__))
    return made


def one_line(error):
    """Return an error as one line."""
    return "%s: %s" % (type(error).__name__, str(error).strip().split("\n")[0][:300])


def send_answer(answer):
    """Write the answer as one JSON object to the descriptor named by DDPWIZARD_ANSWER_FD."""
    with os.fdopen(int(os.environ["DDPWIZARD_ANSWER_FD"]), "w") as out:
        json.dump(answer, out)
