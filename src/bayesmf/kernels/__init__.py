"""Compiled arithmetic only; every kernel has a naive twin in tests/oracle.

No kernel reorders a sum by the number of threads, so the same input gives the same bits on any.
"""
