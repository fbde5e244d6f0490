"""What one looks at in a fit: recommendations, neighbours, a map, explanations, with titles."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, Self

from bayesmf.checks import check_choice, check_whole
from bayesmf.choices import RankBy
from bayesmf.errors import Option, UnusedWarning
from bayesmf.fitted.explain import explain
from bayesmf.fitted.explore.lists import Choice, Order, list_items
from bayesmf.fitted.explore.tables import explained_pair, find_similar, lay_out
from bayesmf.fitted.posterior import Posterior
from bayesmf.machine import using
from bayesmf.model.designs import SIDES, Name

Column = str | int | None  # of a frame: its name, or its number from 1


class Explores:
    """The part of a fit that finds things in its posterior and tells what they are called."""

    posterior: Posterior
    threads: int | None = None

    def _warn_if_unused(self, at: Any) -> None:
        """Tell the caller of a method that a time changes nothing, if that is so."""
        if at is None or self.posterior.model.every_effect:
            return
        asked = Option("at", at if isinstance(at, int) else str(at))
        told = f"{asked} changes nothing, as the model has no time chain; leave it out"
        warnings.warn(UnusedWarning(told), stacklevel=3)

    def recommend(
        self,
        users: Any = None,
        n: int = 10,
        *,
        rank_by: RankBy = "mean",
        exclude_seen: bool = True,
        seen: Any = None,
        items: Any = None,
        exclude: Any = None,
        where: str | Sequence[str] | None = None,
        diversify: float = 0.0,
        at: Any = None,
        seed: int = 0,
        progress: Callable[[int, int], None] | None = None,
        user: Column = None,
        item: Column = None,
    ) -> Any:
        """Recommend the best ``n`` items to each user.

        - ``users``: one id, a list, a column, or a frame with a user column; all users if None.
          Users not seen in training get what most users like, or, if their attributes are known,
          what users with such attributes like.
        - ``rank_by``: "mean", the expected rating; "lower", one standard deviation of the
          prediction below it; "thompson", one draw for each user, chosen by ``seed``.
        - ``exclude_seen``: leave out what a user has rated, in training or in the ratings that were
          held out from it.
        - ``seen``: ratings, or pairs as ``predict`` takes them, to leave out instead of those. They
          may be of users that the fit does not know.
        - ``items``: the items that may be recommended, as a list, a column, or a frame with an item
          column; all items that the fit knows if None. Items not seen in training may be among them
          if their attributes are known.
        - ``exclude``: items that may not be recommended, given in the same way.
        - ``where``: conditions on the attributes of items, one or a list of which all have to hold:
          "genres=Drama" (of a set: has it), "genres!=Horror", "year>=1990".
        - ``diversify``: from 0, the best items, to 1, items as different as possible, among ten
          times as many: maximal marginal relevance with the similarity of ``similar``.
        - ``at``: when they would be rated, for a model with a time chain, as in ``predict``: scores
          are those of that time, and the order of items is the same at any time. Without a chain it
          changes nothing, and an ``UnusedWarning`` says so.
        - ``progress``: called with the number of users done and of all users.

        Returns a frame with the columns ``user``, ``rank`` (from 1), ``item``, ``score`` (what
        items are ranked by) and ``q05`` and ``q95``, quantiles of the rating as in ``predict``;
        titles stand behind the ids. It goes user after user, with fewer rows for a user who has
        fewer items left.
        Ordinal and binary ratings are ranked by the linear predictor; the score of the items that
        are chosen is their expected rating, and puts them in order.
        It is of the same kind as ``users``, with an index of its own. The score of a newcomer does
        not contain what it would say of them that they choose to rate the item.
        """
        choice, order = Choice(items, exclude, where), Order(n, rank_by, seed, diversify, at)
        self._warn_if_unused(at)
        seen, named = (
            seen if exclude_seen else False,
            self.posterior.labels.named(user=user, item=item),
        )
        with using(self.threads):
            return list_items(self.posterior, users, choice, order, seen, named, progress)

    def similar(
        self,
        *,
        item: Any = None,
        user: Any = None,
        n: int = 10,
        items: Any = None,
        exclude: Any = None,
        where: str | Sequence[str] | None = None,
    ) -> Any:
        """Find the ``n`` items that are most like one ``item``, or the users most like a ``user``.

        Two items are alike if the users who like the one more than is usual for them and for the
        item also like the other so. The similarity is the correlation of that over users, from -1
        to 1, averaged over the draws. It does not depend on the basis and the origin that the
        features of a draw happen to have.

        - ``items``, ``exclude``, ``where``: which items may be in the answer, as in ``recommend``.

        Returns a pyarrow table with the columns ``item`` (or ``user``), ``title`` (or
        ``user_title``) if the fit has titles, ``similarity``, its quantiles over the draws ``q05``
        and ``q95``, ``probability`` (the share of draws in which it is among the ``n`` nearest) and
        ``ratings``, the number of its training ratings. Items without any are left out.
        """
        choice = Choice(items, exclude, where)
        return find_similar(self.posterior, item, user, check_whole("n", n, 1), choice)

    def map(self, n: int | None = None, side: Name = "item") -> Any:
        """Lay the items (or users) out in two dimensions, like ones near each other.

        The distance of two items tells how differently users like them, in units of ratings: the
        coordinates are the two principal ones of the covariance whose correlation ``similar`` has,
        averaged over the draws. The one farthest from 0 is positive, on both axes.

        - ``n``: so many items with the most ratings; all that have training ratings if None.

        Returns a pyarrow table with the columns ``item`` (or ``user``), ``title`` if the fit has
        titles, ``x``, ``y`` and ``ratings``, the number of training ratings, most first.
        """
        check_choice("side", side, SIDES)
        return lay_out(self.posterior, side, None if n is None else check_whole("n", n, 1))

    def explain(self, user: Any, item: Any, most: int = 5, *, at: Any = None) -> dict[str, Any]:
        """Explain one prediction: its parts, and what the user's own ratings add to it.

        - ``user``, ``item``: one id each, of somebody with training ratings, or with attributes.
        - ``at``: when the rating would be given, for a model with a time chain, as in ``predict``.

        Returns a dict with the keys ``prediction``; ``parts``: mean, user bias, item bias, own
        features and designs, each with its ``mean`` and ``sd`` over the draws, whose means
        add up to the prediction; and, if the training ratings are at hand, ``ratings``: the
        ``most`` ratings of the user that matter most, each with ``item``, ``rating`` and what it
        ``adds``. If the model has attributes, ``attributes`` are the ``most`` that matter most. A
        fit with titles shows them: ``user_title``, ``title``, and the ``title`` of each rating.
        With ``at``, the ``mood`` that a time chain expects of the user then is a part of its own.
        Of a newcomer, ``selection`` is what it says of them that they rate the item.

        Where ratings are cells of a latent number, as ordinal and binary ones are, ``prediction``
        and ``parts`` are those of that number, ``expected`` is the expected rating, and there are
        no ``ratings``: what one of them adds is not linear.
        """
        check_whole("most", most, 1)
        posterior = self.posterior
        found = explain(posterior, explained_pair(posterior, user, item, at), posterior.train, most)
        return posterior.labels.explained(user, item, found)

    def with_titles(self, *, items: Any = None, users: Any = None) -> Self:
        """Return a fit that knows the titles of items or users, and shows them in its answers.

        - ``items``, ``users``: a mapping from ids to titles, or a frame or the path of a file with
          a column of ids and one called title or name; a table of two columns needs no names. In a
          file without a header the ids come first and the titles second.

        An id may have but one row. Ids without a title, or with an empty one, are shown without;
        titles of ids that the fit does not know are kept for later. A title that an id has already
        is replaced. Saved models keep all titles.
        """
        old, made = self.posterior, copy(self)
        labels = old.labels.put_all(old.users, old.items, users, items)
        kept = "known" if "known" in vars(made) else "posterior"  # where the fit has it
        vars(made)[kept] = copy(old)  # with what it has computed, which does not depend on titles
        vars(vars(made)[kept])["labels"] = labels
        return made
