"""Every choice that a user makes by a word, defined once.

The types are for annotations, and the tuples for checks and for the command line. This module
imports nothing but ``typing``, because the shell loads it each time somebody presses the tab key.
"""

from __future__ import annotations

from typing import Literal, get_args

Features = Literal["none", "no-side", "side", "side-only"]  # of the paper's models
Precision = Literal["constant", "robust", "truncated"]  # alpha and beta: 1; Gamma; Gamma cut off
Prior = Literal["gaussian", "student-t"]  # of a row's own features
Bias = Literal["learned", "fixed", "joint"]  # the prior of the biases
Time = Literal["none", "chain"]  # whether moods of users are followed in time
LikelihoodName = Literal["gaussian", "ordinal", "binary", "auto"]  # how ratings come about
Cuts = Literal["users", "global"]  # whose cut points ordinal ratings have
Form = Literal["centred", "non-centred", "interwoven"]  # how rated-set features are drawn
Inference = Literal["gibbs", "vi", "map"]
Until = Literal["converged", "sweeps"]  # how long Gibbs sampling goes on
Start = Literal["random", "map"]  # where an algorithm begins
Method = Literal["coordinate", "momentum"]  # of MAP
Moments = Literal["second", "first"]  # of VI; "first" leaves the covariances out
PriorScale = Literal["default", "map-driven"]  # of VI
Engine = Literal["threads", "ray"]  # where a sweep runs
RankBy = Literal["mean", "lower", "thompson"]
Side = Literal["user", "item"]
Updated = Literal["user", "item", "both"]  # whose rows new ratings change
Duplicates = Literal["error", "last", "mean"]
AttributeKind = Literal["number", "category", "set", "none"]  # "none" leaves the column out
IdKind = Literal["auto", "text"]
Protocol = Literal["paper", "random", "cold-start", "time"]  # of one split
Drawn = Literal["noise", "user", "item"]  # whose prior and posterior are drawn
TunedBy = Literal["rmse", "log"]  # what ``tune`` chooses by
Holdout = Literal["none", "paper", "random", "time"]  # of ``bayesmf fit``

FEATURES: tuple[Features, ...] = get_args(Features)
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
PRIORS: tuple[Prior, ...] = get_args(Prior)
BIASES: tuple[Bias, ...] = get_args(Bias)
TIMES: tuple[Time, ...] = get_args(Time)
LIKELIHOODS: tuple[LikelihoodName, ...] = get_args(LikelihoodName)
CUTS: tuple[Cuts, ...] = get_args(Cuts)
FORMS: tuple[Form, ...] = get_args(Form)
INFERENCES: tuple[Inference, ...] = get_args(Inference)
UNTIL: tuple[Until, ...] = get_args(Until)
STARTS: tuple[Start, ...] = get_args(Start)
METHODS: tuple[Method, ...] = get_args(Method)
MOMENTS: tuple[Moments, ...] = get_args(Moments)
PRIOR_SCALES: tuple[PriorScale, ...] = get_args(PriorScale)
ENGINES: tuple[Engine, ...] = get_args(Engine)
RANK_BY: tuple[RankBy, ...] = get_args(RankBy)
SIDES: tuple[Side, ...] = get_args(Side)
UPDATED: tuple[Updated, ...] = get_args(Updated)
DUPLICATES: tuple[Duplicates, ...] = get_args(Duplicates)
ID_KINDS: tuple[IdKind, ...] = get_args(IdKind)
ATTRIBUTE_KINDS: tuple[AttributeKind, ...] = get_args(AttributeKind)
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
HOLDOUTS: tuple[Holdout, ...] = get_args(Holdout)
TUNED_BY: tuple[TunedBy, ...] = get_args(TunedBy)
DRAWN: tuple[Drawn, ...] = get_args(Drawn)
