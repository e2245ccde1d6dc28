"""The nodes below a syntax tree."""

import ast

import pytest
from ddpwizard.app.training_script.nodes import nodes_of_kinds, parents_below, walk

CODE = """\
class Loop:
    def run(self, kind):
        match kind:
            case None | {"a": 1, **rest}:
                first(second(kind))
        for each in self: third(*each, **rest)
"""


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ((ast.Call,), ["third(*each, **rest)", "first(second(kind))", "second(kind)"]),
        ((ast.For, ast.Starred), ["for each in self:\n    third(*each, **rest)", "*each"]),
        ((ast.While,), []),
    ],
)
def test_the_nodes_of_some_kinds_are_in_the_order_of_all(kinds: tuple[type[ast.AST], ...], expected: list[str]):
    tree = ast.parse(CODE)
    assert [ast.unparse(node) for node in nodes_of_kinds(tree, *kinds)] == expected
    assert nodes_of_kinds(tree, *kinds) == [node for node in walk(tree) if isinstance(node, kinds)]


def test_what_is_walked_are_the_nodes_without_contexts_and_operators():
    tree = ast.parse(CODE)
    found = [node for node in ast.walk(tree) if not isinstance(node, (ast.expr_context, ast.operator))]
    assert walk(tree) == found
    assert parents_below(tree).keys() == {*found} - {tree}
