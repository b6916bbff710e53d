"""The one naming rule that a program can check: a public class name stands for one thing.

The other rules (CONTRIBUTING.md: modules are nouns, functions are verbs, the field's words) are for reviewers. A list
of allowed verbs made people write for the list.
"""

import ast
from collections import defaultdict

from tests.sources import PACKAGE, list_modules, parse


def test_public_class_names_are_unique():
    homes: dict[str, list[str]] = defaultdict(list)
    for path in list_modules():
        for node in parse(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(PACKAGE)))
    assert len(homes) > 100
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}
