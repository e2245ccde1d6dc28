"""Tell the output of programs that train nothing (a web server, a database, the kernel) from that of a training job."""

import re
from collections.abc import Iterable

from ...knowledge.schema import Knowledge, TrainingWords
from .free_text import mentions_multiple_ranks
from .lines import PrefixStyle, parse_prefix
from .prose import ERROR, FRAME, LEAST_WORDS, MACHINE, RECORD, count_words
from .types import UNKNOWN_WRITER

LEAST_RECORDS = 2  # lines that a program has written, in its output
RECORD_SHARE = 0.5  # of the lines of its output; the rest may be sentences of a person
BARE_RECORD_SHARE = 0.2  # if no line is a sentence
MOST_LINES = 400  # of a text that are looked at
LEAST_LIKELY = 2  # different words that are only likely in the output of a training job
JOB_PROGRAM = (  # the names of what runs a training job, or reports on it, begin so
    r"(?:kernel|kubelet|containerd|dockerd|systemd|slurm|srun|mpi|prted|orted|nvidia|nv-|nvrm|opensm|python|pt_|torch|train"
    r"|ray|deepspeed|accelerate|bash|sh\b|rank|task|node|host|gpu|worker|launch|main)"
)
# The tag of a system log, "name[pid]: " behind the time and the host or at the start of a line; "nginx: [emerg] ".
TIME_AND_HOST = r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S{0,20}) \S{1,80} "
OTHER_TAG = re.compile(
    rf"(?:{TIME_AND_HOST})?(?!{JOB_PROGRAM})[a-z][\w.@/-]{{0,39}}(?:\[\d{{2,10}}\]: |: \[[a-z]{{1,12}}\] )"
)
OTHER_KILLED = re.compile(
    rf"(?:[Kk]ill(?:ed)?|reaped) process \d+,? \((?!{JOB_PROGRAM})"
    rf"|(?:^|[ ])(?!{JOB_PROGRAM})\S{{1,40}} invoked oom-killer"
)

# Words of several processes that any server has.
OF_SERVERS = re.compile(r"\b(?:workers?|processes|servers?|pods?|connections?)\b", re.IGNORECASE)
# A line as programs write it, by its level or its columns.
ROW = re.compile(
    r"""\s*(?:
      (?!\w+(?:Error|Exception|Warning):)[\w.-]{1,40}:[ ](?:error|warning|fatal|alert)[ :]
    | [\w.-]{1,40}[ ]{1,40}\|[ ]
    | (?:\w{1,40}[ ])?(?:ERR!|ERROR:|WARNING:|FATAL|PANIC|Error:)[ ]
    | [ ]?=>[ ] | \#?\d{1,4}\.\d{1,3}[ ] | <?-{3,}
    | \S[^\n]{0,60}[ ]{3,40}\S[^\n]{0,120}?[ ]{3,40}\S
    | [A-Z][\w ()-]{0,30}:[ ]{2,40}\S
    | at[ ]\S{1,200}\(\S{1,100}\)
    | [A-Z]{1,20}[ ]\S{1,100}::
    | \[(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL)/[\w.-]{1,60}\]
    )""",
    re.VERBOSE,
)


def is_of_other_programs(texts: Iterable[str], knowledge: Knowledge) -> bool:
    """Return whether the texts are the output of programs, and none has a word of a training job.

    A person who writes among the output about several ranks, GPUs or machines has a training job.
    """
    given = list(texts)
    return (
        bool(given and knowledge.training_words)
        and not any(_is_of_training(text, knowledge) for text in given)
        and all(_is_output(text, knowledge) for text in given)
    )


def is_line_of_other_program(line: str) -> bool:
    """Return whether a program that trains nothing has written a line of a log, or the kernel has killed such a one."""
    return bool(OTHER_TAG.match(line) or OTHER_KILLED.search(line))


def other_program_in(text: str, knowledge: Knowledge) -> str:
    """Return the name of a program that trains nothing in a description that has no word of a training job, or ""."""
    described = "\n".join(line for line in text.split("\n") if not ERROR.match(line))
    if _first_of("unless", described, knowledge):
        return ""
    return _first_of("others", described, knowledge)


def _first_of(kind: TrainingWords, text: str, knowledge: Knowledge) -> str:
    found = (re.search(pattern, text, re.IGNORECASE) for pattern in knowledge.training_words.get(kind, []))
    return next((each[0] for each in found if each), "")


def _is_output(text: str, knowledge: Knowledge) -> bool:
    """Return whether programs have written a text, apart from sentences about something else."""
    lines = [line for line in FRAME.sub("|\n|", text).split("\n") if line.strip()][:MOST_LINES]
    rest = [line for line in lines if not _is_record(line)]
    records = len(lines) - len(rest)
    sentences = [line for line in rest if count_words(line) >= LEAST_WORDS]
    described = OF_SERVERS.sub(" ", "\n".join(rest if sentences else []))
    if records < LEAST_RECORDS or mentions_multiple_ranks(described, knowledge):
        return False
    return records >= len(lines) * (RECORD_SHARE if sentences else BARE_RECORD_SHARE)


def _is_record(line: str) -> bool:
    """Return whether a program has written a line. A person types a command after a prompt."""
    if line.startswith("$ "):
        return False
    bare = parse_prefix(line, PrefixStyle(), UNKNOWN_WRITER).text
    return len(bare) < len(line) or any(pattern.match(line) for pattern in (RECORD, ROW, MACHINE))


def _is_of_training(text: str, knowledge: Knowledge) -> bool:
    if _first_of("sure", text, knowledge):
        return True
    likely = knowledge.training_words.get("likely", [])
    return sum(bool(re.search(pattern, text, re.IGNORECASE)) for pattern in likely) >= LEAST_LIKELY
