"""PDFs in a request: where they stand, what is put in their place, what is refused."""

import base64
from typing import Any

import pytest

from caretway.api import documents
from caretway.api.documents import MARK, MAX_PDFS, inline_pdfs, pdf_places
from caretway.core.errors import GatewayError
from caretway.dialects.registry import dialects

PDF = base64.b64encode(b"%PDF-1.7 something").decode()
DIALECTS = {dialect.name: dialect for dialect in dialects()}


def block(data: str = PDF) -> dict[str, Any]:
    return {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": data}}


def read(data: bytes) -> dict[str, Any]:
    assert data.startswith(b"%PDF-")
    return {"pages": 2, "text": " The text. ", "cut": False}


def test_every_pdf_begins_with_the_mark() -> None:
    assert all(base64.b64encode(b"%PDF-" + rest).startswith(MARK) for rest in (b"1.4", b"2.0", b"\n"))


CHAT = {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}}
BODIES: list[tuple[str, dict[str, Any], str]] = [
    (
        "anthropic_messages",
        {"messages": [{"role": "user", "content": [block()]}], "max_tokens": 9},
        "Document:\n\nThe text.\n",
    ),
    ("openai_chat", {"messages": [{"role": "user", "content": [CHAT]}]}, "File: a.pdf\nThe text.\n"),
    (
        "openai_responses",
        {"input": [{"role": "user", "content": [{"type": "input_file", "filename": "a.pdf", "file_data": PDF}]}]},
        "File: a.pdf\nThe text.\n",
    ),
]


@pytest.mark.parametrize(("dialect", "body", "text"), BODIES, ids=[row[0] for row in BODIES])
async def test_the_text_is_in_the_prompt(dialect: str, body: dict[str, Any], text: str) -> None:
    assert await inline_pdfs(body, read) == len(PDF) - len("The text.")
    assert DIALECTS[dialect].decode({"model": "m", **body}, {}).messages[0].text == text


async def test_in_the_result_of_a_tool() -> None:
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": "t", "content": [block()]}
    await inline_pdfs({"messages": [{"role": "user", "content": [result]}]}, read)
    assert result["content"][0]["source"]["data"] == "The text."


def test_what_only_looks_like_one() -> None:
    words = {"role": "user", "content": f"What is {PDF}?"}
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0="}}
    assert pdf_places({"messages": [words, {"role": "user", "content": [picture]}], "file_data": 7}) == []


@pytest.mark.parametrize(
    ("told", "message", "hint"),
    [
        ({"failure": "it needs a password"}, "it needs a password", "Send the document's text."),
        ({"pages": 1, "text": " \n", "cut": False}, "has no text", "as images"),
    ],
)
async def test_what_cannot_be_read(told: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(GatewayError, match=message) as caught:
        await inline_pdfs([block()], lambda _: told)
    assert hint in caught.value.hint


async def test_more_than_fits_is_said_to_be_cut() -> None:
    one = block()
    await inline_pdfs([one], lambda _: {"pages": 2000, "text": "a", "cut": True})
    assert one["source"]["data"] == "a\n\n(The document has 2000 pages; the rest is left out.)"


async def test_damaged_base64_and_too_many() -> None:
    with pytest.raises(GatewayError, match="not valid base64"):
        await inline_pdfs([block(PDF[:-3] + "!!")], read)
    with pytest.raises(GatewayError, match="At most"):
        await inline_pdfs([block() for _ in range(MAX_PDFS + 1)], read)


async def test_without_the_package_the_error_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "find_spec", lambda _: None)
    with pytest.raises(GatewayError, match="pypdf, which is not installed") as caught:
        await inline_pdfs([block()])
    assert "install" in caught.value.hint
    assert "pypdf" in caught.value.hint
