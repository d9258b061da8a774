"""Decides how the SDK's Node.js process is started: Node's permissions (reads its package, writes nothing, starts
nothing), the addresses that guard.mjs lets it connect to, and an environment made of nothing but that. Pure.

A server can ask the SDK's built-in tools for anything. What they may do is decided here, and not by the SDK.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from ...processes.child import Command

HERE: Final = Path(__file__).resolve().parent
GUARD: Final = HERE / "guard.mjs"
BRIDGE: Final = HERE / "bridge.mjs"
PARTS: Final = (HERE / "attempts.mjs", HERE / "order.mjs")
"""Of the bridge."""
CURSOR_DOMAINS: Final = ("cursor.sh", "cursor.com")
PORTS: Final = {"http": 80, "https": 443}
SMALL: Final = ("--optimize-for-size", "--max-semi-space-size=8", "--no-maglev", "--max-optimized-bytecode-size=2048")
"""Less memory, for a process that mostly waits: to optimise a large function of the SDK takes 20 MB for good."""


@dataclass(frozen=True, slots=True)
class SdkInstall:
    node: Path
    modules: Path
    """The `node_modules` with the SDK and what it needs. Without symbolic links: permissions are given by path."""

    @property
    def entry(self) -> Path:
        return self.modules / "@cursor" / "sdk" / "dist" / "esm" / "index.js"


def egress(urls: Iterable[str], *, stand_in: bool) -> dict[str, list[str]]:
    """What may be connected to: the addresses in the settings, and Cursor's domains if the API is Cursor's own: it may
    name further hosts of those."""
    places = map(urlsplit, urls)
    own = {f"{at.hostname.rstrip('.')}:{at.port or PORTS.get(at.scheme, 443)}" for at in places if at.hostname}
    return {"own": sorted(own), "domains": [] if stand_in else list(CURSOR_DOMAINS)}


def node_command(
    install: SdkInstall,
    root: Path,
    allowed: Mapping[str, list[str]],
    *,
    backend_url: str | None = None,
    ca_file: str | None = None,
    script: Path = BRIDGE,
) -> Command:
    """`root` is where the process is started: a directory of its own, empty. `backend_url` is for stand-ins; without
    one the SDK knows its own address."""
    # Nobody makes this: home, working directory, temporary files, and programs, which are looked for upwards from here.
    top = Path(root.anchor)
    absent = top / "caretway-absent" / "here"
    # Where it believes to be it also looks for a repository, and takes a refusal to look for a failure.
    looked_at = [absent.parent / "*", top / "node_modules" / "@cursor" / "*", top / ".git"]
    readable = [install.modules / "*", GUARD, script, *PARTS, *looked_at]
    argv = [
        str(install.node),
        "--permission",
        *(f"--allow-fs-read={path}" for path in readable),
        "--disable-sigusr1",
        "--no-warnings",
        *SMALL,
        f"--import={GUARD.as_uri()}",
        str(script),
    ]
    environment = {
        **dict.fromkeys(("HOME", "PATH", "TMPDIR", "CURSOR_DATA_DIR"), str(absent)),
        "CARETWAY_EGRESS": json.dumps({**allowed, "absent": str(absent)}),
        "CARETWAY_SDK": install.entry.as_uri(),
        "MALLOC_ARENA_MAX": "1",  # else each thread of glibc's keeps what it once needed
    }
    if backend_url is not None:
        environment |= {"CURSOR_BACKEND_URL": backend_url, "CURSOR_WEBSITE_URL": backend_url}
    if ca_file is not None:
        environment["NODE_EXTRA_CA_CERTS"] = ca_file
    return Command(argv, str(root), environment)
