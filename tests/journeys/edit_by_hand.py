"""The editor of a journey: ``edit_by_hand.py EDITS.json [+LINE FILE]`` makes the edits and ends."""

import json
import sys
from pathlib import Path


def main() -> None:
    for edit in json.loads(Path(sys.argv[1]).read_text()):
        path = Path(edit["path"])
        before = path.read_text()
        assert before.count(edit["old"]) == 1, f"{path}: {edit['old']!r} is there {before.count(edit['old'])} times"
        path.write_text(before.replace(edit["old"], edit["new"]))


if __name__ == "__main__":
    main()
