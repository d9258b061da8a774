"""The switches: each is documented, the service as recorded is the default, the command line knows both profiles."""

import argparse
import ast
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from caretway.cli import simulate
from caretway_sim import manners
from caretway_sim.manners import CLASSIC, LIVE, LIVE_AT_ONCE, PROFILES, Manners, flipped
from caretway_sim.shared import Shared


def test_every_switch_says_what_it_does() -> None:
    tree = ast.parse(Path(manners.__file__).read_text(encoding="utf-8"))
    body = next(node for node in tree.body if isinstance(node, ast.ClassDef)).body
    told = [
        here.target.id
        for here, following in pairwise(body)
        if isinstance(here, ast.AnnAssign)
        and isinstance(here.target, ast.Name)
        and isinstance(following, ast.Expr)
        and isinstance(following.value, ast.Constant)
    ]
    assert told == [field.name for field in fields(Manners) if field.name != "name"]


def test_a_single_switch_can_be_flipped() -> None:
    assert replace(CLASSIC, two_ids=True).two_ids
    assert not replace(LIVE, two_ids=False).two_ids


FLIPS = [
    ("two_ids=true", {"two_ids": True}),
    ("refresh_at=nowhere", {"refresh_at": "nowhere"}),
    ("sign_in_ends=410", {"sign_in_ends": 410}),
    ("sibling_gaps_ms=[1,2]", {"sibling_gaps_ms": (1, 2)}),
    ('refused_shapes=["both"]', {"refused_shapes": frozenset({"both"})}),
    ("checkpoint_after_call_ms=null", {"checkpoint_after_call_ms": None}),
]


@pytest.mark.parametrize(("text", "flip"), FLIPS)
def test_a_switch_as_text(text: str, flip: dict[str, Any]) -> None:
    assert flipped(LIVE, [text]) == replace(LIVE, **flip)


@pytest.mark.parametrize(
    "text", ["", "two_ids", "unheard_of=1", "name=x", "two_ids=maybe", "refresh_at=moon", "lingers_ms=1.5"]
)
def test_a_switch_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"switch|value|expected"):
        flipped(LIVE, ["two_ids=true", text])


def test_the_service_as_recorded_is_the_default() -> None:
    assert Manners() == CLASSIC != LIVE
    assert Shared().manners is LIVE


def test_without_waits_nothing_but_time_changes() -> None:
    assert replace(LIVE_AT_ONCE, sibling_gaps_ms=LIVE.sibling_gaps_ms, lingers_ms=LIVE.lingers_ms) == LIVE


def test_the_command_knows_the_profiles() -> None:
    parser = argparse.ArgumentParser()
    simulate.add_flags(parser)
    assert parser.parse_args([]).profile == "live"
    for name in PROFILES:
        assert parser.parse_args(["--profile", name]).profile == name
