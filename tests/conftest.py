"""Hypothesis looks at the same examples every time; `--hypothesis-profile=search` looks further."""

from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("search", max_examples=3000, deadline=None)
settings.load_profile("fixed")
