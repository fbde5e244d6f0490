"""Facts as JSON that every reader takes."""

from __future__ import annotations

import json
import math
from typing import Any


def to_json(facts: Any, indent: int | None = None, sort_keys: bool = False) -> str:
    """JSON; a number that is not finite becomes null."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(inner) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(inner) for inner in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(plain(facts), indent=indent, sort_keys=sort_keys, allow_nan=False)
