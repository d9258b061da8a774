"""What the page tells of settings, and which of them it changes: aliases and budgets, at once and in the settings file;
never one that a flag or a variable sets.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from ..core.errors import ErrorKind, GatewayError


class SettingsDesk(Protocol):
    """The settings of the running gateway."""

    def file(self) -> str | None: ...

    def rows(self) -> list[dict[str, Any]]: ...

    async def change(self, name: str, value: str | None) -> None:
        """Write it into the settings file and use it. `None`: the default again. Raises GatewayError."""
        ...


class Change(Protocol):
    """How a setting is changed while the gateway runs."""

    def check(self, value: Any) -> None:
        """Raises ValueError with a sentence."""
        ...

    async def use(self, value: Any) -> None:
        """From now on."""
        ...


def check_changeable(name: str, origin: str, changes: Mapping[str, Change]) -> None:
    """Raises GatewayError."""
    if name not in changes:
        raise GatewayError(
            ErrorKind.BAD_REQUEST,
            f"{name} is not changed here.",
            hint=f"Type: caretway config set {name} VALUE, and start the gateway again.",
            code="not_changeable",
        )
    kind = origin.partition(" ")[0]
    if kind in ("flag", "environment"):
        raise GatewayError(
            ErrorKind.IN_PROGRESS,
            f"{name} is set by {origin.replace('environment', 'the variable')}, which wins over the file.",
            hint="Remove it there first, and start the gateway again.",
            code="set_elsewhere",
            repeatable=False,
        )
