"""Which room may import which. Reads the imports of every module with `ast`; imports nothing itself."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import caretway

SOURCES: Final = Path(caretway.__file__).parents[1]

MAY_IMPORT: Final[dict[str, frozenset[str]]] = {
    "core": frozenset(),
    "schemas": frozenset({"core"}),
    "cursor.wire": frozenset(),
    "cursor.transport": frozenset({"core", "cursor.wire"}),
    "dialects": frozenset({"core"}),
    "accounts": frozenset({"core"}),
    "sessions": frozenset({"accounts", "core", "schemas"}),  # of accounts: what models are called
    "mcp": frozenset({"accounts", "core"}),  # of accounts: the private store
    "observe": frozenset({"core"}),
    "usage": frozenset({"accounts", "core"}),
    "cluster": frozenset({"accounts", "config", "core", "observe", "usage"}),  # what it shares, and its metrics
    "backends": frozenset({"accounts", "core", "cursor.transport", "cursor.wire", "schemas", "sessions"}),
    "caretway_sim": frozenset({"cursor.wire"}),  # it is the other side: it must not know our core
    "prove": frozenset(
        {"accounts", "caretway_sim", "core", "cursor.transport", "cursor.wire"}  # asks both sides the same
    ),
    "server": frozenset({"core", "usage"}),
    "api": frozenset({"accounts", "core", "dialects", "observe", "server", "sessions", "usage"}),
    "dashboard": frozenset(
        {
            *("accounts", "api", "cli.clients", "config", "core", "dialects", "mcp", "prove", "server", "sessions"),
            "usage",
        }
    ),
    "upstream": frozenset(
        {
            *("accounts", "backends", "caretway_sim", "config", "core", "cursor.transport", "mcp", "observe", "server"),
            *("sessions", "usage"),
        }
    ),
    "testing": frozenset({"caretway_sim", "gateway"}),  # tests start a whole gateway, and hold its other side
    "config": frozenset({"core"}),
    "processes": frozenset(),
    "storage": frozenset(),
    "installation": frozenset(),
    "cli.clients": frozenset(),  # values in, values out: what clients are told, and edits of their files
}
"""Rooms that are bound by the rule. Every room may import itself and what is open to all."""

KNOWS_EVERYONE: Final = frozenset({"gateway", "assembly", "cli", "__init__", "__main__"})
OPEN_TO_ALL: Final = frozenset({"processes", "storage", "installation", "__version__"})


def module_name(path: Path) -> str:
    """`caretway.core.fold`; a package is called `caretway.core.__init__` so that its parent is the package itself."""
    return ".".join(path.relative_to(SOURCES).with_suffix("").parts)


def imports(module: str, source: str) -> Iterator[str]:
    """Absolute names of everything of ours that a module imports, wherever in the file it does so."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = module.split(".")[: -node.level] if node.level else []
            names = [".".join([*base, *filter(None, [node.module]), alias.name]) for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.partition(".")[0] in ("caretway", "caretway_sim"))


def room_of(name: str) -> str:
    """The longest name that has a row: `cursor.wire`, `cli`, `caretway_sim`."""
    parts = name.split(".")
    if parts[0] == "caretway_sim":
        return parts[0]
    inner = ".".join(parts[1:3])
    return inner if inner in MAY_IMPORT else (parts[1] if len(parts) > 1 else "__init__")


def offences(module: str, source: str) -> list[str]:
    """One sentence for each import that the table forbids."""
    room = room_of(module)
    if room not in MAY_IMPORT and room not in KNOWS_EVERYONE:
        return [f"{module}: the room `{room}` is not in the table"]
    found = []
    for name in imports(module, source):
        target = room_of(name)
        if name.startswith("caretway.cursor.wire.gen") and room != "cursor.wire":
            found.append(f"{module} imports {name}: generated code is seen by wire alone")
        elif room not in KNOWS_EVERYONE and target not in {room} | OPEN_TO_ALL | MAY_IMPORT[room]:
            found.append(f"{module} imports {name}: {room} may not know {target}")
    return found


MODULES: Final = sorted(path for path in SOURCES.rglob("*.py"))


@pytest.mark.seed("A07")
def test_rooms() -> None:
    assert [one for path in MODULES for one in offences(module_name(path), path.read_text())] == []


def test_the_tree_was_found() -> None:
    names = {module_name(path) for path in MODULES}
    wanted = {"caretway.core.fold", "caretway.cursor.wire.envelope", "caretway.__init__", "caretway_sim.brain"}
    assert wanted <= names


NO_ROOM: Final = "utils"  # a room that is not in the table

