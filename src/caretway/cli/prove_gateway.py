"""A gateway in its own process, for the case that kills one. `caretway prove` starts it on a free port.

The parent writes its flags as one line of JSON; secrets come from the usual sources. The address is the first line of
output. The process ends when the parent closes the pipe or dies.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from ..config import load_from_process, process_environment
from ..core.errors import ErrorKind, GatewayError
from .process import run as run_loop
from .process import say
from .prove import secluded

ANSWER_TIMEOUT_S: Final = 120.0
MAX_ANSWER: Final = 1024 * 1024
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
        self._address = urlsplit(url).netloc
        self._model = model

    async def ask(self, messages: Sequence[Mapping[str, object]]) -> tuple[Mapping[str, object], str]:
        body = json.dumps({"model": self._model, "messages": list(messages), "tools": [_LOOKUP]}).encode()
        return await asyncio.to_thread(self._post, body)

    def _post(self, body: bytes) -> tuple[Mapping[str, object], str]:
        connection = http.client.HTTPConnection(self._address, timeout=ANSWER_TIMEOUT_S)
        try:
            connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
            response = connection.getresponse()
            answer = json.loads(response.read(MAX_ANSWER))
        except (OSError, http.client.HTTPException, ValueError) as failure:
            raise GatewayError(ErrorKind.INTERNAL, "The second gateway did not answer.") from failure
        finally:
            connection.close()
        if response.status != 200:
            error = answer.get("error", {})
            raise GatewayError(ErrorKind.UPSTREAM_ERROR, "The second gateway failed.", code=str(error.get("code", "")))
        return answer["choices"][0]["message"], response.headers.get("x-caretway-session", "")

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
