"""What golden submissions show of a machine beside its levels: weights, how much it reads, what fails."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from grading.domain.model_behaviour import same_weights
from grading.domain.model_digests import Claim, differing
from grading.domain.shadow_runs import ShadowOutcome
from grading.statistics.parity import Deviation, Levels, deviations

SHORTENED = "shortened"
"""Code of the flag of a prompt that did not fit."""
LESS_READ = 0.95
"""Share of the tokens of the same prompt below which a server cuts it off by itself."""
FEWEST = 2
"""Submissions on which something must differ that one may show by accident."""
FAILING = 3
"""Submissions that fail throughout where they did not."""

Night = Mapping[str, Sequence[ShadowOutcome]]
"""What is graded (`key`) -> the runs of one machine; of several nights, those of the newest first."""


@dataclass(frozen=True)
class Finding:
    """What is the matter with a machine."""

    machine: str
    kind: str
    """`levels`, `context`, `reads_less`, `fails` or `weights`."""
    compared: str
    """`before` or `others`."""
    certain: bool = True
    submissions: tuple[str, ...] = ()
    shift: float = 0.0
    """Of levels: added up over those submissions."""
    p: float = 1.0
    before: int = 0
    """Of a context: tokens of what it is compared with."""
    now: int = 0


def key(submission: str, job_hash: str, outcome: ShadowOutcome) -> str:
    """Runs are compared only where the same is graded, by the same prompt and a model of the same name."""
    return f"{submission} {job_hash} {outcome.prompt_version} {outcome.model}"


def submission_of(key: str) -> str:
    """The submission of a key."""
    return key.partition(" ")[0]


def findings(
    tonight: Mapping[str, Night], before: Mapping[str, Night], out: frozenset[str] = frozenset()
) -> tuple[Finding, ...]:
    """All that is the matter with machines; those that are `out` are none to compare with."""
    found = [*_weights(tonight)]
    other_weights = {one.machine for one in found}
    for machine in sorted(tonight):
        others = [m for m in sorted(tonight) if m != machine and m not in out | other_weights]
        found += _one(
            machine, tonight[machine], _same_weights(before.get(machine, {}), tonight[machine]), "before"
        )
        found += _one(machine, tonight[machine], _joined([tonight[one] for one in others]), "others")
    wrong = frozenset(one.machine for one in found if one.certain)
    levels = deviations(
        {machine: _levels(night) for machine, night in tonight.items() if machine not in wrong},
        {
            m: _levels(_same_weights(night, tonight.get(m, {})))
            for m, night in before.items()
            if m not in wrong
        },
        out,
    )
    return (*_once(found), *(_of_levels(one) for one in levels))


def _of_levels(one: Deviation) -> Finding:
    moved = tuple(submission_of(each.submission) for each in one.comparison.moved)
    how = one.comparison
    return Finding(one.machine, "levels", one.compared, one.certain, moved, how.shift, how.p)


def _once(found: Sequence[Finding]) -> list[Finding]:
    """Of what shows both ways, the comparison with its own nights."""
    seen: dict[tuple[str, str], Finding] = {}
    for one in found:
        seen.setdefault((one.machine, one.kind), one)
    return list(seen.values())


def _weights(tonight: Mapping[str, Night]) -> list[Finding]:
    claims = [
        Claim(machine, *place)
        for machine, night in tonight.items()
        for place in sorted(
            {(o.engine, o.model, o.digest) for runs in night.values() for o in runs if o.digest}
        )
    ]
    found = []
    for one in differing(claims):
        alone = one.alone
        names = alone or tuple(sorted({name for names in one.digests.values() for name in names}))
        found += [Finding(name, "weights", "others", certain=bool(alone)) for name in names]
    return found


def _one(machine: str, mine: Night, theirs: Night, compared: str) -> list[Finding]:
    """What one machine's runs show beside others of the same."""
    keys = sorted(mine.keys() & theirs.keys())
    found = []
    shortened = tuple(submission_of(k) for k in keys if _shortened(mine[k]) and not _shortened(theirs[k]))
    then, now = _less_context(theirs, mine) if compared == "before" else (0, 0)
    if shortened or now < then:
        found.append(Finding(machine, "context", compared, submissions=shortened, before=then, now=now))
    less = [k for k in keys if _reads_less(mine[k], theirs[k])]
    if len(less) >= FEWEST:
        found.append(Finding(machine, "reads_less", compared, submissions=tuple(map(submission_of, less))))
    failing = [k for k in keys if not any(o.ok for o in mine[k]) and all(o.ok for o in theirs[k])]
    if len(failing) >= FAILING:
        found.append(Finding(machine, "fails", compared, submissions=tuple(map(submission_of, failing))))
    return found


def _shortened(runs: Sequence[ShadowOutcome]) -> bool:
    done = [one for one in runs if one.ok]
    return bool(done) and all(SHORTENED in one.flags for one in done)


def _less_context(before: Night, tonight: Night) -> tuple[int, int]:
    """Tokens of a model's context in the newest night before and tonight, where it has less; else zeros.

    Whatever was graded: a context is the model's, and other submissions may be golden tonight.
    """
    then, now = dict[tuple[str, str], int](), dict[tuple[str, str], int]()
    for one in _with_context(before):
        then.setdefault((one.engine, one.model), one.context_tokens)
    for one in _with_context(tonight):
        place = one.engine, one.model
        now[place] = min(one.context_tokens, now.get(place, one.context_tokens))
    less = ((then[place], tokens) for place, tokens in now.items() if tokens < then.get(place, 0))
    return max(less, default=(0, 0))


def _with_context(night: Night) -> Iterator[ShadowOutcome]:
    return (one for runs in night.values() for one in runs if one.context_tokens)


def _reads_less(mine: Sequence[ShadowOutcome], theirs: Sequence[ShadowOutcome]) -> bool:
    """Of the very same prompt, by the count of the same engine."""
    tokens = [(o.engine, o.prompt_hash, o.tokens.prompt) for o in theirs if _counts(o)]
    own = [o for o in mine if _counts(o)]
    pairs = [
        (o.tokens.prompt, statistics.median(same))
        for o in own
        if (same := [n for engine, prompt, n in tokens if (engine, prompt) == (o.engine, o.prompt_hash)])
    ]
    return bool(pairs) and all(here < LESS_READ * there for here, there in pairs)


def _counts(one: ShadowOutcome) -> bool:
    return one.ok and not one.repaired and one.tokens.prompt > 0


def _same_weights(before: Night, tonight: Night) -> Night:
    """Earlier runs with the weights of tonight: a person accepted others."""
    digests = Counter(one.digest for runs in tonight.values() for one in runs)
    if not digests:
        return before
    digest = digests.most_common(1)[0][0]
    same = {
        k: [o for o in runs if not (o.digest and digest) or same_weights(o.digest, digest)]
        for k, runs in before.items()
    }
    return {k: runs for k, runs in same.items() if runs}


def _joined(nights: Sequence[Night]) -> Night:
    found: dict[str, list[ShadowOutcome]] = defaultdict(list)
    for night in nights:
        for one, runs in night.items():
            found[one] += runs
    return found


def _levels(night: Night) -> dict[str, list[Levels]]:
    found: dict[str, list[Levels]] = {k: [one.levels for one in runs if one.ok] for k, runs in night.items()}
    return {k: runs for k, runs in found.items() if any(runs)}
