"""Bounds that are not settings, with other values for a test, in gateways that start meanwhile in this process."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any, Final

import pytest

from caretway import assembly, upstream
from caretway.backends.cli import program as cli_limits
from caretway.backends.sdk import bridge
from caretway.mcp import definitions

_BOUNDS: Final[dict[str, tuple[ModuleType, str, str]]] = {
    "max_frame_bytes": (upstream, "TransportLimits", "max_frame_bytes"),
    "client_heartbeat": (upstream, "ConversationLimits", "client_heartbeat"),
    "exec_heartbeat": (upstream, "ConversationLimits", "exec_heartbeat"),
    "header_timeout": (assembly, "ConnectionLimits", "head_timeout"),
    "drain_timeout": (assembly, "ConnectionLimits", "drain_timeout"),
    "send_timeout": (assembly, "ConnectionLimits", "send_timeout"),
    "body_idle_timeout": (assembly, "BodyLimits", "idle"),
    "body_timeout": (assembly, "BodyLimits", "total"),
    "max_buffered_bytes": (assembly, "BodyLimits", "in_all"),
    "max_answer_bytes": (assembly, "SessionLimits", "max_answer_bytes"),
    "fetch_images_timeout": (assembly, "ImageFetcher", "timeout"),
    "fetch_images_bytes": (assembly, "ImageFetcher", "max_bytes"),
    "cli_exit_grace": (cli_limits, "CliLimits", "exit_grace"),
    "cli_idle_timeout": (cli_limits, "CliLimits", "idle"),
    "cli_max_line_bytes": (cli_limits, "CliLimits", "line_bytes"),
    "sdk_memory_limit": (bridge, "BridgeSetup", "memory_limit"),
    "sdk_idle_timeout": (bridge, "BridgeSetup", "idle_timeout"),
    "mcp_retry_pause": (definitions, "BridgeLimits", "first_pause"),
    "mcp_result_bytes": (definitions, "BridgeLimits", "result_bytes"),
}


@contextmanager
def bounded(given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The settings among what is given; the rest are bounds, which hold until the end."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in given.items():
            if name in _BOUNDS:
                module, limits, field = _BOUNDS[name]
                patch.setattr(module, limits, partial(getattr(module, limits), **{field: value}))
        yield {name: value for name, value in given.items() if name not in _BOUNDS}
