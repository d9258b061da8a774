"""PDFs over the whole gateway: read by pypdf in a process of its own; hostile ones are refused, and nobody else
waits."""

import asyncio
import base64
import zlib
from collections.abc import Callable
from typing import Any

import anthropic
import openai
import pytest

from contract.gateways import Client

WORDS = "The gate opens at nine."


@pytest.fixture
def transport() -> str:
    return "h2"


def pdf(content: bytes = b"", *, packed: bool = False) -> bytes:
    """One page, written by hand; `content`, which may be packed, in place of the words."""
    stream = content or f"BT /F1 12 Tf 72 720 Td ({WORDS}) Tj ET".encode()
    filter_ = b"/Filter /FlateDecode " if packed else b""
    resources = b"<< /Font << /F1 5 0 R >> >>"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources %b >>" % resources,
        b"<< %b/Length %d >>\nstream\n%b\nendstream" % (filter_, len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    out, places = b"%PDF-1.4\n", []
    for number, one in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, one)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    return out + b"xref\n0 6\n0000000000 65535 f \n%btrailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (
        table,
        len(out),
    )


def spaces(megabytes: int) -> bytes:
    packer = zlib.compressobj(9)
    return b"".join(packer.compress(b" " * 1_000_000) for _ in range(megabytes)) + packer.flush()


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def document(data: bytes) -> dict[str, Any]:
    return {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": encoded(data)}}


async def test_the_text_of_a_pdf_reaches_the_model(client: Client) -> None:
    """In all three APIs, through the official SDKs: the simulated model tells the first user text that it holds."""
    recall: Any = {"role": "user", "content": "sim: recall"}
    heard: Any = {"role": "assistant", "content": "Read."}
    file = f"data:application/pdf;base64,{encoded(pdf())}"
    async with (
        openai.AsyncOpenAI(base_url=f"{client.gateway.base_url}/v1", api_key="any") as sdk,
        anthropic.AsyncAnthropic(base_url=client.gateway.base_url, api_key="any") as other,
    ):
        shown: Any = [{"role": "user", "content": [document(pdf())]}, heard, recall]
        message = await other.messages.create(model="sim-auto", max_tokens=99, messages=shown)
        part = {"type": "file", "file": {"filename": "a.pdf", "file_data": file}}
        asked: Any = [{"role": "user", "content": [part]}, heard, recall]
        chat = await sdk.chat.completions.create(model="sim-auto", messages=asked)
        part = {"type": "input_file", "filename": "a.pdf", "file_data": file}
        items: Any = [{"role": "user", "content": [part]}, heard, recall]
        response = await sdk.responses.create(model="sim-auto", input=items)
    block = message.content[0]
    assert block.type == "text"
    for text in (block.text, chat.choices[0].message.content, response.output_text):
        assert text is not None
        assert WORDS in text


def read(client: Client) -> int:
    """Tokens that the simulated model was given so far."""
    stats = client.stats()
    return stats["tokens_in_uncached"] + stats["tokens_in_cached"]


async def test_a_pdf_is_counted_as_the_text_that_is_sent(client: Client) -> None:
    """By both counts, as much as its text in the PDF's place; the simulated model counts nearly the same."""
    words = "sim: say read. " + " ".join(f"Gate {number} opens at nine." for number in range(200))
    drawn = pdf(f"BT /F1 12 Tf 72 720 Td ({words}) Tj ET".encode())
    plain = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": words}}
    file = f"data:application/pdf;base64,{encoded(drawn)}"
    written = f"data:text/plain;base64,{encoded(words.encode())}"
    async with (
        openai.AsyncOpenAI(base_url=f"{client.gateway.base_url}/v1", api_key="any") as sdk,
        anthropic.AsyncAnthropic(base_url=client.gateway.base_url, api_key="any") as other,
    ):
        counts = []
        for block in (document(drawn), plain):
            asked: Any = {"model": "sim-auto", "messages": [{"role": "user", "content": [block]}]}
            counts.append((await other.messages.count_tokens(**asked)).input_tokens)
        before = read(client)
        await other.messages.create(
            **asked | {"messages": [{"role": "user", "content": [document(drawn)]}]}, max_tokens=9
        )
        told = read(client) - before
        for data in (file, written):
            part = {"type": "input_file", "filename": "a", "file_data": data}
            items: Any = [{"role": "user", "content": [part]}]
            counts.append((await sdk.responses.input_tokens.count(model="sim-auto", input=items)).input_tokens)
    assert counts[0] == counts[1] > 1000
    assert counts[2] == counts[3]
    assert counts[0] == pytest.approx(told, rel=0.1)


@pytest.mark.parametrize("path", ["messages/count_tokens", "responses/input_tokens"])
async def test_a_pdf_that_cannot_be_read_cannot_be_counted(client: Client, path: str) -> None:
    file = {"type": "input_file", "filename": "a", "file_data": f"data:application/pdf;base64,{encoded(pdf()[:200])}"}
    items = [{"role": "user", "content": [document(pdf()[:200]) if path.startswith("messages") else file]}]
    answer = await client.http.post(f"/v1/{path}", json={"model": "sim-auto", "messages": items, "input": items})
    assert answer.status_code == 400
    assert "A PDF cannot be read" in answer.json()["error"]["message"]


HOSTILE: dict[str, Callable[[], bytes]] = {  # made when they are needed: they are large
    "cut off": lambda: pdf()[:200],
    "no page": lambda: b"%PDF-1.4\nnothing here",
    "pages that hold themselves": lambda: pdf().replace(b"/Kids [3 0 R]", b"/Kids [2 0 R]"),
    "no text": lambda: pdf(b"q 1 0 0 1 0 0 cm Q"),
    "a bomb": lambda: pdf(spaces(400), packed=True),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_pdf_that_cannot_be_read_is_an_error_and_nobody_waits(client: Client, name: str) -> None:
    body = {
        "model": "sim-auto",
        "max_tokens": 99,
        "messages": [{"role": "user", "content": [document(HOSTILE[name]())]}],
    }
    hostile = asyncio.create_task(client.http.post("/v1/messages", json=body))
    beside = await client.chat("sim: say meanwhile")
    assert beside.text == "meanwhile"
    answer = await hostile
    error = answer.json()["error"]
    assert (answer.status_code, error["details"]["error_code"]) == (400, "document_not_supported")
    assert "Send" in error["message"]
    assert client.gateway.tenants.live == 0
