"""Sets the number of examples. The suite uses few examples, which are always the same. A hunt uses many new ones.

`WATERSPOUT_HYPOTHESIS=thorough make test` hunts. `WATERSPOUT_HYPOTHESIS_FACTOR=100` makes the hunt longer.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings

from server.resources import built_in
from tests.property.mutations import mutate
from tests.property.rows import make_rows, store
from tests.property.served import Target, served
from tests.variables import VARIABLES

_FACTOR = int(VARIABLES.get("WATERSPOUT_HYPOTHESIS_FACTOR", "20"))
_CHECKS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]

# A failing example is shown as it was found: making it smaller may take longer than a whole run may.
settings.register_profile(
    "suite",
    max_examples=60,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=_CHECKS,
)
settings.register_profile(
    "thorough",
    max_examples=100 * _FACTOR,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[*_CHECKS, HealthCheck.filter_too_much],
)
# The first failure is enough.
settings.register_profile("mutation", settings.get_profile("suite"), max_examples=100, phases=[Phase.generate])
settings.load_profile(VARIABLES.get("WATERSPOUT_HYPOTHESIS", "suite"))
if "WATERSPOUT_MUTATION" in VARIABLES:
    settings.load_profile("mutation")
    mutate(VARIABLES["WATERSPOUT_MUTATION"])


@pytest.fixture(scope="module")
def people(postgres_url: str) -> Iterator[Target]:
    """Yield a server with the built-in resources and some rows."""
    catalog = built_in()
    with served(postgres_url, catalog) as server:
        store(server, make_rows(0))
        yield Target(server, catalog)
