"""The parts of a text that a person has written: no lines of programs, no stack frames, no directories."""

import re
from collections import Counter
from itertools import groupby

from ...knowledge.schema import Knowledge
from .lines import PrefixStyle, parse_prefix
from .notices import without_notices
from .types import UNKNOWN_WRITER

# What torchrun writes: warnings at the start, a line for each failed process, and the final report
# (ChildFailedError.format_msg of PyTorch).
TORCHRUN = re.compile(
    r"\s*(?:\[\d+\]:|[=-]{20,}|(?:time|host|rank|exitcode|traceback)\s{1,20}: |error_file: |Root Cause \("
    r"|\S{1,400} FAILED\s*$|Failures:\s*$|<NO_OTHER_FAILURES>|(?:[\w.]{1,80}\.)?ChildFailedError:\s*$"
    r"|.{0,80}torch/distributed/run\.py:\d+\] "
    r"|.{0,200}failed \(exitcode: -?\d+\) local_rank: \d+ \(pid: \d+\) of binary: )"
)
# A frame of a Python traceback, or a warning, with its line of code: function names are not a description.
FRAME = re.compile(
    r'(?m)^.{0,40}File "[^"\n]{1,400}", line \d+(?:, in .{1,120})?\n?.{0,300}$'
    r"|^.{0,40}\S{1,400}\.py:\d{1,6}: \w{1,60}Warning: .{0,2000}\n  \S.{0,300}$"
)
# The directories of a Python file or interpreter: their names do not describe the problem.
DIRECTORIES = re.compile(
    r"(?<![\w./])(?:~|\.{1,2})?/(?:[^\s/:\"'<>|]{1,255}/){1,40}(?=[\w.-]{1,255}\.py\b|python[\d.]{0,6}\b)"
)
# The module and name of an exception, and the line of C++ that raised it, before its message.
RAISED_AT = r"(?:\b(?:\w{1,80}\.){1,12})?(?:\b\w{1,80}(?:Error|Exception): )?(?:\[[^\]\n]{1,200}:\d{1,5}\] )?"
# An option of a shell command with its value, or an environment variable with its value.
OPTION = re.compile(r"(?<!\S)--?[a-zA-Z][\w-]{0,60}(?:[= ][^\s-]\S{0,200})?|\b[A-Z][A-Z0-9_]{2,60}=[^\s,;)]{1,200}")
LEAST_AMONG_OUTPUT = 3  # words of a line of a person in a paragraph with lines of programs
LEAST_WORDS = 6  # in the longest line of a paragraph that a person has written
# The arguments of a call in a text.
ARGUMENTS = re.compile(r"(?<=\w)\([^()\n]{1,400}\)")
NUMBER = re.compile(r"[-+]?\d[\d.,:/]*(?:e[-+]?\d+)?", re.IGNORECASE)
MEASURED = re.compile(r"\d\.\d|\de[-+]?\d", re.IGNORECASE)
NOT_FINITE = re.compile(r"\b(?:nan|inf|infinity)\b", re.IGNORECASE)
LEAST_REPEATED = 3  # lines with other numbers in the same words, which a program prints
COMMAND_OPTIONS = 3  # a line with so many is a command; its options are not a description of the problem
# An exception at the start of a line; that of an aborted C++ program.
ERROR = re.compile(
    r"\s*(?:(?:[a-z_]\w{0,60}\.){0,8}[A-Z]\w{0,80}(?:Error|Exception|Warning|Interrupt)(?::|$)|what\(\):)"
)
# A line that begins as programs write it: a level, the place in a source file, a frame of C++, a border
# or a row of a table, a prompt; a line of numbers without a word.
MACHINE = re.compile(
    r"""\s*(?:
      (?:\S{1,80}[ ]){0,2}(?:INFO|WARNING|WARN|ERROR|DEBUG|CRITICAL|FATAL)\b[\s:|\]-]
    | \S{1,200}\.(?:py|cc|cpp|cu|cuh|h|c):\d{1,6}
    | frame[ ]\#\d | Exception[ ]raised[ ]from | Traceback[ ]\(most[ ]recent | During[ ]handling[ ]of
    | terminate[ ]called[ ]after[ ]throwing[ ]
    | [|+](?:[ =|+-]|$) | [\^~]{2,}\s*$ | \$[ ] | >>>[ ]
    | [*]{3,}[^*\n]{0,200}[*]{3,}\s*$ | [*]{5,}\s*$ | (?:warnings\.)?warn\( | NCCL[ ]version[ ]\S{1,40}\s*$
    | \[[WEIF][ ]\S{1,80}:\d{1,6}\]
    | usage:[ ]\S{1,200}[ ]\[ | NVRM:[ ]
    | (?=\D{0,40}\d)[\d\W_]{1,400}$
    )""",
    re.VERBOSE,
)


