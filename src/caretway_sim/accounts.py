"""Simulated accounts: API keys, JWT-shaped tokens that expire and can be refreshed and revoked, and the browser sign-in
(PKCE).

Any key is accepted unless its text begins with a refused word; two keys are two accounts. Token signatures are not
checked. Options in a key: `life=SECONDS` the lifetime of its tokens, `model=ID` a model that only this account has,
`spent=PERCENT` the used share of its plan, `plan=NAME` its plan, `team=NUMBER` its team.
"""

import base64
import hashlib
import re
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from caretway.cursor.wire import paths
from caretway.cursor.wire.envelope import ConnectError

from .model_input import Recent
from .shared import BilledRun, Shared

LIFETIME_S: Final = 3600
REFRESH_LIFETIME_S: Final = 60 * 86400
MAX_LOGINS: Final = 1024
ISSUER: Final = "caretway-simulator"
_REFUSED: Final = ("bad", "expired")
_USER: Final = "simulated|user"
_OPTIONS: Final = {
    "life": r"\d{1,9}",
    "spent": r"\d{1,3}",
    "model": "[A-Za-z0-9-]{1,64}",
    "plan": "[a-z_]{1,16}",
    "team": r"\d{1,9}",
}
MAX_USED: Final = 10_000
TEAM: Final = 7
"""The team of accounts whose key names no team, when every account has a seat."""


class Person(msgspec.Struct, frozen=True):
    """The owner of a token, with the options of the key."""

    name: str = msgspec.field(default=_USER, name="sub")
    life: int = LIFETIME_S
    model: str = ""
    spent: int = 0
    plan: str = "pro"
    team: int = 0


class Accounts:
    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._issued = 0
        self._revoked = {"session": 0, "refresh": 0}
        """For each type: the highest number of a revoked token."""
        self._polled: Recent[str, str] = Recent(MAX_LOGINS)
        """Open sign-ins: uuid -> challenge; empty until the page is opened."""
        self._used: Recent[str, None] = Recent(MAX_USED)
        """Refresh tokens that were used once."""

    def accepts(self, token: str) -> bool:
        """True for any text that does not begin with a refused word. The simulator's own tokens must be neither expired
        nor revoked."""
        if not accepted(token):
            return False
        known = _claims(token)
        if known.get("iss") != ISSUER:
            return True
        number = int(str(known.get("jti", "sim-0")).removeprefix("sim-"))
        return self._shared.clock() < known["exp"] and number > self._revoked[known["type"]]

    def revoke(self, kind: str) -> None:
        """Revoke all tokens issued so far: `session`, `refresh`, or both for any other word."""
        for one in [kind] if kind in self._revoked else list(self._revoked):
            self._revoked[one] = self._issued

    def exchange(self, key: str) -> dict[str, str] | None:
        """Exchange an API key or a refresh token for a pair of tokens."""
        if _claims(key).get("iss") == ISSUER:
            return self.renew(key, "exchange")
        if not self.accepts(key):
            return None
        self._shared.stats.token_exchanges += 1
        return self._issue(_person(key))

    def renew(self, token: str, way: str) -> dict[str, str] | None:
        """Exchange a refresh token for new tokens. `way`: the endpoint, one of `Manners.refresh_at`."""
        manners = self._shared.manners
        known = _claims(token)
        own = known.get("iss") == ISSUER
        fit = not own or known["type"] == "refresh" or manners.one_token
        if not fit or manners.refresh_at not in ("anywhere", way) or not self.accepts(token) or token in self._used:
            self._shared.stats.renewals_refused += 1
            return None
        self._shared.stats.token_refreshes += 1
        if manners.rotates_refresh:
            self._used[token] = None
        tokens = self._issue(_person(token))
        return tokens if manners.rotates_refresh or not manners.one_token else {"accessToken": tokens["accessToken"]}

    def visit(self, uuid: str, challenge: str) -> None:
        """Complete a sign-in: the user has opened the link."""
        self._polled[uuid] = challenge

    def poll(self, uuid: str, verifier: str) -> dict[str, str] | None:
        """The tokens of a sign-in. None on the first poll, as if the user were still in the browser, and for a verifier
        that does not match the challenge of the opened link."""
        challenge = self._polled.get(uuid)
        if challenge is None:
            self._polled[uuid] = ""
            return None
        if challenge and challenge != _challenge(verifier):
            return None
        del self._polled[uuid]
        tokens = self._issue(Person(life=self._shared.manners.sign_in_life_s))
        if self._shared.manners.one_token:
            tokens["refreshToken"] = tokens["accessToken"]
        return {**tokens, "authId": _USER, "challenge": challenge}

    def model_of(self, token: str) -> str:
        """The model that only this account has; empty for most accounts."""
        return str(_claims(token).get("model", ""))

    def person(self, token: str) -> Person:
        """The owner of a token."""
        known = _person(token)
        return replace(known, team=TEAM) if self._shared.manners.team_seats and not known.team else known

    def _issue(self, person: Person) -> dict[str, str]:
        self._issued += 1
        return {
            "accessToken": self._token("session", person, person.life),
            "refreshToken": self._token("refresh", person, max(person.life, REFRESH_LIFETIME_S)),
        }

    def _token(self, kind: str, person: Person, life: int) -> str:
        now = int(self._shared.clock())
        claims = msgspec.to_builtins(person) | {
            "type": kind,
            "jti": f"sim-{self._issued}",
            "iat": now,
            "exp": now + life,
            "iss": ISSUER,
        }
        return f"{_encode({'alg': 'none', 'typ': 'JWT'})}.{_encode(claims)}.{_encode({'simulated': self._issued})}"


