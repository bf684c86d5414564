"""The engine whose model is shared out to several ranks, here and on other computers."""

from __future__ import annotations

import ipaddress
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import cast, get_args

from grading.config.machines import Machine
from grading.domain.errors import ConfigError, EngineError, ModelMissing
from grading.domain.messages import Message
from workers.machine.engines.base import (
    ChecksMachine,
    Comparison,
    Generation,
    Progress,
    Request,
    TokenCounter,
    unheard,
)
from workers.machine.engines.http.answer import messages
from workers.machine.engines.mlx.decode_loop import BATCH_METRICS, Counters
from workers.machine.engines.mlx.engine import MlxEngine
from workers.machine.engines.mlx.generation import CallerWait, Sampling, Ticket, Watch, generation
from workers.machine.engines.mlx.model import LoadedModel, require_room
from workers.machine.engines.sharded.loading import load_words
from workers.machine.engines.sharded.protocol import Mode, Settings
from workers.machine.engines.sharded.rank_group import DistributedGeneration, RankGroup, RankSupervisor
from workers.machine.messages import ENGINE_CLOSED

CLOSE_SECONDS = 30.0
REMOTE = (
    "ssh -T -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=2 -o ServerAliveCountMax=3 {host} "
    "cd grader/current && exec ~/grader/environment/bin/python -m workers.machine.engines.sharded.rank"
)


