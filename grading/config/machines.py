"""The machines of config.toml: engines, stages, and the way to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, field_validator

from grading.domain.base_value import Value

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=40)]
EngineName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]*$", max_length=40)]
"""Which engines there are, only the machine knows: it looks for the entry point of that name."""
HttpUrl = Annotated[str, StringConstraints(pattern=r"^https?://[^\s]+$")]


class Placement(Value):
    """Which engine and model a machine uses for a stage."""

    engine: EngineName
    """The engine; its settings are under `[machines.engines.NAME]`."""
    model: str = Field(default="", min_length=1)
    """The model by the engine's own name; an engine without models, such as rules, needs none."""
    jobs_per_hour: float | None = Field(default=None, gt=0)
    """An initial estimate with all slots in use; measurements soon replace it."""
    family: str = Field(default="", max_length=40, pattern=r"^([a-z0-9][a-z0-9-]*)?$")
    """The family of the model, where its name does not tell it; second opinions come from another one."""

    def model_post_init(self, _context: Any) -> None:
        """Without a model, what people read is the engine's name."""
        if not self.names_model:
            self.__dict__["model"] = self.engine

    @property
    def names_model(self) -> bool:
        """Whether a model was named."""
        return "model" in self.model_fields_set

    @property
    def place(self) -> tuple[str, str]:
        """Engine and model."""
        return self.engine, self.model


class EngineSettings(Value):
    """Settings of an engine; the machine checks them when it opens the engine."""

    kind: EngineName | None = None
    """Which engine this is, where NAME is a name of your own: a machine may have several of a kind."""
    slots: int | None = Field(default=None, ge=1, le=256)
    """The most generations at the same time in this engine; by default, all slots of the machine."""
    url: HttpUrl | None = None
    """Where an engine over HTTP answers, as seen from the machine itself."""
    context_tokens: int = Field(default=32768, ge=1024)
    """The most tokens a model reads and writes; longer submissions are shortened, and the report says so."""
    embeddings: str | None = Field(default=None, min_length=1, max_length=300)
    """The model with which it makes embeddings for the gateway, where the engine can."""
    options: dict[str, str | int | float | bool | tuple[str, ...] | dict[str, str]] = Field(
        default_factory=dict
    )
    """Further settings of the engine, such as keep_alive or api_key_env; see docs/reference/engines.md."""


RemotePath = Annotated[str, StringConstraints(pattern=r"^(~/|/)[A-Za-z0-9._@+/-]+$", max_length=200)]


class Ssh(Value):
    """How the server sets a machine up and starts and stops its worker.

    See docs/how-to/administrators/cluster.md.
    """

    host: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_:][A-Za-z0-9._:%-]*$", max_length=253)]
    """Name or address of the machine, or a `Host` of the operator's ssh configuration."""
    user: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9._-]*$", max_length=64)] | None = (
        None
    )
    """The user of the worker; by default, that of ssh."""
    port: int = Field(default=22, ge=1, le=65535)
    """Port of the machine's ssh server."""
    folder: RemotePath = "~/grader"
    """The folder of Grader on the machine; begins with `/` or `~/`."""
    python: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9/][A-Za-z0-9._+/-]*$")] | None = None
    """The Python 3.11 or newer to use there; by default, `deploy` searches for one."""
    service: Literal["auto", "systemd", "launchd", "supervised"] = "auto"
    """The service manager; `supervised` is for machines without systemd and launchd."""
    models: RemotePath | None = None
    """The folder of models there; by default, that of Ollama and Hugging Face."""

    @field_validator("folder", "models")
    @classmethod
    def _stays_there(cls, path: str | None) -> str | None:
        if path is not None and (".." in path.split("/") or not path.strip("~/")):
            raise ValueError("write a folder of its own, without '..', such as ~/grader")
        return path


class Prefill(Value):
    """What `grader prefill` reads for the `hybrid` engines of other machines.

    See docs/how-to/administrators/hybrid.md.
    """

    listen: Annotated[str, StringConstraints(pattern=r"^\S+:\d{1,5}$")]
    """Address and port of a private link, such as 10.0.0.1:7300."""
    models: tuple[str, ...] = Field(min_length=1)
    """Folders or hub names, with the same weights as on the writing machine."""
    step: int = Field(default=1024, ge=32)
    """Prompt tokens read in one pass."""
    cache_gb: float | None = Field(default=None, ge=0)
    """The most memory for shared prefixes of classes; by default a tenth of the memory."""
    queue_mb: int = Field(default=256, ge=8)
    """The most data that waits to be sent to one machine."""


class Machine(Value):
    """One computer: its engines, its slots and the stages it can do, its own first."""

    name: Name
    """Lowercase letters, digits and hyphens; unique."""
    role: Literal["primary", "spare"] = "primary"
    """A spare takes runs that have waited for `joins_after_s`; a primary machine takes any."""
    joins_after_s: float = Field(default=2.0, ge=0, le=3600)
    """Seconds after which a spare takes runs that primary machines with free slots have not taken."""
    reserved: Literal["", "batch", "testing"] = ""
    """`batch`: only batch work; `testing`: only runs sent to this machine by name."""
    slots: int = Field(default=1, ge=1, le=256)
    """The most generations at the same time, all engines together."""
    least_slots: int = Field(default=1, ge=1, le=256)
    """The fewest; between the two, the machine measures which number is best."""
    grace_s: float = Field(default=100, ge=0, le=3600)
    """Seconds that a stopping worker has to finish its runs; the rest returns to its queue."""
    engines: dict[EngineName, EngineSettings] = Field(default_factory=dict)
    stages: dict[str, Placement] = Field(min_length=1)
    prefill: Prefill | None = None
    ssh: Ssh | None = None

    def kind(self, engine: str) -> str:
        """Which engine it is that this machine calls so."""
        settings = self.engines.get(engine)
        return (settings.kind if settings else None) or engine

    @property
    def kinds(self) -> frozenset[str]:
        """Of the engines that its stages use."""
        return frozenset(self.kind(one.engine) for one in self.stages.values())

    @property
    def embedders(self) -> dict[str, Placement]:
        """What makes embeddings for the gateway, by model."""
        return {
            one.embeddings: Placement(engine=name, model=one.embeddings)
            for name, one in self.engines.items()
            if one.embeddings
        }

    def slots_of(self, engine: str) -> int:
        """The most generations at the same time in one of its engines."""
        settings = self.engines.get(engine)
        return min(self.slots, (settings.slots if settings else None) or self.slots)

    def with_room(self, stages: Iterable[str], hand: Mapping[str, int]) -> tuple[str, ...]:
        """Of these stages, those whose engine has a free slot; `hand` are the runs in hand by stage."""
        running: Counter[str] = Counter()
        for stage, count in hand.items():
            if stage in self.stages:
                running[self.stages[stage].engine] += count
        found = (stage for stage in stages if stage in self.stages)
        return tuple(stage for stage in found if running[(e := self.stages[stage].engine)] < self.slots_of(e))

    @property
    def patience_s(self) -> float:
        """How long it leaves work to primary machines with free slots."""
        return self.joins_after_s if self.role == "spare" else 0.0
