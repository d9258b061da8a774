"""Questions that cost no run: lists, statuses, the period's usage. For the backend `agent`, whose calls are ours."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from google.protobuf.message import DecodeError

from ..core.errors import GatewayError
from ..cursor.transport.ports import UnaryResponse
from ..cursor.wire import paths
from ..cursor.wire.messages import ai, pb
from .desk import Bench, Desk, Skipped

QUOTA_PATIENCE_S: Final = 5.0

Probe = Callable[[str, str, bytes], Awaitable[UnaryResponse]]
"""(path, content type, body) -> the answer."""


async def _probe(bench: Bench) -> Probe:
    transport = bench.watch.transport if bench.watch else None
    assert transport is not None  # cases of `agent` alone come here
    await bench.backend.models()  # its headers are those of the probes
    return transport.probe


async def lists(desk: Desk) -> None:
    probe = await _probe(desk.main)
    flat = await probe(paths.USABLE_MODELS, paths.UNARY_TYPE, b"")
    wanted = ai.AvailableModelsRequest(use_model_parameters=True, do_not_use_markdown=True)
    bases = await probe(paths.AVAILABLE_MODELS, paths.UNARY_TYPE, wanted.SerializeToString())
    try:
        listed = pb.GetUsableModelsResponse.FromString(flat.body if flat.status == 200 else b"").models
        based = ai.AvailableModelsResponse.FromString(bases.body if bases.status == 200 else b"").models
    except DecodeError as broken:
        raise Skipped("a list is not readable") from broken
    thinking = sum(model.HasField("thinking_details") for model in listed)
    desk.found({"flat_models": len(listed), "base_models": len(based), "thinking_details": thinking})


async def list_type(desk: Desk) -> None:
    probe = await _probe(desk.main)
    desk.found({"list_type_status": (await probe(paths.USABLE_MODELS, paths.STREAM_TYPE, b"")).status})


async def http1_run(desk: Desk) -> None:
    async with desk.bench({"agent_transport": "http1"}) as bench:
        probe = await _probe(bench)
        desk.found({"http1_run_status": (await probe(paths.RUN, paths.STREAM_TYPE, b"")).status})


async def proxy(desk: Desk) -> None:
    """Costs nothing: all that was asked before has gone this way."""
    if not desk.main.proxy:
        raise Skipped("no proxy is set for this address")
    if "text" not in desk.facts:
        raise Skipped("shown by the case text, which was not tried")
    desk.found({"proxy": desk.main.proxy})


async def quota(desk: Desk) -> None:
    probe = await _probe(desk.main)
    try:
        async with asyncio.timeout(QUOTA_PATIENCE_S):
            response = await probe(paths.PERIOD_USAGE, paths.JSON_TYPE, b"{}")
    except (TimeoutError, GatewayError):
        desk.found({"quota": "silent"})
    else:
        desk.found({"quota": "told" if response.status == 200 else "refused"})
