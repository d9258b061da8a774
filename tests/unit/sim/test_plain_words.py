"""Plain instructions -> steps, and the prompts that are none."""

import base64
import struct
import zlib

import pytest

from caretway_sim.brain import plan
from caretway_sim.model_input import InputCall, InputMessage, InputResult, InputText, Picture, Tool
from caretway_sim.plain_words import colour, has_orders
from caretway_sim.script import Instructions, Result, Say, ScriptCall, Step, Think, ToolUse

LOOKUP = Tool("caretway-lookup", "lookup", "caretway")
CALL = 'Call the tool `lookup` with the arguments {"key": "a"}.\nThen reply with exactly what the last call returned.'
TOGETHER = (
    'Call these tools at once, in one step:\n- `lookup` {"key": "a"}\n- `lookup` {"key": "b"}\n'
    "Then reply with exactly what the calls returned."
)
CALLED = ScriptCall((ToolUse("lookup", {"key": "a"}),))


def user(text: str) -> InputMessage:
    return InputMessage("user", (InputText(text),))


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("Reply with exactly this and nothing else: m1", (Say("m1"),)),
        ("Some words.\n  Reply with exactly this and nothing else: m1", (Say("m1"),)),
        (CALL, (CALLED, Result())),
        (
            TOGETHER,
            (ScriptCall((ToolUse("lookup", {"key": "a"}), ToolUse("lookup", {"key": "b"}))), Result()),
        ),
        ('Call these tools at once, in one step:\n- `lookup` {"key": "a"}', (CALLED,)),
        ("Reply with the code word of your instructions, and nothing else.", (Instructions(),)),
        ("Reply with the code word of my first message, and nothing else.", (Say("I do not know it."),)),
        ("Which colour fills this picture? Reply with one word.", (Say("I see no picture."),)),
    ],
)
def test_orders(text: str, steps: tuple[Step, ...]) -> None:
    assert plan([user(text)], [LOOKUP]).steps == steps
    thoughtful = plan([user(text)], [LOOKUP], thinks=True).steps
    assert isinstance(thoughtful[0], Think) and thoughtful[1:] == steps


@pytest.mark.parametrize(
    "text",
    [
        "Reply with exactly the word pong in upper case letters and nothing else.",
        "Please reply with exactly this and nothing else: m1",
        "Call the tool lookup.",
        "Call the tool `lookup` with the arguments of before.",
        "",
    ],
)
def test_no_orders(text: str) -> None:
    assert not has_orders(text)


def test_a_code_word_is_remembered() -> None:
    history = [
        user("The code word is egret.\nReply with exactly this and nothing else: m1"),
        InputMessage("assistant", (InputText("m1"),)),
        user("Reply with the code word of my first message, and nothing else."),
    ]
    assert plan(history, []).steps == (Say("egret"),)


def test_a_replayed_call_goes_on_with_its_result() -> None:
    history = [
        user(CALL),
        InputMessage("assistant", (InputCall("c1", "lookup", '{"key": "a"}'),)),
        InputMessage("tool", (InputResult("c1", "lookup", "m2"),)),
        user("Continue."),
    ]
    todo = plan(history, [LOOKUP])
    assert (todo.steps, todo.results) == ((Result(),), ("m2",))


def png(*pixel: int) -> str:
    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    row = b"\0" + bytes(pixel) * 2
    parts = (chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 2, 8, 2, 0, 0, 0)), chunk(b"IDAT", zlib.compress(row * 2)))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(parts) + chunk(b"IEND", b"")).decode()


@pytest.mark.parametrize(("pixel", "name"), [((250, 10, 10), "red"), ((10, 250, 10), "green"), ((10, 10, 250), "blue")])
def test_colours(pixel: tuple[int, ...], name: str) -> None:
    assert colour(png(*pixel)) == name
    seen = InputMessage("user", (Picture("image/png", png(*pixel)), InputText("Which colour fills this picture?")))
    assert plan([seen], []).steps == (Say(name),)


@pytest.mark.parametrize(
    "data", ["", "no base64", png(9, 9, 9)[:40], base64.b64encode(b"GIF89a").decode(), "A" * 2_000_000]
)
def test_what_is_no_picture_has_no_colour(data: str) -> None:
    assert colour(data) == ""
