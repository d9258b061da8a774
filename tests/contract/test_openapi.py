"""The gateway's own description: complete, well-formed, and no request made from it can bring the gateway down."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from importlib.metadata import distribution
from pathlib import Path

import jsonschema
import pytest

from caretway import __version__
from caretway.api.openapi import SCHEMAS, document
from caretway.api.routes import route_table
from caretway.dashboard.api import routes
from caretway.dialects.anthropic_messages.encode import ERRORS as ANTHROPIC
from caretway.dialects.openai_chat.encode import ERRORS as OPENAI
from caretway.dialects.registry import dialects
from contract.gateways import CHAT, gateway

ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")


def test_every_route_and_every_error_is_in_it() -> None:
    table = route_table(dialects(), routes(None))
    told = document(table.routes, __version__)
    for dialect in dialects():
        for route in dialect.routes:
            for path in (route.path, f"/v1{route.path}"):
                assert {method.lower() for method in route.operations} == set(told["paths"][path])
    for path, item in told["paths"].items():
        errors = ANTHROPIC if "/messages" in path else OPENAI
        for operation in item.values():
            known = {int(status) for status in operation["responses"]}
            assert {wire.status for wire in errors.values()} <= known, path
    names = [operation["operationId"] for item in told["paths"].values() for operation in item.values()]
    assert len(names) == len(set(names))


def test_its_schemas_are_schemas() -> None:
    for schema in SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(schema)


async def test_it_is_served_and_true() -> None:
    def fits(name: str, body: object) -> None:
        jsonschema.validate(body, {"$ref": f"#/components/schemas/{name}", "components": {"schemas": SCHEMAS}})

    async with gateway() as client:
        told = (await client.http.get("/openapi.json")).json()
        assert told == document(route_table(dialects(), routes(None)).routes, __version__)
        fits("Health", (await client.http.get("/health")).json())
        fits("ModelList", (await client.http.get("/v1/models")).json())
        fits("OpenAIError", (await client.http.post(CHAT, json={})).json())
        fits("AnthropicError", (await client.http.post("/v1/messages", json={})).json())


@pytest.mark.all
@pytest.mark.timeout(120)
def test_requests_made_from_it_find_no_failure_of_ours(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "caretway", "serve", "--backend", "simulator", "--port", "0"]
    log = tmp_path / "log"
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment) as gateway_process,
    ):
        try:
            assert gateway_process.stdout is not None
            url = next(found[0] for line in gateway_process.stdout if (found := ADDRESS.search(line)))
            script = next(
                file.locate()
                for file in distribution("schemathesis").files or ()
                if file.name in ("schemathesis", "st")
            )
            run = subprocess.run(
                [
                    *(sys.executable, str(script), "run", f"{url}/openapi.json", "--checks", "not_a_server_error"),
                    *("--include-path-regex", "^/(v1/.*|metrics)?$", "--max-examples", "8"),
                    *("--seed", "7", "--generation-database", "none"),
                ],
                capture_output=True,
                text=True,
                env=environment,
                cwd=tmp_path,
                timeout=90,
                check=False,
            )
            with urllib.request.urlopen(f"{url}/metrics", timeout=20) as counters:
                answered = re.findall(r"^caretway_responses_total\{.*\} (\d+)$", counters.read().decode(), re.MULTILINE)
        finally:
            gateway_process.send_signal(signal.SIGTERM)
            gateway_process.communicate(timeout=20)
    assert run.returncode == 0, run.stdout + run.stderr
    assert gateway_process.returncode == 0
    assert re.search(r"\d{3,} generated, \d{3,} passed", run.stdout), run.stdout
    assert "Traceback" not in log.read_text()
    assert sum(map(int, answered)) > 100  # most of it got through to the model
