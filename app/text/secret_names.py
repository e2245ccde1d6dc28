"""Names of variables, keys and flags whose values are secrets, by their words."""

import re
from enum import Enum
from functools import lru_cache

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRET = re.compile(
    r"(?i)secret|passw(?:or)?d|passphrase|mnemonic|credential|cookie|webhook|(?:api|access|private|auth|pass)keys?(?:$|[_.-])"
    r"|(?:^|[_.-])jwt$"
)


def _set_of(words: str) -> frozenset[str]:
    return frozenset(words.split())


_LAST_WORDS = _set_of("auth pass pwd authorization")
# Words before "key" that name a credential, in lower case too.
_KEY_OWNERS = _set_of(
    "api access private secret session account encryption decryption signing auth master service client deploy admin"
    " hmac aes fernet consumer app storage license wandb comet kaggle neptune openai anthropic azure"
)
_HARMLESS_KEYS = _set_of(
    "sort primary foreign public cache partition group dict state hash row column index lookup shard sharding routing"
    " padding unique natural composite candidate search query map metric monitor hot"
)
# Words around "token" that make it a piece of text.
_TEXT_BEFORE = _set_of(
    "max min num n nb total new context pad eos bos unk sep cls mask special per image video audio vision text input"
    " output next prev previous first last start end stop target prompt response label ignore generated predicted"
    " current draft valid vocab sub byte avg mean unexpected"
)
_TEXT_AFTER = _set_of(
    "per id ids count counts len length type types idx index indices embedding embeddings embed budget limit size ratio"
    " level dim mask position positions loss accuracy weights dropout classification parallel mixing shift dispatcher"
    " throughput rate sec"
)
_PLACES = _set_of("file path dir directory url uri endpoint name host expiry expires ttl algorithm provider")
_EXEMPT = re.compile(
    r"(?i)auth_sock$|^(?:old)?pwd$|(?:forward|backward|first|second|num|n|to|exec|single|multi)_?pass(?:es)?$|^pass_through"
)

_PHRASE = re.compile(r"(?i)passphrase|mnemonic|passw(?:or)?d")


class Rule(Enum):
    """The values of a name that are secret."""

    NONE = "none"
    IF_RANDOM = "if it looks random"
    UNLESS_NUMBER = "unless it is a number or an expression"
    UNLESS_WORD = "unless it is a number of few digits, a short plain word or an expression"
    UNLESS_SMALL = "unless it is a number of few digits or an expression"
    ALL = "all"


@lru_cache(maxsize=4096)
def rule_for(name: str) -> Rule:
    """Return which values are secret under this name."""
    bare = name.strip("-_\"'\\")
    words = [word.lower() for word in _WORD.findall(bare)]
    if not words or _EXEMPT.search(bare):
        return Rule.NONE
    if words[-1] in _PLACES and "webhook" not in words:
        return Rule.NONE
    if _SECRET.search(bare) or ("signature" in words and {"amz", "goog", "access"} & {*words}):
        return Rule.ALL
    return max((_rule_for_key(bare, words), _rule_for_token(bare, words)), key=list(Rule).index)


def same_subject(name: str, value: str) -> bool:
    """Return whether a value is the name of a variable for the same: ``token=hub_token``."""
    words, of_value = _WORD.findall(name), _WORD.findall(value)
    return bool(words and of_value) and words[-1].lower() == of_value[-1].lower()


def is_phrase(name: str) -> bool:
    """Return whether the value of this name may be several words."""
    return bool(_PHRASE.search(name))


def _rule_for_key(bare: str, words: list[str]) -> Rule:
    pairs = list(zip(["", *words], words, strict=False))
    if any(word in ("key", "keys") and before in _KEY_OWNERS for before, word in pairs):
        return Rule.ALL
    before, last = pairs[-1]
    if last in ("key", "pat"):
        if before in _HARMLESS_KEYS:
            return Rule.NONE
        return Rule.UNLESS_WORD if bare.isupper() and before else Rule.IF_RANDOM
    return Rule.IF_RANDOM if last.endswith("key") else Rule.NONE


def _rule_for_token(bare: str, words: list[str]) -> Rule:
    if bare == "pass":
        return Rule.UNLESS_WORD
    if words[-1] in _LAST_WORDS or bare == "sig":
        return Rule.UNLESS_NUMBER
    for before, word, after in zip(["", *words], words, [*words[1:], ""], strict=False):
        start = word.removesuffix("s").removesuffix("token")
        if start != word.removesuffix("s") and not {before, start} & _TEXT_BEFORE and after not in _TEXT_AFTER:
            if bare.isupper():
                return Rule.UNLESS_NUMBER if word.endswith("s") or after else Rule.ALL
            return Rule.IF_RANDOM if word.endswith("s") or after else Rule.UNLESS_SMALL
    return Rule.NONE
