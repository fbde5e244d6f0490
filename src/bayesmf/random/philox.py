"""Philox4x32-10 (Salmon et al. 2011): random numbers as a function of their counter.

A draw is fixed by (seed; row, block, sweep, chain; number within the row), so it does not matter
which thread draws it, or when. A uniform takes 64 bits. A normal is the inverse distribution
function of one uniform, so one number of the stream is one normal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayesmf.machine import LANES, serial


class Counter(NamedTuple):
    """What a draw depends on besides its row and its number within the row."""

    seed: int  # below 2^64
    chain: int  # below 2^16
    block: int  # which parameter; below 2^12
    sweep: int  # below 2^32


U32 = np.uint64(0xFFFFFFFF)
M0, M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
W0, W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
S11, S16, S32 = np.uint64(11), np.uint64(16), np.uint64(32)
S8, S20, S24 = np.uint64(8), np.uint64(20), np.uint64(24)
ROUNDS = 10
ATTEMPTS = 1000  # at one Gamma draw


@serial
def one_round(c0, c1, c2, c3, k0, k1):
    """Returns the counter (c0, c1, c2, c3) after one round under the key (k0, k1)."""
    p0 = M0 * c0
    p1 = M1 * c2
    return (p1 >> S32) ^ c1 ^ k0, p1 & U32, (p0 >> S32) ^ c3 ^ k1, p0 & U32


@serial
def philox(c0, c1, c2, c3, k0, k1):
    """Returns the counter (c0, c1, c2, c3) after ten rounds under the key (k0, k1), a bijection."""
    for _ in range(ROUNDS):
        c0, c1, c2, c3 = one_round(c0, c1, c2, c3, k0, k1)
        k0 = (k0 + W0) & U32
        k1 = (k1 + W1) & U32
    return c0, c1, c2, c3


@serial
def start(counter, row, number):
    """Returns the counter before the rounds, whose parts are disjoint.

    They are the row; the number and the block; the sweep; the chain and the row's upper bits. The
    number has 20 bits, and the block's upper four lie between it and the lower eight.
    """
    r = np.uint64(row)
    block = np.uint64(counter.block)
    c1 = (np.uint64(number) & np.uint64(0xFFFFF)) | ((block >> S8) << S20)
    c1 |= (block & np.uint64(0xFF)) << S24
    c3 = (np.uint64(counter.chain) << S16) | (r >> S32)
    return r & U32, c1, np.uint64(counter.sweep) & U32, c3


@serial
def bits(counter, row, number):
    """Returns two independent 64-bit words: numbers 2 ``number`` and one more of the row."""
    c0, c1, c2, c3 = start(counter, row, number)
    seed = np.uint64(counter.seed)
    a, b, c, d = philox(c0, c1, c2, c3, seed & U32, seed >> S32)
    return a | (b << S32), c | (d << S32)


@serial
def to_unit(word):
    """Maps a 64-bit word to the open unit interval, symmetric about one half."""
    return (np.float64(word >> S11) + 0.5) * 1.1102230246251565e-16  # 2^-53


CENTRAL = 0.425
# Coefficients of AS 241 from the highest power down: numerator and denominator in the centre,
# further out, and in the tails.
CENTRE = (
    (2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457,
     13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.387132872796366608),
    (5226.495278852545925, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867,
     5394.1960214247511077, 687.1870074920579083, 42.313330701600911252, 1.0),
)  # fmt: skip
MIDDLE = (
    (7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177,
     1.27045825245236838258, 3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959,
     1.42343711074968357734),
    (1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966,
     0.14810397642748007459, 0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187,
     1.0),
)  # fmt: skip
TAIL = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386,
     0.026532189526576123093, 0.29656057182850489123, 1.7848265399172913358, 5.4637849111641143699,
     6.6579046435011037772),
    (2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5,
     7.868691311456132591e-4, 0.0148753612908506148525, 0.13692988092273580531,
     0.59983220655588793769, 1.0),
)  # fmt: skip


@serial
def polynomial(coefficients, r):
    """Returns a polynomial of degree 7, by Horner's rule."""
    a, b, c, d, e, f, g, h = coefficients
    return ((((((a * r + b) * r + c) * r + d) * r + e) * r + f) * r + g) * r + h


@serial
def central_quantile(q):
    """Returns the quantile at p = q + 1/2, for q within CENTRAL of zero."""
    r = 0.180625 - q * q
    return q * polynomial(CENTRE[0], r) / polynomial(CENTRE[1], r)


@serial
def normal_quantile(p):
    """Returns the standard normal's inverse distribution function at p, to 1e-16.

    The approximation is AS 241 (Wichura 1988).
    """
    q = p - 0.5
    if abs(q) <= CENTRAL:
        return central_quantile(q)
    r = np.sqrt(-np.log(p if q < 0.0 else 1.0 - p))
    if r <= 5.0:
        tail = polynomial(MIDDLE[0], r - 1.6) / polynomial(MIDDLE[1], r - 1.6)
    else:
        tail = polynomial(TAIL[0], r - 5.0) / polynomial(TAIL[1], r - 5.0)
    return -tail if q < 0.0 else tail


