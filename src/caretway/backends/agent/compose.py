"""Composes a run request from a TurnRequest: the system prompt as a rule or a message, the history as content-addressed
blobs, the newest user message and its images, `tool_choice` as a rule in words. Pure.

Each earlier message is one blob, so that the same history always has the same ids and the upstream cache stays warm.
A history that ends with tool results has no newest message: a text asks the model to continue, because some models
answer nothing to `resume_action` without a checkpoint. `replay` in `agent_quirks` chooses between the two.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal
from uuid import UUID

import msgspec
from google.protobuf.message import DecodeError
from msgspec import Struct
from msgspec.structs import replace

from ...core.errors import ErrorKind, GatewayError
from ...core.named_tool import demand
from ...core.request import Image, Message, Role, Text, ToolResult, TurnRequest, ends_with_results, joined, last_answer
from ...core.tally import message_chars, tokens
from ...core.turn import Snapshot
from ...cursor.wire.blobs import blob_id, text_part, write_message
from ...cursor.wire.embedding import around, embed, tag
from ...cursor.wire.messages import pb
from ...schemas.fitting import STRICTEST, rules_for
from ..builtin_tools.queries import WebSearchBy, web_rule
from .models import ModelShape, model_fields
from .replayed_history import root_messages, sendable, typed_history
from .sent_limits import MAX_MESSAGE_BYTES, check_tools, check_user_text, fit_history
from .wire_calls import PROVIDER, OfferedTools

# ---- Warns if a model may not see an image: above 256 KiB or 2000 pixels, or with a model that takes text only. Reads
# the size of PNG, JPEG, GIF and WebP files. Pure.
#
# Users report that a PNG of 430 KiB arrived as a grey area and a JPEG of 75 KiB arrived intact. Cursor does not refuse
# large images, so the gateway sends them and warns the client.

MAX_BYTES: Final = 256 * 1024
MAX_PIXELS: Final = 2000
"""Longer side of an image, in pixels, above which a warning says that the model may not see the image."""
_MAX_SEGMENTS: Final = 200
"""Segments of a JPEG that are searched for its size."""
_TOLD: Final = 5
_UNSEEN: Final = "and the model may see nothing of one above"
_JPEG_SIZES: Final = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
"""Markers of the segments that hold the size."""


def picture_warning(pictures: Iterable[Image], model: str, sees: bool | None) -> str:
    """A warning for people about images that the model may not see; empty if there is none. `sees`: whether the model
    takes images, according to the model list."""
    warnings: list[str] = []
    for number, picture in enumerate(pictures, 1):
        if sees is False:
            return f"{model} takes text only and may not see the image"
        size = picture_size(picture.data)
        if len(picture.data) > MAX_BYTES:
            warnings.append(f"picture {number} has {len(picture.data) >> 10} KiB, {_UNSEEN} {MAX_BYTES >> 10} KiB")
        elif size is not None and max(size) > MAX_PIXELS:
            warnings.append(f"picture {number} has {size[0]} x {size[1]} pixels, {_UNSEEN} {MAX_PIXELS}")
        if len(warnings) == _TOLD:
            break
    return "; ".join(warnings)


def picture_size(data: bytes) -> tuple[int, int] | None:
    """(width, height) from the head of the file; None if they cannot be read."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n"):
            return _pair(">II", data, 16)
        if data.startswith((b"GIF87a", b"GIF89a")):
            return _pair("<HH", data, 6)
        if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
            return _webp(data)
        if data.startswith(b"\xff\xd8"):
            return _jpeg(data)
    except struct.error:
        pass  # the file ends within its head: its size stays unknown
    return None


def _pair(form: str, data: bytes, at: int) -> tuple[int, int]:
    first, second = struct.unpack_from(form, data, at)
    return first, second


def _webp(data: bytes) -> tuple[int, int] | None:
    match data[12:16]:
        case b"VP8 ":
            width, height = _pair("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", data, 21)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
        case _:
            return None


