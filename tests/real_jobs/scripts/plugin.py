"""Ranks that join; one of them fails before it does."""

import importlib
import os

import torch.distributed as dist

if os.environ["RANK"] == "1":
    importlib.import_module("no_such_plugin")  # FAILS
dist.init_process_group("gloo")
dist.destroy_process_group()
