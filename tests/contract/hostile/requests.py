"""Requests that a client may send and that could hold up everybody else's streams: as large, as deep, as crowded and as
odd as the limits allow, and a little beyond. Each is made when it is played: together they would not fit in memory.
"""

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

CHAT: Final = "/v1/chat/completions"
MESSAGES: Final = "/v1/messages"
COUNT: Final = "/v1/messages/count_tokens"
RESPONSES: Final = "/v1/responses"
BODY: Final = 32 * 2**20
IMAGES: Final = 15 * 2**20
"""Of one message: upstream keeps each message in one piece, and a piece may have 16 MiB."""
TEXT: Final = 8 * 2**20
QUICK: Final = frozenset(
    {
        "10,000 messages",
        "25,000 parts",
        "19,997 system messages after the user's",
        "800 tools",
        "uniqueItems",
        "references that double",
        "an answer of many values",
        "arguments with many values",
        "four images",
        "text, 8 MiB",
    }
)
"""One of each kind, for every day."""

_json: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Hostile:
    name: str
    path: str
    make: Callable[[], bytes]
    headers: tuple[tuple[str, str], ...] = ()


def said(content: Any, **more: Any) -> bytes:
    return _json({"model": "sim-auto", "messages": [{"role": "user", "content": content}], **more})


def talk(messages: list[Any], **more: Any) -> bytes:
    end = {"role": "user", "content": "sim: say done"}
    return _json({"model": "sim-auto", "max_tokens": 9, "messages": [*messages, end], **more})


def items(given: list[Any], **more: Any) -> bytes:
    end = {"type": "message", "role": "user", "content": "sim: say done"}
    return _json({"model": "sim-auto", "input": [*given, end], **more})


def raw(content: bytes, *, more: bytes = b"") -> bytes:
    """A message whose content is this JSON text, and fields that are this JSON text."""
    return b'{"model":"sim-auto","max_tokens":9,"messages":[{"role":"user","content":%b}]%b}' % (content, more)


def _field(value: bytes, name: bytes = b"metadata") -> bytes:
    return raw(b'"sim: say done"', more=b',"%b":%b' % (name, value))


