"""The JSON service: which address is answered by what."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

from bayesmf import __version__
from bayesmf.errors import DataError, Option, visible
from bayesmf.serve import answers, bodies
from bayesmf.serve.guard import OPEN
from bayesmf.serve.limits import LONGEST_ID, MOST_N, WORKING
from bayesmf.serve.served import NotFound, Served, Shelf

KINDS = {"css": "text/css", "js": "text/javascript", "html": "text/html"}
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": bodies.Failure, "description": why}
    for status, why in {
        400: "The request is no JSON.",
        401: "The token is missing, or another one.",
        404: "The model does not know the user or the item.",
        408: "The request took too long to arrive.",
        413: "The request is too large.",
        415: "The request is not marked as JSON.",
        421: "The service is not known by this host name.",
        422: "The request cannot be answered, and the sentence says why.",
        429: "Too many requests.",
        431: "The headers are too large.",
    }.items()
}
DISABLED: dict[int | str, dict[str, Any]] = {
    403: {"model": bodies.Failure, "description": "The service does not allow updates."}
}
bearer = HTTPBearer(auto_error=False, description="The token that the service was started with.")
router = APIRouter(prefix="/api", responses=REFUSALS)  # the guard looks at the token
Text = Annotated[str, Query(max_length=LONGEST_ID)]
Given = Annotated[str, Query(min_length=1, max_length=LONGEST_ID)]
N = Annotated[int, Query(ge=1, le=MOST_N)]


def shelf_of(request: Request) -> Shelf:
    """The shelf of the service that was asked."""
    shelf: Shelf = request.app.state.shelf
    return shelf


def served_by(request: Request) -> Served:
    """The model as it is now; the request keeps it, whatever comes after it."""
    return shelf_of(request).current


Now = Annotated[Served, Depends(served_by)]
OnShelf = Annotated[Shelf, Depends(shelf_of)]


def tell(answer: Any, status: int = 200) -> Response:
    """An answer as JSON, which has no NaN: what is not finite becomes null."""
    try:
        text = json.dumps(answer, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(answer), allow_nan=False, separators=(",", ":"))
    return Response(text, status, media_type="application/json")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@router.get("/health", response_model=bodies.Health)
async def health(request: Request) -> Any:
    """Say that the service works, and whether it asks for a token."""
    return tell({"status": "ok", "token_needed": request.app.state.token})


@router.get("/model", response_model=bodies.Facts)
def model(shelf: OnShelf, served: Now) -> Any:
    """Tell what is served: how much was rated, the scale, the model and the verdict."""
    return tell(answers.describe(shelf, served))


@router.get("/users", response_model=bodies.Found)
def users(served: Now, search: Text = "", n: N = 20) -> Any:
    """Look up users by a part of their id or title; without one, those with the most ratings."""
    return tell(answers.find(served, "user", search, n))


@router.get("/items", response_model=bodies.Found)
def items(served: Now, search: Text = "", n: N = 20) -> Any:
    """Look up items by a part of their id or title; without one, those with the most ratings."""
    return tell(answers.find(served, "item", search, n))


@router.get("/ratings", response_model=bodies.OwnRatings)
def ratings(served: Now, user: Given, n: N = 100) -> Any:
    """List the ratings of a user, the highest first."""
    return tell(answers.own_ratings(served, user, n))


@router.post("/predict", response_model=bodies.Predictions)
def predict(served: Now, asked: bodies.Predict) -> Any:
    """Predict the ratings of pairs of a user and an item."""
    return tell(answers.predict(served, asked))


@router.post("/recommend", response_model=bodies.Recommendations)
def recommend(served: Now, asked: bodies.Recommend) -> Any:
    """Recommend items to users, each with an interval for the rating it would get."""
    return tell(answers.recommend(served, asked))


@router.post("/similar", response_model=bodies.Neighbours)
def similar(served: Now, asked: bodies.Similar) -> Any:
    """Find the items nearest to an item, or the users nearest to a user."""
    return tell(answers.similar(served, asked))


@router.post("/explain", response_model=bodies.Explanation)
def explain(served: Now, asked: bodies.Explain) -> Any:
    """Explain a prediction by its parts and by the ratings of the user that matter most."""
    return tell(answers.explain(served, asked))


@router.post("/visitor", response_model=bodies.Visited)
def visitor(served: Now, asked: bodies.Visit) -> Any:
    """Recommend to somebody by the ratings in the request; nothing of them is kept."""
    return tell(answers.visit(served, asked))


@router.post("/update", response_model=bodies.Changed, responses=DISABLED)
def update(shelf: OnShelf, asked: bodies.Update) -> Any:
    """Add ratings to the model that is served, if the service was started to allow it."""
    if not shelf.options.updates:
        return tell({"error": "updates are off; start the service with --allow-updates"}, 403)
    return tell(answers.update(shelf, asked))


@router.post("/evaluate", response_model=bodies.Scores)
def evaluate(served: Now, asked: bodies.Evaluate) -> Any:
    """Test the model on the ratings in the request."""
    return tell(answers.evaluate(served, asked))


@router.get("/quality", response_model=bodies.Quality)
def quality(served: Now) -> Any:
    """Tell the errors and the calibration on the test ratings that the service has."""
    return tell(answers.quality(served))


@router.get("/chains", response_model=bodies.Chains)
def chains(served: Now) -> Any:
    """Tell whether the chains have converged, with their traces."""
    return tell(answers.chains(served))


@router.get("/map", response_model=bodies.Map)
def map_items(served: Now) -> Any:
    """Place the items with the most ratings on a map of two dimensions."""
    return tell(answers.map_items(served))


FIELDS = {name for body in bodies.Body.__subclasses__() for name in body.model_fields}


def spell(option: Option) -> str | None:
    """Spell an option that a message names as a field of a request, if it is one."""
    if option.name not in FIELDS:
        return None
    return f'"{option.name}"' + ("" if option.value is None else f": {json.dumps(option.value)}")


async def refuse_data(request: Request, error: Exception) -> Response:
    """Answer a mistake in what was asked for."""
    assert isinstance(error, DataError)
    return tell({"error": error.render(spell)}, 404 if isinstance(error, NotFound) else 422)


async def refuse_body(request: Request, error: Exception) -> Response:
    """Answer a request that does not look as it should: name the first field that is wrong."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return tell({"error": f"the request is no JSON at character {first['loc'][-1]}"}, 422)
    inside, *parts = first["loc"]  # a part of a query is one that we have named
    named = [part for part in parts if isinstance(part, int) or part in FIELDS or inside == "query"]
    place = ".".join(map(str, named)) or "the request"
    return tell({"error": visible(f"{place}: {first['msg']}")}, 422)


