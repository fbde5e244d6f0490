"""The errors that users see: one sentence that says what is wrong, where, and what to type next.

A message may name options. It names them as ``Option`` values, and each interface spells them in
its own words: ``duplicates='last'`` in Python, ``--duplicates last`` on the command line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass


@dataclass(frozen=True)
class Option:
    """An option that a message names; inside an f-string it becomes a token.

    ``name`` is the argument in Python and the parameter of a command. ``value`` follows it: text in
    capitals stands for what the user puts there, and None shows the name alone. A mapping is
    written as a dict. ``function`` is named in Python, where the option is not one of the function
    that the user called. ``parameter`` is that of a command, where the argument has another name.
    """

    name: str
    value: str | float | bool | Mapping[str, str] | None = None
    function: str = ""
    parameter: str = ""

    def __str__(self) -> str:
        return f"\x02{json.dumps(astuple(self))}\x03"

    def in_python(self) -> str:
        """Spell the option as an argument."""
        value = "" if self.value is None else repr(self.value)
        if isinstance(self.value, str) and self.value.isupper():
            value = self.value
        return f"{self.name}={value}" + (f" of {self.function}" if self.function else "")


_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
LONGEST = 900  # characters of a message; what quotes more of a file is cut in its middle


def visible(text: str) -> str:
    """Write control characters as escapes, so that no id can steer a terminal or hide text."""
    return _HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def clause(text: str) -> str:
    """A part of a message that is left out where the interface lacks an option named in it."""
    return f"\x0e{text}\x0f"


_OPTION = re.compile("\x02(.*?)\x03")
_CLAUSE = re.compile("\x0e(.*?)\x0f")
Spell = Callable[[Option], str | None]


def render(
    message: str, spell: Spell, elsewhere: Callable[[Option], str] = Option.in_python
) -> str:
    """Spell every option of a message with ``spell``, which returns None for one not at hand.

    A clause about such an option is left out; outside of a clause ``elsewhere`` spells it. Control
    characters are made visible, and a message that quotes very much is shortened.
    """

    def keep(found: re.Match[str]) -> str:
        named = map(_read_option, _OPTION.findall(found[1]))
        return "" if any(option and spell(option) is None for option in named) else found[1]

    def show(found: re.Match[str]) -> str:
        option = _read_option(found[1])
        return found[0] if option is None else spell(option) or elsewhere(option)

    told = visible(_OPTION.sub(show, _CLAUSE.sub(keep, message)))
    return told if len(told) <= LONGEST else f"{told[: LONGEST - 300]} ... {told[-300:]}"


def _read_option(token: str) -> Option | None:
    """The option of a token; None if it is none, but something that the message quotes."""
    try:
        option = Option(*json.loads(token))
    except (ValueError, TypeError, RecursionError):
        return None
    words = option.name, option.function, option.parameter
    return option if all(isinstance(word, str) for word in words) else None


class DataError(ValueError):
    """Input that cannot be used: names the place, the value and the remedy in one sentence.

    ``str(error)`` spells options as arguments in Python. ``message`` still holds them as tokens, so
    that another message can quote it.
    """

    def __init__(self, message: str) -> None:
        self.message = " ".join(message.splitlines())  # a name inside may hold a line end
        super().__init__(self.render(Option.in_python))

    def render(self, spell: Spell, elsewhere: Callable[[Option], str] = Option.in_python) -> str:
        """Spell every option of the message, as ``render`` does."""
        return render(self.message, spell, elsewhere)


class UnusedWarning(UserWarning):
    """Something that was asked for changes nothing, such as a time without a time chain.

    ``str(warning)`` spells options as arguments in Python; ``message`` holds them as tokens.
    """

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(render(message, Option.in_python))


class SeenWarning(UserWarning):
    """Ratings that a model is judged by were among those that it was fitted to."""


class AttributesWarning(UserWarning):
    """Some users or items have no row in the table of their attributes."""


class OverfittingWarning(UserWarning):
    """What is optimised still improves while the error on held-out ratings gets worse."""
