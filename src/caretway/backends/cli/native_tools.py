"""Client tools that cursor-agent calls itself: the directory, the approvals and the MCP server behind them, which
builds refuse them, why and for how long, and how many turns may wait for a client (the one that waits longest goes
first).
"""

import logging
import math
import shutil
import time
from collections import OrderedDict
from pathlib import Path
from typing import Literal

from .acp_tool_turn import AcpToolTurn
from .approvals import Approvals
from .limits import AGAIN_S
from .scratch import Scratch
from .tool_server import ToolServer

log = logging.getLogger(__name__)

ToolHandover = Literal["auto", "text"]


class ClientTools:
    def __init__(self, scratch: Scratch, home: str, version: str, parked: int, *, own_tools: bool) -> None:
        """`own_tools`: the program may run its own tools beside the client's."""
        self._scratch = scratch
        self._home = home
        self._own_tools = own_tools
        self._most = parked
        self._server = ToolServer(version)
        self._place: Path | None = None
        self._approvals: Approvals | None = None
        self._refusals: dict[object, tuple[str, float]] = {}
        """Why a build does not get them, and since when; infinite: it does not have to be tried again."""
        self._parked: OrderedDict[AcpToolTurn, None] = OrderedDict()

    def workspace(self) -> Path:
        """Where all such turns of this process work: an empty directory of ours."""
        if self._place is None:
            for path in self._scratch.left_behind():  # of a gateway that was killed
                Approvals(Path(self._home), path).close()
                shutil.rmtree(path, ignore_errors=True)
            self._place = self._scratch.with_tools()
        elif not self._place.is_dir():  # somebody has cleared it away, and the rules in it
            self._place = self._scratch.with_tools()
            if self._approvals is not None:
                self._approvals.allow(own_tools=self._own_tools)
        return self._place

    def is_place(self, workspace: str) -> bool:
        return self._place is not None and str(self._place) == workspace

    def refusal(self, build: object) -> str:
        """Why this build does not get them now; empty: it does, or they are to be tried."""
        if not self._home:
            return "there is no home directory"
        reason, since = self._refusals.get(build, ("", math.inf))
        return reason if time.monotonic() < since + AGAIN_S else ""

    # ---- what turns ask

    async def offer(self, turn: AcpToolTurn) -> str:
        if self._approvals is None:
            self._approvals = Approvals(Path(self._home), self.workspace())
            self._approvals.allow(own_tools=self._own_tools)
        url = await self._server.open(turn)
        try:
            self._approvals.give(url)
        except OSError:
            self._server.close(url)
            raise
        return url

    def withdraw(self, url: str) -> None:
        self._server.close(url)
        if self._approvals is not None:
            self._approvals.take_back(url)

    def refused(self, build: object, reason: str, *, for_good: bool) -> None:
        if self._refusals.get(build, ("",))[0] != reason:
            log.warning("cursor-agent gets clients' tools as text: %s", reason)
        self._refusals = {build: (reason, math.inf if for_good else time.monotonic())}

    def parked(self, turn: AcpToolTurn) -> None:
        self._parked[turn] = None
        while len(self._parked) > self._most:
            oldest, _ = self._parked.popitem(last=False)
            log.info("more than %d cursor-agent processes wait for a client: one is let go", self._most)
            oldest.close()

    def unparked(self, turn: AcpToolTurn) -> None:
        self._parked.pop(turn, None)

    async def aclose(self) -> None:
        await self._server.aclose()
        if self._approvals is not None:
            self._approvals.close()
        if self._place is not None:
            shutil.rmtree(self._place, ignore_errors=True)
