"""What answers for one account, and the resolver of a gateway with one owner."""

import pytest

from caretway.api.tenant import AccountUse, SingleTenant
from caretway.core.errors import GatewayError
from caretway.dialects.registry import dialects
from caretway.server.exchange import HttpRequest
from unit.api.parts import Parts


def test_dialects_by_name() -> None:
    tenant = Parts().tenant
    for dialect in dialects():
        assert tenant.dialect(dialect.name).name == dialect.name
    assert tenant.dialect("").name == dialects()[0].name


def test_a_dialect_says_by_which_header_its_clients_are_known() -> None:
    tenant = Parts().tenant
    for dialect in dialects():
        if dialect.mark:
            assert tenant.dialect_of({dialect.mark: "x"}) is tenant.dialects[dialect.name]
    assert tenant.dialect_of({}).name == dialects()[0].name
    marks = [dialect.mark for dialect in dialects() if dialect.mark]
    assert len(marks) == len(set(marks))


async def test_a_model_that_is_there_and_one_that_is_not() -> None:
    tenant = Parts().tenant
    assert (await tenant.known_model("sim-auto")).id == "sim-auto"
    with pytest.raises(GatewayError) as caught:
        await tenant.known_model("nope")
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize("account", AccountUse)
async def test_one_owner_answers_everything(account: AccountUse) -> None:
    tenant = Parts().tenant
    resolver = SingleTenant(tenant)
    async with resolver.resolve(HttpRequest("GET", "/", {}), account) as resolved:
        assert resolved is tenant
    assert (resolver.live, resolver.parked) == (3, 2)
