"""A Cursor that means harm: what it answers a run with, as bytes, on either carrier.

`CASES` are what it may say. Nothing of it is broken at the level of HTTP or of the envelope, and nearly every message
is one that the decoder would take.
"""

import asyncio
import gzip
import os
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial as partial_of
from typing import Any

from google.protobuf.struct_pb2 import ListValue, Value

from caretway.cursor.wire.envelope import COMPRESSED, MAX_FRAME_BYTES, ConnectError, pack, write_end
from caretway.cursor.wire.messages import pb
from caretway.cursor.wire.paths import UNARY_TYPE
from caretway.processes.tasks import spawn

from ..connections.h2_peer import PeerStream, Script, h2_site
from ..connections.http1_peer import Http1Script, PeerRequest, PeerRun, http1_site

MIB = 1024 * 1024
WAITING_BYTES = 4 * MIB
"""How much upstream keeps ready; the rest is made when it is wanted."""

Chunks = Iterator[bytes]


# ---- messages


def message(**fields: Any) -> bytes:
    return pb.AgentServerMessage(**fields).SerializeToString()


def update(**fields: Any) -> bytes:
    return message(interaction_update=pb.InteractionUpdate(**fields))


def text(words: str) -> bytes:
    return update(text_delta=pb.TextDeltaUpdate(text=words))


def thought(words: str) -> bytes:
    return update(thinking_delta=pb.ThinkingDeltaUpdate(text=words))


def set_blob(number: int, key: bytes, data: bytes) -> bytes:
    args = pb.SetBlobArgs(blob_id=key, blob_data=data)
    return message(kv_server_message=pb.KvServerMessage(id=number, set_blob_args=args))


def get_blob(number: int, key: bytes) -> bytes:
    return message(kv_server_message=pb.KvServerMessage(id=number, get_blob_args=pb.GetBlobArgs(blob_id=key)))


def checkpoint(**fields: Any) -> bytes:
    return message(conversation_checkpoint_update=pb.ConversationStateStructure(**fields))


def asked(number: int, value: Value, name: str = "look") -> bytes:
    args = pb.McpArgs(name=name, tool_name=name, tool_call_id=f"call-{number}")
    args.args["key"].CopyFrom(value)
    return message(exec_server_message=pb.ExecServerMessage(id=number, mcp_args=args))


def partial(words: str, call: str = "call-1") -> bytes:
    tool = pb.ToolCall(mcp_tool_call=pb.McpToolCall(args=pb.McpArgs(name="look", tool_name="look")))
    return update(partial_tool_call=pb.PartialToolCallUpdate(call_id=call, tool_call=tool, args_text_delta=words))


def zipped(payload: bytes) -> bytes:
    packed = gzip.compress(payload, 1)
    return struct.pack(">BI", COMPRESSED, len(packed)) + packed


ENDED = pack(update(turn_ended=pb.TurnEndedUpdate())) + pack(write_end(), end=True)


def in_one(*frames: bytes) -> Chunks:
    yield b"".join(frames) + ENDED


