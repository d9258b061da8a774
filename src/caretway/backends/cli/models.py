"""cursor-agent's models: parses the program's list, keeps it on disk, serves it stale during a refresh, and serves only
`auto` if there is no list. Also chooses a model's base and options (effort, thinking, fast, context) in an ACP session,
from the name and the parameters of a request.

Listing needs no login. The program offers options only for the session's current model, so one option is set at a
time and the offer is read again. Fast costs more and is chosen only on request.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ...accounts.names import EFFORT_IDS, SCALE
from ...core.errors import ErrorKind, GatewayError
from ...core.turn import BackendStatus, ModelInfo
from ...processes.child_group import Output
from ...processes.tasks import spawn
from ...storage.private_file import open_file, write_file
from .faults import plain

# ---- The sign-in status of cursor-agent, from its `status` as JSON or text: a yes is kept for a minute and renewed in
# the background, a no for 2 s; a sign-in error drops both. An unknown status counts as signed in.
#
# Only the program knows its status: the existence of its files proves nothing.

Ask = Callable[[Sequence[str], float], Awaitable[Output]]
"""(arguments, limit in seconds) -> the program's output."""

NO_FRESH_S: Final = 2.0
"""Seconds for which "no" or an unknown status is kept: short, because the user may be about to sign in."""

# "Not logged in" contains "logged in", so the negative is checked first.
_NO: Final = re.compile(r"not (?:logged|signed) in|not authenticated|authentication required|logged out", re.IGNORECASE)
_YES: Final = re.compile(r"(?:logged|signed) in|login successful|\bauthenticated\b", re.IGNORECASE)
_WHO: Final = re.compile(r"(?:logged|signed) in as ([^\s(]+)", re.IGNORECASE)


def read_status(said: str) -> BackendStatus | None:
    """The meaning of a `status` answer in JSON or text; None if the answer is neither yes nor no."""
    said = plain(said)
    try:
        value = msgspec.json.decode(said)
    except (msgspec.DecodeError, RecursionError):
        value = None
    if isinstance(value, dict):
        signed_in = value.get("isAuthenticated")
        if not isinstance(signed_in, bool):
            signed_in = value.get("status") == "authenticated"
        user = value.get("email") or value.get("user")
        return _status(signed_in, user if isinstance(user, str) else "")
    if _NO.search(said):
        return _status(False)
    if _YES.search(said):
        who = _WHO.search(said)
        return _status(True, who[1] if who else "")
    return None


def _status(signed_in: bool, user: str = "") -> BackendStatus:
    if not signed_in:
        return BackendStatus(False, "cursor-agent is not signed in; run `cursor-agent login`.")
    return BackendStatus(True, f"cursor-agent is signed in as {user}." if user else "cursor-agent is signed in.")


