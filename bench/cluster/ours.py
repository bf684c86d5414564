"""Our way of routing in the emulated cluster: the product's own functions, with views as stale as its."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bench.cluster.cards import STAGES, job_s
from bench.cluster.policies import Passive
from bench.cluster.world import Cluster, Key, Machine, Run, Setting
from grading.scheduling.cluster_view import Pace, Peer, View
from grading.scheduling.routing import decide
from grading.scheduling.speed_estimates import lengths
from grading.scheduling.speed_profile import Learner, Seen, with_guesses

MOST = 1.5
"""What a run may write, over what is usual."""
Said = Mapping[str, Mapping[str, object]]
"""machine -> stage -> what its learner knew."""


@dataclass
class Ours(Passive):
    """`grading.scheduling.routing.decide`. With `oracle` speeds are known, else they are learned on the way.

    `said` is what was learned earlier. Who decides knows itself exactly, the others by their beats.
    """

    name: str = "ours"
    oracle: bool = True
    said: Said = field(default_factory=dict)
    decisions: int = 0
    spent_s: float = 0.0
    why: dict[str, str] = field(default_factory=dict)
    learners: dict[str, Learner] = field(default_factory=dict)
    healths: list[tuple[str, float, float]] = field(default_factory=list)
    """(machine, time, health) as the machine saw itself, once a second."""
    _due: dict[str, Mapping[str, float]] = field(default_factory=dict)
    """machine -> stage -> when others were to have begun what it left to them."""

    def queues(self, cluster: Cluster, machine: Machine) -> tuple[Key, ...]:
        """What the machine decides for itself."""
        view = self.view(cluster, machine)
        began = time.perf_counter()
        choice = decide(view)
        self.spent_s += time.perf_counter() - began
        self.decisions += 1
        self.why[machine.name] = choice.why
        self._due[machine.name] = choice.due(cluster.now, self._due.get(machine.name, {}))
        return choice.queues

    def view(self, cluster: Cluster, machine: Machine) -> View:
        """The cluster as this machine saw it last, itself as it is."""
        look = machine.look
        peers = {name: beat.peer for name, beat in look.beats.items() if beat.peer}
        peers[machine.name] = self.peer(cluster, machine)
        return View(
            me=machine.name,
            peers=with_guesses(peers),
            waiting={key: max(0, count - machine.since[key]) for key, count in look.lengths.items()},
            backlog=look.backlog,
            waits_s=look.oldest_s,
            late_s={s: cluster.now - at for s, at in self._due.get(machine.name, {}).items()},
            taken=machine.taken,
        )

    def peer(self, cluster: Cluster, machine: Machine) -> Peer:
        """A machine as it knows itself now."""
        running = Counter(run.stage for run in machine.runs.values())
        if self.oracle:
            paces = {
                s: replace(p, health=machine.box.speed)
                for s, p in known(cluster.setting, machine.name).items()
            }
            left = self._remains(cluster, machine)
        else:
            learner = self._learner(machine)
            paces, told = learner.paces(cluster.now, machine.slots), learner.left()
            left = {s: told.get(s, float(count)) for s, count in running.items()}
        return Peer(machine.name, machine.slots, tuple(STAGES), paces=paces, running=running, left=left)

    def _remains(self, cluster: Cluster, machine: Machine) -> dict[str, float]:
        tokens, left = machine.box.snapshot(cluster.now).tokens, dict.fromkeys(STAGES, 0.0)
        for name, run in machine.runs.items():
            left[run.stage] += max(0.05, 1 - tokens.get(name, 0) / cluster.setting.works[run.stage].output)
        return left

    def looked(self, cluster: Cluster, machine: Machine) -> None:
        """The learner looks at the runs in hand, unless speeds are known."""
        if not self.oracle:
            learner = self._learner(machine)
            learner.expect(lengths(machine.name, self.view(cluster, machine).peers))
            learner.sample(cluster.now, self._seen(cluster, machine))
            self.healths.append((machine.name, cluster.now, learner.health(cluster.now)))

    def began(self, cluster: Cluster, machine: Machine, run: Run) -> None:
        """It looks when a run begins, too."""
        if not self.oracle:
            self._learner(machine).sample(cluster.now, self._seen(cluster, machine))

    def ended(self, cluster: Cluster, machine: Machine, run: Run) -> None:
        """And when one ends."""
        if not self.oracle:
            seen = self._seen(cluster, machine)
            self._learner(machine).sample(cluster.now, seen)
            mine = next(one for one in seen if one.run == run.request.id)
            self._learner(machine).ended(cluster.now, mine, ok=True, seconds=cluster.now - run.began)

    def _seen(self, cluster: Cluster, machine: Machine) -> list[Seen]:
        tokens = machine.box.snapshot(cluster.now).tokens
        found = []
        for name, run in machine.runs.items():
            wrote = run.request.output if run.done <= cluster.now else tokens.get(name, 0)
            reads = name in tokens or wrote
            phase = "writing" if wrote else "reading" if reads else "waiting"
            most = round(MOST * cluster.setting.works[run.stage].output)
            found.append(Seen(name, run.stage, phase, wrote, most))  # type: ignore[arg-type]
        return found

    def _learner(self, machine: Machine) -> Learner:
        if machine.name not in self.learners:
            learner = self.learners[machine.name] = Learner(machine.slots, dict.fromkeys(STAGES))
            for stage, said in self.said.get(machine.name, {}).items():
                learner.restore(stage, said)
        return self.learners[machine.name]

    def said_by(self) -> Said:
        """What was learned."""
        return {m: {s: learner.dump(s) for s in STAGES} for m, learner in self.learners.items()}


_KNOWN: dict[tuple[str, str, int], Mapping[str, Pace]] = {}


def known(setting: Setting, name: str) -> Mapping[str, Pace]:
    """A machine's true speeds."""
    key = (setting.world.name, name, setting.slots)
    if key not in _KNOWN:
        card, slots = setting.cards[name], setting.slots
        _KNOWN[key] = {
            s: Pace(job_s(card, w, 1), job_s(card, w, slots), slots, tokens=w.output, seen=100)
            for s, w in setting.works.items()
        }
    return _KNOWN[key]
