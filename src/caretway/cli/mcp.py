"""`caretway mcp list | tools | call SERVER TOOL JSON | login SERVER | logout SERVER | serve`: shows the MCP servers as
the gateway would use them and why one cannot be reached, calls a tool, signs in to a server (`mcp_login`), and runs the
gateway as an MCP server (`mcp_serve`).
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ..config import MCP, SETTINGS, Settings
from .flags import REACHING_CURSOR, add_setting_flags, given, settings_from
from .process import CommandFailed, log_to_stderr, say
from .process import run as run_loop
from .terminal import Style, columns, style_for, terminal_width, wrapped

if TYPE_CHECKING:
    from ..core.request import ToolResult
    from ..mcp.bridge import McpBridge

NAME: Final = "mcp"
SUMMARY: Final = "list MCP servers, sign in to one, call one, or be one"
DESCRIPTION: Final = (
    "Connect to the MCP servers that `caretway serve` would use.\n"
    "  list                    every server, and why it cannot be reached\n"
    "  tools                   every tool, under the name that models see\n"
    "  call SERVER TOOL JSON   run one tool and print its result\n"
    "  login SERVER            sign in to one that wants OAuth, with any browser\n"
    "  logout SERVER           forget that sign-in on this machine\n"
    "  serve                   be an MCP server on stdio: ask, models, usage\n"
    "Exit code: 0 success; 1 a server cannot be reached (list) or a call failed;\n"
    "2 a setting is wrong."
)
EXAMPLES: Final = """\
examples:
  caretway mcp list --mcp-config .mcp.json
  caretway mcp tools --mcp-import claude,cursor --json
  caretway mcp call time get_current_time '{"timezone": "UTC"}'
  caretway mcp login tickets --no-browser     only print the link, as over ssh
  caretway mcp serve
