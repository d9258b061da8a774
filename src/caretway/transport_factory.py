"""Builds connections to Cursor from Settings: which host, through which proxy, over which HTTP."""

import time

from .config import Settings, hosts, process_environment
from .cursor_transport.auto_transport import AutoTransport, open_transport
from .cursor_transport.dial import Dialler
from .cursor_transport.limits import TransportLimits
from .cursor_transport.proxies import ProxyRules
from .cursor_transport.run_hosts import RunHosts


def dialler(settings: Settings) -> Dialler:
    """Opens every connection that leaves this machine, except those of other programs and of MCP servers."""
    rules = ProxyRules(process_environment(), settings.proxy or "", settings.proxy_loopback)
    return Dialler(rules, str(settings.agent_ca) if settings.agent_ca else None, settings.connect_timeout)


def open_api(settings: Settings) -> AutoTransport:
    """Sign-in, model lists, account."""
    return _open(settings, hosts(settings).api)


def open_runs(settings: Settings) -> RunHosts:
    """The same, and runs on the host that serves them."""
    known = hosts(settings)
    fixed = known.run if known.run_fixed else ""
    return RunHosts(open_api(settings), known.api, lambda url: _open(settings, url), time.monotonic, fixed)


def _open(settings: Settings, url: str) -> AutoTransport:
    return open_transport(url, dialler(settings), mode=settings.agent_transport, limits=transport_limits(settings))


def transport_limits(settings: Settings) -> TransportLimits:
    return TransportLimits(
        call_timeout_s=settings.call_timeout, max_frame_bytes=settings.max_frame_bytes, gather_s=settings.gather
    )
