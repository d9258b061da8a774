"""Runs both witnesses against simulators of their own, on every transport they speak, and prints a line per case.

A case that a client cannot be asked is not in its list. Exit code 0 only when everything passed.
"""

import argparse
import asyncio
import json
import os
import re
import ssl
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from caretway.cursor.wire import paths
from caretway_sim.manners import LIVE, PROFILES
from installing import install
from witness.cases import Case, Wrong, cases_of
from witness.witnesses import Opencodex, PiAi, Place, Witness, WitnessFailed, temporary

CASE_S = 60.0
SEATS: list[tuple[type[Witness], str]] = [(PiAi, "2"), (Opencodex, "2"), (Opencodex, "1.1")]


@asynccontextmanager
async def simulator(profile: str, http: str) -> AsyncIterator[Place]:
    """A `caretway simulate` of its own process. opencodex speaks HTTP/1.1 over TLS only."""
    program = str(Path(sys.executable).parent / "caretway")
    flags = ["simulate", "--port", "0", "--profile", profile, *(["--tls"] if http == "1.1" else [])]
    process = await asyncio.create_subprocess_exec(program, *flags, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        url = authority = ""
        while not url or (http == "1.1" and not authority):
            line = (await process.stdout.readline()).decode()
            if not line:
                raise WitnessFailed("the simulator did not start")
            url = url or (found[0] if (found := re.search(r"https?://[\d.]+:\d+", line)) else "")
            authority = found[1] if (found := re.search(r"authority\s+(\S+)", line)) else authority
        yield Place(url, http, authority, await asyncio.to_thread(token, url, authority))
    finally:
        process.terminate()
        await process.wait()


def token(url: str, authority: str) -> str:
    """An access token for an API key, as `cursor-agent` gets one."""
    trust = ssl.create_default_context(cafile=authority) if authority else None
    handlers = [urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust)]
    head = {"Authorization": "Bearer key_witness", "Content-Type": "application/json"}
    request = urllib.request.Request(url + paths.EXCHANGE_KEY, b"{}", head)
    with urllib.request.build_opener(*handlers).open(request, timeout=20) as answer:
        return str(json.load(answer)["accessToken"])


async def judged(witness: Witness, case: Case) -> str:
    """Empty when the case passed, else why it did not."""
    try:
        await asyncio.wait_for(case(witness), CASE_S)
    except TimeoutError:
        await witness.restart()
        return f"no end within {CASE_S:.0f} s"
    except (Wrong, WitnessFailed) as wrong:
        return str(wrong)
    return ""


async def seat(kind: type[Witness], http: str, home: Path, profile: str, only: list[str]) -> list[str]:
    """All cases of one client on one transport, one after the other. Gives the failures."""
    failed: list[str] = []
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(simulator(profile, http))
        directory = Path(stack.enter_context(temporary()))
        witness = kind(home, place, directory)
        stack.push_async_callback(witness.close)
        await witness.start()
        witness.model = "default"
        for name, case in cases_of(kind):
            if only and name not in only:
                continue
            began = time.monotonic()
            why = await judged(witness, case)
            row = f"{kind.name:10} HTTP/{http:4} {name:26} {time.monotonic() - began:6.1f} s"
            print(f"{'FAIL' if why else 'ok':5}{row}{': ' + why if why else ''}", flush=True)
            failed += [row] if why else []
    return failed


async def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/witness", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--profile", choices=sorted(PROFILES), default=LIVE.name)
    parser.add_argument("--client", choices=sorted({kind.name for kind, _ in SEATS}), action="append")
    parser.add_argument("--case", action="append", default=[], metavar="NAME")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "caretway-witnesses"
    parser.add_argument(
        "--cache", type=Path, default=cache, metavar="DIR", help=f"where clients are installed [{cache}]"
    )
    options = parser.parse_args()
    began = time.monotonic()
    chosen = [(kind, http) for kind, http in SEATS if not options.client or kind.name in options.client]
    homes = {}
    for kind in dict.fromkeys(kind for kind, _ in chosen):
        homes[kind] = await asyncio.to_thread(
            install, options.cache / kind.name, npm=kind.packages, overrides=kind.overrides, scripts=False
        )
    jobs = [seat(kind, http, homes[kind], options.profile, options.case) for kind, http in chosen]
    failed = [row for rows in await asyncio.gather(*jobs) for row in rows]
    count = sum(not options.case or name in options.case for kind, _ in chosen for name, _ in cases_of(kind))
    print(f"\n{count - len(failed)} passed, {len(failed)} failed in {time.monotonic() - began:.0f} s")
    return 1 if failed or not count else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
