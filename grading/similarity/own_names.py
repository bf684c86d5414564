"""Names that a piece of code gives itself, told from those that mean something outside of it.

A name is the code's own where the piece defines it before it uses it: a variable, a parameter, a function,
the name of a loop or of an `import … as`. Own names are written by the order in which their scope has them,
so that code with other own names is spelled the same. All other names stay: functions of libraries, data that
another cell made, attributes, columns and named arguments, in R also a variable that is named like a column
of the piece, and every name in `kept`, by which tests and checks find what the student made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from grading.similarity.code_tokens import Token
from grading.similarity.name_roles import COLUMN

OWN = "@"


@dataclass
class _Scope:
    """What a piece does with the names of one function, or outside of all."""

    defined: dict[str, int] = field(default_factory=dict)
    """Name -> from where on it has its first value."""
    used: dict[str, int] = field(default_factory=dict)
    """Name -> its first use in the scope itself."""
    order: dict[str, int] = field(default_factory=dict)
    """Own name -> the how manieth of its scope."""

    def owns(self, name: str) -> bool:
        """Whether the name has a value before it is used."""
        return name in self.defined and self.defined[name] <= self.used.get(name, self.defined[name])


def spelled(
    tokens: Sequence[Token], parents: Sequence[int], kept: Collection[str] = ()
) -> Iterator[tuple[str, str]]:
    """Each token with own names by their order, and with own names all alike."""
    scopes: defaultdict[int, _Scope] = defaultdict(_Scope)
    columns = {token.text for token in tokens if token.scope == COLUMN}
    for token in tokens:
        if token.scope >= 0:
            _note(scopes[token.scope], token)
    for token in tokens:
        holder = -1
        if token.scope >= 0 and token.text not in kept and token.text not in columns:
            holder = _holder(scopes, parents, token)
        if holder < 0:
            yield token.text, token.text
        else:
            order = scopes[holder].order
            number = order.setdefault(token.text, len(order))
            yield f"{OWN}{_depth(parents, holder)}.{number}", OWN


def _note(scope: _Scope, token: Token) -> None:
    if token.defined is None:
        scope.used.setdefault(token.text, token.at)
    elif token.text not in scope.defined:
        scope.defined[token.text] = token.defined
    else:
        scope.defined[token.text] = min(scope.defined[token.text], token.defined)


def _holder(scopes: dict[int, _Scope], parents: Sequence[int], token: Token) -> int:
    """The scope whose own name this is, from the inside out; negative where it is nobody's."""
    here = token.scope
    while True:
        scope = scopes.get(here)
        if scope is not None and token.text in scope.defined:
            return here if scope.owns(token.text) else -1
        if here == 0:
            return -1
        here = parents[here]


def _depth(parents: Sequence[int], scope: int) -> int:
    depth = 0
    while scope:
        scope, depth = parents[scope], depth + 1
    return depth
