"""A conversation that a client told in one message, each line quoted, read as the conversation it was. Pure.

The official SDK takes no history, so clients of it quote what was said before: `[user]`, `[you]`, `[you called ...]`,
`[result of ...]`, each followed by lines that begin with `> `.
"""

import re
from collections.abc import Iterator
from typing import Final

from .model_input import InputCall, InputMessage, InputResult, InputText, Role

_HEAD: Final = re.compile(r"\[(?:(user|you)|you called `([^`]+)`|(result|error) of `([^`]+)`)\]")
_QUOTE: Final = "> "
_BEGINS: Final = re.compile(r"^\[user\]\n> ", re.MULTILINE)


def is_quoted(text: str) -> bool:
    return _BEGINS.search(text) is not None


def unquoted(text: str) -> list[InputMessage]:
    """The messages, with what stands around the quotation as messages of the user."""
    messages: list[InputMessage] = []
    open_calls: list[tuple[str, str]] = []
    for head, words in _blocks(text):
        if head is None:
            if words.strip():
                messages.append(_said("user", words))
        elif head[1]:
            messages.append(_said("user" if head[1] == "user" else "assistant", words))
        elif head[2]:
            open_calls.append((f"quoted-{len(messages)}", head[2]))
            messages.append(InputMessage("assistant", (InputCall(*open_calls[-1], words),)))
        else:
            call_id, name = _matching(open_calls, head[4])
            messages.append(InputMessage("tool", (InputResult(call_id, name, words, head[3] == "error"),)))
    return messages


def _said(role: Role, words: str) -> InputMessage:
    return InputMessage(role, (InputText(words),))


def _matching(open_calls: list[tuple[str, str]], name: str) -> tuple[str, str]:
    """Results come in the order of their calls."""
    found = next((call for call in open_calls if call[1] == name), None)
    if found is None:
        return "", name
    open_calls.remove(found)
    return found


def _blocks(text: str) -> Iterator[tuple[re.Match[str] | None, str]]:
    head: re.Match[str] | None = None
    words: list[str] = []
    for line in text.splitlines():
        found = _HEAD.fullmatch(line)
        if found is None and (head is None or line.startswith(_QUOTE)):
            words.append(line.removeprefix(_QUOTE) if head else line)
            continue
        yield head, "\n".join(words)
        head, words = found, [] if found else [line]
    yield head, "\n".join(words)
