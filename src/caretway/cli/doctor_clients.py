"""What `doctor` says of the client configurations that it knows: base URLs that point here and are written wrong (too
much or too little of `/v1`, https to a plain port, a port where nobody listens). Files are read, never changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from ..dashboard.local_checks import Finding
from ..storage.private_file import open_file

Api = Literal["openai", "anthropic"]
_MAX_FILE: Final = 1_000_000
_URL: Final = re.compile(r"https?://(?:127\.0\.0\.1|localhost|\[::1\]):\d+[^\s\"'<>,;)\]}]*")


@dataclass(frozen=True, slots=True)
class KnownFile:
    client: str
    below_home: str
    api: Api


FILES: Final = (
    KnownFile("Claude Code", ".claude/settings.json", "anthropic"),
    KnownFile("OpenCode", ".config/opencode/opencode.json", "openai"),
    KnownFile("OpenCode", ".config/opencode/opencode.jsonc", "openai"),
    KnownFile("Codex", ".codex/config.toml", "openai"),
    KnownFile("aider", ".aider.conf.yml", "openai"),
    KnownFile("Continue", ".continue/config.yaml", "openai"),
    KnownFile("goose", ".config/goose/config.yaml", "openai"),
)
VARIABLES: Final[Mapping[str, Api]] = {
    "OPENAI_BASE_URL": "openai",
    "OPENAI_API_BASE": "openai",
    "ANTHROPIC_BASE_URL": "anthropic",
}


def check_clients(
    home: Path, environ: Mapping[str, str], ports: Iterable[int], tls_ports: Iterable[int] = ()
) -> list[Finding]:
    """`ports`: where gateways listen, or would. Only addresses that mean one of them are judged."""
    known, secure = {*ports}, {*tls_ports}
    found = [(name, f"the variable {name}", environ[name], api) for name, api in VARIABLES.items() if environ.get(name)]
    for file in FILES:
        path = home / file.below_home
        found += [(file.client, str(path), url, file.api) for url in dict.fromkeys(_URL.findall(_text(path)))]
    return [
        Finding("client", False, f"{where}: {url}: {mistake}", f"Write {right(url, api, secure)}")
        for _, where, url, api in found
        if (mistake := mistake_in(url, api, known | secure, secure))
    ]


def mistake_in(url: str, api: Api, ports: set[int], tls_ports: set[int]) -> str:
    """Empty: it is right, or means another server."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return ""
    if parts.hostname not in ("127.0.0.1", "localhost", "::1") or port not in ports:
        return ""
    if parts.scheme == "https" and port not in tls_ports:
        return "the gateway speaks plain HTTP there"
    if parts.scheme == "http" and port in tls_ports:
        return "the gateway speaks TLS there"
    path = parts.path.rstrip("/")
    if api == "openai" and path != "/v1":
        return "OpenAI's clients need a base URL that ends in /v1"
    if api == "anthropic" and path:
        return "Anthropic's clients add /v1 themselves"
    return ""


def right(url: str, api: Api, tls_ports: set[int]) -> str:
    parts = urlsplit(url)
    scheme = "https" if parts.port in tls_ports else "http"
    return f"{scheme}://{parts.netloc}{'/v1' if api == 'openai' else ''}"


def _text(path: Path) -> str:
    try:
        with open_file(path) as file:
            return file.read(_MAX_FILE).decode("utf-8", "replace")
    except OSError:
        return ""
