"""Which parameters (effort, thinking, fast ...) each model has: the public REST list, which wants the API key."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from ...core.errors import GatewayError
from ...cursor_transport.ports import UnaryResponse
from .backend import Parameters

log = logging.getLogger(__name__)

PATH: Final = "/v1/models"


async def model_parameters(get: Callable[[], Awaitable[UnaryResponse]]) -> Mapping[str, Parameters]:
    """Nothing when the list cannot be had: models work without their parameters."""
    try:
        response = await get()
        if response.status != 200:
            log.info("the model parameters could not be fetched: HTTP %d", response.status)
            return {}
        return read_parameters(msgspec.json.decode(response.body))
    except (GatewayError, msgspec.DecodeError, UnicodeDecodeError) as failure:
        log.info("the model parameters could not be fetched: %s", failure)
        return {}


def read_parameters(listed: Any) -> dict[str, Parameters]:
    """Tolerant: whatever does not look like a parameter is left out."""
    items = listed.get("items") if isinstance(listed, dict) else None
    found: dict[str, Parameters] = {}
    for item in items if isinstance(items, list) else []:
        if isinstance(item, dict) and isinstance(item.get("id"), str):
            parameters = item.get("parameters")
            rows = [_row(row) for row in parameters if isinstance(row, dict)] if isinstance(parameters, list) else []
            found[item["id"]] = tuple(row for row in rows if row is not None)
    return found


def _row(row: dict[str, Any]) -> tuple[str, tuple[str, ...]] | None:
    values = row.get("values")
    if not isinstance(row.get("id"), str) or not isinstance(values, list):
        return None
    return row["id"], tuple(v["value"] for v in values if isinstance(v, dict) and isinstance(v.get("value"), str))
