"""Plain data as YAML. The library is loaded on first use: most commands write none."""

import json
from typing import Any

WIDTH = 120


def render_yaml(plain: dict[str, Any]) -> str:
    """Render a configuration as the content of its file: keys in their order, repeated parts in full, no anchors."""
    import yaml

    copied = json.loads(json.dumps(plain))  # shared parts become separate ones
    return yaml.safe_dump(copied, sort_keys=False, width=WIDTH)
