"""Whether each backend could be used here, and if not, why and what to type: by the credentials, packages and programs
that there are. Nothing is sent to Cursor; cursor-agent is asked for its own sign-in.
"""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from ..backends.cli.program import find_program, not_found
from ..config import Settings, hosts, process_environment
from ..core.errors import GatewayError
from ..dashboard.local_checks import Finding
from ..upstream import BACKENDS, PASSTHROUGH, open_backend, passes, sdk_missing
from .doctor import check_account, check_agent_sign_in
from .serve import EACH_ITS_OWN
from .status import account_facts


async def check_backends(settings: Settings) -> list[Finding]:
    """One for each, in the order of the table; its name is the backend's."""
    return [structs.replace(await _judged(settings, name), name=name) for name in BACKENDS]


async def _judged(settings: Settings, name: str) -> Finding:
    if name == "simulator":
        return Finding(name, True, "needs nothing; its answers are made up")
    if name == "sdk" and (missing := sdk_missing()) is not None:
        return Finding(name, False, missing.message, missing.hint)
    if passes(settings):
        if name in PASSTHROUGH:
            return Finding(name, True, EACH_ITS_OWN)
        return Finding(name, False, "cannot use the keys of clients", "Use --auth-mode own.")
    if name == "cli":
        return await _asked(settings)
    if name == "legacy-chat" and not hosts(settings).stand_in:
        return Finding(name, False, "Cursor refuses it as deprecated", "Use --backend agent.")
    try:
        facts = account_facts(settings, name)
    except GatewayError as failure:
        return Finding(name, False, failure.message, failure.hint)
    if facts.credential is None and name != "sdk" and hosts(settings).stand_in:
        return Finding(name, True, f"a stand-in at {hosts(settings).api} takes any credentials")
    return check_account(facts, name)


async def _asked(settings: Settings) -> Finding:
    if find_program(settings.agent_bin, process_environment()) is None:
        missing = not_found(settings.agent_bin)
        return Finding("cli", False, missing.message, missing.hint)
    async with open_backend(replace(settings, backend="cli")) as backend:
        return check_agent_sign_in(await backend.status())