class ShardedEngine(ChecksMachine):
    """Generates with mlx-lm in several ranks that share one model out, each a process, here or elsewhere.

    `hosts` are the ranks' addresses for mlx's ring, "ADDRESS:PORT" each, that of this computer first; ranks
    with another address are started by `remote`, in which `{host}` stands for it. `mode` "pipeline" gives
    each rank some of the layers, "tensor" a part of every layer, "auto" the first of these that the model
    can. `slots` is the most generations in one batch, `prefill_step` the prompt tokens read in a step,
    `prefix_cache_tokens` what the shared prefixes that are kept have together, `max_context` a limit in
    tokens below the model's own. Ranks that take no step for `step_timeout` seconds, or are not ready within
    `load_timeout`, are started again. `wired_limit` as for mlx.
    """

    name = "sharded"
    uses_model = True
    model_source = "hub"
    metrics = BATCH_METRICS

    @classmethod
    def check_machine(cls, machine: Machine) -> None:
        """The ranks of each such engine hold one model."""
        places = {one.place for one in machine.stages.values() if machine.kind(one.engine) == "sharded"}
        if len(places) > len({engine for engine, _ in places}):
            raise ConfigError(
                "the ranks of engine 'sharded' hold one model; give the other one another machine entry."
            )

    def __init__(
        self,
        *,
        hosts: Sequence[str],
        mode: str = "auto",
        slots: int = 8,
        prefill_step: int = 1024,
        prefix_cache_tokens: int = 65536,
        max_context: int | None = None,
        step_timeout: float = 60.0,
        load_timeout: float = 600.0,
        wired_limit: bool = False,
        remote: str = REMOTE,
    ) -> None:
        if mode not in get_args(Mode):
            raise ConfigError(f"engines.sharded.mode: '{mode}' is none of {', '.join(get_args(Mode))}.")
        self._settings = Settings(
            hosts=_addresses(hosts),
            mode=cast(Mode, mode),
            slots=slots,
            prefill_step=prefill_step,
            prefix_tokens=prefix_cache_tokens,
            max_context=max_context,
            wired_limit=wired_limit,
            remote=remote,
            load_timeout=load_timeout,
            step_timeout=step_timeout,
        )
        self._counters = Counters()
        self._lock = threading.Lock()
        self._model = ""
        self._words: LoadedModel | None = None
        self._held: RankSupervisor | None = None
        self._closed = False
        self._listener: Callable[[Message], None] | None = None

    def load(self, model: str, seconds: float = 600.0) -> str:
        """Start the ranks now, as a warm-up; gives the digest of the model that all of them have."""
        return self._pool(model).use(CallerWait(seconds), unheard).digest

    def digest(self, model: str, seconds: float) -> str:
        """The sha256 of the weights, configuration and tokenizer that all ranks have; waits for them.

        Raises ModelMissing, EngineUnreachable or BudgetExceeded.
        """
        return self.load(model, seconds)

    def token_counter(self, model: str, seconds: float, progress: Progress) -> TokenCounter | None:
        """The model's context and its own count of tokens; needs no rank. Raises ModelMissing."""
        return self._tokenizer(model).token_counter()

    def counters(self) -> Mapping[str, float]:
        """See `metrics`."""
        group = self.group
        now = group.gauges() if group is not None else {"running": 0, "waiting": 0, "cache_bytes": 0}
        return {**self._counters.read(), **now}

    def on_unavailable(self, tell: Callable[[Message], None]) -> None:
        """See `base.ReportsUnavailability`."""
        self._listener = tell

    @property
    def group(self) -> RankGroup | None:
        """The ranks that run now, if they do."""
        pool = self._held
        return pool.group if pool is not None else None

    def generate(self, request: Request, progress: Progress) -> Generation:
        """Answer a request; see the contract in `base`."""
        patience = CallerWait(request.deadline_s, request.cancel)
        if patience.over:
            raise patience.end()
        with patience.listening():
            pool = self._pool(request.model)
            group = pool.lend(patience, progress)
            sent = self._sent(self._tokenizer(request.model), request, patience)
            group.submit(sent)
            reason = Watch(sent.ticket, progress, draft=request.job.draft).wait(patience)
        bound = sent if sent.schema_text else None
        return generation(sent.ticket, bound, request, group.digest, reason, patience.begun)

    @contextmanager
    def comparison(
        self, model: str, seconds: float, fits: Callable[[int], bool], draft: str = ""
    ) -> Iterator[Comparison]:
        """The ranks, and the whole model in this process."""
        ranks = self._settings
        require_room(fits, model)
        self.load(model, seconds)
        one = MlxEngine(
            slots=ranks.slots,
            prefill_step=ranks.prefill_step,
            max_context=ranks.max_context,
            wired_limit=ranks.wired_limit,
        )
        with closing(one):
            one.load(model, seconds)
            computers = len({host.rpartition(":")[0] for host in ranks.hosts})
            yield Comparison("sharded", "answer", one.generate, self.generate, computers=computers)

    def close(self) -> None:
        """End the ranks; running and later generations fail."""
        with self._lock:
            self._closed = True
            pool, self._held = self._held, None
        if pool is not None:
            pool.close(CLOSE_SECONDS)

    def _pool(self, model: str) -> RankSupervisor:
        with self._lock:
            if self._closed:
                raise EngineError(ENGINE_CLOSED)
            self._only(model)
            if self._held is None:
                self._held = RankSupervisor(
                    lambda: RankGroup(self._settings, model, self._counters), self._report_unavailable
                )
            return self._held

    def _tokenizer(self, model: str) -> LoadedModel:
        with self._lock:
            self._only(model)
            if self._words is None:
                self._words = load_words(model, self._settings.max_context)
            return self._words

    def _report_unavailable(self, why: Message) -> bool:
        """Whether somebody listens."""
        if self._listener is not None:
            self._listener(why)
        return self._listener is not None

    def _only(self, model: str) -> None:
        """Ranks hold one model, the first that is asked for."""
        self._model = self._model or model
        if model != self._model:
            raise ModelMissing(
                f"The ranks have loaded {self._model}; {model} needs a machine entry with its own ranks."
            )

    def _sent(self, words: LoadedModel, request: Request, patience: CallerWait) -> DistributedGeneration:
        bound = bool(request.schema) and words.grammars is not None
        if bound and words.grammars is not None:
            # what cannot be bound is refused here, before any rank hears of it
            words.grammars.constraint(request.schema, request.max_output_tokens)
        ticket = Ticket(
            loaded=words,
            prompt=words.prompt(messages(request), request.max_output_tokens, shares=not request.chat),
            max_tokens=request.max_output_tokens,
            sampling=Sampling(request.temperature, request.top_p, request.seed),
            constraint=None,
            over=lambda: patience.over,
            wake=patience.wake,
        )
        return DistributedGeneration(ticket, json.dumps(request.schema) if bound else "")


def _addresses(hosts: Sequence[str]) -> tuple[str, ...]:
    """The ranks' addresses, checked."""
    if isinstance(hosts, str) or len(hosts) < 2:
        raise ConfigError('engines.sharded.hosts: list two or more, such as "10.0.0.1:7401".')
    for host in hosts:
        address, _, port = host.rpartition(":")
        try:
            ipaddress.IPv4Address(address)
        except ValueError:
            raise ConfigError(
                f"engines.sharded.hosts: '{host}' must be an IPv4 address and a port, as mlx's ring wants it."
            ) from None
        if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise ConfigError(f"engines.sharded.hosts: '{host}' has no port, such as {address}:7401.")
    if len(set(hosts)) < len(hosts):
        raise ConfigError("engines.sharded.hosts: two ranks have the same address and port.")
    return tuple(hosts)