# A line with the time, or the name and number of its program, as system logs and servers write it.
RECORD = re.compile(
    r"""\s*(?:
      (?:\S{1,40}[ ]){0,3}?[\[(]?
      (?:\d{4}[-/]\d\d[-/]\d\d|\d\d/\d\d/\d\d|\d\d?[/ ][A-Z][a-z]{2}[/ ]\d{4}|[A-Z][a-z]{2}[ ]{1,2}\d{1,2})
      ,?[ T:]\d\d:\d\d:\d\d
    | [EWIF]\d{4}[ ]\d\d:\d\d:\d\d
    | \[[ ]{0,6}\d{1,9}\.\d{6}\]
    | \{"
    | [\w.@/-]{1,40}\[\d{1,10}\]:[ ]
    | [a-z][\w.-]{0,39}:[ ]\[[a-z]{1,12}\][ ]
    )""",
    re.VERBOSE,
)


# What a person has ruled out, to the end of the clause: "I checked that …", "it is not the network", "P2P is fine".
CLAUSE = r"(?:(?<=[.,;:!?(])|^)[ \t]*(?:(?:and|but|so|also|yet|that)\s+)?"
SUBJECT = r"(?:[\w'/+-]+(?:\.\w+)?\s+){1,6}?"
# With one of these a clause tells when it works, not what is in order.
CONDITION = r"(?:one|single|first|epochs?|steps?|training|runs?|with|without|until|when|if|on|it|all|everything)"
THING = rf"(?:(?!{CONDITION}\b)[\w'/+-]+(?:\.\w+)?\s+){{1,6}}?"
# Words after "not" that tell how, when or where something is, not what is ruled out.
STATE = (
    r"(?:same|equal|identical|correct|right|ready|stable|clear|sure|possible|enough|true|visible|empty|full|zero|always"
    r"|only|just|yet|even|here|there|so|as|very|on|in|at|by|for|from|to|with|without|after|before|during|until|when|if"
    r"|all|every|each|one|two|many|much|more|any)"
)
BLAMED = (
    r"(?:it|the\s+(?:problem|cause|issue|reason|culprit|bottleneck|hold-?up|trigger|blocker|suspect|explanation|limit"
    r"|limiting\s+factor|obstacle)|to\s+blame|involved|at\s+fault)"
)
RULED_OUT = re.compile(
    rf"""\b(?:I|we)(?:'ve|\s+have|\s+had)?(?:\s+(?:also|already|first|even))?\s+
        (?:checked|verified|confirmed|made\s+sure|ruled\s+out|excluded|suspected|assumed|thought|believed|blamed
        |suspect(?=[^,.;\n]{{1,80}},\s+but))\b[^.,;\n]{{0,160}}
    | (?:(?<=[,(;:.!?-]\s)|(?<=\sis\s)|(?<='s\s)|(?<=\swas\s)|^)
        not\s+(?:the\s+|a\s+|an\s+|about\s+|due\s+to\s+|because\s+of\s+|caused\s+by\s+)?
        (?!(?:\w+(?:ing|ed|able|en)|{STATE}|\d\w*)\b)[\w/+-]+(?:\s+(?:n?or\s+)?[\w/+-]+){{0,2}}(?=[ ]?[,.;:()\n]|$)
    | \brul(?:e|es|ed|ing)\s+out\s(?!of\b)[^.,;:\n]{{1,100}}
    | {CLAUSE}{THING}\(?(?:(?:is|are|was|were|can\s+be|has\s+been|have\s+been)\s+)?(?:already\s+)?
        (?:ruled\s+out|excluded)\b\)?
    | {CLAUSE}{SUBJECT}(?:(?:is|are|was|were)\s+not|(?:is|are|was|were)n't)\s+
        {BLAMED}(?=\s*(?:[.,;:)!?]|$))
    | {CLAUSE}{THING}(?:(?:is|are|was|were|looks?|seems?)\s+(?:all\s+|perfectly\s+|quite\s+)?
        (?:fine|okay|ok|healthy|enough|sufficient|plentiful|in\s+order|as\s+(?:it|they)\s+should\s+be|as\s+expected|set\s+correctly
        |correctly\s+set)|pass(?:es|ed)?)\b(?:\s*\([^)\n]{{0,80}}\))?(?=\s*(?:[.,;:)!?]|$|and\b|but\b))
    | \b(?:it\s+|this\s+|that\s+)?(?:has|had|have)\s+nothing\s+to\s+do\s+with\s[^.,;:\n]{{1,100}}
    | \bneither\s[^.,;\n]{{1,80}}\snor\s[^.,;\n]{{1,60}}\s(?:is|are|was|were)\s
        (?:involved|used|to\s+blame|the\s+(?:cause|problem))\b
    """,
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)
# What the person expected or was to happen, to the end of the clause: it is no observation.
CLAUSE_END = r"(?=\s*(?:[.;!?]|\n|$|,?\s+(?:but|yet|however|while|whereas|instead|although|though)\b))"
EXPECTED = re.compile(
    rf"""\b(?:I|we|one|you|they)(?:'d|\s+would|\s+had|\s+have)?(?:\s+have)?\s+(?:expect(?:ed|s)?|hoped?)\b
        [^.;!?\n]{{0,200}}?{CLAUSE_END}
    | \b(?:which|that|this|it|there|they)\s+(?:should|would\s+be\s+expected\s+to)\s+
        (?!not\b|have\s+been\s+fixed)[^.;!?\n]{{0,160}}?{CLAUSE_END}
    | ^\W{{0,12}}expected\s+(?:behaviou?r|results?|outputs?)\W{{0,6}}\n(?:\s{{0,4}}\n)?(?:[^\n]{{1,400}}\n?){{1,8}}
    """,
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)


