"""Do other processors give other bits? ``python benchmarks/processors.py``.

A short fit of the demo data on one thread, in processes that are told to compute as other
processors would: OpenBLAS by OPENBLAS_CORETYPE, the compiler by NUMBA_CPU_NAME, the C library by
GLIBC_TUNABLES, NumPy by NPY_DISABLE_CPU_FEATURES. Code for a processor with more instructions than
this one has cannot be run here.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile

CASES: tuple[tuple[str, dict[str, str]], ...] = (
    ("this processor", {}),
    *((f"OpenBLAS for {kind}", {"OPENBLAS_CORETYPE": kind})
      for kind in ("Haswell", "Zen", "SkylakeX", "Sandybridge", "Nehalem")),
    *((f"compiled for {kind}", {"NUMBA_CPU_NAME": kind})
      for kind in ("haswell", "skylake", "znver3")),
    ("compiled for generic, without FMA", {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}),
    ("C library without FMA", {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4"}),
    ("NumPy without AVX2", {"NPY_DISABLE_CPU_FEATURES": "X86_V3"}),
)  # fmt: skip


def fit() -> None:
    """Print hashes of the last states of two models."""
    import bayesmf
    from bayesmf import Gibbs, Model
    from bayesmf.model.state import to_arrays

    train, test = bayesmf.split(bayesmf.load("demo"), "random", seed=0)
    for model in (Model(rank=12), Model.paper("no-side", rank=12)):
        sampler = Gibbs(model, sweeps=12, burn_in=2, keep=4, chains=1, seed=1, threads=1)
        found = sampler.fit(train, test)
        arrays = to_arrays(found.states[0])
        content = b"".join(arrays[name].tobytes() for name in sorted(arrays))
        print(f"{hashlib.sha256(content).hexdigest()[:8]} (RMSE {found.test_rmse:.10f})")


def main() -> None:
    """Print a table of the cases."""
    print("| computed as | default model | no side |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as cache:  # of code compiled for others
        for what, variables in CASES:
            more = (
                {**variables, "NUMBA_CACHE_DIR": cache}
                if "NUMBA_CPU_NAME" in variables
                else variables
            )
            done = subprocess.run(
                [sys.executable, __file__, "fit"], env={**os.environ, **more},
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            told = done.stdout.split("\n")[:2] if done.returncode == 0 else ["cannot run here", ""]
            print(f"| {what} | {told[0]} | {told[1]} |", flush=True)


if __name__ == "__main__":
    fit() if sys.argv[1:] == ["fit"] else main()