def _person(credential: str) -> Person:
    known: dict[str, Any] = _claims(credential)
    if known.get("iss") != ISSUER:
        options = {name: re.search(f"{name}=({value})", credential) for name, value in _OPTIONS.items()}
        known = {name: found[1] for name, found in options.items() if found}
        known["sub"] = f"simulated|{hashlib.sha256(credential.encode()).hexdigest()[:12]}"
    return msgspec.convert(known, Person, strict=False)


def _challenge(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


def accepted(token: str) -> bool:
    return bool(token) and not token.startswith(_REFUSED)


def _encode(value: Any) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(value)).decode().rstrip("=")


def _claims(token: str) -> dict[str, Any]:
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        value = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


# ---- dashboard

# The simulated dashboard: an account's used share of its plan, the plan, the team, and the cost of each run.

CYCLE_MS: Final = 30 * 86_400_000
PLANS: Final = {
    "free": ("Free", 0, "Free"),
    "pro": ("Pro", 2000, "$20/mo"),
    "pro_plus": ("Pro+", 7000, "$60/mo"),
    "ultra": ("Ultra", 40_000, "$200/mo"),
    "team": ("Team", 4000, "$40/mo"),
}
ON_DEMAND_CENTS: Final = 5000
"""A team's spending limit beyond its plan."""
MAX_PAGE: Final = 1000
NOT_IN_TEAM: Final = ConnectError("permission_denied", "not a member of this team", retryable=False)

AccountCall = Callable[[Shared, Person, dict[str, Any]], "dict[str, Any] | ConnectError"]


def period_usage(shared: Shared, person: Person, asked: dict[str, Any]) -> dict[str, Any] | ConnectError:
    team = _number(asked, "teamId")
    if team and team != person.team:
        return NOT_IN_TEAM
    start, end = _cycle(shared)
    if person.team and not team:
        return {"billingCycleStart": start, "billingCycleEnd": start, "displayThreshold": 100}
    limit = PLANS.get(person.plan, PLANS["pro"])[1]
    spent = limit * person.spent // 100
    money = {
        "totalSpend": spent,
        "includedSpend": min(spent, limit),
        "bonusSpend": max(0, spent - limit),
        "remaining": max(0, limit - spent),
        "limit": limit,
    }
    shares = {
        "autoPercentUsed": person.spent / 2,
        "apiPercentUsed": min(100.0, float(person.spent)),
        "totalPercentUsed": person.spent * 0.75,
    }
    on_demand: dict[str, Any] = {"limitType": "user"}
    if team:
        on_demand = {"limitType": "team", "pooledLimit": ON_DEMAND_CENTS, "pooledRemaining": ON_DEMAND_CENTS}
    return {
        "billingCycleStart": start,
        "billingCycleEnd": end,
        "planUsage": _without_zeros({**money, **shares}),
        "spendLimitUsage": on_demand,
        "displayMessage": f"Simulated: {person.spent}% of the plan is used",
        "autoBucketModels": ["default", "composer-2.5"],
    }


