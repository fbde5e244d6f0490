"""What holds for all tests: one thread, which small worlds like, and the same examples always."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is loaded
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

from hypothesis import settings

# `--hypothesis-profile=search` looks at new examples, and at more of them.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("search", max_examples=3000, deadline=None)
settings.load_profile("fixed")
