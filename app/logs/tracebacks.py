"""Reassemble the Python tracebacks of each rank from interleaved lines.

Of a chain of exceptions the first one is kept: the one before "During handling of the above exception", or the one
that a data loader's worker raised ("Original Traceback"). The frame kept is the innermost one of the user's code.
"""

import re
from collections.abc import Iterator

import msgspec

from .lines import LogPiece
from .types import RaisedIn, Traceback, TracebackFrame, Writer

HEADER = "Traceback (most recent call last)"
ORIGINAL = "Original Traceback"
LINE_BREAK = "\\n"  # as ``repr(error)`` and loggers that write JSON print it: a whole traceback in one line
QUOTES = re.compile(r"(?<!\\)[\"']")
FRAME = re.compile(r'\s+File "(?P<file>[^"\n]{1,1000})", line (?P<line>\d{1,9})(?:, in (?P<function>.{1,200}))?')
BOXED = re.compile(r"\s*[│|]\s(?P<file>[^\s:]{1,1000}):(?P<line>\d{1,9}) in (?P<function>\S{1,200})")
EXCEPTION = re.compile(r"(?P<name>[A-Za-z_][\w.]{0,200})(?:: ?(?P<message>.*))?$")
NAME = re.compile(r".*\.\w|\w*(?:Error|Exception|Interrupt|Exit|Warning)$|[A-Z]+[a-z]\w*[A-Z]")
# The end of an error in the syntax of the script itself: it has no header, only the file and the line above it.
SYNTAX_ERRORS = ("SyntaxError: ", "IndentationError: ", "TabError: ")
SYNTAX_PLACE = re.compile(r'\s*File "(?P<file>[^"\n]{1,1000})", line (?P<line>\d{1,9})$')
LINKS = ("During handling of the above exception", "The above exception was the direct cause")
LIBRARY = re.compile(
    r"(?:site|dist)-packages/|/lib/python3|^<|[/\\]torch[/\\](?:distributed|nn|utils|_)|^torch[/\\]|/bin/\w+$"
)
# Libraries for distributed training: what they raise themselves is about how they are used.
DISTRIBUTED = re.compile(
    r"(?:^|/)(?:torch/(?:distributed|nn/parallel)|accelerate|deepspeed|horovod|megatron|torchtitan|fairscale|colossalai"
    r"|(?:pytorch_)?lightning/(?:fabric/)?strategies)/"
)
CHECKS = ("raise ", "assert ")
COLLECTIVES = "torch/distributed/distributed_c10d.py"
WRAPPERS = ("wrapper", "func_wrapper")
MOST_FRAMES = 200
MOST_UNKNOWN_LINES = 40  # lines without a known writer in the middle of a traceback
MOST_BETWEEN = 6  # lines between an exception and the announcement of another one
MESSAGE_CHARACTERS = 500
CODE_CHARACTERS = 200


class _Part(msgspec.Struct):
    """One traceback of a chain."""

    frames: list[TracebackFrame] = msgspec.field(default_factory=list)
    exception: str = ""
    message: str = ""
    original: bool = False
    message_line: int = 0


class _Open(msgspec.Struct):
    """The chain of tracebacks that a writer is writing."""

    first_line: int
    last_line: int
    time_s: float | None
    stamped: bool  # its lines have time stamps
    parts: list[_Part]
    others: int = 0  # lines since the last one of this traceback
    linked: bool = False

    @property
    def finished(self) -> bool:
        return bool(self.parts[-1].exception)


