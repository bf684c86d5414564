"""What stages are called on pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from app.web.i18n import gettext as _
from app.web.i18n import later as N_
from grading.domain.stages import STAGES

TITLES = (N_("Technical review"), N_("Personal feedback"))
"""For translators; the rows of the stages have them in English."""


class StageTitles(Mapping[str, str]):
    """stage -> its title, in the reader's language."""

    def __getitem__(self, stage: str) -> str:
        return _(STAGES[stage].title)

    def __iter__(self) -> Iterator[str]:
        return iter(STAGES)

    def __len__(self) -> int:
        return len(STAGES)


def title_of(stage: str) -> str:
    """In the reader's language; a stage without a row is called by its name."""
    return StageTitles().get(stage, stage.capitalize())
