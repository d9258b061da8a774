"""A client of no use: tells what it was given, asks the gateway once, and ends as it is told. It is started under the
name of a real one.

Words: `ask` sends a prompt by OPENCODE_CONFIG_CONTENT; `wait` waits for signals and tells each; `exit N`, `kill N`.
"""

import json
import os
import signal
import sys
import urllib.request


def ask() -> str:
    config = json.loads(os.environ["OPENCODE_CONFIG_CONTENT"])
    provider, _, model = config["model"].partition("/")
    options = config["provider"][provider]["options"]
    body = {"model": model, "messages": [{"role": "user", "content": "sim: say PONG"}]}
    request = urllib.request.Request(
        options["baseURL"] + "/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json", "authorization": "Bearer " + options["apiKey"]},
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return str(json.load(answer)["choices"][0]["message"]["content"])


def main(words: list[str]) -> int:
    told = {"words": words, "environment": dict(os.environ), "answer": ask() if "ask" in words else None}
    if words[:1] == ["wait"]:
        counts = {"INT": 0, "TERM": 0, "HUP": 0}

        def note(number: int, _frame: object) -> None:
            name = signal.Signals(number).name.removeprefix("SIG")
            counts[name] += 1
            os.write(1, f"{name} {counts[name]}\n".encode())

        for name in counts:
            signal.signal(getattr(signal, "SIG" + name), note)
        os.write(1, b"waiting\n")
        sys.stdin.readline()
        print(f"in all {counts['INT']} {counts['TERM']} {counts['HUP']}", flush=True)
        return 5
    print(json.dumps(told), flush=True)
    if words[:1] == ["kill"]:
        os.kill(os.getpid(), int(words[1]))
    return int(words[1]) if words[:1] == ["exit"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
