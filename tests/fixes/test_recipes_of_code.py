"""Recipes of the user's code say nothing without the code or a job: ``diagnose`` of a log need not load them."""

import subprocess
import sys

import pytest
from ddpwizard.app.fixes.facts import CaseFacts, FixContext
from ddpwizard.app.fixes.recipes.table import OF_CODE, load_recipe
from ddpwizard.app.fixes.recipes.types import RecipeResult

LOADED = """
import sys
from ddpwizard.app.fixes.build import build_fixes
from ddpwizard.app.fixes.facts import FixContext
from ddpwizard.knowledge.loader import read_knowledge
knowledge = read_knowledge()
for cause in knowledge.causes.values():
    build_fixes(cause, FixContext(), knowledge)
print([name for name in sys.modules if name.startswith("ddpwizard.app.review.rules")])
"""


@pytest.mark.parametrize("name", sorted(OF_CODE))
def test_recipe_of_code_is_empty_without_code(name: str):
    recipe = load_recipe(name)
    assert recipe and recipe(CaseFacts(FixContext())) == RecipeResult()


def test_fixes_without_code_load_no_rule_of_the_review():
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.strip() == "[]"