def endless(frame: bytes, total: int) -> Chunks:
    """The same again and again, in chunks of about a megabyte, until so many bytes are out."""
    chunk = frame * max(1, MIB // len(frame))
    for _ in range(max(1, total // len(chunk))):
        yield chunk
    yield ENDED


def nested(depth: int) -> Value:
    value = Value(string_value="deep")
    for _ in range(depth):
        value = Value(list_value=ListValue(values=[value]))
    return value


def wide(count: int) -> bytes:
    """An exec with an argument of so many empty lists, put together by hand: the encoder takes seconds."""
    return _asked_by_hand(_field(0x32, b"\x0a\x02\x32\x00" * count))


def deep(levels: int) -> bytes:
    """An exec whose argument nests deeper than any encoder would write it."""
    inner = b""
    for _ in range(levels):
        inner = _field(0x32, _field(0x0A, inner))  # Value.list_value, ListValue.values
    return _asked_by_hand(inner)


def _asked_by_hand(inner: bytes) -> bytes:
    entry = _field(0x0A, b"key") + _field(0x12, inner)
    args = pb.McpArgs(name="look", tool_name="look", tool_call_id="call-1").SerializeToString()
    args_field = pb.McpArgs.DESCRIPTOR.fields_by_name["args"].number << 3 | 2
    exec_field = pb.ExecServerMessage.DESCRIPTOR.fields_by_name["mcp_args"].number << 3 | 2
    return _field(0x12, b"\x08\x01" + _field(exec_field, args + _field(args_field, entry)))


def _field(tag: int, content: bytes) -> bytes:
    return _varint(tag) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _detailed(size: int) -> Chunks:
    error = ConnectError("internal", "e" * size, error=1, title="t" * 10, detail="d" * size)
    yield pack(write_end(error), end=True)


LONGEST = 8_300_000
"""An answer, in bytes of JSON, with something left for what goes around it."""


def _whole_each_time(times: int) -> Chunks:
    for number in range(times):
        yield pack(partial("{" + "x" * number * 100))
    yield ENDED


FULL = MAX_FRAME_BYTES - 64
MANY_IDS = 400_000
CASES: dict[str, Callable[[], Chunks]] = {
    "one delta of 16 MiB": lambda: in_one(pack(text("a" * FULL))),
    "one delta of control characters": lambda: in_one(pack(text("\x01" * FULL))),
    "one delta of quotes": lambda: in_one(pack(text('"' * FULL))),
    "one delta with a wide character": lambda: in_one(pack(text("a" * (FULL - 8) + "\U0001f600"))),
    "one thought of 16 MiB": lambda: in_one(pack(thought("a" * FULL))),
    "a long answer in small words": lambda: endless(pack(text("a few words at a time, ")), 40 * MIB),
    "a long answer in control characters": lambda: endless(pack(text("\x01" * 100)), 40 * MIB),
    "a long answer in pages": lambda: endless(pack(text("a page" * 5000)), 400 * MIB),
    "an answer just within the limit": lambda: in_one(pack(text("a" * LONGEST))),
    "the same in quotes": lambda: in_one(pack(text('"' * (LONGEST // 2)))),
    "the same in control characters": lambda: in_one(pack(text("\x01" * (LONGEST // 6)))),
    "the same with a wide character": lambda: in_one(pack(text("a" * LONGEST + "\U0001f600"))),
    "one just within the limit of a stream that repeats it": lambda: in_one(pack(text("a" * (LONGEST // 5)))),
    "the same, repeated, in quotes": lambda: in_one(pack(text('"' * (LONGEST // 10)))),
    "the same, repeated, in control characters": lambda: in_one(pack(text("\x01" * (LONGEST // 30)))),
    "the same, repeated, with a wide character": lambda: in_one(pack(text("a" * (LONGEST // 5) + "\U0001f600"))),
    "text and thoughts by turns": lambda: endless(pack(text("ab")) + pack(thought("cd")), 40 * MIB),
    "nothing, again and again": lambda: in_one(pack(b"") * 50_000),
    "heartbeats in one read": lambda: in_one(pack(update(heartbeat=pb.HeartbeatUpdate())) * 50_000),
    "ten thousand pieces in one read": lambda: in_one(
        *[pack(set_blob(n, b"%032d" % n, b"x" * 100)) for n in range(10_000)]
    ),
    "pieces with ids of 16 MiB": lambda: (pack(set_blob(n, os.urandom(32) + bytes(FULL - 32), b"")) for n in range(40)),
    "one piece again and again": lambda: in_one(*[pack(set_blob(n, b"k", bytes(8 * MIB))) for n in range(30)]),
    "empty pieces without end": lambda: (pack(set_blob(n, b"%04000d" % n, b"")) for n in range(40_000)),
    "a piece is asked for a thousand times": lambda: in_one(
        pack(set_blob(1, b"k", bytes(8 * MIB))), *[pack(get_blob(n, b"k")) for n in range(1000)]
    ),
    "the same, behind news": lambda: in_one(
        pack(set_blob(1, b"k", bytes(8 * MIB))), *[pack(b"\x0a\x00" + get_blob(n, b"k")) for n in range(1000)]
    ),
    "a checkpoint of 16 MiB": lambda: in_one(pack(checkpoint(root_prompt_messages_json=[bytes(FULL - 64)]))),
    "a checkpoint of 400,000 ids": lambda: in_one(pack(checkpoint(root_prompt_messages_json=[bytes(32)] * MANY_IDS))),
    "a checkpoint over the limit": lambda: in_one(
        pack(text("kept")), pack(checkpoint(root_prompt_messages_json=[bytes(MIB)] * 100))
    ),
    "checkpoints without end": lambda: endless(pack(checkpoint(root_prompt_messages_json=[bytes(8 * MIB)])), 200 * MIB),
    "bombs in one read": lambda: in_one(*[zipped(text("a" * FULL))] * 60),
    "bombs of pieces": lambda: in_one(*[zipped(set_blob(1, b"k", bytes(FULL)))] * 60),
    "a bomb of news": lambda: in_one(*[zipped(update(heartbeat=pb.HeartbeatUpdate()) * 1_000_000)] * 3),
    "a nested argument": lambda: in_one(pack(asked(1, nested(30)))),
    "an argument nested too deeply": lambda: in_one(pack(deep(5000))),
    "an argument of many small values": lambda: in_one(pack(wide(5_900)), pack(wide(8_000))),
    "an argument of too many small values": lambda: in_one(pack(wide(1_000_000))),
    "an argument of half a megabyte": lambda: in_one(pack(asked(1, Value(string_value="a" * (MIB // 2 - 200))))),
    "an argument of control characters": lambda: in_one(pack(asked(1, Value(string_value="\x01" * (MIB // 6 - 20))))),
    "an argument of too many of them": lambda: in_one(pack(asked(1, Value(string_value="\x01" * (MIB // 2 - 200))))),
    "an argument of ten megabytes": lambda: in_one(pack(asked(1, Value(string_value="a" * 10 * MIB)))),
    "a part of a call of 16 MiB": lambda: in_one(pack(partial("a" * (FULL - 200)))),
    "parts of a call without end": lambda: endless(pack(partial("a")) + pack(partial("b")), 40 * MIB),
    "calls that only begin": lambda: (pack(partial("{", f"call-{n}")) for n in range(100_000)),
    "calls with ids of 60 kB": lambda: (pack(partial("{", f"{n}" * 10_000)) for n in range(10_000, 20_000)),
    "a call that is told whole each time": lambda: _whole_each_time(1_500),
    "a second call that only grows": lambda: endless(
        pack(partial("{")) + pack(partial('"ab', "call-2")) + pack(partial("c" * 100, "call-3")), 8 * MIB
    ),
    "twenty thousand execs": lambda: in_one(*[pack(asked(n, Value(string_value="x"))) for n in range(1, 20_001)]),
    "execs of no tool": lambda: in_one(*[pack(asked(n, Value(string_value="x"), "nothing")) for n in range(1, 3_001)]),
    "an end of 60 kB": lambda: _detailed(15_000),
    "an end of 16 MiB": lambda: _detailed(4 * MIB),
}


SHREDDED = "an answer in a hundred thousand shreds"
"""Not in the messages: the carrier brings it byte by byte, and many of those in one read."""


def _shredded() -> Chunks:
    yield pack(text("word ")) * 7_000 + ENDED


CASES[SHREDDED] = _shredded


# ---- servers


class Upstream:
    """What the next run is answered with."""

    chunks: Callable[[], Chunks]
    unary = b""
    """What any other call is answered with."""

    @property
    def shredded(self) -> bool:
        return self.chunks is _shredded


async def play(write: Callable[[bytes], None], waiting: Callable[[], int | None], chunks: Chunks) -> None:
    """`waiting`: bytes that were not taken yet; None: nobody will."""
    for chunk in chunks:
        while (left := waiting()) is not None and left > WAITING_BYTES:
            await asyncio.sleep(0.002)
        if left is None:
            return
        write(chunk)
        await asyncio.sleep(0)


class HostileH2(Script):
    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    def on_message(self, stream: PeerStream, payload: bytes) -> None:
        stream.messages.clear()
        if pb.AgentClientMessage.FromString(payload).HasField("run_request"):

            def waiting() -> int | None:
                return None if stream.reset_code is not None or stream.connection.lost else len(stream.waiting)

            spawn(play(partial_of(self._write, stream), waiting, self._upstream.chunks()), "hostile-run")

    def _write(self, stream: PeerStream, data: bytes) -> None:
        if not self._upstream.shredded:
            stream.write(data)
            return
        frames = (b"\0\0\x01\0\0" + stream.id.to_bytes(4, "big") + data[at : at + 1] for at in range(len(data)))
        stream.connection.transport.write(b"".join(frames))
        stream.connection.h2.end_stream(stream.id)
        stream.connection.flush()

    def on_end(self, stream: PeerStream) -> None:
        if not stream.path.endswith("/Run"):
            stream.head(200, UNARY_TYPE)
            stream.write(self._upstream.unary, end=True)


class HostileHttp1(Http1Script):
    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    def on_message(self, run: PeerRun, payload: bytes) -> None:
        run.messages.clear()
        if pb.AgentClientMessage.FromString(payload).HasField("run_request"):
            connection = run.request.connection

            def waiting() -> int | None:
                return None if connection.lost else connection.transport.get_write_buffer_size()

            spawn(play(partial_of(self._write, run), waiting, self._upstream.chunks()), "hostile-run")

    def _write(self, run: PeerRun, data: bytes) -> None:
        if not self._upstream.shredded:
            run.request.write(data)
            return
        shreds = b"".join(b"1\r\n%b\r\n" % data[at : at + 1] for at in range(len(data)))
        run.request.connection.transport.write(shreds + b"0\r\n\r\n")

    def on_call(self, request: PeerRequest) -> None:
        request.answer(200, self._upstream.unary)


@asynccontextmanager
async def hostile(carrier: str, upstream: Upstream) -> AsyncIterator[str]:
    """Its URL."""
    if carrier == "h2":
        async with h2_site(HostileH2(upstream)) as site:
            yield site.url
    else:
        async with http1_site(HostileHttp1(upstream)) as plain:
            yield plain.url
