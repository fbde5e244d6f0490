"""Readers that are fed with bytes which a fuzzer finds, and where it begins."""
