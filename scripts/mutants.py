"""Mutants: one operator or statement changed in the code that decides. `draw` picks some with a fixed seed and stores
which tests kill them; `replay` finds each one again by its line and function, wherever that is now, and says whether a
test still kills it. Both work in temporary copies of a commit. When a line was rewritten, give its mutant the new text.
"""

import argparse
import ast
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
STORE = ROOT / "tests" / "data" / "mutants.json"
EACH = 5
"""Mutants of each area."""
TIMEOUT_S = 400
AREAS: dict[str, tuple[list[str], list[str], list[str]]] = {  # name: (source, fast tests, tests over sockets)
    "plan": (["sessions/plan.py"], ["tests/unit/sessions"], ["tests/contract/test_histories.py"]),
    "recovery": (
        ["core/recovery.py", "sessions/second_try.py"],
        ["tests/unit/core/test_recovery.py", "tests/unit/sessions", "tests/unit/backends/agent"],
        ["tests/contract/test_live.py"],
    ),
    "calls": (
        ["backends/agent/calls.py", "backends/agent/wire_calls.py", "sessions/plan.py"],
        ["tests/unit/backends/agent", "tests/unit/sessions"],
        ["tests/contract/test_tools.py"],
    ),
    "dialects": (["dialects"], ["tests/unit/dialects"], ["tests/contract/test_dialects.py"]),
    "access": (
        ["server/access.py", "api/application.py"],
        ["tests/unit/api", "tests/unit/usage/keys"],
        ["tests/contract/test_security.py", "tests/contract/test_keys.py"],
    ),
    "budgets": (
        ["usage/budget.py", "usage/charges.py", "usage/spent_store.py", "usage/sqlite_store.py"],
        ["tests/unit/usage/budgets"],
        ["tests/contract/test_budgets.py"],
    ),
    "text protocol": (
        ["backends/text_protocol"],
        ["tests/unit/backends/text_protocol"],
        ["tests/contract/test_text_tools.py"],
    ),
    "loop guard": (
        ["sessions/loop_guard.py", "sessions/loop_history.py"],
        ["tests/unit/sessions"],
        ["tests/contract/test_live.py"],
    ),
}
SWAPS: dict[type, type] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip
_moment = count(1_700_000_000)


# ---- drawing


