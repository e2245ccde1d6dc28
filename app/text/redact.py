"""Keep secrets out of everything that is saved or shown.

A value is a secret by the name it is given (``HF_TOKEN=…``, ``--api-key …``, ``"password": …``), by its place (a login
in a URL, an ``Authorization`` header) or by its own shape (the keys of well-known services).
"""

import io
import re
import tokenize
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

HIDDEN = "‹redacted›"
# Parts of names that mean a secret, and technical names that contain such a part and mean none.
NAME_PART = (
    r"(?:secret|token|passw(?:or)?d|passphrase|credential|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|session[_-]?key|account[_-]?key|amz-signature|cookie|webhook)"
)
SECRET_NAME = re.compile(rf"(?i){NAME_PART}|(?:^|_)(?:auth|pass|pwd|sig)(?:$|_)|^authorization$")
HARMLESS_NAME = re.compile(
    r"(?i)tokeniz|tokenis|(?:max|min|num|n|total|new|context|pad|eos|bos|unk|special|per)[_-]?tokens?(?:$|[_-])"
    r"|tokens?[_-]?(?:per|id|ids|count|len|length|type|idx)|auth_sock|^pwd$|^oldpwd$|(?:forward|backward)_pass"
)
# Shapes of well-known keys, which are secret anywhere.
SECRET_VALUE = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|sk-[A-Za-z0-9_-]{20,}|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{30,}"
    r"|A(?:KIA|SIA)[0-9A-Z]{16}|AIza[\w-]{30,}|nvapi-[\w-]{30,}|dapi[0-9a-f]{32}|xox[abeprs]-[A-Za-z0-9-]{10,}"
    r"|eyJ[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]*)?|[0-9a-f]{40}(?![0-9A-Za-z]))"
)
PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
VALUE = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|[^\s,;&\"'<>)}\]]+")
# name=value, name: value, "name": "value", --name value; a flag takes the next word, another name does not.
NAMED = re.compile(r"(?<![\w.-])(?P<flag>--?)?(?P<name>[\w.-]+)(?P<between>[\"']?\s{0,20}[=:]\s{0,20}|\s{1,20})")
HEADER = re.compile(r"(?i)\b((?:proxy-)?authorization[\"']?\s*[:=]\s*[\"']?(?:bearer|basic|token|digest)?)\s*[^\s\"']+")
BEARER = re.compile(r"(?i)\b(bearer\s+)[\w.~+/-]{8,}=*")
COOKIE = re.compile(r"(?i)\b((?:set-)?cookie\s*:\s*)[^\r\n\"']+")
URL_LOGIN = re.compile(r"(?i)(\b[a-z][a-z0-9+.-]{0,20}://)[^/\s@\"'?#]+@")
WEBHOOK = re.compile(r"(https?://(?:hooks\.slack\.com/services|discord(?:app)?\.com/api/webhooks)/)[^\s\"']+")
CURL_LOGIN = re.compile(r"((?<![\w-])(?:-u|--user|--proxy-user)[ =])([^\s:]+):\S+")
PLACES = (
    (PRIVATE_KEY, HIDDEN),
    (URL_LOGIN, rf"\1{HIDDEN}@"),
    (WEBHOOK, rf"\1{HIDDEN}"),
    (CURL_LOGIN, rf"\1{HIDDEN}"),
    (HEADER, rf"\1 {HIDDEN}"),
    (BEARER, rf"\1{HIDDEN}"),
    (COOKIE, rf"\1{HIDDEN}"),
)
# An expression of a program, not a value: tokenizer(x), batch["tokens"], args.token.
CODE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*[(\[]|[a-z_]{1,20}(?:\.[a-z_]{1,20})+\Z")
LINE = re.compile(r"[^\n]*\n|[^\n]+")
COUNT = re.compile(r"(?i)(?:[0-9_]{1,9}(?:\.[0-9]+)?|true|false|none|null|yes|no)\Z")


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Return whether a variable, key or flag of this name holds a secret."""
    bare = name.lstrip("-")
    return bool(SECRET_NAME.search(bare)) and not HARMLESS_NAME.search(bare)


@lru_cache(maxsize=1024)  # what speaks for one cause speaks for many others too
def redact_text(value: str) -> str:
    """Return ``value`` without keys, assigned secrets, headers and logins in URLs."""
    for place, hidden in PLACES:
        if place.search(value):  # cheaper than ``sub``, and most texts have nothing to hide
            value = place.sub(hidden, value)
    value = _assigned(value)
    return SECRET_VALUE.sub(HIDDEN, value)


def redact_source(code: str) -> str:
    """Return Python source with cleaned string literals and comments; it keeps its lines and parses."""
    lines = LINE.findall(code)
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(code).readline))
    except (tokenize.TokenError, SyntaxError):
        return "".join(redact_text(line) for line in lines)
    name = ""
    changes: list[tuple[tokenize.TokenInfo, str]] = []
    for token in tokens:
        if token.type == tokenize.NAME:
            name = token.string
        elif token.type in (tokenize.NEWLINE, tokenize.NL):
            name = ""
        elif token.type == tokenize.COMMENT:
            changes.append((token, redact_text(token.string)))
        elif token.type == tokenize.STRING:
            literal = _literal(token.string, hide=is_secret_name(name))
            changes.append((token, literal))
            name = token.string.strip("\"'")
    for token, new in reversed([change for change in changes if change[0].string != change[1]]):
        (row, start), (end_row, end) = token.start, token.end
        gap = "\n" * (end_row - row)  # a string of several lines keeps their number
        head, tail = lines[row - 1][:start], lines[end_row - 1][end:]
        put = f"({new}{gap})" if gap else new
        lines[row - 1 : end_row] = LINE.findall(head + put + tail)
    return SECRET_VALUE.sub(HIDDEN, "".join(lines))


def redact_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables, those with a secret name hidden and the others cleaned."""
    return {name: HIDDEN if is_secret_name(name) else redact_text(value) for name, value in variables.items()}


def redact_command(words: Sequence[str]) -> list[str]:
    """Return the words, with the one after a flag with a secret name hidden too."""
    cleaned = [redact_text(word) for word in words]
    for index in range(1, len(words)):
        flag, word = words[index - 1], words[index]
        if flag.startswith("-") and "=" not in flag and is_secret_name(flag) and not word.startswith("--"):
            cleaned[index] = HIDDEN
        if flag in ("-u", "--user", "--proxy-user") and ":" in word:
            cleaned[index] = HIDDEN
    return cleaned


def redact_record(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object cleaned as by ``redact_data``."""
    clean = redact_data(row)
    assert isinstance(clean, dict)
    return clean


def redact_data(value: object) -> object:
    """Return a JSON value cleaned at all levels; no text is left under a key with a secret name."""
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Mapping):
        return {key: _hide(item) if is_secret_name(str(key)) else redact_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(item, str) for item in value):
            return redact_command(value)
        return [redact_data(item) for item in value]
    return value


def _literal(literal: str, *, hide: bool) -> str:
    """Return a string literal without its secrets, unchanged if it has none."""
    if not hide and redact_text(literal) == literal:
        return literal
    quote = "'" if "'" in literal[:3] else '"'
    return f"{quote}{HIDDEN}{quote}"


def _hide(value: object) -> object:
    if isinstance(value, str):
        return HIDDEN if value else value
    if isinstance(value, Mapping):
        return {key: _hide(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_hide(item) for item in value]
    return value


def _assigned(value: str) -> str:
    """Hide the values of names that mean a secret."""
    parts: list[str] = []
    at = 0
    for match in NAMED.finditer(value):
        if match.start() < at or not is_secret_name(match["name"]):
            continue
        given = VALUE.match(value, match.end())
        if given and _is_secret(match, given[0]):
            parts += [value[at : given.start()], HIDDEN]
            at = given.end()
    return "".join([*parts, value[at:]])


def _is_secret(named: re.Match[str], given: str) -> bool:
    if given.startswith(HIDDEN):
        return False
    if not named["between"].strip() and (not named["flag"] or given.startswith("-")):
        return False
    if re.search(r"(?i)pass|pwd|secret|key", named["name"]):
        return True
    return not (COUNT.match(given) or CODE.match(given))
