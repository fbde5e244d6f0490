"""What requests and answers look like; the OpenAPI description is made from this."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from bayesmf.choices import RankBy, Updated
from bayesmf.serve.limits import (
    LONGEST_ID,
    MOST_ITEMS,
    MOST_N,
    MOST_PAIRS,
    MOST_QUANTILES,
    MOST_RATINGS,
    MOST_USERS,
)

Text = Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]
Id = Annotated[int, Field(ge=-(2**63), lt=2**63)] | Text  # bounds that a float holds exactly
Count = Annotated[int, Field(ge=1, le=MOST_N)]
Seed = Annotated[int, Field(ge=0, le=2**53 - 1)]  # what every JSON library keeps exactly
Probability = Annotated[float, Field(gt=0, lt=1)]
Seconds = Annotated[int, Field(ge=0, lt=2**33, description="seconds since 1970")]
Time = Seconds | Annotated[str, Field(min_length=1, max_length=40, description="a date, or now")]
WHEN: Any = Field(
    None, description="when it would be rated; changes nothing unless the model is timed"
)
Level = Annotated[float, Field(ge=0.01, le=0.99, description="the probability of the intervals")]


class Body(BaseModel):
    """What a request sends: nothing that is not named here, and no value of another type."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Pair(Body):
    """A user and an item."""

    user: Id
    item: Id
    time: Seconds | None = None


class Rated(Body):
    """A rating that a visitor gives."""

    item: Id
    rating: float
    time: Seconds | None = None


class Rating(Rated):
    """A rating by a user."""

    user: Id


class Predict(Body):
    """Pairs to predict the ratings of."""

    pairs: list[Pair] = Field(min_length=1, max_length=MOST_PAIRS)
    quantiles: list[Probability] = Field([0.05, 0.95], max_length=MOST_QUANTILES)
    clip: bool = False
    at: Time | None = WHEN


class Recommend(Body):
    """Users to recommend items to."""

    users: list[Id] = Field(min_length=1, max_length=MOST_USERS)
    n: Count = 10
    rank_by: RankBy = "mean"
    exclude_seen: bool = True
    items: list[Id] | None = Field(None, min_length=1, max_length=MOST_ITEMS)
    at: Time | None = WHEN
    seed: Seed = 0
    level: Level = 0.9


class Similar(Body):
    """The item, or the user, whose neighbours are asked for."""

    item: Id | None = None
    user: Id | None = None
    n: Count = 10


class Explain(Body):
    """The prediction to explain."""

    user: Id
    item: Id
    most: Count = 5
    at: Time | None = None


class Visit(Body):
    """The ratings of a visitor, whom nothing is kept of."""

    ratings: list[Rated] = Field(max_length=MOST_RATINGS)
    n: Count = 10
    items: list[Id] = Field([], max_length=MOST_N, description="items to predict in any case")
    rank_by: RankBy = "mean"
    seed: Seed = 0
    level: Level = 0.9


class Update(Body):
    """New ratings of users that the model knows, or does not know yet."""

    ratings: list[Rating] = Field(min_length=1, max_length=MOST_RATINGS)
    side: Updated = "user"
    seed: Seed = 0


class Evaluate(Body):
    """Ratings to test the model on."""

    ratings: list[Rating] = Field(min_length=1, max_length=MOST_PAIRS)
    bins: list[Annotated[int, Field(ge=1, le=2**31 - 1)]] | None = Field(
        None, min_length=1, max_length=50
    )


class Answer(BaseModel):
    """What is sent back."""


class Open(Answer):
    """An answer with more fields than those which are always there."""

    model_config = ConfigDict(extra="allow")


class Health(Answer):
    """Whether the service works."""

    status: Literal["ok"]
    token_needed: bool


class Failure(Answer):
    """Why a request was refused, in one sentence."""

    error: str


class Scale(Answer):
    """The ratings that can be given."""

    low: float
    high: float
    step: float | None
    levels: list[float] | None


class Facts(Open):
    """What is served."""

    name: str
    number: int = Field(description="how many models were served before this one")
    users: int
    items: int
    ratings: int | None
    draws: int
    scale: Scale
    model: dict[str, Any]
    verdict: str
    test_rmse: float | None
    tested: bool = Field(description="whether there are test ratings")
    updates: bool = Field(description="whether ratings can be added")
    timed: bool = Field(description="whether new ratings need a time")
    user_ids: Literal["integer", "text"]
    item_ids: Literal["integer", "text"]
    version: str


class Named(Open):
    """A user or an item, with a title if there is one, and its number of ratings in training."""

    id: int | str
    ratings: int


class Found(Answer):
    """Users or items whose id or title holds what was searched for."""

    found: list[Named]
    total: int


class OwnRating(Open):
    """A rating of a user; ``held_out`` says that the model has not learned from it."""

    item: int | str
    rating: float
    held_out: bool


class RatingCount(Answer):
    """How often a user gave a rating."""

    rating: float
    count: int


class OwnRatings(Answer):
    """The ratings of a user, the highest first; ``total`` and ``counts`` are of all of them."""

    user: int | str
    ratings: list[OwnRating]
    total: int
    counts: list[RatingCount]


class Prediction(Open):
    """A prediction, with a field for each quantile, such as q05."""

    user: int | str
    item: int | str
    mean: float
    sd: float
    known: str


class Predictions(Answer):
    """Predictions in the order of the pairs."""

    predictions: list[Prediction]


class Bar(Open):
    """A prediction with its interval.

    A rating would be between ``low`` and ``high`` with the probability that was asked for. Without
    the noise of single ratings the expected rating has the standard deviation ``doubt``.
    """

    item: int | str
    mean: float
    sd: float
    low: float
    high: float
    doubt: float | None


class Recommended(Bar):
    """A recommendation; it was ranked by its ``score``."""

    rank: int
    score: float


class RecommendedTo(Recommended):
    """A recommendation to a user."""

    user: int | str


class Recommendations(Answer):
    """Recommendations, user after user."""

    recommendations: list[RecommendedTo]


class Visited(Answer):
    """What a visitor gets; ``left_out`` are the items that the model does not know."""

    recommendations: list[Recommended]
    predictions: list[Bar]
    left_out: list[int | str]


class Neighbours(Answer):
    """The nearest items, or users, the nearest first."""

    similar: list[dict[str, Any]]


class Explanation(Open):
    """The parts of a prediction."""

    prediction: float
    parts: dict[str, Any]


class Changed(Answer):
    """What an update has changed."""

    number: int
    new_users: int
    new_items: int
    left_out: int


class Scores(Open):
    """Errors and coverage."""

    rmse: float | None
    mae: float | None
    by_user_frequency: list[dict[str, Any]]


class Quality(Scores):
    """Errors and coverage on the ratings that the service was given for it."""

    source: Literal["held out", "file"]
    test_ratings: int
    calibration: list[dict[str, float]]


class Chains(Answer):
    """The verdict on the chains, the numbers behind it, and the traces."""

    diagnostics: dict[str, Any]
    warm_up: int
    sweeps: int
    traces: dict[str, list[list[float | None]]]


class Point(Open):
    """An item on the map."""

    item: int | str
    x: float
    y: float
    ratings: int


class Map(Answer):
    """The items with the most ratings, by their features in two dimensions."""

    points: list[Point]
    total: int
