"""The patterns of the log reader in addition to those of the knowledge base: events that are no cause themselves.

A mark is a literal and a regular expression, like a signature; its named groups are the values of the event.
"""

import re

import msgspec

from ...knowledge.schema import Knowledge
from ..evidence import SIGNIFICANT, signature_id
from .types import EventKind

ROLE_KINDS: dict[str, EventKind] = {"root": "error", "symptom": "consequence", "confirmation": "note"}
MESSAGE_KINDS: dict[str, EventKind] = {"consequence": "consequence", "benign": "note", "unrelated": "error"}


class Pattern(msgspec.Struct, frozen=True):
    """A pattern to search for: ``pattern`` is tried only where ``literal`` occurs."""

    id: str
    literal: str
    pattern: str
    kind: EventKind
    evidence: bool = True

    @property
    def crosses_lines(self) -> bool:
        """True if a match may need more than the raw line: its start, or further lines."""
        return any(piece in self.pattern for piece in ("\\s", "\\n", "^", "[^", "(?s"))


# The command line of a rank as Python prints a list of words; the first that ends in .py is the script.
COMMAND_WORDS = r"\['[^\]\n]{0,400}?[ ]'(?P<script>[^'\n]{1,400}\.py)'[^\]\n]{0,2000}\]"

# A printed loss or norm of the gradients; an infinite norm alone is usual under a gradient scaler.
NOT_FINITE = r"(?P<what>\b(?:[A-Za-z]\w{0,19}[_/])?(?:loss|grad_?norm))['\"]? ?[:=]? ?(?:tensor\()?(?:nan|NaN)\b"

NOT_OF_WORKER = r"(?<!killed by signal: )"  # torch's DataLoader names the signal of a worker, not of the rank
MARKS: tuple[tuple[str, str, str, EventKind], ...] = (
    ("oom", "out of memory. Tried to allocate", r"out of memory\. Tried to allocate [^\n]{0,900}", "error"),
    (
        "watchdog",
        "Watchdog caught collective operation timeout",
        r"(?:PG (?:ID )?(?P<pg>\d{1,9})[^\]\n]{0,80}\] ?)?Watchdog caught collective operation timeout: "
        r"WorkNCCL\((?:SeqNum=(?P<seq>\d{1,18}), ?)?OpType=(?P<op>\w+)",
        "consequence",
    ),
    ("joined", "clients joined", r"(?P<joined>\d{1,9})/(?P<of>\d{1,9}) clients joined", "consequence"),
    (
        "counted",
        "store based barrier",
        r"store based barrier [^\n]{0,200}?world_size=(?P<of>\d{1,9}), "
        r"(?:worker_count|num_workers_joined)=(?P<joined>\d{1,9})",
        "note",
    ),
    (
        "restart",
        "will restart worker group",
        r"(?P<left>\d{1,9})/(?P<of>\d{1,9}) attempts left; will restart worker group",
        "restart",
    ),
    ("restart", "restart_count=", r"\brestart_count=(?P<count>\d{1,9})", "restart"),
    (
        "start",
        "Setting OMP_NUM_THREADS environment variable",
        r"Setting OMP_NUM_THREADS environment variable",
        "note",
    ),
    (
        "summary",
        "Root Cause (first observed failure)",
        r"Root Cause \(first observed failure\):\s{0,40}(?:\[\d{1,9}\]:\s{0,40})?time\s{0,8}: (?P<time>\S{1,40})"
        r"\s{1,40}host\s{0,8}: (?P<host>\S{1,100})\s{1,40}rank\s{0,8}: (?P<rank>\d{1,9})"
        r"(?: \(local_rank: (?P<on_node>\d{1,9})\))?[^\n]{0,40}\s{1,40}exitcode\s{0,8}: (?P<code>-?\d{1,9})",
        "summary",
    ),
    (
        "exit",
        "(local_rank:",
        r"rank\s{0,8}: (?P<rank>\d{1,9}) \(local_rank: \d{1,9}\)\s{1,40}exitcode\s{0,8}: (?P<code>-?\d{1,9})",
        "exit",
    ),
    ("exit", "failed (exitcode:", r"failed \(exitcode: (?P<code>-?\d{1,9})\) local_rank: (?P<local>\d{1,9})", "exit"),
    ("exit", "exits with return code =", r"exits with return code = (?P<code>-?\d{1,9})", "exit"),
    ("exit", "terminated with signal", r"rocess (?P<rank>\d{1,9}) terminated with signal (?P<signal>SIG\w+)", "exit"),
    (
        "exit",
        "srun: error:",
        r"srun: error: (?P<host>[\w.-]{1,64}): tasks? (?P<rank>\d{1,9}): (?P<how>[A-Z]\w+)",
        "exit",
    ),
    ("exit", "Killed", r"(?:^|[\s:])(?P<how>Killed)(?:\s{2,}\S|\s*$)", "exit"),
    ("exit", "Segmentation fault", rf"{NOT_OF_WORKER}\b(?P<how>Segmentation) fault", "exit"),
    ("exit", "Bus error", rf"{NOT_OF_WORKER}\b(?P<how>Bus) error", "exit"),
    ("not-finite", "nan", NOT_FINITE, "note"),
    ("not-finite", "NaN", NOT_FINITE, "note"),
    ("script", " FAILED", r"(?m)^(?P<script>[^\s][^\n]{0,400}\.py) FAILED[ \t]*$", "note"),
    ("script", " exits with return code", rf"{COMMAND_WORDS} exits with return code", "note"),
    ("script", "CalledProcessError: Command", rf"CalledProcessError: Command '{COMMAND_WORDS}'", "note"),
    ("nccl-rank", " cudaDev ", r"\brank (?P<rank>\d{1,9}) n[Rr]anks (?P<of>\d{1,9}) cudaDev (?P<gpu>\d{1,9})", "note"),
    ("nccl-version", "NCCL version ", r"NCCL version (?P<value>\d{1,9}\.\d{1,9}[\w.+]{0,40})", "note"),
    (
        "torch-version",
        "orch version",
        r"\b[Pp]?[Yy]?[Tt]orch version ?[:=]? ?(?P<value>\d{1,9}\.\d{1,9}[\w.+]{0,40})",
        "note",
    ),
    # The processes of the ranks: torchrun's table and messages, DeepSpeed's, NCCL's INFO lines, Ray's prefix.
    ("rank-pid", "(pid: ", r"\(pid: (?P<pid>\d{1,10})\)", "note"),
    ("stopped", "Sending process ", r"Sending process (?P<pid>\d{1,10}) closing signal", "note"),
    ("rank-pid", "Killing subprocess ", r"Killing subprocess (?P<pid>\d{1,10})\b", "note"),
    ("rank-pid", " spawned with command", r"process (?P<pid>\d{1,10}) spawned with command", "note"),
    ("rank-pid", " cudaDev ", r":(?P<pid>\d{1,10}):\d{1,10} \[\d{1,3}\] NCCL INFO [^\n]{0,300} cudaDev ", "note"),
    ("rank-pid", " pid=", r"\([\w.]{1,60} pid=(?P<pid>\d{1,10})[,)]", "note"),
    ("driver-version", "cudaDriverVersion", r"cudaDriverVersion (?P<value>\d{1,9})", "note"),
)


