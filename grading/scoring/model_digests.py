"""Whether the parts of one report were written with the same weights, where the model has the same name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grading.checks.message_parts import clauses
from grading.domain.evidence import Flag
from grading.domain.jobs import Result
from grading.domain.messages import Message, define_message
from grading.domain.model_digests import Claim, differing, short

OTHER_WEIGHTS = define_message(
    "flag.other_weights",
    "The machines that wrote this report have different versions of the model %(model)s: %(digests)s.",
)
DIGEST_ON = define_message("flag.digest_on", "%(digest)s on %(machines)s")


def other_weights(results: Mapping[str, Result]) -> list[Flag]:
    """A flag for each model whose parts were written with different weights under its one name."""
    used = [result.provenance for result in results.values() if result.provenance.uses_model]
    claims = [Claim(one.machine, one.engine, one.model, one.digest) for one in used]
    return [
        Flag.of("other_weights", OTHER_WEIGHTS(model=one.model, digests=_by_digest(one.digests)))
        for one in differing(claims)
    ]


def _by_digest(digests: Mapping[str, Sequence[str]]) -> Message:
    return clauses([DIGEST_ON(digest=short(digest), machines=names) for digest, names in digests.items()])
