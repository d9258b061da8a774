"""Whether a client that brings tool results changed the history: an edited call argument or an earlier message makes it
another conversation; added words, split messages and filled-in defaults do not. Pure.

Of our newest answer the tickets are the proof: clients put words beside our calls, drop ours, split the answer into
several messages, fill in a tool's defaults. But a value in a call that now says something else is an edit (people are
asked before a tool runs, and change what it is to do), and the run would take the result for that of its own call. What
was said before that answer must be the same, spelling apart.
"""

from collections.abc import Callable, Sequence

import msgspec

from ..core.canonical import canonical_json, spell
from ..core.request import Message, Role, ToolCall
from .transcript import Chain, canonical


def known_before(
    told: tuple[Message, ...],
    history: tuple[Message, ...],
    answer: Message,
    before: Callable[[], bytes],
    spelled: Chain | None = None,
) -> int | None:
    """How many messages of `told` are the conversation before `answer`; None when it is another one. `told` ends with
    the client's account of the answer; `before` is the fingerprint of what was said before it; `spelled` the
    chain of `told` up to the assistant's last words, when it is known.

    Nearly every client sends what it sent before, unchanged. That is seen without spelling it all out once more;
    a changed request may still mean the same."""
    if not told:
        return 0  # results alone: there is nothing to compare
    count = len(history)
    if told[:count] == history and _retells(told[count:], answer):
        return count
    last = len(told)
    while last and told[last - 1].role is Role.ASSISTANT:
        last -= 1
    chain = Chain(b"").add(told[:last]) if spelled is None else spelled.copy()
    wanted = before()
    for count in range(last, len(told)):  # an answer may follow words of the assistant that the client itself put there
        if chain.said() == wanted and _retells(told[count:], answer):
            return count
        chain.add((told[count],))
    return None


def _retells(told: Sequence[Message], answer: Message) -> bool:
    if [canonical(message) for message in told] == [canonical(answer)]:
        return True
    if any(message.role is not Role.ASSISTANT for message in told):
        return False
    theirs = [part for message in told for part in message.parts if isinstance(part, ToolCall)]
    ours = {part.id: part for part in answer.parts if isinstance(part, ToolCall)}
    if len(theirs) != len(ours) or {call.id for call in theirs} != ours.keys():
        return False
    return not any(_edited(ours[call.id].arguments, call.arguments) for call in theirs)


def _edited(ours: str, theirs: str) -> bool:
    """A value that we wrote says something else now. Values may be added or left out on the way."""
    if canonical_json(ours) == canonical_json(theirs):
        return False
    wrote, told = _object(ours), _object(theirs)
    return any(name in told and spell(value) != spell(told[name]) for name, value in wrote.items())


def _object(arguments: str) -> dict[str, object]:
    """In the canonical spelling; what is no object has no values that could be compared."""
    try:
        value = msgspec.json.decode(canonical_json(arguments))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
