"""Whether the parts of one report were written with the same weights, where the model has the same name."""

from __future__ import annotations

from collections.abc import Mapping

from grading.domain.jobs import Result
from grading.domain.model import Flag
from grading.domain.model_digests import Claim, differing, short


def other_weights(results: Mapping[str, Result]) -> list[Flag]:
    """A flag for each model whose parts were written with different weights under its one name."""
    used = [result.provenance for result in results.values() if result.provenance.uses_model]
    claims = [Claim(one.machine, one.engine, one.model, one.digest) for one in used]
    return [
        Flag(
            code="other_weights",
            message=f"The parts were written with different weights under the name {one.model}: "
            + "; ".join(f"{short(digest)} on {', '.join(names)}" for digest, names in one.digests.items())
            + ".",
        )
        for one in differing(claims)
    ]
