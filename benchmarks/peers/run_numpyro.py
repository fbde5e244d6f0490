"""NumPyro: the same model by stochastic variational inference, mean field, all ratings a step."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from common import Bench
from numpyro.infer import SVI, Trace_ELBO, init_to_value
from numpyro.infer.autoguide import AutoNormal
from numpyro.optim import ClippedAdam

bench = Bench()
steps = bench.set["steps"] if bench.judged and not bench.set["quick"] else 30
every = bench.set["every"] if steps > 100 else 5


# user code
def model(user, item, value=None, mean=0.0):
    scale = numpyro.sample("scale", dist.HalfNormal(1.0).expand([4]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    with numpyro.plate("users", bench.n_users):
        user_bias = numpyro.sample("user_bias", dist.Normal(0.0, scale[0]))
        U = numpyro.sample("U", dist.Normal(0.0, scale[1]).expand([bench.rank]).to_event(1))
    with numpyro.plate("items", bench.n_items):
        item_bias = numpyro.sample("item_bias", dist.Normal(0.0, scale[2]))
        V = numpyro.sample("V", dist.Normal(0.0, scale[3]).expand([bench.rank]).to_event(1))
    fitted = mean + user_bias[user] + item_bias[item] + jnp.sum(U[user] * V[item], -1)
    with numpyro.plate("ratings", len(user)):
        numpyro.sample("value", dist.Normal(fitted, sigma), obs=value)


near = np.random.default_rng(bench.seed).normal(0, 0.1, (bench.n_users + bench.n_items, bench.rank))
start = {"U": near[: bench.n_users], "V": near[bench.n_users :], "scale": np.full(4, 0.3),
         "sigma": 0.9, "user_bias": np.zeros(bench.n_users),
         "item_bias": np.zeros(bench.n_items)}  # fmt: skip
guide = AutoNormal(model, init_loc_fn=init_to_value(values=start), init_scale=0.05)
svi = SVI(model, guide, ClippedAdam(0.02), Trace_ELBO())


@jax.jit
def advance(state, user, item, value, mean):
    def body(_, state):
        return svi.update(state, user, item, value, mean)[0]

    return jax.lax.fori_loop(0, every, body, state)


def predicted() -> np.ndarray:
    at = guide.median(svi.get_params(state))
    user, item = bench.test_user, bench.test_item
    biases = at["user_bias"][user] + at["item_bias"][item]
    return np.asarray(mean + biases + jnp.sum(at["U"][user] * at["V"][item], -1))


def begin():
    mean = float(bench.value.mean(dtype=float))
    arrays = jnp.array(bench.user), jnp.array(bench.item), jnp.array(bench.value), mean
    return arrays, mean, svi.init(jax.random.key(bench.seed), *arrays)


arrays, mean, state = begin()  # not counted
jax.block_until_ready(advance(state, *arrays))  # not counted
bench.ready()  # not counted
arrays, mean, state = begin()
for step in range(every, steps + 1, every):
    state = jax.block_until_ready(advance(state, *arrays))
    bench.point(step, predicted)
# end
if bench.judged:
    draws = guide.sample_posterior(jax.random.key(1), svi.get_params(state), sample_shape=(30,))
    total = squares = 0.0
    for k in range(30):
        U, V = draws["U"][k][bench.test_user], draws["V"][k][bench.test_item]
        biases = draws["user_bias"][k][bench.test_user] + draws["item_bias"][k][bench.test_item]
        drawn = np.asarray(mean + biases + jnp.sum(U * V, -1), float)
        total, squares = total + drawn, squares + drawn**2
    noise = float(jnp.mean(draws["sigma"] ** 2))
    variance = np.maximum(squares / 30 - (total / 30) ** 2, 0.0)
    bench.coverage(bench.last, np.sqrt(variance + noise))
bench.end()
