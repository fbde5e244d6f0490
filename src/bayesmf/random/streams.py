"""The number of every random stream, in one table.

A stream is one parameter's random numbers within one sweep of one chain. Two purposes that can
meet in one fit, at the same seed, chain and sweep, must not share a number, so no number is used
twice here. Numbers end at 1023. Streams that only the data room uses (splits, synthetic data) have
generators of their own.
"""

from __future__ import annotations

from bayesmf.random.draws import Draws

# The numbers of users and of items. Where there are several: hyper-parameters have one for each
# group of columns, W and what belongs to it one for each design.
BY_SIDE: dict[str, dict[str, tuple[int, ...]]] = {
    # a sweep
    "rows": {"user": (0,), "item": (16,)},
    "alpha": {"user": (1,), "item": (17,)},
    "scale": {"user": (2,), "item": (18,)},
    "hyper": {"user": (3, 4), "item": (19, 20)},
    "W": {"user": (5, 8, 11), "item": (21, 24, 27)},
    "W_hyper": {"user": (6, 9, 12), "item": (22, 25, 28)},
    "W_free": {"user": (7, 10, 13), "item": (23, 26, 29)},  # the non-centred form
    "tau_with_alpha": {"user": (64,), "item": (65,)},
    "mean": {"user": (66,), "item": (67,)},  # of the features, against the other side's biases
    "scales": {"user": (70, 72), "item": (71, 73)},  # of the parts of the rows
    # a random start
    "start_rows": {"user": (48,), "item": (49,)},
    "start_W": {"user": (50, 44, 46), "item": (51, 45, 47)},
    # draws from a variational Q
    "q_rows": {"user": (53,), "item": (57,)},
    "q_W": {"user": (54, 14, 15), "item": (58, 30, 31)},
    "q_alpha": {"user": (55,), "item": (59,)},
    # draws from propagation's products
    "product_rows": {"user": (62,), "item": (63,)},
}

# The numbers of what belongs to no side.
SHARED: dict[str, tuple[int, ...]] = {
    "effect": (32, 33, 34, 35, 36, 37, 38, 39),
    "tau": (40,),
    "basis": (68,),  # of the features
    "response": (41, 42),  # of a latent likelihood
    "q_tau": (52,),
    "fold_in_W": (60, 43, 56),  # by design: W of rows that training has not seen
    "redraw": (69,),  # users of kept draws, once more
    "thompson": (61,),  # which draw a recommendation is made from
}


def number(what: str, side: str | None = None, part: int = 0) -> int:
    """Return the number of a stream.

    ``side`` is "user", "item" or None for a stream that belongs to no side; ``part`` is the number
    of the group or of the design, where there are several.
    """
    numbers = SHARED[what] if side is None else BY_SIDE[what][side]
    if not 0 <= part < len(numbers):
        raise ValueError(f"{what} {part}: there are random streams for {len(numbers)} of these")
    return numbers[part]


def stream(draws: Draws, side: str | None, what: str, part: int = 0) -> Draws:
    """Return the random numbers of one parameter, of one side unless it is None."""
    return draws.of(number(what, side, part))
