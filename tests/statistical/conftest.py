"""Small worlds are faster on one thread."""

import numba
import pytest


@pytest.fixture(autouse=True)
def _one_thread():
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    yield
    numba.set_num_threads(before)
