"""Client tools that cursor-agent calls itself: their directory, approvals and MCP server; which builds refuse the
tools, why and for how long; and the limit of turns that wait for a client (the longest waiting turn is closed first).
"""

import contextlib
import hashlib
import json
import logging
import math
import os
import re
import shutil
import time
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from ...storage.private_file import open_file, write_file
from .acp_tool_turn import AcpToolTurn
from .process import Scratch
from .program import AGAIN_S
from .tool_server import SERVER, ToolServer

# ---- The files that cursor-agent needs before it uses an MCP server: an approval for one project path, below the
# user's home; in the project the rule that allows the server's calls, and a text about the model's own tools. They are
# written only for the gateway's directory, and removed again; the user's other configuration is not changed.
#
# The approvals are a list of `NAME-HASH`, where the hash covers the project's real path and the server's
# configuration: the approval fits no other project and no other server.

log = logging.getLogger(__name__)

FILE: Final = "mcp-approvals.json"
MAX_FILE_BYTES: Final = 2**20
_ODD: Final = re.compile(r"[^A-Za-z0-9]+")
_DENIED: Final = ("Shell(*)", "Write(**)")
"""The program's own tools that are denied unless the user allows them. Reading is allowed, because the program keeps
descriptions of tools and long results in its own files."""
INSTEAD: Final = f"""---
description: Which tools there are
alwaysApply: true
---
Your own shell and your own edits are off here, and this directory is empty: the user works elsewhere. For commands,
files and searches call the tools of the MCP server `{SERVER}`. They run where the user works, and are allowed.
"""
"""A project rule in Cursor's format. It explains to the model why its own shell is rejected."""


def project_slug(path: str) -> str:
    """The name of a project's directory below `~/.cursor/projects`."""
    return _ODD.sub("-", path).strip("-")


def server_config(url: str) -> dict[str, Any]:
    return {"url": url}


def approval(name: str, path: str, config: Mapping[str, Any]) -> str:
    arguments = json.dumps({"path": path, "server": config}, separators=(",", ":"), ensure_ascii=False)
    return f"{name}-{hashlib.sha256(arguments.encode()).hexdigest()[:16]}"


class Approvals:
    """The approvals for one of the gateway's directories."""

    def __init__(self, home: Path, workspace: Path) -> None:
        self._path = os.path.realpath(workspace)
        self._workspace = workspace
        self._file = home / ".cursor" / "projects" / project_slug(self._path) / FILE
        self._given: set[str] = set()

    def allow(self, *, own_tools: bool) -> None:
        """Write the rule that allows the server's calls, which the server's approval does not. The rule applies only in
        this directory."""
        rules = {"allow": [f"Mcp({SERVER}:*)"], "deny": [] if own_tools else list(_DENIED)}
        folder = self._workspace / ".cursor"
        write_file(folder / "cli.json", json.dumps({"permissions": rules}, indent=2), durable=False)
        if not own_tools:
            write_file(folder / "rules" / f"{SERVER}.mdc", INSTEAD, durable=False)

    def give(self, url: str) -> None:
        """Approve the server at `url`. Call this before the program learns the address. Raises OSError."""
        self._given.add(approval(SERVER, self._path, server_config(url)))
        self._write()

    def take_back(self, url: str) -> None:
        self._given.discard(approval(SERVER, self._path, server_config(url)))
        with contextlib.suppress(OSError):
            self._write()

    def close(self) -> None:
        """Remove the gateway's approvals. The program's own files about its chats stay."""
        self._given.clear()
        try:
            self._write()
        except OSError as failure:
            log.warning("%s could not be removed: %s", self._file, failure.strerror)

    def _write(self) -> None:
        """Write the approvals, and keep the file's other approvals, which the program may have added."""
        ours = {one for one in self._read() if not one.startswith(f"{SERVER}-")} | self._given
        if not ours:
            self._file.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self._file.parent.rmdir()  # unless the program keeps something there
            return
        write_file(self._file, json.dumps(sorted(ours)), durable=False)

    def _read(self) -> list[str]:
        try:
            with open_file(self._file) as file:
                known = json.loads(file.read(MAX_FILE_BYTES))
        except (OSError, ValueError, RecursionError):
            return []
        return [one for one in known if isinstance(one, str)] if isinstance(known, list) else []


ToolHandover = Literal["auto", "text"]


class ClientTools:
    def __init__(self, scratch: Scratch, home: str, version: str, parked: int, *, own_tools: bool) -> None:
        """`own_tools`: whether the program may also run its own tools."""
        self._scratch = scratch
        self._home = home
        self._own_tools = own_tools
        self._most = parked
        self._server = ToolServer(version)
        self._place: Path | None = None
        self._approvals: Approvals | None = None
        self._refusals: dict[object, tuple[str, float]] = {}
        """Build -> (why it gets tools as text, since when). With an infinite time the build is not tried again."""
        self._parked: OrderedDict[AcpToolTurn, None] = OrderedDict()

    def workspace(self) -> Path:
        """The directory in which all turns with client tools work: it holds only the gateway's rules for the program.
        Made again if it was removed."""
        if self._place is None:
            for path in self._scratch.left_behind():  # directories of a killed gateway
                Approvals(Path(self._home), path).close()
                shutil.rmtree(path, ignore_errors=True)
            self._place = self._scratch.with_tools()
        elif not self._place.is_dir():  # it was removed, with the rules in it
            self._place = self._scratch.with_tools()
            if self._approvals is not None:
                self._approvals.allow(own_tools=self._own_tools)
        return self._place

    def is_place(self, workspace: str) -> bool:
        return self._place is not None and str(self._place) == workspace

    def refusal(self, build: object) -> str:
        """Why this build gets client tools as text now; empty if it may call them."""
        if not self._home:
            return "there is no home directory"
        reason, since = self._refusals.get(build, ("", math.inf))
        return reason if time.monotonic() < since + AGAIN_S else ""

    # ---- calls from turns

    async def offer(self, turn: AcpToolTurn) -> str:
        """Offer the turn's tools, and write the files that the program needs. Returns the MCP server's address."""
        if self._approvals is None:
            self._approvals = Approvals(Path(self._home), self.workspace())
            self._approvals.allow(own_tools=self._own_tools)
        url = await self._server.open(turn)
        try:
            self._approvals.give(url)
        except OSError:
            self._server.close(url)
            raise
        return url

    def withdraw(self, url: str) -> None:
        self._server.close(url)
        if self._approvals is not None:
            self._approvals.take_back(url)

    def refused(self, build: object, reason: str, *, for_good: bool) -> None:
        """Send tools to this build as text, for some time or, with `for_good`, until the program is updated."""
        if self._refusals.get(build, ("",))[0] != reason:
            log.warning("cursor-agent gets clients' tools as text: %s", reason)
        self._refusals = {build: (reason, math.inf if for_good else time.monotonic())}

    def parked(self, turn: AcpToolTurn) -> None:
        self._parked[turn] = None
        while len(self._parked) > self._most:
            oldest, _ = self._parked.popitem(last=False)
            log.info("more than %d cursor-agent processes wait for a client: one is let go", self._most)
            oldest.close()

    def unparked(self, turn: AcpToolTurn) -> None:
        self._parked.pop(turn, None)

    async def aclose(self) -> None:
        await self._server.aclose()
        if self._approvals is not None:
            self._approvals.close()
        if self._place is not None:
            shutil.rmtree(self._place, ignore_errors=True)