def _jpeg(data: bytes) -> tuple[int, int] | None:
    at = 2
    for _ in range(_MAX_SEGMENTS):
        mark, kind, length = struct.unpack_from(">BBH", data, at)
        if mark != 0xFF:
            return None
        if kind in _JPEG_SIZES:
            height, width = _pair(">HH", data, at + 5)
            return width, height
        at += 2 + length
    return None


# ---- Writes and reads a finished conversation as opaque bytes: conversation id, last checkpoint, and the text that the
# model was not given. Also the source of blobs of earlier turns.


def write_state(conversation_id: str, checkpoint: bytes, unread: str = "") -> bytes:
    """The conversation as bytes. `unread`: text that came with tool results and was not given to the model; it follows
    the id on a separate line."""
    name = f"{conversation_id}\n{unread}" if unread else conversation_id
    head = name.encode("utf-8", "surrogatepass")
    return len(head).to_bytes(2, "big") + head + checkpoint


def read_snapshot(snapshot: Snapshot) -> tuple[str, bytes]:
    """(conversation id, checkpoint) from the bytes of `write_state`."""
    head, checkpoint = _split(snapshot)
    return head.partition("\n")[0], checkpoint


def with_unread(request: TurnRequest, snapshot: Snapshot) -> TurnRequest:
    """The request that continues the snapshot. Text that the model was not given in the earlier turn comes before the
    new messages."""
    unread = _split(snapshot)[0].partition("\n")[2]
    if not unread:
        return request
    answered = last_answer(request.messages)
    missed = Message(Role.USER, (Text(unread),))
    return replace(request, messages=(*request.messages[:answered], missed, *request.messages[answered:]))


def _split(snapshot: Snapshot) -> tuple[str, bytes]:
    size = 2 + int.from_bytes(snapshot.state[:2], "big")
    return snapshot.state[2:size].decode("utf-8", "surrogatepass"), snapshot.state[size:]


def no_blobs(_: bytes) -> bytes | None:
    """The blob source if there was no earlier turn."""
    return None


def blob_source(snapshot: Snapshot | None) -> Callable[[bytes], bytes | None]:
    """The source of an earlier turn's blobs."""
    if snapshot is None:
        return no_blobs
    known: Mapping[bytes, bytes] = snapshot.blobs
    fetch = snapshot.fetch
    return lambda key: known[key] if key in known else fetch(key)


GO_ON: Final = "Continue."
"""The user's text if the history ends with an assistant message: a run needs a user message."""
RULES: Final = "<rules>\n{}\n</rules>"
"""The form of instructions in a user message."""
NARRATORS: Final = "composer"
"""Models with this prefix describe a call instead of making it, unless `CALL_IT` forbids that."""
CALL_IT: Final = "When you want to use a tool, call it. Do not describe the call in text instead."
GO_ON_WITH_RESULTS: Final = "Continue with the results of the tools above."

_RUN_REQUEST: Final = tag(pb.AgentClientMessage, "run_request")
_STATE: Final = tag(pb.AgentRunRequest, "conversation_state")
_ACTION: Final = tag(pb.AgentRunRequest, "action")
_CONVERSATION: Final = tag(pb.AgentRunRequest, "conversation_id")
_RUN: Final = tag(pb.AgentRunRequest, "run_id")
_NO_QUERIES: Final = pb.AgentRunRequest(next_interaction_query_id=0).SerializeToString()
_SAY: Final = tag(pb.ConversationAction, "user_message_action")
_RESUME: Final = tag(pb.ConversationAction, "resume_action")
_WORDS: Final = tag(pb.UserMessageAction, "user_message")
_CONTEXT: Final = tag(pb.UserMessageAction, "request_context")
_HISTORY: Final = tag(pb.UserMessageAction, "conversation_history")
_RESUME_CONTEXT: Final = tag(pb.ResumeAction, "request_context")
_ENVIRONMENT: Final = tag(pb.RequestContext, "env")
_RULE: Final = tag(pb.RequestContext, "cloud_rule")


