"""What holds for all tests: one BLAS thread, and the same examples every time."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is loaded

from hypothesis import settings

# `--hypothesis-profile=search` looks at new examples, and at more of them.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("search", max_examples=3000, deadline=None)
settings.load_profile("fixed")
