"""The state machine of zarr's own tests, over `bowwave.zarr.Store`: any order of operations, compared with a model.

Its other one, of keys alone, does not fit, as it does not fit zarr's own store of local files: a key may be the beginning of
another one there, and our stores are trees of files, in which it would be a file and a directory.
"""

import bowwave.zarr
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from zarr.testing.stateful import ZarrHierarchyStateMachine

SETTINGS = settings(max_examples=30, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.filterwarnings("ignore")
def test_any_order_of_operations_on_arrays_and_groups(tmp_path):
    store = bowwave.zarr.Store(str(tmp_path), read_only=False)
    run_state_machine_as_test(lambda: ZarrHierarchyStateMachine(store), settings=SETTINGS)
