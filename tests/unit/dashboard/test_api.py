"""The table names the handlers of `tabs`, which are loaded with the first visitor; each of them is there."""

from inspect import iscoroutinefunction

import pytest

from caretway.dashboard import api, tabs

HANDLERS = sorted({handler for methods in api._ROWS.values() for _, handler in methods.values()})


@pytest.mark.parametrize("handler", HANDLERS)
def test_a_row_names_a_handler(handler: str) -> None:
    assert iscoroutinefunction(getattr(tabs, handler))