_WITH_RESULTS: Final = Message(Role.USER, (Text(GO_ON_WITH_RESULTS),))


class RunContext(Struct, frozen=True):
    """The environment that Cursor sees, with nothing about the client's machine that the client did not send, and how
    instructions, history and web searches are sent."""

    os_version: str = ""
    shell: str = ""
    time_zone: str = ""
    system_delivery: Literal["rule", "message"] = "rule"
    """Cursor drops root messages with the role `system`, so instructions are sent as a rule or a user message."""
    history_carrier: Literal["root", "typed"] = "root"
    replay_action: Literal["message", "resume"] = "message"
    """How the model is asked to continue a replayed history that ends with tool results."""
    replay_tool_names: Literal["plain", "prefixed"] = "plain"
    """Whether a replayed history names tools as the client does or as the model sees them."""
    web: WebSearchBy = "client"
    """Who searches the web."""


class Opening(msgspec.Struct, frozen=True):
    """The serialised parts of the message that opens one run, and reopens it after a lost connection. They are joined
    only when they are sent, so that runs with the same tools share one copy of the tools."""

    conversation_id: str
    ids: tuple[bytes, bytes]
    """Fields of an AgentRunRequest: the conversation's id, and the run's ids."""
    models: tuple[tuple[bytes, bytes], ...]
    """The two model fields of an AgentRunRequest, for each way to name the model, in the order of trial."""
    state: bytes
    """A serialised ConversationStateStructure."""
    words: bytes | None
    """A serialised UserMessage; None if the history ends with tool results."""
    history: bytes
    """The history field of a UserMessageAction, if the history travels in typed fields."""
    context: tuple[bytes, ...]
    """The parts of a serialised RequestContext."""
    tools: bytes
    """The tools field of an AgentRunRequest."""
    blobs: dict[bytes, bytes]
    """The blobs of the state by id. The conversation takes ownership."""
    fresh: bool
    """The run begins a new conversation."""
    model: str
    """The model's name, for errors."""
    context_tokens: int
    """An estimate of the model's input, for usage: for a continued conversation Cursor's last count plus the new text,
    otherwise everything that is sent plus Cursor's own instructions."""
    adapted: str = ""
    """What was changed in the request for the model."""
    pictures: str = ""
    """The warning about images that the model may not see."""

    @property
    def kept_as(self) -> str:
        """The conversation's id in a snapshot."""
        return self.conversation_id

    def renamed(self, conversation_id: str) -> "Opening":
        """This opening with another conversation id. An opening that continues a conversation keeps its id."""
        if not self.fresh:
            return self
        ids = embed(_CONVERSATION, conversation_id.encode()), self.ids[1]
        return msgspec.structs.replace(self, conversation_id=conversation_id, ids=ids)

    def run_request(self, checkpoint: bytes | None = None, model: int = 0) -> bytes:
        """The AgentClientMessage that opens an attempt, or resumes it from a checkpoint. `model` is an index into
        `models`."""
        context = [*self.context]
        if self.words is None or checkpoint is not None:
            action = around(_RESUME, around(_RESUME_CONTEXT, context))
        else:
            action = around(_SAY, [*around(_WORDS, [self.words]), *around(_CONTEXT, context), self.history])
        # Present even when empty: without the field the server says "Conversation state is required".
        state = around(_STATE, [self.state if checkpoint is None else checkpoint])
        (details, requested), (conversation, run) = self.models[model], self.ids
        rest = details, self.tools, conversation, requested, run
        return b"".join(around(_RUN_REQUEST, [*state, *around(_ACTION, action), *rest]))


