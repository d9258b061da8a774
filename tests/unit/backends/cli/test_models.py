"""A session's model and options: what is set, one after the other, for a name and the wishes beside it."""

import pytest

from caretway.backends.cli.models import ModelWish, SessionOption, model_parameters, next_choice, read_options

BASES = ("auto", "composer-2.5", "gpt-5.6", "gpt-5.6-sol", "claude-opus-5")
OPTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "composer-2.5": {"fast": ("true", "false")},
    "gpt-5.6-sol": {"reasoning": ("low", "medium", "high"), "context": ("272k", "1m"), "fast": ("true", "false")},
    "claude-opus-5": {"effort": ("low", "high", "max"), "thinking": ("true", "false")},
}


class Program:
    """Offers options for the model that the session has."""

    def __init__(self) -> None:
        self.model = "gpt-5.6"
        self.set: dict[str, str] = {}

    def options(self) -> tuple[SessionOption, ...]:
        own = OPTIONS.get(self.model, {})
        rows = [SessionOption(key, "", self.set.get(key, values[0]), values) for key, values in own.items()]
        return (
            SessionOption("mode", "mode", "agent", ("agent", "ask")),
            SessionOption("model", "model", self.model, BASES),
            *rows,
        )

    def fit(self, wish: ModelWish) -> str:
        made: set[str] = set()
        while (choice := next_choice(wish, self.options(), made)) is not None:
            key, value = choice
            assert key not in made, "nothing is set twice"
            made.add(key)
            if key == "model":
                self.model, self.set = value, {}
            else:
                assert value in OPTIONS[self.model][key]
                self.set[key] = value
        return " ".join([self.model, *(f"{key}={value}" for key, value in sorted(self.set.items()))])


CASES = [
    ("", {}, "gpt-5.6"),
    ("auto", {"effort": "high"}, "gpt-5.6"),
    ("composer-2.5", {}, "composer-2.5 fast=false"),
    ("composer-2.5-fast", {}, "composer-2.5"),
    ("composer-2.5", {"fast": "true"}, "composer-2.5"),
    ("gpt-5.6-sol", {"effort": "high"}, "gpt-5.6-sol fast=false reasoning=high"),
    ("gpt-5.6-sol-high-fast", {}, "gpt-5.6-sol reasoning=high"),
    ("gpt-5.6-sol[reasoning=medium,context=1m]", {}, "gpt-5.6-sol context=1m fast=false reasoning=medium"),
    ("gpt-5.6-sol-high", {"effort": "low"}, "gpt-5.6-sol fast=false reasoning=high"),
    ("gpt-5.6-sol", {"effort": "xhigh"}, "gpt-5.6-sol fast=false"),
    ("claude-opus-5-thinking-max", {}, "claude-opus-5 effort=max"),
    ("claude-opus-5", {"thinking": "false"}, "claude-opus-5 thinking=false"),
    ("gpt-5.6-terra", {}, "gpt-5.6"),
    ("gpt-99", {}, "gpt-5.6"),
]


@pytest.mark.parametrize(("name", "wishes", "settled"), CASES)
def test_a_name_and_wishes_settle_on(name: str, wishes: dict[str, str], settled: str) -> None:
    assert Program().fit(ModelWish(name, tuple(wishes.items()))) == settled


def test_a_build_with_one_fixed_variant_of_each_is_asked_for_that() -> None:
    options = (SessionOption("model", "model", "auto[]", ("auto[]", "composer-2.5[fast=true]")),)
    assert next_choice(ModelWish("composer-2.5"), options) == ("model", "composer-2.5[fast=true]")


def test_options_are_read_in_every_shape() -> None:
    grouped = [{"group": "a", "options": [{"value": "x"}, {"value": "y"}]}, {"value": "z"}]
    rows = [
        {"id": "model", "category": "model", "currentValue": "x", "options": grouped},
        {"id": "fast", "currentValue": True, "options": [{"value": True}, {"value": False}]},
        {"no": "id"},
        7,
    ]
    options = read_options({"configOptions": rows})
    assert options[0] == SessionOption("model", "model", "x", ("x", "y", "z"))
    assert model_parameters(options) == (("fast", ("true", "false")),)
    for nothing in ({}, {"configOptions": None}, {"configOptions": {"a": 1}}):
        assert read_options(nothing) == ()
