"""Read the YAML files into ``Knowledge``, or report the file and line of an error.

Two checks: the shape of each file (msgspec against ``schema``), then the links between files (every id in
use must be declared).
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_origin

import msgspec

from .chapters import CHAPTERS, chapter_ids
from .differences import mirror_differences
from .labs import LABS
from .pattern_cost import has_nested_repeat
from .phrases import expand_cause, expand_question, unknown_group
from .schema import (
    BUILT_IN,
    NEUTRAL_ANSWERS,
    UNFINISHED,
    Cause,
    Knowledge,
    Message,
    Probe,
    Question,
    Rule,
    Term,
    TrainingWords,
)
from .stemming import clue_stems
from .templates import names_in_template
from .yaml_file import Key, KnowledgeError, convert, line_of, read_foreign_bytes

SENTENCE = re.compile(r"(?<=\.)\s")
CAUSE_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
# Files next to the causes; a team's knowledge directory may contain any of them too.
SHARED_FILES: dict[str, Any] = {
    "questions.yaml": dict[str, Question],
    "probes.yaml": dict[str, Probe],
    "messages.yaml": dict[str, Message],
    "notices.yaml": list[str],
    "rules.yaml": dict[str, Rule],
    "in_scope_words.yaml": list[str],
    "synonyms.yaml": list[list[str]],
    "phrases.yaml": dict[str, list[str]],
    "topics.yaml": dict[str, str],
    "multi_rank_words.yaml": list[str],
    "training_words.yaml": dict[TrainingWords, list[str]],
    "facts.yaml": dict[str, str],
    "glossary.yaml": dict[str, str],
    "terms.yaml": dict[str, Term],
}
FORMER_NAMES = {"scope.yaml": "in_scope_words.yaml", "several.yaml": "multi_rank_words.yaml"}  # of a team's files


class _File(NamedTuple):
    """A file that has been read: its content is a cause, or that of one of the ``SHARED_FILES`` by its current name."""

    path: Path
    built_in: bool
    shared: str  # "": a cause
    text: bytes
    content: Any


def read_knowledge(*extra: Path, thorough: bool = False) -> Knowledge:
    """Read the built-in knowledge and the entries of further directories, which override it.

    Patterns of the built-in entries are compiled only if ``thorough`` (in tests and ``kb check``): compiling them all
    takes longer than reading them.

    Raises:
        KnowledgeError: A file is not valid YAML, violates the schema, or uses an undeclared id.
    """
    knowledge, problems = read_valid_knowledge(*extra, thorough=thorough)
    if problems:
        raise problems[0]
    return knowledge


def read_valid_knowledge(*extra: Path, thorough: bool = False) -> tuple[Knowledge, list[KnowledgeError]]:
    """Read as ``read_knowledge`` does, but leave out invalid files of further directories; return their errors too.

    Raises:
        KnowledgeError: A built-in file is invalid.
    """
    files, problems = _read_files(extra)
    chapters = chapter_ids(*extra)
    while True:
        try:
            return _combine(files, chapters, thorough), problems
        except KnowledgeError as error:
            culprit = _culprit(files, error.path)
            if culprit is None:
                raise
            path = culprit.path
            problems.append(error if path == error.path else KnowledgeError(path, 1, f"contradicts {error}"))
            files.remove(culprit)


def _read_files(extra: Iterable[Path]) -> tuple[list[_File], list[KnowledgeError]]:
    files: list[_File] = []
    problems: list[KnowledgeError] = []
    for root in (BUILT_IN, *extra):
        if not root.is_dir():
            raise KnowledgeError(root, 1, "no such directory")
        for path in _yaml_files(root):
            try:
                files.append(_read_file(path, root))
            except KnowledgeError as error:
                if root == BUILT_IN:
                    raise
                problems.append(error)
    return files, problems


def _read_file(path: Path, root: Path) -> _File:
    text = path.read_bytes() if root == BUILT_IN else read_foreign_bytes(path)
    name = FORMER_NAMES.get(path.name, path.name)
    if name in SHARED_FILES and path.parent == root:
        return _File(path, root == BUILT_IN, name, text, convert(path, text, SHARED_FILES[name]))
    cause = convert(path, text, Cause)
    _check_place(path, cause, root)
    return _File(path, root == BUILT_IN, "", text, cause)


def _culprit(files: list[_File], path: Path) -> _File | None:
    """Return the file of an author to leave out after an error in ``path``: that file; for a built-in one the last
    shared file, which has overridden something that the built-in entries need."""
    own = [file for file in files if not file.built_in]
    shared = [file for file in own if file.shared]
    return next((file for file in own if file.path == path), shared[-1] if shared else None)


def _combine(files: Iterable[_File], chapters: set[str], thorough: bool) -> Knowledge:
    raw: dict[str, Any] = {name: get_origin(shape)() for name, shape in SHARED_FILES.items()}
    causes: dict[str, tuple[Cause, Path]] = {}
    origin: dict[str, Path] = {}
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.text)
        if file.shared:
            before = raw[file.shared]
            origin[file.shared] = file.path
            raw[file.shared] = [*before, *file.content] if isinstance(before, list) else before | file.content
        else:
            causes[file.content.id] = (file.content, file.path)
    knowledge = Knowledge(
        causes={id_: cause for id_, (cause, _) in causes.items()},
        questions=raw["questions.yaml"],
        probes=raw["probes.yaml"],
        messages=raw["messages.yaml"],
        notices=raw["notices.yaml"],
        rules=raw["rules.yaml"],
        in_scope_words=raw["in_scope_words.yaml"],
        synonyms=raw["synonyms.yaml"],
        phrases=raw["phrases.yaml"],
        topics=raw["topics.yaml"],
        facts=raw["facts.yaml"],
        multi_rank_words=raw["multi_rank_words.yaml"],
        training_words=raw["training_words.yaml"],
        glossary=raw["glossary.yaml"],
        terms=raw["terms.yaml"],
        version=f"{len(causes)}-{digest.hexdigest()[:10]}",
    )
    paths = {id_: path for id_, (_, path) in causes.items()}
    _check_links(knowledge, paths, origin, chapters)
    for id_, path in paths.items():
        if thorough or not path.is_relative_to(BUILT_IN):
            _check_patterns(path, knowledge.causes[id_])
    if thorough or origin.get("messages.yaml", BUILT_IN / "x").parent != BUILT_IN:
        for id_, message in knowledge.messages.items():
            _check_pattern(origin["messages.yaml"], [id_, "pattern"], message.pattern, message.literal)
    return _completed(knowledge)


def _completed(knowledge: Knowledge) -> Knowledge:
    """Return the knowledge with both sides of each difference, the phrases of groups, and the stems of all phrases."""
    groups = knowledge.phrases
    known = {id_: expand_cause(cause, groups) for id_, cause in mirror_differences(knowledge.causes).items()}
    questions = {id_: expand_question(question, groups) for id_, question in knowledge.questions.items()}
    stems = clue_stems(known.values(), questions.values(), knowledge.synonyms)
    of_causes = {cause.id: f"{cause.title}. {SENTENCE.split(cause.summary)[0]}" for cause in known.values()}
    for id_ in [id_ for id_, question in questions.items() if question.of_causes]:
        questions[id_] = msgspec.structs.replace(questions[id_], answers=of_causes | questions[id_].answers)
    return msgspec.structs.replace(knowledge, causes=known, questions=questions, stems=stems)


def _yaml_files(root: Path) -> list[Path]:
    shared = [root / name for name in SHARED_FILES if (root / name).is_file()]
    entries = sorted(p for p in (root / "causes" if (root / "causes").is_dir() else root).rglob("*.yaml"))
    return shared + [p for p in entries if p not in shared and p.relative_to(root).parts[0] not in (CHAPTERS, LABS)]


def _check_place(path: Path, cause: Cause, root: Path) -> None:
    def wrong(key: str, problem: str) -> KnowledgeError:
        return KnowledgeError(path, line_of(path.read_bytes(), [key]), problem)

    if not CAUSE_ID.fullmatch(cause.id):
        raise wrong("id", f"bad id {cause.id!r}: lower-case words joined by hyphens")
    if path.stem != cause.id:
        raise wrong("id", f"id {cause.id!r} and file name {path.name!r} differ")
    if root == BUILT_IN and path.parent.name != cause.family:
        raise wrong("family", f"family {cause.family!r} and folder {path.parent.name!r} differ")


def _check_links(knowledge: Knowledge, paths: dict[str, Path], origin: dict[str, Path], chapters: set[str]) -> None:
    findings = knowledge.findings()
    for name, keys, problem in _undeclared_in_shared_files(knowledge, findings, chapters):
        path = origin.get(name, BUILT_IN / name)
        raise KnowledgeError(path, line_of(path.read_bytes(), keys), problem)
    for id_, cause in knowledge.causes.items():
        for keys, problem in _problems(cause, knowledge, findings):
            raise KnowledgeError(paths[id_], line_of(paths[id_].read_bytes(), keys), problem)
    for id_, rule in knowledge.rules.items():
        if rule.cause not in knowledge.causes:
            path = origin["rules.yaml"]
            raise KnowledgeError(path, line_of(path.read_bytes(), [id_, "cause"]), f"no cause {rule.cause!r}")


def _undeclared_in_shared_files(
    knowledge: Knowledge, findings: dict[str, str], chapters: set[str]
) -> Iterator[tuple[str, list[Key], str]]:
    """Yield every undeclared id in questions, in the scopes of findings and in terms, with its file."""
    for id_, question in knowledge.questions.items():
        heard = (term for ways in question.heard.values() for terms in ways for term in terms)
        if group := unknown_group(heard, knowledge.phrases):
            yield "questions.yaml", [id_, "heard"], f"no group ${group} in phrases.yaml"
        for other, answers in question.fits.items():
            known = knowledge.questions[other].answers if other in knowledge.questions else {}
            if unknown := [answer for answer in answers if answer not in known]:
                yield "questions.yaml", [id_, "fits"], f"question {other!r} has no answer {unknown[0]!r}"
        if unknown := [finding for finding in question.pointless_after if finding not in findings]:
            yield "questions.yaml", [id_, "pointless_after"], f"undeclared finding {unknown[0]!r}"
    for id_, probe in knowledge.probes.items():
        if unknown := [name for name in probe.between_nodes if name not in probe.findings]:
            yield "probes.yaml", [id_, "between_nodes"], f"undeclared finding {unknown[0]!r}"
    for name, term in knowledge.terms.items():
        if term.chapter not in chapters:
            yield "terms.yaml", [name, "chapter"], f"no chapter {term.chapter!r}"
        for index, id_ in enumerate(term.causes):
            if id_ not in knowledge.causes:
                yield "terms.yaml", [name, "causes", index], f"no cause {id_!r}"


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
            elif answer in NEUTRAL_ANSWERS:
                yield ["questions", question, answer], f"the answer {answer!r} is no evidence and has no weight"
    for index, clue in enumerate(cause.clues):
        if group := unknown_group(clue.all, knowledge.phrases):
            yield ["clues", index], f"no group ${group} in phrases.yaml"
    for finding in cause.findings:
        if finding not in findings:
            yield ["findings", finding], f"undeclared finding {finding!r}"
    lines = {f"line.{signature.name}" for signature in cause.signatures if signature.name}
    for i, fix in enumerate(cause.fixes):
        if fix.rule and fix.rule not in knowledge.rules:
            yield ["fixes", i, "rule"], f"no rule {fix.rule!r} in rules.yaml"
        if fix.kind == "patch" and not (fix.rule or fix.recipe or fix.set):
            yield ["fixes", i], "a patch names the review rule or the recipe that makes it, or the arguments to set"
        for key, ids in (("when", fix.when), ("unless", fix.unless)):
            for j, id_ in enumerate(ids):
                if id_ not in findings and id_ not in lines and ("." not in id_ or id_ not in knowledge.facts):
                    yield ["fixes", i, key, j], f"undeclared finding or condition {id_!r}"
        for key, text in (("text", fix.text), ("code", fix.code), ("note", fix.note)):
            for name in sorted(names_in_template(text) - set(knowledge.facts)):
                yield ["fixes", i, key], f"no fact {name!r} in facts.yaml"
        if fix.safety == "unsafe" and not fix.why_unsafe:
            yield ["fixes", i], "an unsafe fix says why (why_unsafe)"
    texts: list[tuple[list[Key], str]] = [(["summary"], cause.summary), (["explain"], cause.explain)]
    texts += [(["symptoms", i], symptom) for i, symptom in enumerate(cause.symptoms)]
    for i, fix in enumerate(cause.fixes):
        texts += [
            (["fixes", i, key], value) for key, value in (("text", fix.text), ("code", fix.code), ("note", fix.note))
        ]
    for other, text in cause.tells_apart.items():
        texts.append((["tells_apart", other], text))
    if unfinished := [keys for keys, text in texts if UNFINISHED in text]:
        yield unfinished[0], f"still to be written: {', '.join(dict.fromkeys(str(keys[0]) for keys in unfinished))}"
    if not cause.fixes:
        yield ["fixes"], "a cause has at least one fix"
    if cause.verify.probe not in knowledge.probes and cause.verify.probe != "review":
        yield ["verify", "probe"], f"no probe {cause.verify.probe!r} in probes.yaml"
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
        if has_nested_repeat(pattern):
            problem = "a repeat inside a repeat, as in (a+)+, may take for ever on a long line"
    except re.error as error:
        problem = f"invalid regular expression: {error}"
    if len(literal) < 4:
        problem = f"literal {literal!r} is too short: at least 4 characters"
    if problem:
        raise KnowledgeError(path, line_of(path.read_bytes(), keys), problem)