class TracebackAssembler:
    """Takes the lines of all writers in order and yields tracebacks when they are complete."""

    def __init__(self) -> None:
        self._open: dict[tuple[Writer, str], _Open] = {}

    @property
    def busy(self) -> bool:
        """True while a traceback is incomplete."""
        return bool(self._open)

    def feed(self, line: LogPiece, number: int, time_s: float | None = None) -> Iterator[Traceback]:
        """Add a line and yield the tracebacks that it completes. ``time_s``: its time if it has no time stamp."""
        key = (line.writer, line.pid)
        current = self._open.get(key)
        text = line.text
        if is_escaped(text):
            for part in _escaped_lines(text):
                yield from self.feed(msgspec.structs.replace(line, text=part), number, time_s)
            yield from self._close(key)
        elif HEADER in text:
            part = _Part(original=ORIGINAL in text)
            if current and (current.linked or part.original):
                current.parts.append(part)
                current.linked, current.others, current.last_line = False, 0, number
                return
            if current:
                yield from self._close(key)
            when = line.time_s if line.time_s is not None else time_s
            self._open[key] = _Open(number, number, when, line.time_s is not None, [part])
        elif current is None:
            if found := SYNTAX_PLACE.match(text):
                frame = TracebackFrame(found["file"], int(found["line"]), "<module>")
                when = line.time_s if line.time_s is not None else time_s
                self._open[key] = _Open(number, number, when, line.time_s is not None, [_Part([frame])])
        elif current.finished:
            yield from self._line_after_exception(key, current, text, number)
        else:
            foreign = line.time_s is not None and not current.stamped
            yield from self._line_in_traceback(key, current, text, number, foreign=foreign)

    def end(self) -> Iterator[Traceback]:
        """Yield the incomplete tracebacks."""
        for key in list(self._open):
            yield from self._close(key)

    def _line_in_traceback(
        self, key: tuple[Writer, str], current: _Open, text: str, number: int, *, foreign: bool
    ) -> Iterator[Traceback]:
        part = current.parts[-1]
        if not foreign and (found := FRAME.match(text) or BOXED.match(text)):
            if len(part.frames) < MOST_FRAMES:
                frame = TracebackFrame(found["file"], int(found["line"]), (found["function"] or "").strip())
                part.frames.append(frame)
        elif not foreign and (not text or text[0] in " \t│╭╰|"):
            if part.frames and not part.frames[-1].code and text.startswith("    "):
                part.frames[-1] = msgspec.structs.replace(part.frames[-1], code=text.strip()[:CODE_CHARACTERS])
        elif not foreign and part.frames and (ended := EXCEPTION.match(text)) and NAME.match(ended["name"]):
            part.exception, part.message_line = ended["name"], number
            part.message = (ended["message"] or "")[:MESSAGE_CHARACTERS]
        else:
            current.others += 1
            if current.others > MOST_UNKNOWN_LINES:
                yield from self._close(key)
            return
        current.others, current.last_line = 0, number

    def _line_after_exception(
        self, key: tuple[Writer, str], current: _Open, text: str, number: int
    ) -> Iterator[Traceback]:
        """Handle a line after an exception's line: more of its message, or the announcement of another exception."""
        if text.startswith(LINKS):
            current.linked, current.last_line, current.others = True, number, 0
            return
        current.others += bool(text.strip())
        part = current.parts[-1]
        if current.others == 1 and not part.message and text.strip():
            part.message = text.strip()[:MESSAGE_CHARACTERS]
        if current.others > MOST_BETWEEN:
            yield from self._close(key)

    def _close(self, key: tuple[Writer, str]) -> Iterator[Traceback]:
        current = self._open.pop(key)
        parts = [part for part in current.parts if part.exception]
        if not parts:
            return
        originals = [part for part in parts if part.original]
        root = originals[-1] if originals else parts[0]
        frames = [part.frames for part in (root, *parts) if part.frames]
        own = [[frame for frame in some if not LIBRARY.search(frame.file)] for some in frames]
        frame = next((some[-1] for some in own if some), frames[0][-1] if frames else None)
        last = parts[-1].exception
        yield Traceback(
            root.exception,
            root.message,
            frame,
            key[0],
            current.first_line,
            parts[0].message_line,
            current.last_line,
            current.time_s,
            outer=last if last != root.exception else "",
            collective=_collective(parts[0].frames),
            raised_in=_raised_in(root.frames),
            in_script=any(own),
            main=next((each.file for some in own for each in some if each.function == "<module>"), ""),
        )


def is_escaped(text: str) -> bool:
    """Return whether a line has a traceback with its line breaks as ``\\n``, inside of a string."""
    return f"{LINE_BREAK}  File " in text.partition(HEADER)[2]


def _escaped_lines(text: str) -> list[str]:
    """Return the lines of an escaped traceback, without what follows the string that holds it."""
    before, header, after = text.partition(HEADER)
    opening = QUOTES.findall(before)[-1:]
    parts = f"{before}{header}{after}".split(LINE_BREAK)
    first = next(index for index, part in enumerate(parts) if HEADER in part)
    lines = [part.replace('\\"', '"').replace("\\'", "'") for part in parts[first:-1]]
    end = re.split(rf"(?<!\\){opening[0]}", parts[-1])[0] if opening else parts[-1]
    return [*lines, end]


def _raised_in(frames: list[TracebackFrame]) -> RaisedIn:
    if not frames:
        return "library"
    innermost = frames[-1]
    if not LIBRARY.search(innermost.file):
        return "script"
    is_check = innermost.code.startswith(CHECKS) and DISTRIBUTED.search(innermost.file.replace("\\", "/"))
    return "check" if is_check else "library"


def _collective(frames: list[TracebackFrame]) -> str:
    inside = (frame.function for frame in reversed(frames) if frame.file.replace("\\", "/").endswith(COLLECTIVES))
    return next((function for function in inside if function not in WRAPPERS), "")
