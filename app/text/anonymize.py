"""Rename hosts, addresses, user names and paths, each with the same alias everywhere.

Names are learned from all data first (fields that hold them, variables, ``user@host``, log prefixes), then every text
is rewritten. Public names stay: system folders, everything below ``site-packages``, loopback.
"""

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping

HOST_FIELDS = {"host", "hostname", "nodes", "hosts", "master_addr"}
USER_FIELDS = {"user", "username"}
HOST_VARIABLES = re.compile(
    r"^(HOSTNAME|HOST|MASTER_ADDR|PET_MASTER_ADDR|PET_RDZV_ENDPOINT|SLURM\w*(NODELIST|NODENAME|HOST))$"
)
USER_VARIABLES = re.compile(r"^(USER|LOGNAME|USERNAME|SUDO_USER|SLURM_JOB_USER)$")
NAME = r"[A-Za-z0-9](?:[A-Za-z0-9_-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9-]+)*"
HOST_IN_TEXT = re.compile(
    rf"(?:--(?:master[-_]addr|rdzv[-_]endpoint)[= ]|MASTER_ADDR=|HOSTNAME=|connect(?:ing|ed)? to (?=[^ ]+:\d))({NAME})"
    rf"|^({NAME}):\d+:\d+ \[\d+\] NCCL|\[({NAME})\]:\d",
    re.MULTILINE,
)
URL = re.compile(r"\b([a-z][a-z0-9+]{1,10})://(?:[^\s/@\"'<>]*@)?([^\s/:\"'<>]+)([^\s/\"'<>]*)([^\s\"'<>]*)")
PUBLIC_SITES = re.compile(
    r"(?:^|\.)(?:pytorch\.org|github\.com|nvidia\.com|huggingface\.co|python\.org|readthedocs\.io|deepspeed\.ai|"
    r"lightning\.ai|wandb\.ai)$"
)
LOGIN = re.compile(rf"(?<![\w.@/-])([A-Za-z_][\w.-]*)@({NAME})")
HOME = re.compile(r"/(?:home|Users)/([\w.-]+)")
USER_IN_TEXT = re.compile(r"\b(?:USER|LOGNAME)=([\w.-]+)")
FULL_NAME = re.compile(
    r"(?<![\w.@/-])[A-Za-z0-9][\w-]*(?:\.[A-Za-z0-9-]+)*\.(?:internal|local|lan|corp|intra|cluster)\b"
)
ADDRESS = re.compile(
    r"(?:(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}|(?<![\w.:])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7})(?!\w)"
)
MAC = re.compile(r"(?<![\w:])[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5}(?![\w:])")
UUID = re.compile(r"(?:(?:GPU|MIG)-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
PATH = re.compile(r"(?<![\w/.])(?:~|\.{1,2})?/(?=[\w.@+-])(?:[\w.+@%=~-]+/)*[\w.+@%=~-]*[\w+@%=~-]")
EXTENSIONS = (
    "py|pyi|ipynb|log|txt|out|err|json|jsonl|ya?ml|toml|ini|cfg|sh|bash|sbatch|slurm|pt|pth|ckpt|safetensors|env|csv"
)
HOST_LIST = re.compile(r"\b([A-Za-z][\w-]*)\[([\d,-]+)\]")
FILE = re.compile(rf"(?<![\w./-])(?:[\w+@%=~-]+/)*[\w+@%=~][\w.+@%=~-]*\.(?:{EXTENSIONS})(?![\w/])")
# Top folders of the system, below which names reveal nothing about a person.
SYSTEM = {"dev", "proc", "sys", "etc", "usr", "bin", "sbin", "lib", "lib64", "run", "boot"}
PLAIN_FOLDERS = (
    SYSTEM
    | {"a", "b", "home", "Users", "root", "tmp", "var", "opt", "mnt", "srv", "log", "local", "share", "include"}
    | {"", "~", ".", ".."}
)
PLAIN_FOLDERS |= {"conda", "miniconda3", "anaconda3", "envs", "venv", ".venv"}
LIBRARIES = {"torch", "numpy", "accelerate", "deepspeed", "transformers", "lightning", "pytorch_lightning"}
# Fields with the wizard's own words, never the name of a person.
OWN_WORDS = {"id", "kind", "cause", "question", "answer", "source", "state", "status", "action", "schema", "probed"}
OWN_WORDS |= {"since_from"}
MOST_NODES = 4096
PIECE_LETTERS = 2000
PIECE = re.compile(
    rf".{{1,{PIECE_LETTERS}}}(?=\s|\Z)|.{{1,{PIECE_LETTERS}}}(?=[,;\"'<>/])|.{{{PIECE_LETTERS}}}", re.DOTALL
)
NO_NAMES = {"root", "nobody", "localhost", "none", "host", "user", "python", "torchrun", "rank", "default", "node"}


class Anonymizer:
    """The names found so far and their aliases."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], str] = {}
        self._words: re.Pattern[str] | None = None

    def learn(self, value: object) -> None:
        """Learn the hosts and users that ``value`` (JSON data) names."""
        for kind, name in sorted(set(_names(value, ""))):
            short = name.partition(".")[0]
            if len(short) > 1 and short.lower() not in NO_NAMES and not short.isdigit() and not _address(name):
                self._alias(kind, short)
        self._words = None

    def data(self, value: object) -> object:
        """Return the JSON data with every text rewritten, keys included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                self.text(str(key)): item if key in OWN_WORDS and isinstance(item, str) else self.data(item)
                for key, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.data(item) for item in value]
        return value

    def text(self, value: str) -> str:
        """Return ``value`` with hosts, addresses, users and paths renamed; links to public sites stay."""
        return "".join(map(self._text, _pieces(value)))

    def _text(self, value: str) -> str:
        parts: list[str] = []
        at = 0
        for url in URL.finditer(value):
            parts.append(self._prose(value[at : url.start()]))
            parts.append(url[0] if PUBLIC_SITES.search(url[2]) else self._url(url))
            at = url.end()
        return "".join([*parts, self._prose(value[at:])])

    def _url(self, url: re.Match[str]) -> str:
        path = "/".join(self._component(part) for part in url[4].split("?")[0].split("/"))
        return f"{url[1]}://{self._prose(url[2])}{url[3]}{path}"

    def _prose(self, value: str) -> str:
        value = UUID.sub(lambda m: self._alias("id", m[0]), value)
        value = HOST_LIST.sub(self._host_list, value)
        value = MAC.sub(lambda m: self._alias("mac", m[0].lower()), value)
        value = ADDRESS.sub(self._address, value)
        value = FULL_NAME.sub(lambda m: self._alias("host", m[0].partition(".")[0]), value)
        value = PATH.sub(lambda m: self._path(m[0]), value)
        value = FILE.sub(lambda m: self._path(m[0]), value)
        return self._known_words().sub(self._word, value)

    def _alias(self, kind: str, name: str) -> str:
        if (kind, name) not in self._of:
            number = sum(known == kind for known, _ in self._of) + 1
            self._of[kind, name] = f"{kind}-{number}"
        return self._of[kind, name]

    def _known_words(self) -> re.Pattern[str]:
        if self._words is None:
            names = sorted((n for k, n in self._of if k in ("host", "user")), key=len, reverse=True)
            either = "|".join(map(re.escape, names)) or r"(?!)"
            self._words = re.compile(rf"(?<![A-Za-z0-9-])({either})(?![A-Za-z0-9-])((?:\.[a-z][a-z0-9-]*)*)")
        return self._words

    def _word(self, match: re.Match[str]) -> str:
        name = match[1]
        return self._of.get(("host", name)) or self._of["user", name] + match[2]

    def _host_list(self, match: re.Match[str]) -> str:
        names = list(_expand_host_range(match))
        if not any(("host", name) in self._of for name in names):
            return match[0]
        return ",".join(self._alias("host", name) for name in names)

    def _address(self, match: re.Match[str]) -> str:
        address = _address(match[0])
        if address is None or address.is_loopback or address.is_unspecified:
            return match[0]
        return self._alias("address", str(address))

    def _path(self, path: str) -> str:
        parts = path.split("/")
        if (path.startswith("/") and parts[1] in SYSTEM) or parts[0] in LIBRARIES:
            return path
        renamed: list[str] = []
        for index, part in enumerate(parts):
            if part in ("site-packages", "dist-packages"):
                return "/".join([*renamed, *parts[index:]])
            renamed.append(self._component(part))
        return "/".join(renamed)

    def _component(self, part: str) -> str:
        stem, dot, extension = part.rpartition(".")
        if part in PLAIN_FOLDERS or re.fullmatch(r"python[\d.]*|(host|user|dir|file|address)-\d+(\.\w+)?", part):
            return part
        for kind in ("user", "host"):
            if (kind, part) in self._of:
                return self._of[kind, part]
        if dot and stem and re.fullmatch(EXTENSIONS, extension):
            return f"{self._alias('file', part)}.{extension}"
        return self._alias("dir", part)


