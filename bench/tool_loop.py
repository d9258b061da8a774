"""A client's tool loop over chat completions. A step is: results in, the next calls out."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from .ledger import Ledger
from .load import Address, Client, WrongAnswer
from .processes import Watched
from .targets import DIRECT, GATEWAY


@dataclass(frozen=True, slots=True)
class Steps:
    """All of a loop but the first, which begins a turn, and the last, which ends it."""

    times_ms: Sequence[float]
    cpu_ms: float
    """For each, of the process that is measured."""

    @property
    def median_ms(self) -> float:
        return statistics.median(self.times_ms)


def compared(ledger: Ledger, route: str, direct: Steps, through: Steps) -> None:
    """One round: the program behind the gateway, driven directly, and the same through the gateway."""
    for target, steps in ((DIRECT, direct), (GATEWAY, through)):
        ledger.add(f"{route}: ms per tool step", target, steps.median_ms)
        ledger.add(f"{route}: CPU ms per tool step", target, steps.cpu_ms)
    ledger.add(f"{route}: ms added to a tool step", GATEWAY, through.median_ms - direct.median_ms)


async def tool_loop(gateway: Watched, model: str, prompt: str, steps: int, **more: Any) -> Steps:
    """`prompt` makes the model call something at least so often. CPU is the gateway's, without its children."""
    client = await Client.connect(Address(gateway.port))
    said: list[Any] = [{"role": "user", "content": prompt}]
    times, used = [], []
    try:
        for number in range(steps + 1):
            used.append(gateway.own_cpu_s())
            answer = await client.ask(msgspec.json.encode({"model": model, "messages": said, **more}))
            times.append(answer.total_ms)
            message = answer.json()["choices"][0]["message"] if answer.status == 200 else {}
            calls = message.get("tool_calls") or []
            if not calls and number < steps:
                raise WrongAnswer(f"no call in step {number} of {steps}: {answer.raw[-500:]!r}")
            said += [message, *({"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in calls)]
    finally:
        client.close()
    return Steps(times[1:-1], (used[-1] - used[1]) * 1000 / (steps - 1))