async def refuse(request: Request, error: Exception) -> Response:
    """Answer what has no address, or another method."""
    assert isinstance(error, HTTPException)
    told = {
        400: "the request is no JSON: it is not text in UTF-8",
        404: "there is nothing at this address",
        405: "this address takes another method",
    }
    why = told.get(error.status_code, "the request cannot be read")
    response = tell({"error": why}, error.status_code)
    response.headers.update(error.headers or {})
    return response


async def fail(request: Request, error: Exception) -> Response:
    """Answer a mistake of our own; the log says which."""
    return tell({"error": "the service has failed at this request; its log says why"}, 500)


HANDLERS: dict[Any, Callable[..., Any]] = {
    DataError: refuse_data,
    RequestValidationError: refuse_body,
    HTTPException: refuse,
    Exception: fail,
}


@asynccontextmanager
async def few_at_a_time(app: FastAPI) -> AsyncIterator[None]:
    """Compute a few requests at a time, however many there are."""
    anyio.to_thread.current_default_thread_limiter().total_tokens = WORKING
    yield


def make_app(shelf: Shelf, *, token: bool = False) -> FastAPI:
    """Make the service of the model on a shelf; the guard that belongs before it is not in it."""
    app = FastAPI(
        title="bayesmf",
        version=__version__,
        description="Predictions with intervals from a Bayesian matrix factorization of ratings.",
        docs_url=None,  # they would load scripts from elsewhere
        redoc_url=None,
        exception_handlers=HANDLERS,
        lifespan=few_at_a_time,
    )
    app.state.shelf, app.state.token = shelf, token
    app.include_router(router, dependencies=[Depends(bearer)] if token else [])
    for path in OPEN:
        app.add_api_route(path, _file(path), methods=["GET"], include_in_schema=False)
    return app


def _file(path: str) -> Callable[[], Any]:
    """What answers with a file of the page, which is read once and known by its name alone."""
    name = path.rpartition("/")[2] or "index.html"
    content = files("bayesmf.serve").joinpath("page", name).read_bytes()
    kind = KINDS[name.rpartition(".")[2]]

    async def page_file() -> Response:
        return Response(content, media_type=kind)

    return page_file
