"""``ddpwizard explain ID``: explain one cause or one rule, or list the entries on a term."""

import click
import msgspec

from ...knowledge.schema import Knowledge
from ..diagnosis.cause_text import cause_lines, fill_fallbacks, matching_causes
from ..errors import UserError
from ..exit_codes import ExitCode
from ..options import Options, knowledge_for
from ..review.rule_descriptions import matching_rules, rule_lines
from ..text.json_output import print_json, public_document
from ..text.suggestions import closest, did_you_mean
from ..text.terminal import align_columns, print_line
from ..text.units import count_text
from .common import common_options


@click.command(name="explain")
@click.argument("words", metavar="ID", nargs=-1, required=True)
@common_options
def command(words: tuple[str, ...], options: Options) -> int:
    """Explain one cause: what happens, its symptoms, its fixes, and the sources.

    ID may also be a rule of the review (DW401), or a term (FSDP), whose entries are listed.
    """
    knowledge = knowledge_for(options)
    typed = " ".join(words)
    if cause := knowledge.causes.get(typed.lower()):
        kind, body, lines = "cause", msgspec.to_builtins(fill_fallbacks(cause)), cause_lines(cause, knowledge)
    elif rule := knowledge.rules.get(typed.upper()):
        kind, body = "rule", {"id": typed.upper(), **msgspec.to_builtins(rule)}
        lines = rule_lines(typed.upper(), rule)
    else:
        kind, body, lines = _search(typed, knowledge)
    if options.json:
        print_json(public_document(kind, knowledge, body))
    else:
        for line in lines:
            print_line(line)
    return ExitCode.OK


def _search(typed: str, knowledge: Knowledge) -> tuple[str, dict[str, object], list[str]]:
    """Return the entries on a term, as the kind and body of a document and as lines.

    Raises:
        UserError: There are none.
    """
    found = [(cause.id, cause.title) for cause in matching_causes(knowledge, typed)]
    found += [(id_, knowledge.rules[id_].title) for id_ in matching_rules(knowledge, typed)]
    if not found:
        hint = did_you_mean(closest(typed, [*knowledge.causes, *knowledge.rules]))
        raise UserError(f"no cause {typed!r}", hint or "ddpwizard kb list shows all causes")
    entries = [{"id": id_, "title": title} for id_, title in found]
    heading = f"{count_text(len(found), 'result')} for {typed}; ddpwizard explain ID shows one:"
    return "explain-search", {"term": typed, "entries": entries}, [heading, "", *align_columns(found)]
