"""Which agents are kept: exact places only, the oldest go first, and nothing of a forgotten one stays on disk."""

from pathlib import Path

import pytest

from caretway.backends.cursor_sdk.agents import AgentPosition, Agents, read_position, write_position
from caretway.backends.cursor_sdk.layout import Layout


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path)
    layout.make()
    return layout


def kept(agents: Agents, name: str, turns: int = 1) -> list[str]:
    agents.create(name)
    return agents.keep(AgentPosition(name, turns))


def test_places_are_opaque_bytes() -> None:
    assert read_position(write_position(AgentPosition("a", 3))) == AgentPosition("a", 3)
    for broken in (b"", b"{}", b"\xff", b'{"agent": 1, "turns": 2}'):
        assert read_position(broken) is None


def test_only_the_exact_place_is_given_and_only_once(layout: Layout) -> None:
    agents = Agents(layout, limit=9)
    kept(agents, "a", 2)
    assert not agents.claim(AgentPosition("a", 1))
    assert not agents.claim(AgentPosition("b", 2))
    assert agents.claim(AgentPosition("a", 2))
    assert not agents.claim(AgentPosition("a", 2))  # it is at work
    agents.keep(AgentPosition("a", 3))
    assert agents.claim(AgentPosition("a", 3))


def test_the_least_recently_used_goes_first(layout: Layout) -> None:
    agents = Agents(layout, limit=2)
    assert kept(agents, "a") == kept(agents, "b") == []
    agents.claim(AgentPosition("a", 1))
    agents.keep(AgentPosition("a", 2))
    assert kept(agents, "c") == ["b"]
    assert agents.idle == 2


def test_an_earlier_gateways_agents_are_found(layout: Layout) -> None:
    before = Agents(layout, limit=9)
    kept(before, "a", 4)
    before.create("unfinished")
    agents = Agents(layout, limit=9)
    agents.load()
    assert agents.claim(AgentPosition("a", 4))
    assert not layout.agent("unfinished").exists()


def test_nothing_stays_on_disk(layout: Layout) -> None:
    agents = Agents(layout, limit=9)
    kept(agents, "a1")
    other = layout.projects / "data-agents-b2-workspace"
    transcript = layout.projects / "data-agents-a1-workspace" / "transcript.jsonl"
    for path in (other, transcript.parent):
        path.mkdir(parents=True)
    transcript.write_text("what the user said")
    agents.drop("a1")
    agents.erase("a1")
    agents.erase("a1")
    assert not layout.agent("a1").exists()
    assert [path.name for path in layout.projects.iterdir()] == [other.name]
    assert not agents.claim(AgentPosition("a1", 1))
