"""Which room may import which. Reads the imports of every module with `ast`; imports nothing itself."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import caretway

ROOT: Final = Path(caretway.__file__).parent

MAY_IMPORT: Final[dict[str, frozenset[str]]] = {
    "core": frozenset(),
    "wire": frozenset(),
    "dialects": frozenset({"core"}),
    "schemas": frozenset({"core"}),
    "stages": frozenset({"core", "schemas"}),
    "loop_guard": frozenset({"core"}),
    "sessions": frozenset({"core", "models", "schemas"}),
    "mcp_bridge": frozenset({"core"}),
    "text_protocol": frozenset({"core", "schemas"}),
    "models": frozenset({"core"}),
    "auth": frozenset({"core"}),
    "observe": frozenset({"core"}),
    "keys": frozenset({"core"}),
    "ledger": frozenset({"core", "models"}),
    "budgets": frozenset({"core"}),
    "cluster": frozenset({"auth", "budgets", "config", "core", "keys", "observe"}),  # what it shares, and its metrics
    "hooks": frozenset({"core"}),
    "cursor_transport": frozenset({"core", "wire"}),
    "builtin_tools": frozenset({"core", "wire", "loop_guard", "schemas"}),
    "backends": frozenset({"core", "wire", "cursor_transport", "builtin_tools", "loop_guard", "models", "schemas"}),
    "simulator": frozenset({"wire"}),  # it is the other side: it must not know our core
    "testing": frozenset({"simulator", "gateway"}),  # tests start a whole gateway, and hold its other side
    "prove": frozenset({"core", "wire", "cursor_transport", "models", "simulator"}),  # asks both sides the same
    "web": frozenset({"core", "dialects", "sessions", "models", "observe", "keys"}),
    "page": frozenset(
        {
            *("budgets", "clients", "config", "core", "dialects", "keys", "ledger", "mcp_bridge", "models", "prove"),
            *("sessions", "web"),
        }
    ),
    "tasks": frozenset(),
    "processes": frozenset(),
    "storage": frozenset(),
    "installation": frozenset(),
    "service": frozenset(),  # values in, text out
    "config": frozenset({"core"}),
    "clients": frozenset(),  # values in, values out: what clients are told, and edits of their files
    "upstream": frozenset(  # for commands without a server, too
        {
            *("auth", "backends", "budgets", "builtin_tools", "config", "core", "cursor_transport", "loop_guard"),
            *("mcp_bridge", "observe", "simulator", "text_protocol", "web"),
        }
    ),
}
"""Rooms and root modules that are bound by the rule. Every room may import itself and what is open to all."""

KNOWS_EVERYONE: Final = frozenset({"gateway", "assembly", "cli", "__init__", "__main__"})
OPEN_TO_ALL: Final = frozenset({"tasks", "processes", "storage", "installation", "__version__"})


def module_name(path: Path) -> str:
    """`caretway.core.fold`; a package is called `caretway.core.__init__` so that its parent is the package itself."""
    return ".".join(["caretway", *path.relative_to(ROOT).with_suffix("").parts])


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
        yield from (name for name in names if name == "caretway" or name.startswith("caretway."))


def room_of(name: str) -> str:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def offences(module: str, source: str) -> list[str]:
    """One sentence for each import that the table forbids."""
    room = room_of(module)
    if room not in MAY_IMPORT and room not in KNOWS_EVERYONE:
        return [f"{module}: the room `{room}` is not in the table"]
    found = []
    for name in imports(module, source):
        target = room_of(name)
        if name.startswith("caretway.wire.gen") and room != "wire":
            found.append(f"{module} imports {name}: generated code is seen by wire alone")
        elif room not in KNOWS_EVERYONE and target not in {room} | OPEN_TO_ALL | MAY_IMPORT[room]:
            found.append(f"{module} imports {name}: {room} may not know {target}")
    return found


MODULES: Final = sorted(path for path in ROOT.rglob("*.py"))


@pytest.mark.seed("A07")
def test_rooms() -> None:
    assert [one for path in MODULES for one in offences(module_name(path), path.read_text())] == []


def test_the_tree_was_found() -> None:
    names = {module_name(path) for path in MODULES}
    assert {"caretway.core.fold", "caretway.wire.envelope", "caretway.tasks", "caretway.__init__"} <= names


NO_ROOM: Final = "utils"  # a room that is not in the table

RULINGS: Final = [
    ("caretway.core.fold", "from .errors import GatewayError", True),
    ("caretway.core.fold", "import json, asyncio", True),
    ("caretway.core.fold", "from ..tasks import spawn", True),
    ("caretway.core.fold", "from .. import tasks", True),
    ("caretway.core.fold", "from ..processes import lines", True),
    ("caretway.core.fold", "from ..wire import envelope", False),
    ("caretway.core.fold", "from .. import wire", False),
    ("caretway.core.fold", "import caretway", False),
    ("caretway.core.fold", "from ..config import Settings", False),
    ("caretway.core.canonical", "from ..schemas.check import SchemaChecker", False),
    ("caretway.schemas.fitting", "from ..core.request import ToolSpec", True),
    ("caretway.schemas.fitting", "from ..backends.agent_api import compose", False),
    ("caretway.core.__init__", "from . import fold", True),
    ("caretway.core.__init__", "from .. import wire", False),
    ("caretway.wire.errors", "from .gen import aiserver_pb2", True),
    ("caretway.wire.errors", "from ..core.errors import GatewayError", False),
    ("caretway.processes.child", "from ..tasks import spawn", True),
    ("caretway.processes.child", "from ..core.errors import GatewayError", False),
    ("caretway.simulator.brain", "from ..wire.messages import pb", True),
    ("caretway.simulator.brain", "from ..wire.gen import agent_pb2", False),
    ("caretway.simulator.brain", "import caretway.wire.gen.agent_pb2 as pb", False),
    ("caretway.simulator.brain", "from ..core import events", False),
    ("caretway.simulator.brain", "def late():\n    from caretway.core import events", False),
    ("caretway.simulator.brain", "if TYPE_CHECKING:\n    from ..core import events", False),
    ("caretway.backends.agent_api.backend", "from ...wire import paths", True),
    ("caretway.backends.agent_api.backend", "from ..cursor_cli import process", True),
    ("caretway.backends.agent_api.backend", "from ...simulator import server", False),
    ("caretway.backends.agent_api.turn", "from ...cursor_transport.ports import RunStream", True),
    ("caretway.builtin_tools.local.repeats", "from ...loop_guard.live import LiveGuard", True),
    ("caretway.sessions.manager", "from ..loop_guard import history", False),
    ("caretway.cursor_transport.ports", "from ..backends.agent_api import turn", False),
    ("caretway.builtin_tools.policy", "from ..cursor_transport import ports", False),
    ("caretway.backends.agent_api.backend", "from ...sessions import plan", False),
    ("caretway.web.tenant", "from ..dialects import DIALECTS", True),
    ("caretway.web.tenant", "from ..backends import agent_api", False),
    ("caretway.web.tenant", "from ..config import Settings", False),
    ("caretway.web.tenant", "from .. import __version__", True),
    ("caretway.dialects.openai_chat.decode", "from ..sse import Frame", True),
    ("caretway.dialects.openai_chat.decode", "from ...web import tenant", False),
    ("caretway.gateway", "from .config import Settings\nfrom .simulator import server", True),
    ("caretway.gateway", "from .wire.gen import agent_pb2", False),
    ("caretway.cli.serve", "from ..config import Settings\nfrom ..gateway import Gateway", True),
    ("caretway.config.settings", "from ..core.request import SessionMode", True),
    ("caretway.config.settings", "from .row import Setting", True),
    ("caretway.config.settings", "from ..backends import agent_api", False),
    ("caretway.auth.store", "from ..config import data_directory", False),
    ("caretway.clients.table", "from . import launching", True),
    ("caretway.clients.table", "from ..config import Settings", False),
    ("caretway.testing.cursor_agent.acp", "from ...simulator import text_model", True),
    ("caretway.testing.scripted", "from ..gateway import Gateway", True),
    ("caretway.testing.scripted", "from ..sessions import plan", False),
    ("caretway.testing.cursor_agent.acp", "from ...backends.cursor_cli import program", False),
    ("caretway.backends.cursor_cli.backend", "from ...testing.cursor_agent import words", False),
    (f"caretway.{NO_ROOM}.strings", "import re", False),
]


def test_rulings() -> None:
    wrong = [row for row in RULINGS if (offences(row[0], row[1]) == []) is not row[2]]
    assert wrong == []


def test_the_tables_speak_of_what_exists() -> None:
    """A row about something that was renamed or deleted would guard nothing."""
    modules = {module_name(path) for path in MODULES}
    rooms = {room_of(module) for module in modules}
    assert {*MAY_IMPORT, *KNOWS_EVERYONE} == rooms
    assert {target for targets in MAY_IMPORT.values() for target in targets} <= rooms
    assert {module for module, _, _ in RULINGS if room_of(module) != NO_ROOM} <= modules
