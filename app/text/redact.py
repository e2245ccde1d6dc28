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

from .secret_names import Rule, is_phrase, rule_for, same_subject
from .secret_shapes import KNOWN, looks_random
from .terminal import encodable_text

HIDDEN = "‹redacted›"
PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.DOTALL,
)
VALUE = re.compile(
    r"(?P<quote>\\{1,7}[\"'])(?:(?!(?P=quote)).){0,4096}(?:(?P=quote))?"  # in JSON that is in JSON
    r"|(?:[bBrRuUfF]{1,2}(?=[\"']))?(?:\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*')|[^\s,;&\"'<>)}\]\\]+"
)
NEXT_WORD = re.compile(r"[ \t]{1,3}[^\s=:,;&\"'<>(){}-][^\s=:,;&\"'<>(){}]*(?=[\s,;\"'<>]|\Z)")
# name=value, name: value, "name": "value", --name value; a flag takes the next word, another name does not.
ANNOTATED = r":\s{0,5}(?:str|bytes|Optional\[str\]|str \| None)\s{0,5}="
NAMED = re.compile(
    r"(?<![\w.-])(?P<flag>--?|(?:ENV|setenv) )?(?P<name>[\w.-]+)"
    r"(?P<between>(?:\\{0,7}[\"']\]?)?\s{0,20}(?:" + ANNOTATED + r"|:?=>?(?!=)|:)\s{0,20}"
    r"|[\"'],\s{0,5}(?=[\"'])|\s{1,20})"
)
HEADER = re.compile(r"(?i)\b((?:proxy-)?authorization[\"']?\s*[:=]\s*[\"']?(?:bearer|basic|token|digest)?)\s*[^\s\"']+")
BEARER = re.compile(r"(?i)\b(bearer\s+)(?!auth|token)[\w.~+/-]{8,}=*")
COOKIE = re.compile(r"(?i)\b((?:set-)?cookie\s*:\s*)[^\r\n\"']+")
URL_LOGIN = re.compile(r"(?i)(\b[a-z][a-z0-9+.-]{0,20}://)[^/\s@\"'?#]+@")
WEBHOOK = re.compile(r"(https?://(?:hooks\.slack\.com/services|discord(?:app)?\.com/api/webhooks)/)[^\s\"']+")
WORD = r"(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s\"']+)"
PASSWORD_FLAG = re.compile(
    r"(\b(?:(?:docker|podman|nerdctl|helm|oc|az|skopeo|buildah|oras|singularity|apptainer)"
    r"[ ]{1,5}(?:registry[ ]{1,5})?login\b[^\n|;&]{0,200}?\s-p|sshpass[ ]{1,5}-p)[ =]?)" + WORD
)
JOINED_FLAG = re.compile(r"(\b(?:mysql|mysqldump|mysqladmin|mariadb|mariadb-dump)\s[^\n|;&]{0,200}?(?<=\s)-p)" + WORD)
REDIS_LOGIN = re.compile(r"(\bredis-cli\s[^\n|;&]{0,200}?(?<=\s)-a )" + WORD)
NETRC = re.compile(
    r"(\b(?:machine\s{1,20}[^\s]{1,255}|default)\s{1,20}login\s{1,20}[^\s]{1,255}\s{1,20}password\s{1,20})\S+"
)
LOGIN_PAIR = re.compile(r"(\bauth\s?=\s?(?:[\w.]{1,60})?\(\s?[\"'][^\"'\n]{0,200}[\"'],\s?)(?:\"[^\"\n]*\"|'[^'\n]*')")
ELEMENT = re.compile(r"(?i)(<[\w:.-]{0,40}(?:password|passwd|secret|token|api_?key)>)[^<\n]{1,500}")
# An entry of a list of variables, as Kubernetes writes it.
ENTRY = re.compile(
    r"(?P<head>\bname[\"']?:\s{1,20}[\"']?(?P<name>[\w.-]{1,80})[\"']?,?\s{1,80}[\"']?value[\"']?:\s{1,20})"
    r"(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s,}\"']+)"
)
CURL_LOGIN = re.compile(r"((?<![\w-])(?:-u|--user|--proxy-user)[ =])([^\s:]+):\S+")
# The flag that gives a password to a program, for some only after a word, and programs in which it is one word with it.
PASSWORD_PROGRAMS = {
    "docker": ("-p", "login"),
    "podman": ("-p", "login"),
    "helm": ("-p", "login"),
    "redis-cli": ("-a", ""),
    "sshpass": ("-p", ""),
}
JOINED_PROGRAMS = ("mysql", "mysqldump", "mysqladmin", "mariadb", "sshpass")
PLACES = (
    (PRIVATE_KEY, HIDDEN),
    (URL_LOGIN, rf"\1{HIDDEN}@"),
    (WEBHOOK, rf"\1{HIDDEN}"),
    (CURL_LOGIN, rf"\1{HIDDEN}"),
    (PASSWORD_FLAG, rf"\1{HIDDEN}"),
    (JOINED_FLAG, rf"\1{HIDDEN}"),
    (REDIS_LOGIN, rf"\1{HIDDEN}"),
    (NETRC, rf"\1{HIDDEN}"),
    (LOGIN_PAIR, rf"\1{HIDDEN}"),
    (ELEMENT, rf"\1{HIDDEN}"),
    (HEADER, rf"\1 {HIDDEN}"),
    (BEARER, rf"\1{HIDDEN}"),
    (COOKIE, rf"\1{HIDDEN}"),
)
# An expression of a program, not a value: tokenizer(x), batch["tokens"], args.token.
CODE = re.compile(r"[\[{(]|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*[(\[]|[a-z_]{1,20}(?:\.[a-z_]{1,20})+\Z")
LINE = re.compile(r"[^\n]*\n|[^\n]+")
NUMBER = re.compile(r"[0-9_]{1,9}(?:\.[0-9]+)?\Z")
PLAIN_WORD = re.compile(r"[A-Za-z_]{1,15}\Z")
ENVIRONMENT_NAME = re.compile(r"[A-Z][A-Z0-9_]*\Z")
SMALL_NUMBER = re.compile(r"[0-9]{1,5}(?:\.[0-9]+)?\Z")
# Values that stand for another value or for none, and special tokens of a vocabulary.
PLACEHOLDER = re.compile(
    r"(?i)(?:true|false|none|null|yes|no|str|int|bytes|bool|string|optional|any)[`.]{0,2}\Z|[A-Za-z_][\w.]*\(\Z|\$\{?[A-Z_]\w*\}?\Z|[<\[{].*[>\]}]\Z|\*+\Z"
    r"|(?:os|args|self|cfg|config|opts?|settings|getpass)\.[a-z_]"
)
PATH = re.compile(
    r"(?:~|\.{1,2})?/[\w.-]+(?:/[\w.-]+)+/?\Z|(?:~|\.{1,2})?/?[\w/-]+\.(?:json|pem|key|txt|ya?ml|env|cfg)\Z"
)
LONGEST_NAME = 80
JUDGED_LETTERS = 500  # of a value


