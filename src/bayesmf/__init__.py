"""Bayesian matrix factorization of ratings."""

__version__ = "0.1.0.dev0"


def _homes() -> dict[str, str]:
    """The module of each public name, as the stub file beside this one lists them."""
    with open(__file__ + "i", encoding="utf-8") as stub:
        lines = [line.split() for line in stub if line.startswith("from ")]
    return {words[3]: words[1] for words in lines}


# Each module is loaded when its name is asked for: looking at data does not wait for the compiler,
# and neither does a key of the shell for NumPy.
_HOMES = _homes()
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'bayesmf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
