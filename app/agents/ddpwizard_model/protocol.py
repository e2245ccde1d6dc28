"""What an agent was asked for: functions of the user's own called, problems in one line, the answer told."""

import importlib
import json
import os
import sys
from typing import Any


class RequestRefused(Exception):
    """What cannot be done, in words for people."""


def use_user_import_path(agents):
    """Let imports find what is in the working directory, and nothing in the directory of the agents."""
    sys.path[:] = [os.getcwd(), *(place for place in sys.path if place != agents)]


def import_function(spec):
    """The function that ``package.module:function`` names."""
    module_name, _, path = spec.partition(":")
    found: Any = importlib.import_module(module_name)
    for name in path.split("."):
        found = getattr(found, name)
    return found


def require_module(made, spec):
    """What the function ``spec`` made, which has to be a model."""
    import torch

    if not isinstance(made, torch.nn.Module):
        raise TypeError("%s gave a %s, not a torch.nn.Module" % (spec, type(made).__name__))
    return made


def one_line(error):
    """An error as one line."""
    return "%s: %s" % (type(error).__name__, str(error).strip().split("\n")[0][:300])


def send_answer(said):
    """Tell it as one JSON object on the descriptor named by DDPWIZARD_ANSWER_FD."""
    with os.fdopen(int(os.environ["DDPWIZARD_ANSWER_FD"]), "w") as out:
        json.dump(said, out)
