"""What cursor-agent wants on disk before it uses an MCP server: its approval for one project path, below the user's
home, and the rule that allows its calls, in the project itself; and what the model is told of its own tools there.
Written for a directory of our own only, and taken away again; nothing else in the user's configuration is touched.

The approvals are a list of `NAME-HASH`, where the hash is over the project's real path and the server's configuration:
an approval of ours fits no other project and no other server.
"""

import contextlib
import hashlib
import json
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ...storage.private_file import write_file
from .mcp_messages import SERVER

log = logging.getLogger(__name__)

FILE: Final = "mcp-approvals.json"
MAX_FILE_BYTES: Final = 2**20
_ODD: Final = re.compile(r"[^A-Za-z0-9]+")
_DENIED: Final = ("Shell(*)", "Write(**)")
"""What the program may not do by itself beside the client's tools, unless the user lets it. It may read: it keeps the
descriptions of tools, and results that are long, in files of its own."""
INSTEAD: Final = f"""---
description: Which tools there are
alwaysApply: true
---
Your own shell and your own edits are off here, and this directory is empty: the user works elsewhere. For commands,
files and searches call the tools of the MCP server `{SERVER}`. They run where the user works, and are allowed.
"""
"""A rule of the project, as Cursor has them. A model that tries its own shell is rejected, and knows why."""


def project_slug(path: str) -> str:
    """The name of a project's directory below `~/.cursor/projects`."""
    return _ODD.sub("-", path).strip("-")


def server_config(url: str) -> dict[str, Any]:
    return {"url": url}


def approval(name: str, path: str, config: Mapping[str, Any]) -> str:
    told = json.dumps({"path": path, "server": config}, separators=(",", ":"), ensure_ascii=False)
    return f"{name}-{hashlib.sha256(told.encode()).hexdigest()[:16]}"


class Approvals:
    """Of one directory of ours."""

    def __init__(self, home: Path, workspace: Path) -> None:
        self._path = os.path.realpath(workspace)
        self._workspace = workspace
        self._file = home / ".cursor" / "projects" / project_slug(self._path) / FILE
        self._given: set[str] = set()

    def allow(self, *, own_tools: bool) -> None:
        """Approving a server does not approve its calls: this rule does. It holds in this directory alone."""
        rules = {"allow": [f"Mcp({SERVER}:*)"], "deny": [] if own_tools else list(_DENIED)}
        folder = self._workspace / ".cursor"
        write_file(folder / "cli.json", json.dumps({"permissions": rules}, indent=2), durable=False)
        if not own_tools:
            write_file(folder / "rules" / f"{SERVER}.mdc", INSTEAD, durable=False)

    def give(self, url: str) -> None:
        """Before the server is named to the program. Raises OSError."""
        self._given.add(approval(SERVER, self._path, server_config(url)))
        self._write()

    def take_back(self, url: str) -> None:
        self._given.discard(approval(SERVER, self._path, server_config(url)))
        with contextlib.suppress(OSError):
            self._write()

    def close(self) -> None:
        """Nothing of ours is left. What the program itself keeps there of its chats is its own."""
        self._given.clear()
        try:
            self._write()
        except OSError as failure:
            log.warning("%s could not be removed: %s", self._file, failure.strerror)

    def _write(self) -> None:
        """What others have put there stays: the program may have approved something by itself."""
        ours = {one for one in self._read() if not one.startswith(f"{SERVER}-")} | self._given
        if not ours:
            self._file.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self._file.parent.rmdir()  # unless the program keeps something there
            return
        write_file(self._file, json.dumps(sorted(ours)), durable=False)

    def _read(self) -> list[str]:
        try:
            if self._file.stat().st_size > MAX_FILE_BYTES:
                return []
            known = json.loads(self._file.read_bytes())
        except (OSError, ValueError):
            return []
        return [one for one in known if isinstance(one, str)] if isinstance(known, list) else []