def _pieces(value: str) -> Iterable[str]:
    """Return ``value`` in pieces: the time for a hostile text grows with the square of its length. None holds a part of
    a name, as long as names are shorter than a piece."""
    return [value] if len(value) <= PIECE_LETTERS else (piece[0] for piece in PIECE.finditer(value))


def _names(value: object, field: str) -> Iterator[tuple[str, str]]:
    """Yield (kind, name) of every host and user that the data names."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _names(item, str(key))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _names(item, field)
    elif isinstance(value, str):
        if field in HOST_FIELDS or HOST_VARIABLES.match(field):
            yield from (("host", name) for name in _hosts(value))
        elif field in USER_FIELDS or USER_VARIABLES.match(field):
            yield "user", value
        for piece in _pieces(value):
            yield from _names_in_text(piece)


def _hosts(value: str) -> Iterator[str]:
    """Yield the names in a field of hosts; Slurm's ``node[01-04,7]`` is expanded."""
    for listed in HOST_LIST.finditer(value):
        yield from _expand_host_range(listed)
    yield from re.findall(NAME, HOST_LIST.sub("", value))


def _expand_host_range(listed: re.Match[str]) -> Iterator[str]:
    for part in listed[2].split(","):
        low, _, high = part.partition("-")
        if low.isdigit() and (high or low).isdigit():
            for number in range(int(low), min(int(high or low), int(low) + MOST_NODES) + 1):
                yield f"{listed[1]}{number:0{len(low)}d}"


def _names_in_text(value: str) -> Iterator[tuple[str, str]]:
    for match in HOST_IN_TEXT.finditer(value):
        yield from (("host", name) for name in match.groups() if name)
    for match in URL.finditer(value):
        if not PUBLIC_SITES.search(match[2]):
            yield "host", match[2]
    for user, host in LOGIN.findall(value):
        yield "user", user
        yield "host", host
    yield from (("user", name) for name in HOME.findall(value) + USER_IN_TEXT.findall(value))


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