def build_patterns(knowledge: Knowledge) -> list[Pattern]:
    """Return the patterns of all signatures and messages of the knowledge base, and the marks."""
    found = [
        Pattern(
            signature_id(cause, index),
            signature.literal,
            signature.pattern,
            "note" if cause.generic or signature.weight not in SIGNIFICANT else ROLE_KINDS[signature.role],
        )
        for cause in knowledge.causes.values()
        for index, signature in enumerate(cause.signatures)
    ]
    found += [
        Pattern(f"message:{id_}", message.literal, message.pattern, MESSAGE_KINDS[message.kind])
        for id_, message in knowledge.messages.items()
    ]
    return found + [Pattern(f"mark:{name}", literal, pattern, kind, False) for name, literal, pattern, kind in MARKS]


SIZES = {"B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "KB": 1000, "MB": 10**6, "GB": 10**9}
SIZE = r"([\d.]{1,12}) ?([KMG]i?B|B|bytes)"
# Compiled only when an out-of-memory message is found.
OOM_PARTS = {
    "tried": rf"Tried to allocate {SIZE}",
    "total": rf"total capacity of {SIZE}|{SIZE} total capacity",
    "free": rf"of which {SIZE} is free|{SIZE} free",
    "own": rf"this process has {SIZE} memory in use|{SIZE} reserved in total by PyTorch",
    "allocated": rf"allocated memory {SIZE} is allocated by PyTorch|{SIZE} already allocated",
    "unallocated": rf"{SIZE} is reserved by PyTorch but unallocated",
    "reserved": rf"{SIZE} reserved in total by PyTorch",
}
OTHERS = rf"Process (?P<pid>\d{{1,10}}) has (?P<size>{SIZE}) memory in use"
GPU = r"\bGPU (\d{1,3})\b"


def parse_out_of_memory(text: str) -> dict[str, str]:
    """Parse the sizes (in bytes) and the GPU of an out-of-memory message; ``holders`` are other processes, PID:SIZE."""
    found = {name: str(size) for name, part in OOM_PARTS.items() if (size := _size(re.search(part, text))) is not None}
    others = [(match["pid"], _size(re.fullmatch(SIZE, match["size"]))) for match in re.finditer(OTHERS, text)]
    if others:
        found["holders"] = " ".join(f"{pid}:{size}" for pid, size in others if size is not None)
    if "unallocated" not in found and "reserved" in found and "allocated" in found:
        found["unallocated"] = str(max(0, int(found["reserved"]) - int(found["allocated"])))
    if gpu := re.search(GPU, text):
        found["gpu"] = gpu[1]
    return found


def _size(match: re.Match[str] | None) -> int | None:
    if match is None:
        return None
    number, unit = [group for group in match.groups() if group is not None][:2]
    try:
        return round(float(number) * SIZES.get(unit.upper(), 1))
    except ValueError:
        return None
