"""Read the YAML files into ``Knowledge``, or report the file and line of an error.

Two checks: the shape of each file (msgspec against ``schema``), then the links between files (every id in
use must be declared). The fast path ignores line numbers; a file is composed a second time only to find the line of an
error.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar, get_origin

import msgspec
import yaml

from .schema import BUILT_IN, UNFINISHED, Cause, Knowledge, Message, Probe, Question, Rule
from .stemming import clue_stems

CAUSE_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
# Files next to the causes; a team's knowledge directory may contain any of them too.
SHARED_FILES: dict[str, Any] = {
    "questions.yaml": dict[str, Question],
    "findings.yaml": dict[str, Probe],
    "messages.yaml": dict[str, Message],
    "rules.yaml": dict[str, Rule],
    "in_scope_words.yaml": list[str],
    "synonyms.yaml": list[list[str]],
    "topics.yaml": dict[str, str],
    "multi_rank_words.yaml": list[str],
    "glossary.yaml": dict[str, str],
}
FORMER_NAMES = {"scope.yaml": "in_scope_words.yaml", "several.yaml": "multi_rank_words.yaml"}  # of a team's files
T = TypeVar("T")
Key = str | int


class KnowledgeError(Exception):
    """An invalid entry: ``path:line: problem``."""

    def __init__(self, path: Path, line: int, problem: str) -> None:
        super().__init__(f"{path}:{line}: {problem}")
        self.path, self.line, self.problem = path, line, problem


class _Loader(yaml.CSafeLoader):
    """Safe YAML loader that rejects keys that are not strings (bare yes/no/on/1.10) and duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.MarkedYAMLError(None, None, f"key {key!r} is not a string: quote it", key_node.start_mark)
            if key in seen:
                raise yaml.MarkedYAMLError(None, None, f"key {key!r} is duplicated", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def read_knowledge(*extra: Path, thorough: bool = False) -> Knowledge:
    """Read the built-in knowledge and the entries of further directories, which override it.

    Patterns of the built-in entries are compiled only if ``thorough`` (in tests and ``kb check``): compiling them all
    takes longer than reading them.

    Raises:
        KnowledgeError: A file is not valid YAML, violates the schema, or uses an undeclared id.
    """
    raw: dict[str, Any] = {name: get_origin(shape)() for name, shape in SHARED_FILES.items()}
    causes: dict[str, tuple[Cause, Path]] = {}
    origin: dict[str, Path] = {}
    digest = hashlib.sha256()
    for root in (BUILT_IN, *extra):
        if not root.is_dir():
            raise KnowledgeError(root, 1, "no such directory")
        for path in _yaml_files(root):
            text = path.read_bytes()
            digest.update(text)
            name = FORMER_NAMES.get(path.name, path.name)
            if name in SHARED_FILES and path.parent == root:
                part = _convert(path, text, SHARED_FILES[name])
                origin[name] = path
                raw[name] = [*raw[name], *part] if isinstance(part, list) else raw[name] | part
            else:
                cause = _convert(path, text, Cause)
                _check_place(path, cause, root)
                causes[cause.id] = (cause, path)
    knowledge = Knowledge(
        causes={id_: cause for id_, (cause, _) in causes.items()},
        questions=raw["questions.yaml"],
        probes=raw["findings.yaml"],
        messages=raw["messages.yaml"],
        rules=raw["rules.yaml"],
        in_scope_words=raw["in_scope_words.yaml"],
        synonyms=raw["synonyms.yaml"],
        topics=raw["topics.yaml"],
        multi_rank_words=raw["multi_rank_words.yaml"],
        glossary=raw["glossary.yaml"],
        version=f"{len(causes)}-{digest.hexdigest()[:10]}",
        stems=clue_stems([cause for cause, _ in causes.values()], raw["questions.yaml"].values(), raw["synonyms.yaml"]),
    )
    paths = {id_: path for id_, (_, path) in causes.items()}
    _check_links(knowledge, paths, origin)
    for id_, path in paths.items():
        if thorough or not path.is_relative_to(BUILT_IN):
            _check_patterns(path, knowledge.causes[id_])
    if thorough or origin.get("messages.yaml", BUILT_IN / "x").parent != BUILT_IN:
        for id_, message in knowledge.messages.items():
            _check_pattern(origin["messages.yaml"], [id_, "pattern"], message.pattern, message.literal)
    return knowledge


def _yaml_files(root: Path) -> list[Path]:
    shared = [root / name for name in SHARED_FILES if (root / name).is_file()]
    entries = sorted(p for p in (root / "causes" if (root / "causes").is_dir() else root).rglob("*.yaml"))
    return shared + [p for p in entries if p not in shared]


def _convert(path: Path, text: bytes, shape: type[T]) -> T:
    try:
        return msgspec.convert(yaml.load(text, _Loader), shape)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        raise KnowledgeError(path, mark.line + 1 if mark else 1, str(problem)) from error
    except UnicodeDecodeError as error:
        raise KnowledgeError(path, 1, "not UTF-8 text") from error
    except msgspec.ValidationError as error:
        what, _, at = str(error).partition(" - at `")
        got = re.search(r"got `(\w+)`", what)
        keys = _keys(at.rstrip("`"))
        if unknown := re.search(r"unknown field `(.+)`", what):
            keys.append(unknown[1])
        raise KnowledgeError(path, _line(text, keys, got[1] if got else ""), what) from error


def _keys(json_path: str) -> list[Key]:
    """Split ``$.signatures[0].weight`` into ``["signatures", 0, "weight"]``; an unnamed key is ``...``."""
    found = re.findall(r"\[(\d+)\]|\[(\.\.\.)\]|\.([^.\[]+)", json_path)
    return [int(index) if index else dots or name for index, dots, name in found]


def _line(text: bytes, keys: list[Key], got: str = "") -> int:
    """Return the line (from 1) of the node at ``keys``, or of the deepest existing node on the way.

    A key ``...`` matches any key: the first node of the type ``got`` (msgspec's name for it) is used.
    """
    nodes = list(_nodes(yaml.compose(text, yaml.CSafeLoader), keys))
    return next((line for line, tag in nodes if tag == TAGS.get(got)), nodes[0][0] if nodes else 1)


TAGS = {
    "bool": "bool",
    "int": "int",
    "float": "float",
    "null": "null",
    "str": "str",
    "array": "seq",
    "object": "map",
}


def _nodes(node: yaml.Node | None, keys: list[Key], line: int = 1) -> Iterator[tuple[int, str]]:
    """Yield (line, tag) of every node that ``keys`` can lead to, or the last node of a dead end."""
    if node is None:
        return
    below: list[tuple[int, yaml.Node]] = []
    if keys and isinstance(node, yaml.SequenceNode) and isinstance(keys[0], int):
        below = [(item.start_mark.line + 1, item) for item in node.value[keys[0] : keys[0] + 1]]
    elif keys and isinstance(node, yaml.MappingNode):
        below = [(k.start_mark.line + 1, v) for k, v in node.value if keys[0] in ("...", k.value)]
    if not below:
        yield line, node.tag.rpartition(":")[2]
    for line_below, node_below in below:
        yield from _nodes(node_below, keys[1:], line_below)


def _check_place(path: Path, cause: Cause, root: Path) -> None:
    def wrong(key: str, problem: str) -> KnowledgeError:
        return KnowledgeError(path, _line(path.read_bytes(), [key]), problem)

    if not CAUSE_ID.fullmatch(cause.id):
        raise wrong("id", f"bad id {cause.id!r}: lower-case words joined by hyphens")
    if path.stem != cause.id:
        raise wrong("id", f"id {cause.id!r} and file name {path.name!r} differ")
    if root == BUILT_IN and path.parent.name != cause.family:
        raise wrong("family", f"family {cause.family!r} and folder {path.parent.name!r} differ")


def _check_links(knowledge: Knowledge, paths: dict[str, Path], origin: dict[str, Path]) -> None:
    findings = knowledge.findings()
    for name, keys, problem in _undeclared_in_shared_files(knowledge, findings):
        path = origin.get(name, BUILT_IN / name)
        raise KnowledgeError(path, _line(path.read_bytes(), keys), problem)
    for id_, cause in knowledge.causes.items():
        for keys, problem in _problems(cause, knowledge, findings):
            raise KnowledgeError(paths[id_], _line(paths[id_].read_bytes(), keys), problem)
    for id_, rule in knowledge.rules.items():
        if rule.cause not in knowledge.causes:
            path = origin["rules.yaml"]
            raise KnowledgeError(path, _line(path.read_bytes(), [id_, "cause"]), f"no cause {rule.cause!r}")


def _undeclared_in_shared_files(knowledge: Knowledge, findings: dict[str, str]) -> Iterator[tuple[str, list[Key], str]]:
    """Yield every undeclared id in the conditions of questions and in the scopes of findings, with its file."""
    for id_, question in knowledge.questions.items():
        for other, answers in question.fits.items():
            known = knowledge.questions[other].answers if other in knowledge.questions else {}
            if unknown := [answer for answer in answers if answer not in known]:
                yield "questions.yaml", [id_, "fits"], f"question {other!r} has no answer {unknown[0]!r}"
        if unknown := [finding for finding in question.pointless_after if finding not in findings]:
            yield "questions.yaml", [id_, "pointless_after"], f"undeclared finding {unknown[0]!r}"
    for id_, probe in knowledge.probes.items():
        if unknown := [name for name in probe.between_nodes if name not in probe.findings]:
            yield "findings.yaml", [id_, "between_nodes"], f"undeclared finding {unknown[0]!r}"


def _problems(cause: Cause, knowledge: Knowledge, findings: dict[str, str]) -> Iterator[tuple[list[Key], str]]:
    """Yield every undeclared id of an entry, as (place in the file, problem)."""
    for index, topic in enumerate(cause.covers):
        if topic not in knowledge.topics:
            yield ["covers", index], f"no topic {topic!r} in topics.yaml"
    for question, weights in cause.questions.items():
        if question not in knowledge.questions:
            yield ["questions", question], f"no question {question!r} in questions.yaml"
            continue
        for answer in weights:
            if answer not in knowledge.questions[question].answers:
                yield ["questions", question, answer], f"question {question!r} has no answer {answer!r}"
    for finding in cause.findings:
        if finding not in findings:
            yield ["findings", finding], f"undeclared finding {finding!r}"
    for i, fix in enumerate(cause.fixes):
        if fix.rule and fix.rule not in knowledge.rules:
            yield ["fixes", i, "rule"], f"no rule {fix.rule!r} in rules.yaml"
        if fix.kind == "patch" and not fix.rule:
            yield ["fixes", i], "a patch names the review rule that makes it"
        if fix.safety == "unsafe" and not fix.why_unsafe:
            yield ["fixes", i], "an unsafe fix says why (why_unsafe)"
    texts: list[tuple[list[Key], str]] = [(["explain"], cause.explain)]
    for i, fix in enumerate(cause.fixes):
        texts += [
            (["fixes", i, key], value) for key, value in (("text", fix.text), ("code", fix.code), ("note", fix.note))
        ]
    for other, text in cause.tells_apart.items():
        texts.append((["tells_apart", other], text))
    for keys, text in texts:
        if UNFINISHED in text:
            yield keys, "still to be written"
    if not cause.fixes:
        yield ["fixes"], "a cause has at least one fix"
    if cause.verify.probe not in knowledge.probes and cause.verify.probe != "review":
        yield ["verify", "probe"], f"no probe {cause.verify.probe!r} in findings.yaml"
    for finding in (*cause.verify.gone, *cause.verify.seen):
        if finding not in findings:
            yield ["verify"], f"undeclared finding {finding!r}"
    for other in (*cause.see_also, *cause.tells_apart):
        if other not in knowledge.causes:
            yield ["see_also" if other in cause.see_also else "tells_apart"], f"no cause {other!r}"
    if not cause.sources:
        yield ["sources"], "a cause names its sources"


def _check_patterns(path: Path, cause: Cause) -> None:
    for i, signature in enumerate(cause.signatures):
        _check_pattern(path, ["signatures", i, "pattern"], signature.pattern, signature.literal)


def _check_pattern(path: Path, keys: list[Key], pattern: str, literal: str) -> None:
    problem = ""
    try:
        re.compile(pattern)
    except re.error as error:
        problem = f"invalid regular expression: {error}"
    if len(literal) < 4:
        problem = f"literal {literal!r} is too short: at least 4 characters"
    if problem:
        raise KnowledgeError(path, _line(path.read_bytes(), keys), problem)