def is_secret_name(name: str) -> bool:
    """Return whether a variable, key or flag of this name holds a secret, whatever its value."""
    return rule_for(name[-LONGEST_NAME:]) not in (Rule.NONE, Rule.IF_RANDOM)


def is_secret(name: str, value: str) -> bool:
    """Return whether this value of a variable, key or flag of this name is a secret."""
    rule, bare = rule_for(name[-LONGEST_NAME:]), value.strip("\\\"' \t")
    if rule is Rule.NONE or not bare or bare.startswith(HIDDEN) or PLACEHOLDER.match(bare):
        return False
    if value[0] not in "\\\"'" and value.replace("_", "").isalpha() and same_subject(name, value):
        return False
    if PATH.match(bare) and not looks_random(bare):
        return False
    match rule:
        case Rule.IF_RANDOM:
            return looks_random(bare)
        case Rule.UNLESS_NUMBER:
            return not (NUMBER.match(bare) or CODE.match(value))
        case Rule.UNLESS_WORD:
            return not (SMALL_NUMBER.match(bare) or PLAIN_WORD.match(bare) or CODE.match(value))
        case Rule.UNLESS_SMALL:
            return not (SMALL_NUMBER.match(bare) or CODE.match(value))
        case _:
            return True


@lru_cache(maxsize=1024)  # what supports one cause supports many others too
def redact_text(value: str) -> str:
    """Return ``value`` without keys, assigned secrets, headers and logins in URLs."""
    for place, hidden in PLACES:
        if place.search(value):  # cheaper than ``sub``, and most texts have nothing to hide
            value = place.sub(hidden, value)
    value = _assigned(ENTRY.sub(_entry, value))
    return KNOWN.sub(HIDDEN, value)


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
            literal = _literal(token.string, hide=is_secret(name, token.string))
            changes.append((token, literal))
            name = token.string.strip("\"'")
    for token, new in reversed([change for change in changes if change[0].string != change[1]]):
        (row, start), (end_row, end) = token.start, token.end
        gap = "\n" * (end_row - row)  # a string of several lines keeps their number
        head, tail = lines[row - 1][:start], lines[end_row - 1][end:]
        put = f"({new}{gap})" if gap else new
        lines[row - 1 : end_row] = LINE.findall(head + put + tail)
    return KNOWN.sub(HIDDEN, "".join(lines))


