"""Which gateway replays a turn whose own gateway is gone: the first that claims it, in Redis. Another one that is asked
for the same turn passes the request on to that one, so that nothing is run twice. A dead winner's claim is taken over.
"""

from typing import Final

from redis.asyncio import Redis

from .link import RedisLink

_TAKE: Final = """
local held = redis.call('GET', KEYS[1])
if not held or held == ARGV[2] then
  redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[3])
  return ARGV[1]
end
return held
"""
"""One step, so that two that find the same dead winner do not both win."""


class Claims:
    def __init__(self, link: RedisLink, life_s: float) -> None:
        """`life_s`: as long as a client could still bring results for the turn."""
        self._link = link
        self._life_s = int(life_s)

    async def claim(self, sid: str, own: str, instead_of: str = "") -> str:
        """Who replays it: `own`, or who was first. `instead_of`: a winner that is gone. Raises RedisAway."""

        async def take(redis: Redis) -> str:
            held = await redis.eval(_TAKE, 1, self._link.row("claim", sid), own, instead_of, str(self._life_s))
            return held.decode() if isinstance(held, bytes) else str(held)

        return await self._link.do(take)
