"""The reading side's models: loaded in this process, found by the fingerprint of their weights."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from grading.domain.errors import EngineError
from workers.machine.engines.mlx.counters import Tally
from workers.machine.engines.mlx.decode_loop import Shape
from workers.machine.engines.mlx.model import LoadedModel, load_model, model_digest
from workers.machine.engines.mlx.prefix_caches import Prefixes, default_bytes
from workers.machine.engines.mlx.runner import Runner
from workers.machine.engines.remote_prefill.cache_layout import Layout, layout_of
from workers.machine.engines.remote_prefill.client import quietly, settled
from workers.machine.engines.remote_prefill.errors import PeerRefused, TransferError, WeightsDiffer
from workers.machine.engines.remote_prefill.prefill import Prompt, Reading

CLOSE_SECONDS = 30.0


class Reader:
    """Reads prompts with the models of these names. Thread-safe.

    `step` is how many tokens are read in one pass, of all prompts together; `cache_gb` what the prefixes of
    classes may take. All models are loaded by `load`, and stay.
    """

    def __init__(self, models: Sequence[str], *, step: int = 1024, cache_gb: float | None = None) -> None:
        self._names = tuple(models)
        self._step = step
        most = default_bytes() if cache_gb is None else int(cache_gb * 1e9)
        self._prefixes = Prefixes(most)
        self._runner = Runner(Shape(prefill_step=step), self._prefixes, Tally())
        self._loaded: dict[str, tuple[LoadedModel, Reading, Layout]] = {}
        self._turning = False
        self._lock = threading.Lock()

    def load(self) -> list[str]:
        """Load all models now; gives their fingerprints. Raises ModelMissing or NotTransferable."""
        for name in self._names:
            digest = model_digest(name)
            loaded = self._runner.load(lambda name=name: load_model(name, None)).result()  # type: ignore[misc]
            layout = self._layout(loaded)
            self._loaded[digest] = (loaded, Reading(loaded, layout, self._prefixes, self._step), layout)
        return list(self._loaded)

    def find(self, fingerprint: str) -> tuple[LoadedModel, Layout]:
        """The model with these weights. Raises WeightsDiffer."""
        try:
            loaded, _, layout = self._loaded[fingerprint]
        except KeyError:
            raise WeightsDiffer(
                f"No model here has the weights {fingerprint[:19]}…; this machine reads for "
                f"{', '.join(self._names) or 'none'}. Both sides need the same files: another precision or "
                "quantisation is another model. Name the writing machine's model in [machines.prefill], or "
                "copy its files there."
            ) from None
        return loaded, layout

    def submit(self, fingerprint: str, prompt: Prompt) -> None:
        """Take a prompt; `prompt.done` tells its end."""
        self.find(fingerprint)
        try:
            self._runner.call(lambda: self._take(fingerprint, prompt))
        except EngineError as error:
            raise PeerRefused("This machine stops reading.") from error

    def close(self) -> None:
        """End the thread; prompts that are being read fail."""
        self._runner.close(CLOSE_SECONDS)
        for _, reading, _ in self._loaded.values():
            reading.fail(PeerRefused("This machine stops reading."))

    def _layout(self, loaded: LoadedModel) -> Layout:
        found: Layout = settled(self._runner.call(quietly(lambda: layout_of(loaded.model))))
        return found

    def _take(self, fingerprint: str, prompt: Prompt) -> None:
        self._loaded[fingerprint][1].add(prompt)
        if not self._turning:
            self._turning = True
            self._runner.call(self._turn)  # after those that came with it: they are read together

    def _turn(self) -> None:
        """One round of each model; others may have the thread between it and the next."""
        readings = [reading for _, reading, _ in self._loaded.values() if reading.busy]
        for reading in readings:
            try:
                reading.round()
            except Exception as error:  # noqa: BLE001 - whatever mlx raises, the thread must outlive it
                said = f"{type(error).__name__}: {str(error)[:300]}"
                reading.fail(TransferError(f"mlx failed: {said}"))
        self._turning = any(reading.busy for reading in readings)
        if self._turning:
            try:
                self._runner.call(self._turn)
            except EngineError:
                self._turning = False