class Composer:
    """Composes openings, and keeps the parts that many openings share."""

    def __init__(
        self, surroundings: RunContext, max_message_bytes: int = MAX_MESSAGE_BYTES, *, check_limits: bool = True
    ) -> None:
        """`check_limits`: apply Cursor's known limits before sending (`sent_limits.py`)."""
        self._check_limits = check_limits
        self._surroundings = surroundings
        self._max_message_bytes = max_message_bytes
        self._nowhere = _environment(surroundings, None)
        self._prefix = f"mcp_{PROVIDER}_" if surroundings.replay_tool_names == "prefixed" else ""
        self._tools = OfferedTools()
        self._rest = _rest_of_context(surroundings)

    def compose(
        self,
        request: TurnRequest,
        *,
        conversation_id: str,
        run_id: str,
        checkpoint: bytes | None = None,
        workspace: str | None = None,
        unseen: int = 0,
        shapes: tuple[ModelShape, ...] = (ModelShape.BASE,),
        simplest: bool = False,
    ) -> Opening:
        """The opening of a run. With a checkpoint only messages after the last assistant message are sent. `workspace`:
        the directory in which the gateway runs tools, if it does. `unseen`: the tokens of Cursor's own instructions.
        `shapes`: ways to name the model, best first. `simplest`: use tool schemas that every model maker accepts."""
        if request.large:
            check_sizes(request.messages, self._max_message_bytes)
        talk = request.talk
        # A request with instructions only: they become the user's message.
        history, newest = split_newest(talk) if talk else ([], joined(request.messages))
        if newest is not None and ends_with_results(request.messages):
            newest = joined((_WITH_RESULTS, newest))  # system text alone does not ask the model to continue
        system = _system(request, self._surroundings.web, instructed=bool(talk))
        as_rule = self._surroundings.system_delivery == "rule"
        state, typed, blobs = b"" if checkpoint is None else checkpoint, b"", {}
        if checkpoint is None:
            if newest is None and self._surroundings.replay_action == "message":
                newest = _WITH_RESULTS
            root = [] if as_rule or not system else [write_message("user", [text_part(RULES.format(system))])]
            if self._surroundings.history_carrier == "typed" and newest is not None:
                typed = embed(_HISTORY, typed_history(sendable(history)).SerializeToString())
            elif history:
                history = sendable(history)
                fitted = fit_history(history, request.model) if self._check_limits else history
                root += root_messages(fitted, self._prefix)
            if root:
                ids = [blob_id(data) for data in root]
                blobs = dict(zip(ids, root, strict=True))
                state = pb.ConversationStateStructure(root_prompt_messages_json=ids).SerializeToString()
        tools = request.tools if request.tool_choice.mode != "none" else ()
        offer = self._tools.offer(tools, STRICTEST if simplest else rules_for(request.model))
        if self._check_limits:
            check_tools(len(tools), offer.size)
            if newest is not None:
                check_user_text(newest.text)
        pictures = [part for part in newest.parts if isinstance(part, Image)] if newest is not None else []
        where = self._nowhere if workspace is None else _environment(self._surroundings, workspace)
        rule = embed(_RULE, system.encode()) if system and as_rule else b""
        if known := 0 if checkpoint is None else _used_tokens(checkpoint):
            chars = message_chars([newest] if newest is not None else [])
        else:
            known = unseen
            chars = message_chars(request.messages) + len(offer.in_run)
        return Opening(
            conversation_id=conversation_id,
            ids=(embed(_CONVERSATION, conversation_id.encode()), embed(_RUN, run_id.encode()) + _NO_QUERIES),
            models=model_fields(request.model, request.parameters, request.choice, shapes),
            state=state,
            words=_user_message(newest, pictures).SerializeToString() if newest is not None else None,
            history=typed,
            context=(where, offer.in_context, rule, self._rest),
            tools=offer.in_run,
            blobs=blobs,
            fresh=checkpoint is None,
            model=request.model,
            context_tokens=known + tokens(chars),
            adapted=offer.changes,
            pictures=picture_warning(pictures, request.model, request.choice.images) if pictures else "",
        )