def _string(piece: bytes, size: int) -> bytes:
    return b'"sim: say done\\n' + piece * (size // len(piece)) + b'"'


def _many(piece: bytes, count: int) -> bytes:
    return b"[" + b",".join([piece] * count) + b"]"


def _tool(name: str, schema: Any, *, anthropic: bool = False) -> dict[str, Any]:
    if anthropic:
        return {"name": name, "description": "d", "input_schema": schema}
    return {"type": "function", "function": {"name": name, "description": "d", "parameters": schema}}


def _image(size: int, *, kind: str = "chat") -> dict[str, Any]:
    data = base64.b64encode(bytes(range(256)) * (size * 3 // 4 // 256)).decode()
    if kind == "messages":
        return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    if kind == "responses":
        return {"type": "input_image", "image_url": f"data:image/png;base64,{data}"}
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def _loop(steps: int) -> list[Any]:
    """A history of tool calls."""
    history: list[Any] = []
    for n in range(steps):
        function = {"name": "bash", "arguments": f'{{"command":"ls {n}"}}'}
        history.append(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{n}", "type": "function", "function": function}],
            }
        )
        history.append({"role": "tool", "tool_call_id": f"c{n}", "content": "file.txt"})
    return history


def _asked(arguments: str) -> list[Any]:
    function = {"name": "bash", "arguments": arguments}
    call = {"id": "c1", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "x"},
        {"role": "assistant", "content": "so"},
    ]


def _answer_in(schema: Any, answer: str) -> bytes:
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    return said(f"sim: say {answer}", response_format=wanted)


def _doubled() -> Any:
    levels = {f"l{n}": {"anyOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(40)}
    return {"$ref": "#/$defs/l0", "$defs": levels | {"l40": {"type": "integer"}}}


def _shapes() -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Bodies by their JSON alone; any API."""
    yield "empty lists, 32 MiB", lambda: _field(_many(b"[]", BODY // 3 - 100))
    yield "empty lists within the limit", lambda: _field(_many(b"[]", 49_000))
    yield "empty objects within the limit", lambda: _field(_many(b"{}", 49_000))
    yield "objects of one field", lambda: _field(_many(b'{"a":1}', 45_000))
    yield "lists in lists", lambda: _field(_many(b"[[1]]", 32_000))
    yield "numbers, 32 MiB", lambda: _field(_many(b"1", BODY // 2 - 100))
    yield "numbers within the limit", lambda: _field(_many(b"1", 99_000))
    yield "keys within the limit", lambda: _field(b"{" + b",".join(b'"%d":1' % n for n in range(98_000)) + b"}")
    yield "long keys", lambda: _field(b"{" + b",".join(b'"%d%b":1' % (n, b"k" * 70) for n in range(98_000)) + b"}")
    yield "unknown fields", lambda: raw(b'"x"', more=b"".join(b',"u%d":1' % n for n in range(98_000)))
    yield "empty strings, 32 MiB", lambda: _field(_many(b'""', BODY // 3 - 100))
    yield "floats of 40 digits", lambda: _field(_many(b"1." + b"9" * 40, 90_000))
    yield "integers of 4,000 digits", lambda: _field(_many(b"9" * 4_000, 2_000))
    yield "one integer of 8 MiB", lambda: _field(b"9" * TEXT)
    yield "one integer of 32 MiB", lambda: _field(b"9" * (BODY - 200))
    yield "depth 60 and wide", lambda: _field(b"[" * 58 + _many(b"[]", 40_000) + b"]" * 58)
    yield "depth 10,000", lambda: _field(b"[" * 10_000 + b"]" * 10_000)
    yield "depth 5,000,000", lambda: _field(b"[" * 5_000_000)
    yield "large at every level", lambda: _field((b"[%b," % _string(b"a", 140_000)) * 55 + b"1" + b"]" * 55)
    yield "white space, 32 MiB", lambda: b" " * (BODY - 400) + raw(b'"sim: say done"')
    yield "white space inside", lambda: _field(b" " * (BODY - 400) + b"1")
    yield "commas in a string, 7 MiB", lambda: raw(_string(b"[{,}],", 7 * 2**20))
    yield "braces in a string, 7 MiB", lambda: raw(_string(b"{[", 7 * 2**20))
    yield "quotes in a string, 8 MiB", lambda: raw(_string(b'\\"', TEXT - 400))
    yield "backslashes in a string, 8 MiB", lambda: raw(_string(b"\\\\", TEXT - 400))
    yield "quotes and commas, 32 MiB", lambda: raw(_string(b'\\",[', BODY - 400))
    yield "not ended", lambda: raw(_string(b"{,", 7 * 2**20))[:-9]
    yield "text, 8 MiB", lambda: raw(_string(b"word ", TEXT - 400))
    yield "text, 32 MiB", lambda: raw(_string(b"word ", BODY - 400))
    yield "one emoji and 8 MiB", lambda: raw('"sim: say done\\n😀'.encode() + b"a" * (TEXT - 400) + b'"')
    yield "one emoji and 32 MiB", lambda: raw('"sim: say done\\n😀'.encode() + b"a" * (BODY - 400) + b'"')
    yield "Chinese, 8 MiB", lambda: raw(_string("中".encode(), TEXT - 400))
    yield "escapes, 8 MiB", lambda: raw(_string(b"\\u0041", TEXT - 400))
    yield "escapes, 32 MiB", lambda: raw(_string(b"\\u0041", BODY - 400))
    yield "control characters, 8 MiB", lambda: raw(_string(b"\\u0001", TEXT - 400))
    yield "line feeds, 8 MiB", lambda: raw(_string(b"\\n", TEXT - 400))
    yield "pairs of surrogates, 8 MiB", lambda: raw(_string(b"\\ud83d\\ude00", TEXT - 400))
    yield "a lone surrogate at the end", lambda: raw(_string(b"a", TEXT - 400)[:-1] + b'\\ud800"')
    yield "UTF-8 that is broken at the end", lambda: raw(_string(b"a", TEXT - 400)[:-1] + b'\xff"')
    yield "spaces around a text, 8 MiB", lambda: raw(b'"sim: say done\\n' + b" " * (TEXT - 400) + b'"')


def _chats() -> Iterator[tuple[str, Callable[[], bytes]]]:
    plain = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "x"}]
    part = {"type": "text", "text": "a"}
    small = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(30)}}
    yield "10,000 messages", lambda: talk(plain * 5_000)
    yield "20,000 messages", lambda: talk(plain * 9_999)
    yield "a loop of 6,000 steps", lambda: talk(_loop(6_000))
    yield "25,000 parts", lambda: said([part] * 25_000)
    yield "2,500 messages of ten parts", lambda: talk([{"role": "user", "content": [part] * 10}] * 2_400)
    yield "25,000 system messages", lambda: talk([{"role": "system", "content": "x"}] * 19_999)
    later = [{"role": "user", "content": "hello"}, *[{"role": "system", "content": "x"}] * 19_997]
    yield "19,997 system messages after the user's", lambda: talk(later)
    yield "800 tools", lambda: talk([], tools=[_tool(f"t{n}", small) for n in range(800)])
    yield "12,000 tools", lambda: talk([], tools=[_tool(f"t{n}", {}) for n in range(12_000)])
    yield (
        "a tool with 45,000 names",
        lambda: talk([], tools=[_tool("t", {"required": [str(n) for n in range(45_000)]})]),
    )
    yield "a tool with a text of 8 MiB", lambda: talk([], tools=[_tool("t", {"description": "d" * (TEXT - 900)})])
    yield "a small tool with many names", lambda: talk([], tools=[_tool("t", {"enum": list(range(9_000))})])
    yield "one large image", lambda: said([_image(IMAGES), {"type": "text", "text": "sim: say done"}])
    yield "four images", lambda: said([_image(IMAGES // 4)] * 4)
    yield "images in the history", lambda: talk([{"role": "user", "content": [_image(IMAGES // 2)] * 2}, plain[1]] * 2)
    yield "9,000 small images", lambda: said([_image(1024)] * 9_000)
    yield "an image that is broken at the end", lambda: said([_image(BODY - 4096)]).replace(b'"}}]}]}', b'*"}}]}]}')
    yield "arguments with many values", lambda: talk(_asked("[" + "[]," * 2_000_000 + "1]"))
    yield "arguments with some values", lambda: talk(_asked("[" + "[]," * 16_000 + "1]"))
    yield "arguments of long numbers", lambda: talk(_asked("[" + ("9" * 4_000 + ",") * 1_500 + "1]"))
    yield "the same result 5,000 times", lambda: talk([*_loop(5_000), *_loop(1)])
    yield "16 stop sequences", lambda: talk([], stop=["a" * 990 + str(n) for n in range(16)])
    yield "a stop sequence of 1 MiB", lambda: talk([], stop="a" * 2**20)
    yield "90,000 stop sequences", lambda: talk([], stop=["a"] * 90_000)
    yield "history of 8 MiB", lambda: talk([{"role": "user", "content": "a " * (TEXT // 2 - 400)}, plain[1]])
    yield "history of 8 MiB, spaces", lambda: talk([{"role": "user", "content": " " * (TEXT - 800) + "x"}, plain[1]])
    yield "system of 8 MiB", lambda: talk([{"role": "system", "content": "é " * (TEXT // 3 - 400)}])
    unique = [{"a": n} for n in range(1_500)]
    yield "uniqueItems", lambda: _answer_in({"type": "array", "uniqueItems": True}, _json(unique).decode())
    yield "references that double", lambda: _answer_in(_doubled(), "[1]")
    yield "an expression", lambda: _answer_in({"type": "string", "pattern": "^(a+)+$"}, '"' + "a" * 64 + '!"')
    yield "a schema of 90,000 values", lambda: _answer_in({"enum": list(range(90_000))}, "[1]")
    yield "an answer of many values", lambda: _answer_in({"type": "array"}, "[" + "[]," * 200_000 + "1]")
    yield (
        "an answer of some values",
        lambda: _answer_in({"items": {"anyOf": [{"type": "string"}] * 50}}, "[" + "[]," * 15_000 + "1]"),
    )


def _messages() -> Iterator[tuple[str, Callable[[], bytes]]]:
    small = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(30)}}
    calls = [{"type": "tool_use", "id": f"t{n}", "name": "b", "input": {"a": 1}} for n in range(9_000)]
    results = [{"type": "tool_result", "tool_use_id": f"t{n}", "content": "x"} for n in range(9_000)]
    yield (
        "9,000 calls and results",
        lambda: talk([{"role": "assistant", "content": calls}, {"role": "user", "content": results}]),
    )
    yield "24,000 blocks", lambda: said([{"type": "text", "text": "a"}] * 24_000, max_tokens=9)
    yield "24,000 system blocks", lambda: talk([], system=[{"type": "text", "text": "a"}] * 24_000)
    yield "24,000 unknown blocks", lambda: said([{"type": f"u{n}", "x": 1} for n in range(20_000)], max_tokens=9)
    yield "700 tools", lambda: talk([], tools=[_tool(f"t{n}", small, anthropic=True) for n in range(700)])
    yield "one large image", lambda: said([_image(IMAGES, kind="messages")], max_tokens=9)
    yield "64 stop sequences", lambda: talk([], stop_sequences=["a" * 990 + str(n) for n in range(64)])
    yield (
        "documents",
        lambda: said(
            [{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d"}}] * 12_000,
            max_tokens=9,
        ),
    )


def _responses() -> Iterator[tuple[str, Callable[[], bytes]]]:
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]}
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a":1}'}
    output = {"type": "function_call_output", "call_id": "c", "output": "x"}
    tool = {"type": "function", "name": "t", "parameters": {"required": [str(n) for n in range(40_000)]}}
    yield "14,000 items", lambda: items([message] * 14_000)
    yield "19,000 calls and results", lambda: items([call, output] * 9_500)
    yield "a text of 8 MiB", lambda: items([{"role": "user", "content": "a " * (TEXT // 2 - 400)}])
    yield "instructions of 8 MiB", lambda: items([], instructions="é" * (TEXT // 2 - 400))
    yield "metadata of 8 MiB", lambda: items([], metadata={"a": "\n" * (TEXT // 2 - 400)})
    yield "a tool with 40,000 names", lambda: items([], tools=[tool])
    yield "images", lambda: items([{"role": "user", "content": [_image(IMAGES // 4, kind="responses")] * 4}])
    yield "references to items", lambda: items([{"type": "item_reference", "id": "x" * 80}] * 19_000)
    yield "includes", lambda: items([], include=["x"] * 90_000)


def corpus(path: str) -> list[Hostile]:
    """What is played at one path. The shapes as such are played where they cost least: a count needs no turn."""
    headers = tuple((f"x-{n}", "v" * 450) for n in range(120))
    found = {
        CHAT: [*_chats(), *(row for row in _shapes() if "8 MiB" in row[0] or "7 MiB" in row[0])],
        MESSAGES: [*_messages()],
        COUNT: [*_messages(), *_shapes()],
        RESPONSES: [*_responses()],
    }
    played = [Hostile(name, path, make) for name, make in found[path]]
    return [*played, Hostile("120 long headers", path, lambda: items([]) if path == RESPONSES else talk([]), headers)]