class CliAccount:
    def __init__(
        self, ask: Ask, clock: Callable[[], float], *, limit: float, fresh: float, by_key: bool = False
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._limit = limit
        self._fresh = fresh
        self._by_key = by_key
        self._known: BackendStatus | None = None
        self._until = 0.0
        self._lock = asyncio.Lock()

    async def status(self) -> BackendStatus:
        if self._by_key:
            return BackendStatus(True, "cursor-agent uses an API key.")
        async with self._lock:
            if self._known is None or self._clock() >= self._until:
                self._known = await self._check()
                self._until = self._clock() + (self._fresh if self._known.signed_in else NO_FRESH_S)
            return self._known

    async def require(self) -> None:
        """Raises GatewayError(SIGNED_OUT) if the program is not signed in. An unknown status passes: the program's own
        error reports the rest. An old "yes" is checked again in the background."""
        if self._known is not None and self._known.signed_in and not self._lock.locked():
            if self._clock() >= self._until:
                spawn(self._ask_again(), "cursor-agent-status")
            return
        status = await self.status()
        if status.signed_in is False:
            raise GatewayError(
                ErrorKind.SIGNED_OUT,
                "cursor-agent is not signed in.",
                hint="Run `cursor-agent login`, or `caretway login --backend cli`.",
            )

    async def _ask_again(self) -> None:
        with contextlib.suppress(GatewayError):  # the program's next run reports it
            await self.status()

    def forget(self) -> None:
        self._known = None

    async def _check(self) -> BackendStatus:
        for arguments in (("status", "--format", "json"), ("status",)):  # older builds do not know the option
            try:
                output = await self._ask(arguments, self._limit)
            except TimeoutError:
                break
            said = output.stdout if output.stdout.strip() else output.stderr
            if (status := read_status(said)) is not None:
                return status
        return BackendStatus(None, "cursor-agent does not say whether it is signed in.")


log = logging.getLogger(__name__)

MAX_BYTES: Final = 8 * 2**20
"""Bytes that are read of the file with the list."""
FALLBACK: Final = (ModelInfo("auto", "Auto"),)
_ROW: Final = re.compile(r"^\s*[*•]?\s*([A-Za-z0-9][\w.:/\-\[\]=,]*)\s+[-–]\s+(\S.*?)\s*$")
_MARKS: Final = re.compile(r"\s*\((?:current|default)\)", re.IGNORECASE)

CAPABILITY: Final = "parameterizedModelPicker"
"""The client capability for base models and options. Without it each model has one fixed variant."""
AUTOMATIC: Final = ("", "auto", "default")
MOST_CHOICES: Final = 8
_WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "fast": ("fast", "true"),
    "thinking": ("thinking", "true"),
    **{effort: ("effort", effort) for effort in SCALE},
}
"""Words at the end of a flat id -> (option, value)."""

Parameters = tuple[tuple[str, tuple[str, ...]], ...]
"""A model's parameters with their values."""


def read_models(said: str) -> tuple[ModelInfo, ...]:
    """The models from lines such as `id - Display Name  (current) (default)`. Other lines are ignored."""
    found: dict[str, ModelInfo] = {}
    for line in plain(said).splitlines():
        if (row := _ROW.match(line)) is not None:
            name = _MARKS.sub("", row[2]).strip()
            found.setdefault(row[1], ModelInfo(row[1], name, reasoning="thinking" in row[1]))
    return tuple(found.values())


BUILT_IN: Final = ("gpt-4", "gpt-4o", "gpt-3.5-turbo", "claude-sonnet-4-5", "claude-opus-4-5", "claude-3-5-sonnet")
"""Names that clients have built in. They stand for `auto` unless Cursor has a model with the name."""


def with_aliases(models: Sequence[ModelInfo]) -> tuple[ModelInfo, ...]:
    """The list and a row for each built-in name that is not itself a model."""
    ids = {model.id for model in models}
    rows = [ModelInfo(name, f"{name} (auto)", stands_for="auto") for name in BUILT_IN if name not in ids]
    return (*models, *rows)


class ModelList:
    def __init__(
        self,
        file: Path,
        fetch: Callable[[], Awaitable[Sequence[ModelInfo]]],
        clock: Callable[[], float],
        *,
        fresh: float,
    ) -> None:
        self._file = file
        self._fetch = fetch
        self._clock = clock
        self._fresh = fresh
        self._models: tuple[ModelInfo, ...] = ()
        self._fetched_at = 0.0
        self._loaded = self._fetching = False

    async def models(self) -> tuple[ModelInfo, ...]:
        if not self._loaded:
            self._loaded = True
            self._load()
        if not self._models:
            await self._refresh()
        elif not 0 <= self._clock() - self._fetched_at < self._fresh and not self._fetching:
            self._fetching = True
            spawn(self._refresh(), "cursor-agent-models")
        return self._models or FALLBACK

    @property
    def known(self) -> frozenset[str]:
        return frozenset(model.id for model in self._models)

    def learn(self, model: str, parameters: Parameters) -> None:
        """Store a model's parameters, which only a session with that model reports."""
        if any(one.id == model and one.parameters != parameters for one in self._models):
            rows = (replace(one, parameters=parameters) if one.id == model else one for one in self._models)
            self._models = tuple(rows)
            self._save()

    async def _refresh(self) -> None:
        self._fetching = True
        try:
            found = tuple(await self._fetch())
        except (GatewayError, TimeoutError) as failure:
            log.warning("cursor-agent did not list its models: %s", str(failure) or "no answer in time")
            return
        finally:
            self._fetching = False
        if found:
            known = {one.id: one.parameters for one in self._models}
            found = tuple(replace(one, parameters=known.get(one.id, ())) for one in found)
            self._models, self._fetched_at = found, self._clock()
            self._save()

    def _load(self) -> None:
        try:
            with open_file(self._file) as file:
                kept = msgspec.json.decode(file.read(MAX_BYTES), type=_Kept)
        except (OSError, msgspec.DecodeError, RecursionError):
            return  # no list yet, or a list of another version
        self._models, self._fetched_at = kept.models, kept.fetched_at

    def _save(self) -> None:
        kept = msgspec.json.encode(_Kept(self._fetched_at, self._models))
        try:
            write_file(self._file, kept, durable=False)
        except OSError as failure:
            log.warning("the model list cannot be kept in %s: %s", self._file, failure)