def message_bytes(parts: Iterable[object]) -> int:
    """The size of a message's texts and images, including tool results, as Cursor stores them: images in base64.
    Approximate for text that is not ASCII."""
    count = 0
    for part in parts:
        match part:
            case Text(text=text):
                count += len(text)
            case Image(data=data):
                count += (len(data) + 2) // 3 * 4
            case ToolResult(content=content):
                count += message_bytes(content)
    return count


def check_sizes(messages: Iterable[Message], limit: int) -> None:
    for message in messages:
        if (size := message_bytes(message.parts)) > limit:
            raise GatewayError(
                ErrorKind.TOO_LARGE,
                f"One message of the request holds {size} bytes, images as base64; Cursor can be sent {limit}.",
                hint="Send smaller images, or fewer in one message.",
                code="message_too_large",
            )


def _used_tokens(checkpoint: bytes) -> int:
    try:
        return pb.ConversationStateStructure.FromString(checkpoint).token_details.used_tokens
    except DecodeError:
        return 0  # an error is reported when the checkpoint is read as a conversation


def _environment(surroundings: RunContext, workspace: str | None) -> bytes:
    env = pb.RequestContextEnv(
        os_version=surroundings.os_version, shell=surroundings.shell, time_zone=surroundings.time_zone
    )
    if workspace is not None:
        env.workspace_paths.append(workspace)
        env.process_working_directory = workspace
    return embed(_ENVIRONMENT, env.SerializeToString())


def _rest_of_context(surroundings: RunContext) -> bytes:
    return pb.RequestContext(
        web_search_enabled=surroundings.web == "cursor",
        web_fetch_enabled=surroundings.web == "cursor",
        rules_info_complete=True,
        env_info_complete=True,
        mcp_info_complete=True,
    ).SerializeToString()


def _system(request: TurnRequest, web: WebSearchBy, *, instructed: bool) -> str:
    instructions, rule = request.system if instructed else "", tool_rule(request)
    if request.web_search and (told := web_rule(web, [tool.name for tool in request.tools])):
        rule = f"{rule}\n\n{told}" if rule else told
    return f"{instructions}\n\n{rule}" if instructions and rule else instructions or rule


def split_newest(talk: list[Message]) -> tuple[list[Message], Message | None]:
    """(the history, the user's newest message or None if the history ends with tool results).

    All user messages after the last assistant or tool message are joined, because clients split them differently.
    """
    cut = len(talk)
    while cut and talk[cut - 1].role is Role.USER:
        cut -= 1
    history, fresh = talk[:cut], talk[cut:]
    if fresh:
        return history, joined(fresh)
    if history and history[-1].role is Role.TOOL:
        return history, None
    return history, Message(Role.USER, (Text(GO_ON),))


def tool_rule(request: TurnRequest) -> str:
    """The rule that replaces `tool_choice`, which has no field on the wire; the step's end checks it. Some models get
    a rule in mode `auto` too."""
    match request.tool_choice.mode:
        case "required" if request.tools:
            return "You must call at least one of the offered tools before you answer in text."
        case "named":
            return demand(request.tool_choice.name)
        case "auto" if request.tools and request.model.startswith(NARRATORS):
            return CALL_IT
        case _:
            return ""


def _picture_id(data: bytes, number: int) -> str:
    """A UUID that depends only on the image and its position."""
    return str(UUID(bytes=blob_id(blob_id(data) + number.to_bytes(4, "big"))[:16], version=4))


def _user_message(message: Message, pictures: Sequence[Image]) -> pb.UserMessage:
    user = pb.UserMessage(text=message.text)
    for number, image in enumerate(pictures):
        user.selected_context.selected_images.add(
            uuid=_picture_id(image.data, number), mime_type=image.mime_type, data=image.data
        )
    return user
