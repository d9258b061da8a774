"""No two public classes have one name: in a traceback or a log line they could not be told apart."""

import ast
from collections import defaultdict
from pathlib import Path

import caretway

ROOT = Path(caretway.__file__).parent


def public_classes() -> dict[str, list[str]]:
    """Class name -> the modules that define it. Generated code is not ours."""
    homes: dict[str, list[str]] = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        if "gen" in path.relative_to(ROOT).parts:
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(ROOT)))
    return homes


def test_no_public_class_name_is_used_twice() -> None:
    homes = public_classes()
    assert len(homes) > 300
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}
