"""For tests of several gateways on one Redis: nobody is taken for dead because this machine is busy."""

import pytest

from caretway.cluster import hop, link, outbox


def be_patient(monkeypatch: pytest.MonkeyPatch, answer_s: float = 30.0) -> None:
    """Gateways wait for Redis and for each other this long at least. `answer_s`: for Redis, which may be frozen."""
    monkeypatch.setattr(link, "ANSWER_S", answer_s)
    monkeypatch.setattr(link, "CONNECT_S", answer_s)
    monkeypatch.setattr(link, "TOTAL_S", answer_s + 1)
    monkeypatch.setattr(hop, "ACCEPT_S", 30.0)
    monkeypatch.setattr(hop, "CONNECT_S", 30.0)
    monkeypatch.setattr(outbox, "HOLD_S", 30.0)
