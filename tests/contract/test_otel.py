"""OpenTelemetry: what a collector receives, by the names of the pinned conventions; and what a dead one costs."""

import asyncio
import importlib
import importlib.metadata
import inspect
import logging
import pkgutil
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import opentelemetry.semconv._incubating.attributes as incubating
import opentelemetry.semconv._incubating.metrics as incubating_metrics
import opentelemetry.semconv.attributes as stable
import pytest

from caretway.observe import otel
from contract.gateways import Client, gateway, result, tool
from contract.otlp_collector import Collector, SeenSpan, collecting

TOOLS = [tool("lookup", "key"), tool("note", "text")]
SECRET_WORDS = ("Spinnaker", "halyard", "bowsprit")


def constants(package: Any) -> set[str]:
    found = set()
    for module in pkgutil.iter_modules(package.__path__):
        members = vars(importlib.import_module(f"{package.__name__}.{module.name}"))
        found |= {value for name, value in members.items() if name.isupper() and isinstance(value, str)}
    return found


ATTRIBUTES = constants(stable) | constants(incubating)
METRICS = constants(incubating_metrics)


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as one:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", one.endpoint)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        yield one


def by(spans: list[SeenSpan], operation: str) -> list[SeenSpan]:
    return sorted((span for span in spans if span.operation == operation), key=lambda span: span.start)


async def two_steps(client: Client, headers: dict[str, str] | None = None, stream: bool = True) -> None:
    prompt = f'{SECRET_WORDS[0]}\nsim: call lookup {{"key": "{SECRET_WORDS[1]}"}} & note {{"text": "b"}}\nsim: result'
    messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    first = await client.chat(messages, tools=TOOLS, headers=headers, stream=stream)
    results = [result(call, SECRET_WORDS[2]) for call in first.calls]
    second = await client.chat([*messages, first.message, *results], tools=TOOLS, headers=headers, stream=stream)
    assert (first.finish, second.finish, second.session) == ("tool_calls", "stop", "resumed")


async def test_a_tool_loop_as_spans(collector: Collector, stream: bool) -> None:
    """Two requests, their answers, one run through both, and the two calls in between."""
    async with gateway() as client:
        await two_steps(client, stream=stream)
    spans = collector.spans
    first, second = by(spans, "http")
    asked, again = by(spans, "chat")
    (run,) = by(spans, "invoke_agent")
    lookup, note = sorted(by(spans, "execute_tool"), key=lambda span: span.name)
    assert len(spans) == 7
    assert [span.name for span in (first, asked, run, lookup, note)] == [
        "POST /v1/chat/completions",
        "chat sim-auto",
        "invoke_agent cursor",
        "execute_tool lookup",
        "execute_tool note",
    ]
    assert [span.kind for span in (first, asked, run, lookup)] == ["SERVER", "CLIENT", "CLIENT", "INTERNAL"]
    assert (first.parent, asked.parent, run.parent) == ("", first.id, first.id)
    assert (lookup.parent, note.parent, again.parent) == (run.id, run.id, second.id)
    assert asked.links == again.links == (run.id,)
    assert first.trace != second.trace, "nobody said that they belong together"
    assert run.trace == lookup.trace == first.trace
    assert run.start <= asked.end <= lookup.start <= lookup.end <= second.start + 1_000_000 <= run.end + 1_000_000
    assert not any(span.failed for span in spans)
    conversations = {span.attributes["gen_ai.conversation.id"] for span in spans}
    assert len(conversations) == 1
    assert "" not in conversations
    assert asked.attributes["gen_ai.response.finish_reasons"] == ["tool_call"]
    assert again.attributes["gen_ai.response.finish_reasons"] == ["stop"]
    assert ("gen_ai.response.time_to_first_chunk" in asked.attributes) is stream
    assert run.attributes["gen_ai.usage.input_tokens"] > 0
    assert run.attributes["gen_ai.usage.cache_read.input_tokens"] > 0
    assert run.attributes["caretway.run.responses"] == 2
    assert collector.resource["service.name"] == "caretway"
    assert collector.scopes == {("caretway", otel.SCHEMA)}


