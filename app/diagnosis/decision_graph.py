"""The decision graph: the knowledge base as a networkx graph.

Ranking reads plain tables (``ranking.weight_table``). The graph is loaded after the first frame, for the related causes
in the browser, for ``ddpwizard kb graph``, and for the check that every cause is reachable.
"""

from typing import Any

import networkx as nx

from ...knowledge.schema import NATS, Knowledge
from ..evidence import answer_id, signature_id

Graph = nx.MultiDiGraph


def build_graph(knowledge: Knowledge) -> "nx.MultiDiGraph[str]":
    """Build the graph.

    Nodes have ``kind`` and ``text``; edges have ``relation`` (supports, refutes, asks, finds, fixes, verifies,
    see-also) and, for evidence, ``nats``.
    """
    graph: nx.MultiDiGraph[str] = nx.MultiDiGraph()

    def node(id_: str, kind: str, text: str) -> str:
        graph.add_node(id_, kind=kind, text=text)
        return id_

    def weigh(source: str, cause: str, nats: float) -> None:
        graph.add_edge(source, cause, relation="supports" if nats > 0 else "refutes", nats=nats)

    for id_, probe in knowledge.probes.items():
        node(f"probe:{id_}", "probe", probe.title)
    for id_, text in knowledge.findings().items():
        node(id_, "rule" if id_.startswith("review.") else "finding", text)
        probe = f"probe:{id_.partition('.')[0]}"
        if probe in graph:
            graph.add_edge(probe, id_, relation="finds")
    for id_, question in knowledge.questions.items():
        node(f"question:{id_}", "question", question.ask)
        for answer, text in question.answers.items():
            graph.add_edge(f"question:{id_}", node(answer_id(id_, answer), "answer", text), relation="asks")
    for cause in knowledge.causes.values():
        node(cause.id, "cause", cause.title)
    for cause in knowledge.causes.values():
        for finding, weight in cause.findings.items():
            weigh(finding, cause.id, NATS[weight])
        for question, answers in cause.questions.items():
            for answer, weight in answers.items():
                weigh(answer_id(question, answer), cause.id, NATS[weight])
        for index, signature in enumerate(cause.signatures):
            id_ = node(signature_id(cause, index), "signature", signature.pattern)
            weigh(id_, cause.id, NATS[signature.weight])
        for symptom in cause.symptoms:
            graph.add_edge(node(f"symptom:{symptom}", "symptom", symptom), cause.id, relation="supports", nats=0.0)
        for fix in cause.fixes:
            graph.add_edge(node(f"fix:{cause.id}/{fix.id}", "fix", fix.title), cause.id, relation="fixes")
        graph.add_edge(f"probe:{cause.verify.probe}", cause.id, relation="verifies")
        for other in cause.see_also:
            graph.add_edge(cause.id, other, relation="see-also")
    return graph


def related_causes(knowledge: Knowledge, cause: str) -> list[tuple[str, str]]:
    """Return the ids of causes related to this one, each with the reason, those that its entry names first."""
    graph = build_graph(knowledge)
    found = dict.fromkeys(knowledge.causes[cause].see_also, "see also")
    shared: dict[str, int] = {}
    for source in graph.predecessors(cause):
        for other in graph.successors(source):
            if other != cause and graph.nodes[other]["kind"] == "cause":
                shared[other] = shared.get(other, 0) + 1
    for other, count in sorted(shared.items(), key=lambda each: -each[1]):
        found.setdefault(other, f"{count} sign{'s' * (count != 1)} in common")
    return list(found.items())


def graph_as_json(graph: "nx.MultiDiGraph[str]") -> dict[str, Any]:
    """Return the graph as plain lists of nodes and edges."""
    return {
        "nodes": [{"id": id_, **data} for id_, data in graph.nodes(data=True)],
        "edges": [{"from": a, "to": b, **data} for a, b, data in graph.edges(data=True)],
    }


def graph_as_dot(graph: "nx.MultiDiGraph[str]") -> str:
    """Render the graph in Graphviz's DOT language; causes have a frame."""

    def quote(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    lines = ["digraph ddpwizard {", "  rankdir=LR;"]
    for id_, data in graph.nodes(data=True):
        shape = "box" if data["kind"] == "cause" else "plaintext"
        lines.append(f"  {quote(id_)} [shape={shape}, tooltip={quote(data['text'])}];")
    lines += [f"  {quote(a)} -> {quote(b)} [label={quote(d['relation'])}];" for a, b, d in graph.edges(data=True)]
    return "\n".join([*lines, "}"])
