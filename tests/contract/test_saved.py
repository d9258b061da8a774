"""What sessions save, by the ledger, against the same steps with `fresh`, by the simulator's own count."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from caretway_sim.manners import CLASSIC
from contract.gateways import Client, gateway, result, tool

STEPS = 8


async def converse(client: Client, mode: str) -> int:
    """A conversation of tool steps and turns; how many input tokens were told anew."""
    before = client.stats()["tokens_in_uncached"]
    headers = {"x-caretway-session": mode}
    words = "some words that make the history longer " * 10
    call = "sim: call lookup " + json.dumps({"key": "k"})
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"{words}\n{call}\nsim: say done"}]
    tools = [tool("lookup", "key")]
    for number in range(STEPS):
        answer = await client.chat(messages, headers=headers, tools=tools)
        messages.append(answer.message)
        if answer.calls:
            messages += [result(one, f"{words} {number}") for one in answer.calls]
        else:
            messages.append({"role": "user", "content": f"{words}\n{call}\nsim: say done"})
    return client.stats()["tokens_in_uncached"] - before


async def test_saved_is_what_fresh_would_have_sent_again(tmp_path: Path) -> None:
    async with gateway(manners=CLASSIC, data_dir=tmp_path) as client:
        await client.chat("sim: say hello", tools=[tool("lookup", "key")])  # Cursor's own instructions are cached now
        with_sessions = await converse(client, "auto")
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as db:
        ((saved,),) = db.execute("SELECT sum(held) FROM responses")
    async with gateway(manners=CLASSIC) as client:
        await client.chat("sim: say hello", tools=[tool("lookup", "key")])
        fresh = await converse(client, "fresh")
    print(f"{with_sessions} told anew with sessions, {fresh} with fresh; the ledger says {saved} saved")
    assert abs(saved - (fresh - with_sessions)) < 0.15 * saved
