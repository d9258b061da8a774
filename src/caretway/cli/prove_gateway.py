"""A gateway in its own process, for the case that kills one. `caretway prove` starts it on a free port.

The parent writes its flags as one line of JSON; secrets come from the usual sources. The address is the first line of
output. The process ends when the parent closes the pipe or dies.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

from ..config import load_from_process, process_environment
from ..core.errors import ErrorKind, GatewayError
from .process import run as run_loop
from .process import say
from .prove import secluded
from .running import ask

ANSWER_TIMEOUT_S: Final = 120.0
_LOOKUP: Final = {
    "type": "function",
    "function": {
        "name": "lookup",
        "description": "Looks a key up and returns its value.",
        "parameters": {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
    },
}

# ---------------------------------------------------------------------------------------------- the child


def main() -> int:
    return run_loop(_serve(json.loads(sys.stdin.readline())))


async def _serve(given: dict[str, Any]) -> int:
    from ..gateway import Gateway

    settings = replace(
        secluded(load_from_process(given)),
        host="127.0.0.1",
        port=0,
        gateway_key=None,
        api_key_file=None,
        tls_cert=None,
        tls_key=None,
        trace=None,
        log_level="error",
    )
    async with Gateway(settings) as gateway:
        say([gateway.base_url])
        await asyncio.to_thread(sys.stdin.read)
    return 0


# ---------------------------------------------------------------------------------------------- the parent


class GatewayProcess:
    def __init__(self, process: asyncio.subprocess.Process, url: str, model: str) -> None:
        self._process = process
        self._url = url
        self._model = model

    async def ask(self, messages: Sequence[Mapping[str, object]]) -> tuple[Mapping[str, object], str]:
        body = {"model": self._model, "messages": list(messages), "tools": [_LOOKUP]}
        answer = await asyncio.to_thread(
            ask, self._url, "/v1/chat/completions", method="POST", body=body, timeout=ANSWER_TIMEOUT_S
        )
        if not isinstance(answer.body, dict):
            raise GatewayError(ErrorKind.INTERNAL, "The second gateway did not answer.")
        if answer.status != 200:
            code = str(answer.body.get("error", {}).get("code", ""))
            raise GatewayError(ErrorKind.UPSTREAM_ERROR, "The second gateway failed.", code=code)
        return answer.body["choices"][0]["message"], answer.headers.get("x-caretway-session", "")

    async def kill(self) -> None:
        self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def gateway_process(
    given: Mapping[str, object], changes: Mapping[str, object], model: str
) -> AsyncIterator[GatewayProcess]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "caretway.cli.prove_gateway",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=process_environment(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps({**given, **changes}).encode() + b"\n")
        url = (await process.stdout.readline()).decode().strip()
        if not url:
            raise GatewayError(ErrorKind.INTERNAL, "The second gateway did not start.", code="gateway_not_started")
        yield GatewayProcess(process, url, model)
    finally:
        process.stdin.close()
        if process.returncode is None:
            try:
                async with asyncio.timeout(10):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


if __name__ == "__main__":
    sys.exit(main())
