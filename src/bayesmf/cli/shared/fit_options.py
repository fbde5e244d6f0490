"""The options of ``bayesmf fit``, in groups by what they are about."""

from __future__ import annotations

import click

from bayesmf.choices import (
    BIASES,
    CUTS,
    ENGINES,
    FEATURES,
    FORMS,
    HOLDOUTS,
    LIKELIHOODS,
    METHODS,
    MOMENTS,
    PRECISIONS,
    PRIOR_SCALES,
    PRIORS,
    STARTS,
    TIMES,
    UNTIL,
)
from bayesmf.cli.shared.options import PATH, Options

MODEL = Options(
    click.option(
        "--paper",
        type=click.Choice(FEATURES),
        help="Fit the paper's model with these features instead of the default model.",
    ),
    click.option(
        "--rank",
        type=int,
        default=20,
        show_default=True,
        help="The number of features of a user and of an item, up to 254; 0 means biases only.",
    ),
    click.option(
        "--user-designs",
        metavar="TEXT",
        help="What shifts the row of a user: 'none', or 'rated:P' for the items that the user "
        "rated, each with the weight n^-P, where n is their number.  [default: rated:0.5]",
    ),
    click.option(
        "--item-designs",
        metavar="TEXT",
        help="What shifts the row of an item, in the same way: 'none', or 'rated:P' for the users "
        "who rated it.  [default: rated:0.5]",
    ),
    click.option(
        "--own-features/--no-own-features",
        default=None,
        help="Whether rows have features of their own beside what the designs add.",
    ),
    click.option(
        "--precision",
        type=click.Choice(PRECISIONS),
        help="The precision of the noise by user and item: constant, robust, or robust within "
        "bounds.  [default: robust]",
    ),
    click.option(
        "--bounds",
        metavar="LOW:HIGH|N",
        help="The bounds of truncated precisions; N means 1/N:N.  [default: 0.5:2]",
    ),
    click.option(
        "--prior",
        type=click.Choice(PRIORS),
        help="The prior of a row's own features.  [default: gaussian]",
    ),
    click.option(
        "--bias",
        type=click.Choice(BIASES),
        help="The prior of the biases; joint means one prior for bias and features.  "
        "[default: joint]",
    ),
    click.option(
        "--time",
        "time_effect",
        type=click.Choice(TIMES),
        help="Whether ratings of a user that are close in time share an error: chain needs a time "
        "of every rating.  [default: none]",
    ),
    click.option(
        "--likelihood",
        type=click.Choice(LIKELIHOODS),
        help="gibbs: how a rating comes about. ordinal is for stars and other scales with steps, "
        "binary for two values such as thumbs, and auto chooses by the scale.  "
        "[default: gaussian]",
    ),
    click.option(
        "--cuts",
        type=click.Choice(CUTS),
        help="ordinal: whether every user has cut points between the ratings of their own, or all "
        "users have the same.  [default: users]",
    ),
)
ALGORITHM = Options(
    click.option(
        "--sweeps",
        type=int,
        help="The number of sweeps, of each chain with gibbs; the largest number with --until "
        "converged, vi and map.  [default: gibbs 400 or at most 2000; vi 100; map 60 or 1000]",
    ),
    click.option(
        "--burn-in",
        type=int,
        help="gibbs: how many sweeps at the start of a chain are not averaged; only with --until "
        "sweeps.  [default: follows --sweeps]",
    ),
    click.option("--thin", type=int, help="gibbs: average every so many sweeps.  [default: 1]"),
    click.option("--chains", type=int, help="gibbs: the number of chains.  [default: 4]"),
    click.option(
        "--until",
        type=click.Choice(UNTIL),
        help="gibbs: sample until the chains have converged, or so many sweeps.  [default: "
        "converged; sweeps with --sweeps, --burn-in or one chain]",
    ),
    click.option(
        "--r-hat",
        type=float,
        help="gibbs: how near to 1 R-hat has to come until converged.  [default: 1.05]",
    ),
    click.option(
        "--ess",
        type=float,
        help="gibbs: how many effective draws are needed until converged.  [default: 100]",
    ),
    click.option(
        "--form",
        type=click.Choice(FORMS),
        help="gibbs: how rated-set features are drawn; the posterior is the same.  "
        "[default: centred]",
    ),
    click.option(
        "--prior-scale",
        type=click.Choice(PRIOR_SCALES),
        help="vi: the scale of the features' hyperprior; map-driven takes it from the start.  "
        "[default: default]",
    ),
    click.option(
        "--moments",
        type=click.Choice(MOMENTS),
        help="vi: the moments that updates use; first leaves the covariances out, as the paper "
        "prints it.  [default: second]",
    ),
    click.option(
        "--clamp",
        is_flag=True,
        default=None,
        help="vi: clamp the means of truncated precisions to the bounds, as the paper does.",
    ),
    click.option(
        "--method",
        type=click.Choice(METHODS),
        help="map: solve for one row at a time, or use the paper's gradient descent.  "
        "[default: coordinate]",
    ),
    click.option(
        "--penalty",
        type=float,
        help="map: the penalty of the features.  [default: chosen by validation]",
    ),
)
ENGINE = Options(
    click.option(
        "--engine",
        type=click.Choice(ENGINES),
        help="gibbs: where a sweep runs.  [default: threads]",
    ),
    click.option(
        "--workers", type=int, help="ray: workers on this machine.  [default: one for each core]"
    ),
    click.option("--address", metavar="HOST:PORT", help="ray: the address of a running cluster."),
)
HOLDING_OUT = Options(
    click.option(
        "--holdout",
        type=click.Choice(HOLDOUTS),
        default="none",
        show_default=True,
        help="Which ratings to hold out of training and test the model on.",
    ),
    click.option(
        "--test-fraction",
        type=float,
        metavar="FRACTION",
        help="The share of the ratings that --holdout holds out.  [default: 0.3]",
    ),
    click.option(
        "--validation",
        type=float,
        metavar="FRACTION",
        help="The share of the training ratings that is held out to stop early by; see --patience.",
    ),
)
STOPPING = Options(
    click.option(
        "--start",
        type=click.Choice(STARTS),
        help="gibbs, vi: where to begin: at random values or at a MAP estimate.  "
        "[default: gibbs random, vi map]",
    ),
    click.option(
        "--patience",
        type=click.IntRange(1),
        metavar="SWEEPS",
        help="Stop when the validation error has not fallen for so many sweeps.",
    ),
    click.option(
        "--budget",
        type=float,
        metavar="SECONDS",
        help="Stop after so many seconds; a MAP start with --checkpoint is finished first.",
    ),
)
SAVING = Options(
    click.option(
        "--checkpoint",
        type=PATH,
        metavar="DIR",
        help="gibbs: save the run in this folder, so that it survives being killed.",
    ),
    click.option(
        "--checkpoint-every",
        metavar="SECONDS",
        help="gibbs: how often to save it, such as 90, 90s or 5m.  [default: 60]",
    ),
    click.option(
        "--resume", is_flag=True, help="gibbs: continue from the checkpoint if there is one."
    ),
)
