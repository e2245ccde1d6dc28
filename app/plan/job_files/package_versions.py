"""Versions of a run's packages in the interpreter of the run, read from metadata without importing them."""

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
    """Return the versions of python and PACKAGES, or an empty dict if the interpreter does not answer."""
    outcome = asyncio.run(run_process([str(python), "-c", LOOK, *PACKAGES], limit_s=LIMIT_S))
    try:
        found = json.loads(outcome.log.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return {}
    return {str(name): value if isinstance(value, str) else None for name, value in found.items()}
