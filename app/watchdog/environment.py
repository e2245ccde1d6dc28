"""The environment of a job under ``ddpwizard run``: the start-up hook first on the import path, its directory, and the
flight recorder enabled unless the user has configured it."""

import os
from collections.abc import Mapping
from pathlib import Path

from ..system import run_directory

HOOK = Path(__file__).parent.parent / "agents" / "flight_hook"
ENTRIES = "2000"  # the default of torch 2.13
SIZE_NAMES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")  # the second until torch 2.7
DUMP_NAMES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
DUMP_PREFIX = "record_rank_"  # torch adds the rank
ON_TIMEOUT = "TORCH_NCCL_DUMP_ON_TIMEOUT"


def rank_environment(base: Mapping[str, str], private: Path) -> dict[str, str]:
    """Add the variables of the hook and the recorder to ``base``; variables of the user are unchanged."""
    ours = {run_directory.FOLDER_VARIABLE: str(private), ON_TIMEOUT: base.get(ON_TIMEOUT, "1")}
    if not any(name in base for name in SIZE_NAMES):
        ours[SIZE_NAMES[0]] = ENTRIES
    if not any(name in base for name in DUMP_NAMES):
        ours[DUMP_NAMES[0]] = str(private / DUMP_PREFIX)
    path = base.get("PYTHONPATH", "")
    # An empty entry means the current directory: none is added, an existing one is kept.
    ours["PYTHONPATH"] = os.pathsep.join([str(HOOK), path]) if path else str(HOOK)
    return {**base, **ours}
