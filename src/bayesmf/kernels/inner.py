"""The innermost loops that the kernels call: those of ``llvm`` if they compile, else of ``plain``.

The choice is made once, when the kernels are imported. Numba's cache on disk does not see it, so a
kernel that calls one of these loops is compiled by this module's ``serial`` or ``parallel``, which
make the choice a part of the name that the code is kept under.
"""

from __future__ import annotations

import os
import warnings
from importlib import import_module
from typing import Any

from bayesmf.machine import compiler

VARIABLE = "BAYESMF_PLAIN_KERNELS"  # of the environment: 1 asks for the plain loops


def choose_form() -> str:
    """Returns "llvm" or "plain"; warns if it is "plain" and nobody asked for it."""
    if os.environ.get(VARIABLE, "0") not in ("", "0"):
        return "plain"
    try:
        import_module("bayesmf.kernels.llvm").try_out()
    except Exception as error:  # a compiler that has changed may raise anything
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        warnings.warn(
            f"the fast kernels cannot be compiled with this version of Numba ({reason}); plain "
            "ones are used, which give the same results several times slower. "
            f"Set {VARIABLE}=1 to use them without this warning.",
            RuntimeWarning,
            stacklevel=2,
        )
        return "plain"
    return "llvm"


FORM = choose_form()
serial: Any = compiler(FORM)
parallel: Any = compiler(FORM, parallel=True)

_loops = import_module(f"bayesmf.kernels.{FORM}")
add_products = _loops.add_products
subtract_4 = _loops.subtract_4
subtract_1 = _loops.subtract_1
multiply_4 = _loops.multiply_4
pivot_column = _loops.pivot_column
divide_cell = _loops.divide_cell
step_back = _loops.step_back
normalise_row = _loops.normalise_row
add_lanes = _loops.add_lanes
add_rows = _loops.add_rows
add_valued_rows = _loops.add_valued_rows
subtract_from_rows = _loops.subtract_from_rows
subtract_from_valued_rows = _loops.subtract_from_valued_rows