def redact_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables, those with a secret name hidden and the others cleaned."""
    return {name: HIDDEN if is_secret(name, value) else redact_text(value) for name, value in variables.items()}


def redact_command(words: Sequence[str]) -> list[str]:
    """Return the words, with the one after a flag with a secret name hidden too."""
    cleaned = [redact_text(word) for word in words]
    program = ""
    for index, word in enumerate(words):
        flag = words[index - 1] if index else ""
        if flag.startswith("-") and "=" not in flag and not word.startswith("--") and is_secret(flag, word):
            cleaned[index] = HIDDEN
        if flag in ("-u", "--user", "--proxy-user") and ":" in word:
            cleaned[index] = HIDDEN
        password_flag, after = PASSWORD_PROGRAMS.get(program, ("", ""))
        if flag and flag == password_flag and (not after or after in words[:index]):
            cleaned[index] = HIDDEN
        elif program in JOINED_PROGRAMS and word.startswith("-p") and word != "-p":
            cleaned[index] = f"-p{HIDDEN}"
        if (name := word.rpartition("/")[2]) in PASSWORD_PROGRAMS or name in JOINED_PROGRAMS:
            program = name
    return cleaned


def redact_record(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object cleaned as by ``redact_data``."""
    clean = redact_data(row)
    assert isinstance(clean, dict)
    return clean


def redact_data(value: object) -> object:
    """Return a JSON value cleaned at all levels; no text is left under a key with a secret name."""
    if isinstance(value, str):
        return redact_text(encodable_text(value))
    if isinstance(value, Mapping):
        clean = {
            encodable_text(key) if isinstance(key, str) else key: _redact_item(str(key), item)
            for key, item in value.items()
        }
        name, entry = value.get("name"), value.get("value")
        if isinstance(name, str) and isinstance(entry, str) and is_secret(name, entry):
            clean["value"] = HIDDEN  # an entry of a list of variables
        return clean
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(item, str) for item in value):
            return redact_command([encodable_text(item) for item in value])
        return [redact_data(item) for item in value]
    return value


def _literal(literal: str, *, hide: bool) -> str:
    """Return a string literal without its secrets, unchanged if it has none."""
    if not hide and redact_text(literal) == literal:
        return literal
    quote = "'" if "'" in literal[:3] else '"'
    return f"{quote}{HIDDEN}{quote}"


def _redact_item(name: str, value: object) -> object:
    if isinstance(value, str):
        return HIDDEN if is_secret(name, value) else redact_text(encodable_text(value))
    return _hide(value) if is_secret_name(name) else redact_data(value)


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
    at, run_end = 0, 0
    for match in NAMED.finditer(value):
        if match.start() < at or rule_for(match["name"][-LONGEST_NAME:]) is Rule.NONE:
            continue
        begin = match.end()
        if begin >= run_end:  # else the value ends where that of the name before it does
            found = VALUE.match(value, begin)
            run_end = found.end() if found else begin
        given = value[begin : min(run_end, begin + JUDGED_LETTERS)]
        if given and _takes_value(match, given) and is_secret(match["name"], given):
            parts += [value[at:begin], HIDDEN]
            at = run_end
            if is_phrase(match["name"]) and given[0] not in "\\\"'" and any(map(str.isspace, match["between"])):
                at = _end_of_phrase(value, at)
    return "".join([*parts, value[at:]])


def _entry(match: re.Match[str]) -> str:
    return match["head"] + (HIDDEN if is_secret(match["name"], match["value"]) else match["value"])


def _takes_value(named: re.Match[str], given: str) -> bool:
    """Return whether what follows is the value of the name: always after a separator and a flag."""
    if "," in named["between"]:  # of a list or of arguments: ("HF_TOKEN", "…")
        listed = named["flag"] or ENVIRONMENT_NAME.match(named["name"])
        return bool(listed) and not ENVIRONMENT_NAME.match(given.strip("\"'")) and not given.startswith(('"-', "'-"))
    if named["between"].strip() or named["flag"]:
        return bool(named["between"].strip()) or not given.startswith("-")
    return is_secret_name(named["name"]) and looks_random(given) and any(map(str.isdigit, given))


def _end_of_phrase(value: str, at: int) -> int:
    while word := NEXT_WORD.match(value, at):
        at = word.end()
    return at