def changed(node: Any) -> str | None:
    """The source of the mutated node, or None if this kind of node is left as it is."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in SWAPS:
            return ast.unparse(ast.Compare(node.left, [SWAPS[type(op)]()], node.comparators))
        case ast.BoolOp(op=op, values=values):
            return f"({ast.unparse(ast.BoolOp(SWAPS[type(op)](), values))})"
        case ast.BinOp(op=ast.Add() | ast.Sub() as op):
            return f"({ast.unparse(ast.BinOp(node.left, SWAPS[type(op)](), node.right))})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"({ast.unparse(operand)})"
        case ast.Constant(value=bool() as value):
            return str(not value)
        case ast.Constant(value=int() as value):
            return str(value + 1)
        case ast.Expr(value=ast.Call()) | ast.Continue() | ast.Break():
            return "pass"
    return None


def candidates(file: Path) -> list[tuple[str, int, str, str]]:
    """(function, number of the line, the line, the line when mutated), for each place inside a function."""
    text = file.read_text("utf-8")
    lines = text.splitlines()
    found: list[tuple[str, int, str, str]] = []

    def visit(node: Any, function: str) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                visit(statement, node.name)
            return
        new = changed(node) if function else None
        if new is not None and node.lineno == node.end_lineno and "log." not in lines[node.lineno - 1]:
            line = lines[node.lineno - 1]
            raw = line.encode()  # columns count bytes
            after = (raw[: node.col_offset] + new.encode() + raw[node.end_col_offset :]).decode()
            with suppress(SyntaxError):  # a quote inside an f-string
                ast.parse("\n".join([*lines[: node.lineno - 1], after, *lines[node.lineno :]]))
                found.append((function, node.lineno, line, after))
        for part in ast.iter_child_nodes(node):
            visit(part, function)

    visit(ast.parse(text), "")
    return found


def functions(file: Path) -> dict[int, str]:
    """The innermost function of each line."""
    known: dict[int, str] = {}
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):  # outer ones first
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            known.update(dict.fromkeys(range(node.lineno, (node.end_lineno or node.lineno) + 1), node.name))
    return known


def drawn(tree: Path, seed: int) -> list[dict[str, Any]]:
    mutants: list[dict[str, Any]] = []
    for area, (sources, _, _) in AREAS.items():
        choice = random.Random(f"{seed} {area}")
        places = [tree / "src/caretway" / name for name in sources]
        files = sorted(file for place in places for file in ([place] if place.is_file() else place.rglob("*.py")))
        pool = [(file, *found) for file in files for found in candidates(file)]
        choice.shuffle(pool)
        taken: set[tuple[Path, int]] = set()
        for file, function, number, before, after in pool:
            if len(taken) == EACH:
                break
            if (file, number) in taken:
                continue
            taken.add((file, number))
            name = str(file.relative_to(tree))
            same = places_of(tree, {"file": name, "function": function, "before": before.strip()})
            mutants.append(
                {"id": len(mutants) + 1, "area": area, "file": name, "function": function,
                 "nth": same.index((file, number)), "before": before.strip(), "after": after.strip()}
            )  # fmt: skip
    return mutants


# ---- running


def places_of(tree: Path, mutant: dict[str, Any]) -> list[tuple[Path, int]]:
    """The lines with this text in a function of this name: in its own file if it is still there, else anywhere."""
    found = []
    for file in sorted((tree / "src").rglob("*.py")):
        lines = file.read_text("utf-8").splitlines()
        hits = [at for at, line in enumerate(lines, 1) if line.strip() == mutant["before"]]
        inside = functions(file) if hits else {}
        found += [(file, at) for at in hits if inside.get(at) == mutant["function"]]
    own = [place for place in found if place[0] == tree / mutant["file"]]
    return own or found


def run(tree: Path, tests: list[str]) -> list[str] | None:
    """The first tests that fail; None if all pass."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--maxfail=3",
        "--no-header",
        "--tb=no",
        "-rfE",
        "-p",
        "no:cacheprovider",
    ]
    child = subprocess.Popen(
        [*command, *tests], cwd=tree, env={**os.environ, "PYTHONPATH": f"{tree}/src"}, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        output, _ = child.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return [f"no end after {TIMEOUT_S} seconds: {' '.join(tests)}"]
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    if child.returncode == 0:
        return None
    failed = re.findall(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", output, re.MULTILINE)
    if not failed:
        raise SystemExit(f"pytest failed in {tree} without a failing test:\n{output[-3000:]}")
    return failed[:3]


def killers(tree: Path, known: list[str]) -> list[str]:
    """The stored tests that killed it, by function name, wherever they are now."""
    names = {match[1] for test in known if (match := re.search(r"::(test_\w+)", test))}
    found = []
    for file in sorted((tree / "tests").rglob("test_*.py")):
        there = names & set(re.findall(r"^(?:async )?def (test_\w+)", file.read_text("utf-8"), re.MULTILINE))
        found += [f"{file.relative_to(tree)}::{name}" for name in sorted(there)]
    return [test for test in found if any(old.startswith(test) for old in known)] or found


def judged(tree: Path, mutant: dict[str, Any]) -> tuple[str, list[str]]:
    """killed (with the tests), survived, or no longer applies."""
    places = places_of(tree, mutant)
    if not places:
        return "no longer applies", []
    file, number = places[min(mutant["nth"], len(places) - 1)]
    original = file.read_text("utf-8")
    lines = original.splitlines(keepends=True)
    lines[number - 1] = lines[number - 1].replace(mutant["before"], mutant["after"])
    _, fast, slow = AREAS[mutant["area"]]
    try:
        write(file, "".join(lines))
        for tests in (killers(tree, mutant.get("killed_by", [])), fast, slow):
            there = [test for test in tests if (tree / test.partition("::")[0]).exists()]
            if there and (failed := run(tree, there)):
                return "killed", failed
    finally:
        write(file, original)
    return "survived", []


def write(file: Path, text: str) -> None:
    file.write_text(text, "utf-8")
    moment = next(_moment)  # compiled files are recognised by the second and the size
    os.utime(file, (moment, moment))


def judge_all(revision: str, mutants: list[dict[str, Any]], jobs: int) -> list[tuple[str, list[str]]]:
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(jobs):
            trees.put(export(revision, Path(folder) / str(number)))

        def one(mutant: dict[str, Any]) -> tuple[str, list[str]]:
            tree = trees.get()
            try:
                verdict, tests = judged(tree, mutant)
            finally:
                trees.put(tree)
            where = f"{mutant['file']} {mutant['function']}"
            print(f"{mutant['id']:3} {verdict:9} {where}: {mutant['before']}  ->  {mutant['after']}", flush=True)
            return verdict, tests

        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(one, mutants))


def export(revision: str, tree: Path) -> Path:
    tree.mkdir()
    archive = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(["tar", "-x", "-C", str(tree)], input=archive, check=True)
    return tree


def draw(revision: str, seed: int, jobs: int) -> None:
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        mutants = drawn(export(revision, Path(folder) / "tree"), seed)
    for mutant, (verdict, tests) in zip(mutants, judge_all(revision, mutants, jobs), strict=True):
        mutant.update(verdict=verdict, killed_by=tests)
    body = {"drawn_from": revision, "seed": seed, "mutants": mutants}
    STORE.write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n", "utf-8")
    print(Counter(mutant["verdict"] for mutant in mutants))


def replay(only: list[int], jobs: int) -> int:
    """1 if a mutant survives, or is found nowhere."""
    stored = json.loads(STORE.read_text("utf-8"))["mutants"]
    mutants = [one for one in stored if one["verdict"] != "equivalent" and (not only or one["id"] in only)]
    verdicts = Counter(verdict for verdict, _ in judge_all("HEAD", mutants, jobs))
    print(", ".join(f"{number} {verdict}" for verdict, number in sorted(verdicts.items())))
    return int(verdicts["killed"] < len(mutants))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("draw")
    drawing.add_argument("--rev", required=True)
    drawing.add_argument("--seed", type=int, default=1)
    replaying = commands.add_parser("replay")
    replaying.add_argument("--only", type=int, nargs="+", default=[], metavar="ID")
    for command in (drawing, replaying):
        command.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    if args.command == "replay":
        return replay(args.only, args.jobs)
    draw(args.rev, args.seed, args.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