def prose_of(text: str, knowledge: Knowledge, errors: bool = False) -> str:
    """Return the text with blank lines for all that no person writes; with ``errors``, exceptions of programs stay.

    Messages that are known to be consequences or harmless, notices of libraries, the directories of scripts, and what
    the person has ruled out are removed.
    """
    lines = FRAME.sub("\n", without_notices(text, knowledge.notices)).split("\n")
    style = PrefixStyle()
    style.learn(lines)
    repeated = _repeated(lines)
    kept = ["" if line in repeated else _prose_of_line(line, style, errors) for line in lines]
    return _without_messages("\n".join(_without_short_output(lines, kept)), knowledge)


def _repeated(lines: list[str]) -> set[str]:
    """Return lines of measured values that differ only in their numbers; none if a person shows them.

    Progress in whole numbers shows the work that is done, and a NaN is an observation.
    """
    words = {line: NUMBER.sub("0", line) for line in lines if MEASURED.search(line) and not NOT_FINITE.search(line)}
    counts = Counter(words.values())
    repeated = {line for line, of_line in words.items() if counts[of_line] >= LEAST_REPEATED}
    others = "\n".join("|" if line in repeated else line for line in lines)
    return set() if repeated and lines_of_person(others) else repeated


def without_expectations(text: str) -> str:
    """Remove what the person expected; the lines stay where they are."""
    return EXPECTED.sub(lambda found: " " + "\n" * found[0].count("\n"), text)


def _without_short_output(lines: list[str], kept: list[str]) -> list[str]:
    """Return the kept lines without those of a few words in a paragraph with lines of programs: output, as ``done``."""
    left: list[str] = []
    for is_blank, group in groupby(zip(lines, kept, strict=True), key=lambda pair: not pair[0].strip()):
        paragraph = list(group)
        has_output = not is_blank and any(not line for _, line in paragraph)
        left += ["" if has_output and 0 < count_words(line) < LEAST_AMONG_OUTPUT else line for _, line in paragraph]
    return left


def lines_of_person(text: str) -> set[int]:
    """Return the numbers (from 1) of the lines in paragraphs that a person has written: sentences, nothing else."""
    lines = FRAME.sub(lambda frame: "|\n" * frame[0].count("\n") + "|", text).split("\n")
    style = PrefixStyle()
    style.learn(lines)
    found: set[int] = set()
    paragraph: list[int] = []
    for number, line in enumerate([*lines, ""], 1):
        if line.strip():
            paragraph.append(number)
            continue
        described = [lines[each - 1] for each in paragraph]
        if (
            all(_prose_of_line(each, style, errors=False) for each in described)
            and max(map(count_words, described), default=0) >= LEAST_WORDS
        ):
            found.update(paragraph)
        paragraph = []
    return found


def count_words(line: str) -> int:
    """Return the number of words of letters in a line."""
    return sum(word.strip(".,;:!?()\"'").isalpha() for word in line.split())


def _prose_of_line(line: str, style: PrefixStyle, errors: bool) -> str:
    """Return what remains of a line: the line of a person, an exception without its prefix, or nothing."""
    bare = parse_prefix(line, style, UNKNOWN_WRITER).text
    if errors and ERROR.match(bare):
        return bare
    patterns = (TORCHRUN, ERROR, MACHINE, RECORD)
    is_of_a_program = len(bare) < len(line) or any(pattern.match(line) for pattern in patterns)
    return "" if is_of_a_program else line


def _without_messages(text: str, knowledge: Knowledge) -> str:
    for message in knowledge.messages.values():
        if message.literal in text:
            if message.kind == "benign":  # the whole line is the program's
                text = re.sub(rf"(?m)^[^\w\n]*{message.pattern}.*$", " ", text)
            text = re.sub(RAISED_AT + message.pattern, " ", text)
    return RULED_OUT.sub(" ", DIRECTORIES.sub("", text))


def without_options(text: str) -> str:
    """Remove the options and variables of shell commands (also continued with a backslash) and the arguments of calls.

    A command or a call with only a few of them names what the text is about.
    """
    text = ARGUMENTS.sub(lambda found: "()" if found[0].count("=") >= COMMAND_OPTIONS else found[0], text)
    lines = text.replace("\\\n", " ").split("\n")
    return "\n".join(OPTION.sub(" ", ln) if len(OPTION.findall(ln)) >= COMMAND_OPTIONS else ln for ln in lines)