"""
_NOBODY: Final = "there are no MCP servers; name them in [mcp.servers.NAME], with --mcp-config or with --mcp-import"


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.usage = "caretway mcp list|tools|call|login|logout|serve [WORDS] [flags]"
    actions = ("list", "tools", "call", "login", "logout", "serve")
    parser.add_argument("action", choices=actions, help="What to do.")
    parser.add_argument(
        "words", nargs="*", metavar="WORDS", help="SERVER TOOL JSON for call, SERVER for login and logout."
    )
    parser.add_argument("--no-browser", action="store_true", help="login: print the link, but do not open it.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    servers = (setting.name for setting in SETTINGS if setting.group == MCP)
    add_setting_flags(parser, (*servers, *REACHING_CURSOR), shown=("mcp_config", "mcp_import", "config", "workspace"))


def run(arguments: argparse.Namespace) -> int:
    settings = settings_from(arguments)
    log_to_stderr("error")  # the output reports a server's errors
    words: list[str] = arguments.words
    if arguments.action == "call":
        if len(words) not in (2, 3):
            raise CommandFailed("call takes a server, a tool and its arguments as JSON", "see: caretway mcp --help", 2)
        result = run_loop(_call(settings, words[0], words[1], words[2] if len(words) == 3 else "{}"))
        say([as_json(result) if arguments.json else as_text(result)])
        return 1 if result.is_error else 0
    if arguments.action in ("login", "logout"):
        from .mcp_login import login, logout

        if len(words) != 1:
            raise CommandFailed(f"{arguments.action} takes the name of one server", "see: caretway mcp --help", 2)
        if arguments.action == "login":
            return run_loop(login(settings, words[0], browser=not arguments.no_browser))
        return run_loop(logout(settings, words[0]))
    if arguments.action == "serve" and not words:
        from .mcp_serve import serve

        run_loop(serve(settings, given(arguments)))
        return 0
    if words:
        raise CommandFailed(f"{arguments.action} takes no further words", exit_code=2)
    listed = run_loop(_look(settings))
    style = style_for(sys.stdout)
    if arguments.json:
        say([json.dumps(listed, indent=2, ensure_ascii=False)])
    else:
        width = terminal_width() if sys.stdout.isatty() else 0
        say(servers_table(listed, style, width) if arguments.action == "list" else tools_table(listed, style))
    return 0 if arguments.action == "tools" or all(one["state"] == "connected" for one in listed["servers"]) else 1


async def _look(settings: Settings) -> dict[str, Any]:
    from ..upstream import open_mcp_bridge

    async with open_mcp_bridge(settings) as bridge:
        if bridge is None:
            raise CommandFailed(_NOBODY)
        await bridge.tried(settings.mcp_connect_timeout)
        return {"servers": _servers(bridge), **bridge.listing()}


def _servers(bridge: McpBridge) -> list[dict[str, str | int]]:
    configured: list[dict[str, str | int]] = [
        {
            "name": name,
            "state": server.state.value,
            "sign_in": server.sign_in,
            "tools": sum(tool.server == name for tool in bridge.catalogue.tools.values()),
            "place": server.definition.place,
            "origin": server.definition.origin,
            "detail": server.detail or server.note,
        }
        for name, server in bridge.servers.items()
    ]
    unusable: list[dict[str, str | int]] = [
        {
            "name": one.name,
            "state": "unusable",
            "sign_in": "",
            "tools": 0,
            "place": "",
            "origin": one.origin,
            "detail": one.problem,
        }
        for one in bridge.misfits
    ]
    return configured + unusable


async def _call(settings: Settings, server: str, tool: str, given: str) -> ToolResult:
    from ..upstream import open_mcp_bridge

    async with open_mcp_bridge(settings, only=server) as bridge:
        if bridge is None or server not in bridge.servers:
            unusable = next((one.problem for one in bridge.misfits if one.name == server), "") if bridge else ""
            raise CommandFailed(unusable or f"there is no MCP server {server}", "see: caretway mcp list")
        await bridge.tried(settings.mcp_connect_timeout, server)
        return await bridge.servers[server].call(tool, given, "cli")


def servers_table(listed: Mapping[str, Any], style: Style, width: int = 0) -> list[str]:
    """A table of the servers. `width`: the terminal's; 0: no limit. Details that do not fit stand below the table."""
    rows = [
        (one["name"], _state(one), str(one["tools"]), one["place"], one["detail"] or f"({one['origin']})")
        for one in listed["servers"]
    ]
    header = ("server", "state", "tools", "place", "detail")
    if not width or max(map(len, columns(header, rows, Style()))) <= width:
        return columns(header, rows, style)
    lines = columns(header[:3], [row[:3] for row in rows], style)
    for name, _, _, *texts in rows:
        lines += ["", name, *(f"  {line}" for text in texts for line in wrapped(text, width - 2))]
    return lines


def _state(server: Mapping[str, Any]) -> str:
    if server["sign_in"] in ("", "signed in"):
        return ", ".join(filter(None, (server["state"], server["sign_in"])))
    return f"sign-in {server['sign_in']}"


def tools_table(listed: Mapping[str, Any], style: Style) -> list[str]:
    rows = [(tool["id"], (tool["description"].strip().splitlines() or [""])[0][:80]) for tool in listed["data"]]
    return columns(("tool", "description"), rows, style) if rows else ["no tools"]


def as_text(result: ToolResult) -> str:
    from ..core.request import Text

    return "".join(
        part.text if isinstance(part, Text) else f"[image, {part.mime_type}, {len(part.data)} bytes]"
        for part in result.content
    )


def as_json(result: ToolResult) -> str:
    from ..core.request import Text

    content = [
        {"type": "text", "text": part.text}
        if isinstance(part, Text)
        else {"type": "image", "mimeType": part.mime_type, "data": base64.b64encode(part.data).decode()}
        for part in result.content
    ]
    return json.dumps({"content": content, "isError": result.is_error}, indent=2, ensure_ascii=False)
