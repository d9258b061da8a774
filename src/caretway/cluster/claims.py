"""Which gateway replays a turn whose own gateway is gone: the first that claims it, in Redis. Another one that is asked
for the same turn passes the request on to that one, so that nothing is run twice. A dead winner's claim is taken over.
"""

from typing import Final

from redis.asyncio import Redis

from .link import RedisAway, RedisLink
from .seal import SMALL, Seal

_TAKE: Final = """
local held = redis.pcall('GETRANGE', KEYS[1], 0, ARGV[4])
if type(held) ~= 'string' or held == '' or held == ARGV[2] then
  redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[3])
  return ARGV[1]
end
return held
"""
"""One step, so that two that find the same dead winner do not both win. ARGV: the claim, the row that it may replace,
its seconds, the bytes of a row that are read."""
_TRIES: Final = 4


class Claims:
    def __init__(self, link: RedisLink, seal: Seal, life_s: float) -> None:
        """`life_s`: as long as a client could still bring results for the turn."""
        self._link = link
        self._seal = seal
        self._life_s = int(life_s)

    async def claim(self, sid: str, own: str, instead_of: str = "") -> str:
        """Who replays it: `own`, or who was first. `instead_of`: a winner that is gone. A forged claim counts for
        nothing. Raises RedisAway."""
        place = self._link.row("claim", sid)
        wanted = self._seal.close(place.encode(), own.encode())
        held = b""

        async def take(redis: Redis) -> bytes:
            found: bytes = await redis.eval(_TAKE, 1, place, wanted, held, self._life_s, SMALL)
            return found

        for _ in range(_TRIES):
            held = await self._link.do(take)
            winner = own if held == wanted else (self._seal.open(place.encode(), held) or b"").decode()
            if winner and winner != instead_of:
                return winner
        raise RedisAway("others change the claim all the time")