class _Kept(msgspec.Struct, frozen=True):
    """The file with the list."""

    fetched_at: float
    models: tuple[ModelInfo, ...]


# ---- a session's model and its options


@dataclass(frozen=True, slots=True)
class SessionOption:
    id: str
    category: str
    current: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModelWish:
    name: str = ""
    """A base id, a flat id (`NAME-high-fast`) or an id with brackets (`NAME[effort=high]`)."""
    parameters: tuple[tuple[str, str], ...] = ()


NO_WISH: Final = ModelWish()


def read_options(answer: Mapping[str, Any]) -> tuple[SessionOption, ...]:
    """The `configOptions` of an answer, with groups of values flattened."""
    found = []
    rows = answer.get("configOptions")
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and isinstance(row.get("id"), str):
            current, values = _text(row.get("currentValue")), tuple(_values(row.get("options")))
            found.append(SessionOption(row["id"], str(row.get("category") or ""), current, values))
    return tuple(found)


def _values(options: object) -> list[str]:
    found: list[str] = []
    for one in options if isinstance(options, list) else ():
        if isinstance(one, dict):
            found += _values(one["options"]) if "options" in one else [_text(one.get("value"))]
    return found


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def model_option(options: Sequence[SessionOption]) -> SessionOption | None:
    return next((one for one in options if "model" in (one.id, one.category)), None)


def model_parameters(options: Sequence[SessionOption]) -> Parameters:
    """The options of the session's model, in the form of the model list."""
    own = (one for one in options if not {"model", "mode"} & {one.id, one.category})
    return tuple((one.id, one.values) for one in own if one.values)


def next_choice(
    wish: ModelWish, options: Sequence[SessionOption], made: Collection[str] = ()
) -> tuple[str, str] | None:
    """The next (option, value) to set; None if nothing is left. `made`: options that were already set."""
    model = model_option(options)
    meant = _meant(wish.name, model.values) if model is not None and wish.name not in AUTOMATIC else None
    if model is None or meant is None:
        return None  # the program was started with the model and decides
    base, said = meant
    if model.current != base:
        return (model.id, base) if model.id not in made else None
    wanted = {"fast": "false"} | dict(wish.parameters) | said
    for key, value in wanted.items():
        option = next((one for one in options if _is(one, key)), None)
        if option is not None and option.id not in made and value in option.values and option.current != value:
            return option.id, value
    return None


def _is(option: SessionOption, key: str) -> bool:
    return option.id == key or (key in EFFORT_IDS and (option.id in EFFORT_IDS or option.category == "thought_level"))


def _meant(name: str, bases: Sequence[str]) -> tuple[str, dict[str, str]] | None:
    """(base, options) that the name stands for; None if no offered base fits."""
    bare, _, inside = name.partition("[")
    if bare in bases:
        pairs = (part.partition("=") for part in inside.rstrip("]").split(",") if "=" in part)
        return bare, {key.strip(): value.strip() for key, _, value in pairs}
    for base in sorted(bases, key=len, reverse=True):
        words = bare.removeprefix(f"{base}-").split("-")
        if bare.startswith(f"{base}-") and all(word in _WORDS for word in words):
            return base, dict(_WORDS[word] for word in words)
    return next(((one, {}) for one in bases if one.partition("[")[0] == bare), None)  # one variant of each base
