"""Syntax of later versions of Python than the one that runs ddpwizard, recognised at the place of a syntax error."""

import re
import sys

# The version, the syntax, and how the line of the error begins. A capital after the comma of ``except A, B:`` is a
# class; ``except IOError, e:`` is Python 2.
NEWER = (
    ((3, 11), "`except*`", re.compile(r"\s*except\s*\*")),
    ((3, 12), "the `type` statement", re.compile(r"\s*type\s+\w+\s*(?:\[.*)?=")),
    ((3, 12), "type parameters", re.compile(r"\s*(?:(?:async\s+)?def|class)\s+\w+\s*\[")),
    ((3, 13), "defaults of type parameters", re.compile(r"\s*(?:(?:async\s+)?def|class|type)\s+\w+\s*\[[^\]]*=")),
    ((3, 14), "`except A, B:`", re.compile(r"\s*except\*?\s+[\w.]+(?:\s*,\s*(?:\w+\.)*[A-Z]\w*)+\s*:")),
    ((3, 14), "template strings", re.compile(r".*(?<![\w\"'])(?:t|tr|rt)[\"']", re.IGNORECASE)),
    ((3, 15), "lazy imports", re.compile(r"\s*lazy\s+(?:import|from)\s")),
)
# Until Python 3.11, quotes, backslashes and comments inside an f-string are errors.
F_STRING_MESSAGE = re.compile(r"f-string.*(?:cannot include|unmatched|expecting|unterminated)|line continuation")
F_STRING = re.compile(r".*\b(?:f|fr|rf)[\"'].*\{", re.IGNORECASE)


def newer_syntax(error: SyntaxError) -> str:
    """Return which syntax of a later Python a syntax error is about, in words, or "" if it is about none."""
    ours = sys.version_info[:2]
    line = error.text or ""
    for version, name, pattern in NEWER:
        if version > ours and pattern.match(line):
            return _text(f"uses {name} of", version)
    if ours < (3, 12) and F_STRING_MESSAGE.search(error.msg) and ("f-string" in error.msg or F_STRING.match(line)):
        return _text(f"not valid Python: {error.msg}, or an f-string of", (3, 12))
    return ""


def _text(problem: str, version: tuple[int, int]) -> str:
    ours = ".".join(map(str, sys.version_info[:2]))
    return f"{problem} Python {version[0]}.{version[1]}; ddpwizard runs on Python {ours}"
