"""The dashboard's queries to the ledger's file: one at a time in a thread, so that no query delays a stream."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from ..core.errors import ErrorKind, GatewayError
from ..storage.database import open_database, read_database, transaction
from ..usage.ledger import Ledger
from ..usage.prices import FindPrice
from ..usage.writing import LEDGER

if TYPE_CHECKING:
    from ..usage.conversations import ConversationList, Timeline, Wanted

Answer = TypeVar("Answer")


SETTLES_S: Final = 3.0
"""How long forgetting a conversation waits for its unwritten rows."""


class LedgerReader:
    def __init__(self, path: Path | None, price: FindPrice, ledger: Ledger | None = None) -> None:
        """`path` None: no ledger is kept. `ledger`: the writer of the file."""
        self._path = path
        self._ledger = ledger
        self.price = price
        self._one_at_a_time = asyncio.Lock()

    @property
    def kept(self) -> bool:
        return self._path is not None

    async def conversations(
        self, wanted: "Wanted", limit: int
    ) -> "tuple[ConversationList, dict[str, list[str]]] | None":
        """The list and the values of its filters; None if no ledger is kept."""
        from ..usage.conversations import ConversationList, ConversationQueries

        if self._path is None:
            return None

        def both(db: sqlite3.Connection) -> "tuple[ConversationList, dict[str, list[str]]]":
            queries = ConversationQueries(db, self.price)
            return queries.listed(wanted, limit), queries.choices()

        return await self.ask(both) or (ConversationList([], more=False), {})

    async def timeline(self, name: str) -> "Timeline | None":
        from ..usage.conversations import ConversationQueries

        return await self.ask(lambda db: ConversationQueries(db, self.price).timeline(name))

    async def ask(self, question: Callable[[sqlite3.Connection], Answer]) -> Answer | None:
        """The answer to a question; None if no ledger is kept or nothing was written yet."""
        path = self._path
        if path is None:
            return None

        def work() -> Answer | None:
            db = read_database(path, LEDGER)
            if db is None:
                return None
            with closing(db):
                return question(db)

        return await self._run(work)

    async def forget(self, name: str) -> tuple[int, int]:
        """Deletes a conversation's rows, including queued ones, and returns the counts (responses, runs)."""
        from ..usage.conversations import forget_conversation

        path, ledger = self._path, self._ledger
        if path is None:
            return 0, 0

        def work() -> tuple[int, int]:
            if ledger is not None:
                ledger.settle(SETTLES_S)
            if not path.exists():
                return 0, 0
            with closing(open_database(path, LEDGER)) as db:
                db.execute("PRAGMA secure_delete = ON")
                with transaction(db):
                    return forget_conversation(db, name)

        return await self._run(work)

    async def _run(self, work: Callable[[], Answer]) -> Answer:
        async with self._one_at_a_time:
            try:
                return await asyncio.to_thread(work)
            except sqlite3.Error as failure:
                raise GatewayError(
                    ErrorKind.INTERNAL, f"The ledger cannot be read: {failure}.", hint="Run `caretway doctor`."
                ) from failure