async def test_every_name_is_one_of_the_pinned_conventions(collector: Collector) -> None:
    assert importlib.metadata.version("opentelemetry-semantic-conventions") == otel.VERSION
    async with gateway() as client:
        await two_steps(client)
        await client.chat("sim: fail usage_limit")
        await client.chat([], stream=True)
        for path, body in (("/v1/messages", {"max_tokens": 9}), ("/v1/responses", {})):
            said = {"input": "sim: say hi"} if not body else {"messages": [{"role": "user", "content": "sim: say hi"}]}
            assert (await client.http.post(path, json={"model": "sim-auto", **body, **said})).status_code == 200
    assert {span.name for span in by(collector.spans, "http")} == {
        "POST /v1/chat/completions",
        "POST /v1/messages",
        "POST /v1/responses",
    }
    for span in collector.spans:
        theirs = {name for name in span.attributes if not name.startswith("caretway.")}
        assert theirs <= ATTRIBUTES, span.name
        if span.operation != "http":
            subject = {"chat": "request.model", "invoke_agent": "agent.name", "execute_tool": "tool.name"}
            assert span.name == f"{span.operation} {span.attributes[f'gen_ai.{subject[span.operation]}']}"
    assert set(collector.metrics) <= METRICS
    for name, unit in (
        ("gen_ai.client.operation.duration", "s"),
        ("gen_ai.client.operation.time_to_first_chunk", "s"),
        ("gen_ai.client.token.usage", "{token}"),
        ("http.server.request.duration", "s"),
    ):
        metric = collector.metrics[name]
        assert metric.unit == unit
        for point in metric.histogram.data_points:
            assert {pair.key for pair in point.attributes} <= ATTRIBUTES
    written = set(re.findall(r'"((?:gen_ai|http|url|user_agent|error|service)\.[a-z_.]+)"', inspect.getsource(otel)))
    assert len(written) > 30
    assert written <= ATTRIBUTES | METRICS


async def test_failures_and_refusals(collector: Collector) -> None:
    async with gateway() as client:
        await client.chat("sim: fail usage_limit")
        await client.chat([])
    failed, refused = by(collector.spans, "http")
    (answer,) = by(collector.spans, "chat")
    assert answer.failed
    assert answer.attributes["error.type"] == "quota"
    assert failed.attributes["http.response.status_code"] == 402
    assert refused.attributes["http.response.status_code"] == 400
    assert refused.attributes["error.type"]
    assert not failed.failed and not refused.failed, "a 4xx is the client's"


async def test_the_clients_trace_goes_on(collector: Collector) -> None:
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    async with gateway() as client:
        await two_steps(client, {"traceparent": f"00-{trace}-{parent}-01", "tracestate": "vendor=1"})
        await client.chat([], headers={"traceparent": f"00-{trace}-{parent}-01"})
        assert len(by(collector.spans, "http")) <= 3
    requests = by(collector.spans, "http")
    assert len(requests) == 3
    assert {span.parent for span in requests} == {parent}
    assert {span.trace for span in collector.spans} == {trace}


async def test_a_client_that_is_not_sampled_is_not_traced(collector: Collector) -> None:
    async with gateway() as client:
        await two_steps(client, {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"})
        await client.chat("sim: say hi", headers={"traceparent": "nonsense"})
    assert len(by(collector.spans, "http")) == 1


@pytest.mark.parametrize("asked", [False, True], ids=["off", "asked for"])
async def test_content_only_if_it_is_asked_for(
    collector: Collector, asked: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if asked:
        monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    async with gateway() as client:
        await two_steps(client)
        await client.chat("my key is sk-abcdefgh12345678\nsim: say ok")
    for word in SECRET_WORDS:
        assert (word.encode() in collector.raw) is asked
    assert b"sk-abcdefgh12345678" not in collector.raw
    assert ("traces hold prompts" in caplog.text) is asked
    if asked:
        first, second, _ = by(collector.spans, "chat")
        assert '"tool_call"' in first.attributes["gen_ai.output.messages"]
        assert '"tool_call_response"' in second.attributes["gen_ai.input.messages"]
        assert SECRET_WORDS[0] not in second.attributes["gen_ai.input.messages"], "only what is new"


async def test_a_collector_that_does_not_answer_holds_nothing_up_and_is_owed_little(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first post hangs. Sixteen spans may wait, and the newest are kept."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "16")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
    collector.may_answer.clear()
    async with gateway() as client:
        assert (await client.chat("sim: say hello")).text == "hello"
        await asyncio.to_thread(collector.wait, lambda seen: len(seen.spans) > 0)
        for number in range(40):
            assert (await client.chat(f"sim: say {number}")).text == str(number)
        before = len(collector.spans)
        assert before <= 4
        collector.may_answer.set()
    assert 16 <= len(collector.spans) <= before + 16


async def test_a_collector_that_is_gone_costs_no_request_and_a_moment_at_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and nobody listens
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{nobody.getsockname()[1]}")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "10")
        caplog.set_level(logging.WARNING)
        async with gateway() as client:
            for number in range(20):
                assert (await client.chat(f"sim: say {number}")).text == str(number)
            began = time.monotonic()
        assert time.monotonic() - began < 20, "the SDK alone would try for half a minute, twice"
    complaints = [record for record in caplog.records if record.name.startswith("opentelemetry.exporter")]
    assert len(complaints) <= 2, "one for each signal"


def test_nothing_is_imported_unless_it_is_asked_for() -> None:
    program = (
        "import asyncio, sys\n"
        "from caretway import Gateway, Settings\n"
        "async def main():\n"
        "    async with Gateway(Settings(backend='simulator', port=0)): pass\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry', 'caretway.observe.otel'))])\n"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env={})
    assert told.stdout == "[]\n"
