"""The versions of what a run needs, in the interpreter that will run it: metadata is read, nothing imported."""

import asyncio
import json
from pathlib import Path

from ...system.subprocesses import run_process
from .manifest import PACKAGES

LIMIT_S = 20.0
LOOK = """
import json, sys
from importlib import metadata
found = {"python": ".".join(map(str, sys.version_info[:3]))}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except Exception:
        found[name] = None
print(json.dumps(found))
"""


def read_package_versions(python: Path | str) -> dict[str, str | None]:
    """Of python and PACKAGES; empty where the interpreter does not answer."""
    outcome = asyncio.run(run_process([str(python), "-c", LOOK, *PACKAGES], limit_s=LIMIT_S))
    try:
        found = json.loads(outcome.log.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return {}
    return {str(name): value if isinstance(value, str) else None for name, value in found.items()}