def plan_info(shared: Shared, person: Person, asked: dict[str, Any]) -> dict[str, Any]:
    name, cents, price = PLANS["team" if person.team else person.plan if person.plan in PLANS else "pro"]
    info = {"planName": name, "includedAmountCents": cents, "price": price, "billingCycleEnd": _cycle(shared)[1]}
    return {"planInfo": _without_zeros(info)}


def teams(_: Shared, person: Person, asked: dict[str, Any]) -> dict[str, Any]:
    if not person.team:
        return {}
    return {"teams": [{"id": person.team, "name": "Simulated team", "role": "TEAM_ROLE_MEMBER"}]}


def hard_limit(_: Shared, person: Person, asked: dict[str, Any]) -> dict[str, Any]:
    return {"hardLimit": ON_DEMAND_CENTS // 100} if person.team else {"noUsageBasedAllowed": True}


def usage_events(shared: Shared, person: Person, asked: dict[str, Any]) -> dict[str, Any] | ConnectError:
    team = _number(asked, "teamId")
    if team and team != person.team:
        return NOT_IN_TEAM
    now_ms = int(shared.clock() * 1000)
    rows = shared.billed.of(person.name, now_ms - shared.manners.usage_lag_s * 1000)
    first, last = _number(asked, "startDate"), _number(asked, "endDate") or now_ms
    dated = "startDate" in asked or "endDate" in asked
    blind = shared.manners.events_ignore_dates and dated
    if not blind:
        rows = [row for row in rows if first <= row.at_ms <= last]
    size = min(max(1, _number(asked, "pageSize") or 100), MAX_PAGE)
    start = (max(1, _number(asked, "page")) - 1) * size
    shown = [_event(row) for row in rows[start : start + size]]
    counted = {} if blind or not rows else {"totalUsageEventsCount": len(rows)}
    return counted | ({"usageEventsDisplay": shown} if shown else {})


def agent_usage(shared: Shared, agent: str) -> dict[str, Any]:
    """The body of the public `/v1/agents/AGENT/usage`."""
    until = int(shared.clock() * 1000) - shared.manners.usage_lag_s * 1000
    rows = shared.billed.of_agent(agent, until)
    runs = [
        {"id": f"usage-{number}", "usage": _used(row.read, row.cached, row.written), "cost": _cost(row.cents)}
        for number, row in enumerate(rows)
    ]
    whole = _used(sum(row.read for row in rows), sum(row.cached for row in rows), sum(row.written for row in rows))
    return {"totalUsage": whole, "cost": _cost(sum(row.cents for row in rows)), "runs": runs}


def _used(read: int, cached: int, written: int) -> dict[str, int]:
    counts = {"inputTokens": read, "outputTokens": written, "cacheWriteTokens": 0, "cacheReadTokens": cached}
    return counts | {"totalTokens": read + cached + written}


def _cost(cents: float) -> dict[str, float]:
    return {"rawCostCents": cents, "chargedCents": 0.0}


def _event(row: BilledRun) -> dict[str, Any]:
    tokens = {"inputTokens": row.read, "outputTokens": row.written, "cacheReadTokens": row.cached}
    return {
        "timestamp": str(row.at_ms),
        "model": row.model,
        "kind": "USAGE_EVENT_KIND_INCLUDED_IN_PRO",
        "requestsCosts": 1,
        "isTokenBasedCall": True,
        "tokenUsage": _without_zeros({**tokens, "totalCents": row.cents}),
        "isHeadless": True,
        **({"conversationId": row.conversation} if row.conversation else {}),
    }


def _cycle(shared: Shared) -> tuple[str, str]:
    """Start and end of the current billing period."""
    start = int(shared.clock() * 1000) // CYCLE_MS * CYCLE_MS
    return str(start), str(start + CYCLE_MS)


def _number(asked: dict[str, Any], name: str) -> int:
    """A positive integer, which may be sent as a string; otherwise 0."""
    value = asked.get(name)
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value[:18])
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _without_zeros(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}


CALLS: Final[dict[str, AccountCall]] = {
    paths.PERIOD_USAGE: period_usage,
    paths.PLAN_INFO: plan_info,
    paths.TEAMS: teams,
    paths.HARD_LIMIT: hard_limit,
    paths.USAGE_EVENTS: usage_events,
}
