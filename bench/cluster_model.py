"""How far several gateways on one Redis go, on paper: hops, replays, load and memory of Redis, cores of gateways for a
number of users and gateways, and what runs out first. Measured per unit here, multiplied out beyond. Pure.

    python -m bench.cluster_model [USERS [REPLICAS]]

`bench.cluster_hops` measures the units; `bench.cluster_run` plays such loops on three real gateways, and prints what is
said here of them beside it.
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass

IDS = 65_536
"""Four hexadecimal digits."""
BATCHES = 5
"""A second, of a gateway: counts of requests that end in a call are written together."""
BUSY = 0.6
"""How much of a core a gateway is meant to use: answers should not wait for each other."""


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU in microseconds on the machine of docs/cluster.md."""

    prompt: float = 1_950
    """A first prompt that ends in a call, at a gateway."""
    step: float = 2_000
    """A step with results that ends in a call, where its turn lives."""
    last_step: float = 3_440
    """The same, and it ends the answer: the conversation is published."""
    hop: float = 1_240
    """What a hop adds, at both gateways."""
    replay: float = 1_010
    """What a replay adds."""
    delta: float = 126
    hop_delta: float = 48
    """What a hop adds to each delta."""
    redis_batch: float = 80
    """Redis, for the counts that a gateway writes behind."""
    redis_end: float = 260
    """Redis, for a request that ends the answer."""
    redis_beat: float = 314
    """Redis, for a heartbeat."""
    redis_row: float = 0.6
    """Redis, for a row of the directory."""
    commands_batch: float = 5
    commands_end: float = 16
    commands_replay: float = 7
    """On top."""
    commands_beat: float = 7.5
    conversation_bytes: float = 4_000
    """Memory of Redis, for a conversation without turns."""
    turn_bytes: float = 1_600
    parked_bytes: float = 11_500
    """Memory of a gateway, for a turn that waits."""


@dataclass(frozen=True, slots=True)
class Habits:
    """What a user at work does: one tool loop after the other."""

    steps: int = 10
    """With results, in one loop; its prompt comes before them."""
    seconds: float = 10.0
    """From one request to the next: the model speaks, then a tool runs."""
    speaking: float = 0.6
    """Share of that time in which the model speaks. Otherwise the turn is parked."""
    deltas: int = 100
    """Of each answer."""
    loops_kept: int = 100
    """Of a user, in the days for which conversations are kept."""
    loops_a_conversation: int = 5
    lost_a_day: float = 0.1
    """How often a gateway dies in a day, with its turns. Those that are stopped lose none."""
    max_parked: int = 200
    """The setting."""


@dataclass(frozen=True, slots=True)
class Reading:
    """All rates are per second."""

    replicas: int
    requests: float
    hops: float
    replays: float
    commands: float
    rows: float
    """Of the directory that gateways read."""
    redis_cores: float
    redis_bytes: float
    gateway_cores: float
    """One gateway's."""
    parked: float
    """At one gateway."""
    parked_share: float

    def shares(self) -> dict[str, float]:
        """What can run out -> how much of it is used. Redis runs commands on one core, a gateway on one too."""
        return {
            "a gateway's core": self.gateway_cores,
            "Redis's core": self.redis_cores,
            "max_parked": self.parked_share,
            "ids": self.replicas / IDS,
        }

    def first(self) -> str:
        return max(self.shares().items(), key=lambda item: item[1])[0]


def read(users: float, replicas: int, costs: Costs | None = None, habits: Habits | None = None) -> Reading:
    costs, habits = costs or Costs(), habits or Habits()
    requests = users / habits.seconds
    loops = requests / (habits.steps + 1)
    steps = loops * habits.steps
    hops = steps * (replicas - 1) / replicas
    replays = users * habits.lost_a_day / 86_400
    beats = replicas / 2
    rows = replicas * min(replicas / 2, 25)
    batches = min(requests - loops, replicas * BATCHES)
    redis_us = batches * costs.redis_batch + loops * costs.redis_end + beats * costs.redis_beat + rows * costs.redis_row
    commands = batches * costs.commands_batch + loops * costs.commands_end + replays * costs.commands_replay
    cpu_us = loops * (costs.prompt + costs.last_step) + (steps - loops) * costs.step
    cpu_us += requests * habits.deltas * costs.delta
    cpu_us += hops * (costs.hop + habits.deltas * costs.hop_delta) + replays * costs.replay
    talks = users * habits.loops_kept / habits.loops_a_conversation
    parked = users * (1 - habits.speaking) * habits.steps / (habits.steps + 1) / replicas
    return Reading(
        replicas=replicas,
        requests=requests,
        hops=hops,
        replays=replays,
        commands=commands + beats * costs.commands_beat,
        rows=rows,
        redis_cores=redis_us / 1e6,
        redis_bytes=talks * (costs.conversation_bytes + habits.loops_a_conversation * costs.turn_bytes),
        gateway_cores=cpu_us / 1e6 / replicas,
        parked=parked,
        parked_share=parked / habits.max_parked,
    )


def replicas_for(users: float) -> int:
    """The fewest whose cores and parked turns suffice."""
    few = 1
    while True:
        found = read(users, few)
        more = math.ceil(few * max(found.gateway_cores / BUSY, found.parked_share))
        if more <= few:
            return few
        few = more


def largest() -> tuple[int, int]:
    """Users and gateways that one Redis carries, at the same share of its core."""
    users = 1_000
    while read(users + 1_000, replicas_for(users + 1_000)).redis_cores <= BUSY:
        users += 1_000
    return users, replicas_for(users)


def shown(users: float, found: Reading) -> Iterator[str]:
    yield f"{users:,.0f} users, {found.replicas:,} gateways"
    yield f"  requests      {found.requests:12,.0f} /s"
    yield f"  hops          {found.hops:12,.0f} /s"
    yield f"  replays       {found.replays:12,.2f} /s"
    yield f"  Redis         {found.commands:12,.0f} commands/s, {found.rows:,.0f} rows of the directory/s"
    yield f"                {found.redis_cores:12.2f} cores, {found.redis_bytes / 1e9:,.1f} GB"
    yield f"  each gateway  {found.gateway_cores:12.2f} cores, {found.parked:,.0f} turns parked"
    used = ", ".join(f"{name} {share:.0%}" for name, share in sorted(found.shares().items(), key=lambda one: -one[1]))
    yield f"  first to run out: {found.first()} ({used})"


def main() -> None:
    given = [int(float(one)) for one in sys.argv[1:]]
    for users in given[:1] or [100_000, 10_000_000]:
        replicas = given[1] if len(given) > 1 else replicas_for(users)
        print("\n".join(shown(users, read(users, replicas))))
    users, replicas = largest()
    print(f"one Redis, its core at {BUSY:.0%}: {users:,} users on {replicas:,} gateways")


if __name__ == "__main__":
    main()