RULINGS: Final = [
    ("caretway.core.fold", "from .errors import GatewayError", True),
    ("caretway.core.fold", "import json, asyncio", True),
    ("caretway.core.fold", "from ..processes.tasks import spawn", True),
    ("caretway.core.fold", "from ..processes import lines", True),
    ("caretway.core.fold", "from ..cursor.wire import envelope", False),
    ("caretway.core.fold", "from ..cursor import wire", False),
    ("caretway.core.fold", "import caretway", False),
    ("caretway.core.fold", "import caretway_sim", False),
    ("caretway.core.fold", "from ..config import Settings", False),
    ("caretway.core.__init__", "from . import fold", True),
    ("caretway.core.__init__", "from .. import api", False),
    ("caretway.cursor.wire.envelope", "from .gen import aiserver_pb2", True),
    ("caretway.cursor.wire.envelope", "from ...core.errors import GatewayError", False),
    ("caretway.processes.child", "from .tasks import spawn", True),
    ("caretway.processes.child", "from ..core.errors import GatewayError", False),
    ("caretway_sim.brain", "from caretway.cursor.wire.messages import pb", True),
    ("caretway_sim.brain", "from .script import Script", True),
    ("caretway_sim.brain", "from caretway.cursor.wire.gen import agent_pb2", False),
    ("caretway_sim.brain", "import caretway.cursor.wire.gen.agent_pb2 as pb", False),
    ("caretway_sim.brain", "from caretway.core import events", False),
    ("caretway_sim.brain", "def late():\n    from caretway.core import events", False),
    ("caretway_sim.brain", "if TYPE_CHECKING:\n    from caretway.core import events", False),
    ("caretway.backends.agent.backend", "from ...cursor.wire import paths", True),
    ("caretway.backends.agent.backend", "from ..cli import process", True),
    ("caretway.backends.agent.backend", "from caretway_sim import server", False),
    ("caretway.backends.agent.turn", "from ...cursor.transport.ports import RunStream", True),
    ("caretway.backends.agent.backend", "from ...api import respond", False),
    ("caretway.cursor.transport.ports", "from ...backends.agent import turn", False),
    ("caretway.sessions.manager", "from ..backends import agent", False),
    ("caretway.api.tenant", "from ..dialects import DIALECTS", True),
    ("caretway.api.tenant", "from ..backends import agent", False),
    ("caretway.api.tenant", "from ..config import Settings", False),
    ("caretway.api.tenant", "from .. import __version__", True),
    ("caretway.server.connection", "from ..api import respond", False),
    ("caretway.dialects.openai_chat.decode", "from ..sse import Frame", True),
    ("caretway.dialects.openai_chat.decode", "from ...api import tenant", False),
    ("caretway.gateway", "from .config import Settings\nfrom caretway_sim import server", True),
    ("caretway.gateway", "from .cursor.wire.gen import agent_pb2", False),
    ("caretway.cli.serve", "from ..config import Settings\nfrom ..gateway import Gateway", True),
    ("caretway.config.settings", "from ..core.request import SessionMode", True),
    ("caretway.config.settings", "from .row import Setting", True),
    ("caretway.config.settings", "from ..backends import agent", False),
    ("caretway.accounts.store", "from ..config import data_directory", False),
    ("caretway.cli.clients.table", "from . import jsonc", True),
    ("caretway.cli.clients.table", "from ...config import Settings", False),
    ("caretway_sim.cursor_agent.acp", "from .. import text_model", True),
    ("caretway_sim.cursor_agent.acp", "from caretway.backends.cli import program", False),
    ("caretway.testing.scripted", "from ..gateway import Gateway", True),
    ("caretway.testing.scripted", "from ..sessions import plan", False),
    ("caretway.backends.cli.backend", "from caretway_sim.cursor_agent import words", False),
    (f"caretway.{NO_ROOM}.strings", "import re", False),
]


def test_rulings() -> None:
    wrong = [row for row in RULINGS if (offences(row[0], row[1]) == []) is not row[2]]
    assert wrong == []


def test_the_tables_speak_of_what_exists() -> None:
    """A row about something that was renamed or deleted would guard nothing."""
    modules = {module_name(path) for path in MODULES}
    rooms = {room_of(module) for module in modules} - {"cursor"}
    assert {*MAY_IMPORT, *KNOWS_EVERYONE} == rooms
    assert {target for targets in MAY_IMPORT.values() for target in targets} <= rooms
    assert {module for module, _, _ in RULINGS if room_of(module) != NO_ROOM} <= modules
