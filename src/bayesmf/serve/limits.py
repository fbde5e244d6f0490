"""How much a request may ask for, and how many requests a client may make."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

MOST_PAIRS = 10_000  # predicted, or evaluated, by one request
MOST_RATINGS = 1_000  # of a visitor, or of an update
MOST_USERS = 100  # recommended to by one request
MOST_N = 1_000  # rows of a list
MOST_ITEMS = 10_000  # that recommendations may be limited to
MOST_QUANTILES = 20
LONGEST_ID = 200  # characters
CONNECTIONS = 512  # at a time; more of them are refused
WORKING = 8  # requests that are computed at a time; the others wait
DRAIN = 10  # seconds that requests have to end after SIGTERM


@dataclass(frozen=True)
class Limits:
    """What the guard of a service holds requests to."""

    body: int = 1 << 20  # bytes
    headers: int = 1 << 15  # bytes
    seconds: float = 10.0  # in which headers, and then the body, have to arrive
    rate: float = 50.0  # requests a second of one client; 0: as many as they like
    clients: int = 4096  # that are followed at a time


class Rates:
    """How many requests each client has left: two seconds' worth at once, refilled steadily."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self.most, self.clock = limits.rate, limits.clients, clock
        self.left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allow(self, client: str) -> bool:
        """Count a request, unless the client has none left."""
        if not self.rate:
            return True
        now, burst = self.clock(), max(2 * self.rate, 1.0)
        left, before = self.left.pop(client, (burst, now))
        left = min(left + (now - before) * self.rate, burst)
        self.left[client] = (left - 1 if left >= 1 else left), now
        if len(self.left) > self.most:
            self.left.popitem(last=False)  # who has not been here for the longest time
        return left >= 1
