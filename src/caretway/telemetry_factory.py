"""Opens OpenTelemetry if its standard variables ask for it (`config/telemetry.py`) and the extra `otel` is installed;
says what to install otherwise. Without them nothing of it is imported.
"""

import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial

from msgspec import Struct

from .config import Settings
from .config.telemetry import process_telemetry
from .core.records import Observer
from .dialects.registry import dialects
from .installation import install_command
from .known_secrets import secrets_in
from .observe.redact import Redactor
from .web.respond import Content
from .web.route_table import PREFIX

log = logging.getLogger(__name__)


class OpenTelemetry(Struct, frozen=True):
    """Who is to be told, and what of the content; nobody and nothing by default."""

    observers: Sequence[Observer] = ()
    content: Content | None = None


def open_telemetry(settings: Settings, stack: AsyncExitStack) -> OpenTelemetry:
    """The stack ends it."""
    plan = process_telemetry()
    for problem in plan.problems:
        log.warning("%s", problem)
    if not plan.wanted:
        return OpenTelemetry()
    try:
        from .observe.otel import Telemetry, content_json
    except ImportError as missing:
        log.warning("OTEL_ variables ask for OpenTelemetry, and %s. Type: %s", missing, install_command("otel"))
        return OpenTelemetry()
    scheme = "https" if settings.tls_cert else "http"
    telemetry = Telemetry(_turn_routes(), scheme, traces=plan.traces, metrics=plan.metrics)
    stack.push_async_callback(telemetry.aclose)
    if not plan.content:
        return OpenTelemetry(telemetry.observers)
    log.warning(
        "traces hold prompts and answers, because OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT asks for it"
    )
    return OpenTelemetry(telemetry.observers, partial(content_json, hide=Redactor(secrets_in(settings)).text))


def _turn_routes() -> dict[str, str]:
    """Where each API is asked for answers, by its name."""
    return {
        dialect.name: PREFIX + route.path
        for dialect in dialects()
        for route in dialect.routes
        if any(operation.turn for operation in route.operations.values())
    }