@serial
def fill_uniform(counter, row, out):
    """Fills ``out`` with the first uniforms of a row."""
    for k in range(0, len(out), 2):
        a, b = bits(counter, row, k // 2)
        out[k] = to_unit(a)
        if k + 1 < len(out):
            out[k + 1] = to_unit(b)


@serial
def fill_normal(counter, row, out):
    """Fills ``out`` with the first standard normals of a row."""
    fill_uniform(counter, row, out)
    for k in range(len(out)):
        out[k] = normal_quantile(out[k])


@serial
def lane_scratch(size):
    """Returns what ``fill_lanes`` needs for ``size`` normals: counters, words and uniforms."""
    pairs = (size + 1) // 2 * LANES
    return np.empty((4, pairs), np.uint64), np.empty(2 * pairs)


@serial
def fill_lanes(counter, rows, each, scratch, out):
    """Fills out[:, lane] with the standard normals that ``fill_normal`` has for rows[lane].

    Rows are those of several draws, ``each`` of them in a draw: row s is row s % each of the chain
    of ``counter`` and s // each more. The loops do one thing each, for all lanes, so that the
    compiler makes vectors of them.
    """
    words, uniform = scratch
    a, b, c, d = words[0], words[1], words[2], words[3]
    for lane in range(LANES):
        chain = counter.chain + rows[lane] // each
        own = Counter(counter.seed, chain, counter.block, counter.sweep)
        for pair in range(len(a) // LANES):
            at = pair * LANES + lane
            a[at], b[at], c[at], d[at] = start(own, rows[lane] % each, pair)
    seed = np.uint64(counter.seed)
    k0, k1 = seed & U32, seed >> S32
    for _ in range(ROUNDS):
        for n in range(len(a)):  # that two have 32 bits is for the compiler to know
            a[n], b[n], c[n], d[n] = one_round(a[n] & U32, b[n], c[n] & U32, d[n], k0, k1)
        k0, k1 = (k0 + W0) & U32, (k1 + W1) & U32
    for n in range(len(a)):
        at = n // LANES * 2 * LANES + n % LANES
        uniform[at] = to_unit(a[n] | (b[n] << S32))
        uniform[at + LANES] = to_unit(c[n] | (d[n] << S32))
    flat = out.reshape(-1)
    for n in range(len(flat)):
        flat[n] = central_quantile(uniform[n] - 0.5)
    for n in range(len(flat)):
        if abs(uniform[n] - 0.5) > CENTRAL:
            flat[n] = normal_quantile(uniform[n])


@serial
def uniforms(counter, first_row, out):
    """Fills ``out`` with uniforms, row after row."""
    for r in range(out.shape[0]):
        fill_uniform(counter, first_row + r, out[r])


@serial
def normals(counter, first_row, out):
    """Fills ``out`` with standard normals, row after row."""
    for r in range(out.shape[0]):
        fill_normal(counter, first_row + r, out[r])


@serial
def gammas(counter, first_row, shapes, out):
    """Draws a standard Gamma for each row (Marsaglia & Tsang 2000), by rejection within the row.

    A shape below 1 is drawn one higher and scaled by a uniform's power. The draw is NaN where the
    shape is not a positive finite number, and where ATTEMPTS proposals were rejected; each is
    accepted with a probability above 0.95, so that this does not happen by chance.
    """
    for r in range(len(out)):
        shape = shapes[r]
        out[r] = np.nan
        if not 0.0 < shape < np.inf:
            continue
        a = shape if shape >= 1.0 else shape + 1.0
        d = a - 1.0 / 3.0
        c = 1.0 / np.sqrt(9.0 * d)
        for number in range(1, ATTEMPTS + 1):
            first, second = bits(counter, first_row + r, number)
            x = normal_quantile(to_unit(first))
            v = (1.0 + c * x) ** 3
            if v > 0.0 and np.log(to_unit(second)) < 0.5 * x * x + d - d * v + d * np.log(v):
                out[r] = d * v
                break
        if shape < 1.0:
            out[r] *= to_unit(bits(counter, first_row + r, 0)[0]) ** (1.0 / shape)


@serial
def stacked_uniforms(counter, first_row, each, out):
    """Fills ``out`` with ``uniforms`` of chain after chain, ``each`` rows of every chain."""
    for k in range(-(-len(out) // each)):
        own = Counter(counter.seed, counter.chain + k, counter.block, counter.sweep)
        uniforms(own, first_row, out[k * each : (k + 1) * each])


@serial
def stacked_gammas(counter, first_row, each, shapes, out):
    """Fills ``out`` with ``gammas`` of chain after chain, ``each`` rows of every chain."""
    for k in range(-(-len(out) // each)):
        own = Counter(counter.seed, counter.chain + k, counter.block, counter.sweep)
        span = slice(k * each, (k + 1) * each)
        gammas(own, first_row, shapes[span], out[span])
