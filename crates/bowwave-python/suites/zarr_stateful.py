"""The state machines of zarr's own tests, over `bowwave.zarr.Store`: any order of operations, compared with a model."""

import bowwave.zarr
import pytest
from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test
from zarr.testing.stateful import MAX_BINARY_SIZE, ZarrHierarchyStateMachine, ZarrStoreStateMachine
from zarr.testing.strategies import keys

SETTINGS = settings(max_examples=30, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck))


class StoreOfDirectories(ZarrStoreStateMachine):
    """Without keys that other keys continue, such as `a` and `a/b`: a name is a file or a directory. zarr leaves the
    machine out for its own store of local files for that reason."""

    @rule(key=keys(), data=st.binary(min_size=0, max_size=MAX_BINARY_SIZE))
    def set(self, key, data):
        assume(not any(other.startswith(f"{key}/") or key.startswith(f"{other}/") for other in self.model))
        super().set(key, data)


@pytest.fixture
def store(tmp_path):
    return bowwave.zarr.Store(str(tmp_path), read_only=False)


@pytest.mark.filterwarnings("ignore")
def test_any_order_of_operations_on_arrays_and_groups(store):
    run_state_machine_as_test(lambda: ZarrHierarchyStateMachine(store), settings=SETTINGS)


def test_any_order_of_operations_on_keys(store):
    run_state_machine_as_test(lambda: StoreOfDirectories(store), settings=SETTINGS)
