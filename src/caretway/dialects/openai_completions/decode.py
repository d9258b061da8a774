"""A completion request -> TurnRequest with one user message, or an error that names the wrong field: one prompt only,
no `suffix` (filling in the middle), no token arrays.

Does not know models, backends and limits.
"""

from collections.abc import Mapping
from typing import Final

from ...core.errors import bad_request
from ...core.request import Message, Role, Text, TurnRequest
from ..fields import (
    FLAG,
    NUMBER,
    OBJECT,
    WHOLE,
    Idle,
    a_string,
    idle_names,
    invalid_value,
    kind_of,
    listable,
    missing,
    needed_string,
    optional_bool,
    unknown_names,
    unsupported,
    wrong_type,
)
from ..headers import bridge, session_mode, workspace
from ..openai_chat.decode import include_usage, stop_words

_IDLE: Final[dict[str, Idle]] = {
    "max_tokens": Idle(*WHOLE),
    "temperature": Idle(*NUMBER, (1,)),
    "top_p": Idle(*NUMBER, (1,)),
    "seed": Idle(*WHOLE),
    "frequency_penalty": Idle(*NUMBER, (0,)),
    "presence_penalty": Idle(*NUMBER, (0,)),
    "logit_bias": Idle(*OBJECT, ({},)),
    "logprobs": Idle(*WHOLE),
    "echo": Idle(*FLAG, (False,)),
}
_READ: Final = frozenset({"model", "prompt", "suffix", "n", "best_of", "stop", "stream", "stream_options"})
_SILENT: Final = frozenset({"user"})
_KNOWN: Final = _READ | _IDLE.keys() | _SILENT
_ONE: Final = "Only one answer per request is possible. Send the request again for another."


def decode(body: object, headers: Mapping[str, str]) -> TurnRequest:
    if not isinstance(body, dict):
        raise bad_request(f"The request body must be a JSON object, not {kind_of(body)}.", code="invalid_type")
    if body.get("model") is None:
        raise missing("model", code="missing_model")
    _check(body)
    return TurnRequest(
        model=needed_string(body, "model"),
        messages=(Message(Role.USER, (Text(_prompt(body.get("prompt"))),)),),
        stop=stop_words(body.get("stop")),
        session=session_mode(headers),
        workspace=workspace(headers),
        bridge=bridge(headers),
        stream=optional_bool(body, "stream") is True,
        include_usage=include_usage(body.get("stream_options")),
        max_output=body.get("max_tokens"),
        ignored=(*idle_names(body, _IDLE), *listable(unknown_names(body, _KNOWN))),
    )


def _prompt(value: object) -> str:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, list):
        raise unsupported(
            "prompt",
            "Only one prompt per request is possible, as text.",
            hint="Send a request for each prompt; token numbers cannot be read here.",
        )
    if value is None:
        raise missing("prompt")
    text = a_string(value, "prompt")
    if not text.strip():
        raise invalid_value("prompt", "it must not be empty.")
    return text


def _check(body: Mapping[str, object]) -> None:
    for name in ("n", "best_of"):
        count = body.get(name)
        if count is not None and (isinstance(count, bool) or not isinstance(count, int)):
            raise wrong_type(name, "an integer", count)
        if count not in (None, 1):
            raise unsupported(name, _ONE)
    if body.get("suffix") not in (None, ""):
        raise unsupported(
            "suffix",
            "Cursor's models do not fill in between a prompt and a suffix.",
            hint="Ask for it in words, in the prompt.",
        )
