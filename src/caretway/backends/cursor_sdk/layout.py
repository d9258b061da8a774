"""Directories of the SDK's bridge (home, state, an empty workspace for each conversation), and its environment: a few
variables and proxies, never the API key. Pure but for `make`.

All below the gateway's own data directory: the bridge sees neither the user's home nor the user's projects.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

KEPT: Final = frozenset({"PATH", "LANG", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"})
KEPT_PREFIXES: Final = ("LC_", "CURSOR_SDK_")
PROXIES: Final = frozenset({"http_proxy", "https_proxy", "no_proxy", "all_proxy"})
"""Kept in either spelling. Everything else stays out, the API key first of all: tools inherit the environment."""


@dataclass(frozen=True, slots=True)
class Layout:
    root: Path
    """Absolute, without symbolic links: permissions are given by path."""

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def agents(self) -> Path:
        return self.root / "agents"

    @property
    def scratch(self) -> Path:
        """The bridge's own working directory; always empty."""
        return self.root / "scratch"

    @property
    def temporary(self) -> Path:
        return self.root / "tmp"

    @property
    def projects(self) -> Path:
        """Where the SDK keeps what belongs to one working directory: its store, and transcripts in plain text."""
        return self.home / ".cursor" / "projects"

    def agent(self, agent_id: str) -> Path:
        return self.agents / agent_id

    def workspace(self, agent_id: str) -> Path:
        """An agent's working directory. Its name is in the path so that all that the SDK keeps of it can be found."""
        return self.agent(agent_id) / "workspace"

    def make(self) -> None:
        for directory in (self.root, self.home, self.state, self.agents, self.scratch, self.temporary):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def bridge_environment(
    process: Mapping[str, str], layout: Layout, *, backend_url: str | None, ca_file: str | None, sdk_version: str
) -> dict[str, str]:
    """`backend_url` is for stand-ins; without one the SDK knows its own address."""
    kept = {
        name: value
        for name, value in process.items()
        if name in KEPT or name.startswith(KEPT_PREFIXES) or name.lower() in PROXIES
    }
    # The SDK introduces itself with these two; it does not get to see the environment that is made here.
    kept |= {"CURSOR_SDK_CLIENT_LANGUAGE": "python", "CURSOR_SDK_PYTHON_VERSION": sdk_version}
    kept |= {"HOME": str(layout.home), "TMPDIR": str(layout.temporary)}
    if backend_url is not None:
        kept |= {"CURSOR_BACKEND_URL": backend_url, "CURSOR_WEBSITE_URL": backend_url}
    if ca_file is not None:
        kept["NODE_EXTRA_CA_CERTS"] = ca_file
    return kept
