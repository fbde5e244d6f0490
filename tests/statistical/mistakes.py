"""Mistakes that the statistical tests must notice, each made in the sampler by a monkeypatch."""

from __future__ import annotations

import inspect
import sys
from dataclasses import replace

import numba
import numpy as np
import pytest

from bayesmf.kernels.designs import NO_VALUES
from bayesmf.model import conditionals
from bayesmf.model.distributions import Gamma
from bayesmf.model.likelihood import Gaussian
from bayesmf.sweep import designs, rows


def rewrite(monkeypatch, function, right: str, wrong: str) -> None:
    """A function in whose source ``wrong`` stands for ``right``, wherever it is known by its name.

    A method is changed in its class. Compiled functions that were compiled before, and call it, go
    on with the right one.
    """
    plain = getattr(function, "py_func", function)
    name, home = plain.__name__, vars(sys.modules[plain.__module__])
    source = inspect.getsource(plain)
    assert source.count(right) == 1, f"{name} has {source.count(right)} times {right}"
    source = source[source.index("def ") :].replace(right, wrong)
    made = {}
    exec(compile(source, f"<a wrong {name}>", "exec"), home, made)
    new = made[name] if plain is function else numba.njit(error_model="numpy")(made[name])
    owner, _, method = plain.__qualname__.rpartition(".")
    if owner in home:
        monkeypatch.setattr(home[owner], method, new)
        return
    for module in list(sys.modules.values()):
        if module.__name__.startswith("bayesmf") and vars(module).get(name) is function:
            monkeypatch.setattr(module, name, new)


def expect_failure(check, monkeypatch) -> None:
    """A check, a function and its arguments, must notice the mistake that was made."""
    function, *arguments = check
    if "monkeypatch" in inspect.signature(function).parameters:
        arguments.append(monkeypatch)
    with pytest.raises(AssertionError):
        function(*arguments)


def wrong_rate(monkeypatch, name: str, factor: float) -> None:
    """The Gamma of ``conditionals.<name>``, or that of tau, has its rate off by a factor."""
    home = Gaussian if name == "tau" else conditionals
    right = getattr(home, name)

    def wrong(*args):
        found = right(*args)
        return Gamma(found.shape, factor * found.rate)

    monkeypatch.setattr(home, name, wrong)


def one_degree_more(monkeypatch) -> None:
    """One degree of freedom too many in every Wishart, as the paper's appendix has it."""
    right = conditionals.hyper
    monkeypatch.setattr(
        conditionals, "hyper", lambda *a: (lambda p: replace(p, nu=p.nu + 1))(right(*a))
    )


def wrong_prior(monkeypatch, **fields) -> None:
    """Rows are drawn from a prior with these fields in place of the right ones."""
    right = rows.row_prior
    monkeypatch.setattr(rows, "row_prior", lambda *a: right(*a)._replace(**fields))


def no_prior_mean(monkeypatch) -> None:
    """The features' prior mean is taken for zero (rank 2)."""
    wrong_prior(monkeypatch, linear_scaled=np.zeros(3))


def offset_left_out(monkeypatch) -> None:
    """Rows are drawn without their side features (rank 2)."""
    wrong_prior(monkeypatch, offset=np.zeros((0, 3)))


def second_design_left_out(monkeypatch) -> None:
    """Rows are drawn with the offsets of their first design only."""
    right = rows.row_prior

    def row_prior(model, data, me, *rest):
        found = right(model, data, me, *rest)
        return found._replace(offset=me.shifts[0].offset) if me.shifts else found

    monkeypatch.setattr(rows, "row_prior", row_prior)


def values_forgotten(monkeypatch, kernel: str = "draw_centred") -> None:
    """A form of drawing the weights of a design as if all of its entries were 1."""
    right = getattr(designs, kernel)

    def draw(columns, *rest):
        right(columns._replace(values=NO_VALUES), *rest)

    monkeypatch.setattr(designs, kernel, draw)


def n_for_n_squared(monkeypatch, kernel: str = "draw_centred") -> None:
    """A form of drawing side features with the root of its weights: c_i for c_i^2, or so."""
    right = getattr(designs, kernel)
    monkeypatch.setattr(designs, kernel, lambda r, c, *a: right(r, np.sqrt(c), *a))


def rows_stand_still(monkeypatch) -> None:
    """The non-centred form, but S keeps its value when W moves."""
    right = designs.draw_non_centred
    monkeypatch.setattr(designs, "draw_non_centred", lambda *a: right(*a[:-2], a[-2].copy(), a[-1]))


def quiet_side_features(monkeypatch) -> None:
    """The centred form's draws of W have 9/10 of their spread."""
    right = designs.draw_centred

    def draw(*args):
        *start, _, residual, W, first = args
        still = W.copy()
        right(*start, False, residual.copy(), still, first)
        right(*args)
        W[:] = still + 0.9 * (W - still)

    monkeypatch.setattr(designs, "draw_centred", draw)


def noise_forgotten(monkeypatch) -> None:
    """Rows are drawn as if the other side's precisions were 1."""
    right = rows.draw_rows

    def draw(observed, known, *rest):
        z = known.z / known.z[:, :1]
        z[:, -1] = known.z[:, -1]  # the bias, which is not weighted
        right(observed, known._replace(z=z), *rest)

    monkeypatch.setattr(rows, "draw_rows", draw)


def loud_rows(monkeypatch) -> None:
    """The draws of rows have 5/4 of their spread."""
    right = rows.draw_rows

    def draw(*args):
        *start, sample, out, errors, covs, logdets, width = args
        mean = out.copy()
        right(*start, False, mean, np.empty(0), covs, logdets, width)
        right(*start, sample, out, errors, covs, logdets, width)
        out[:] = mean + 1.25 * (out - mean)

    monkeypatch.setattr(rows, "draw_rows", draw)
