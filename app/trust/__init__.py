"""Pages on how far an assignment's grades can be trusted, for staff: one tab with a navigation of its own.

Each part has a module with its blueprint here, and an entry of Menu.TRUST below; they know nothing of each
other.
"""

from __future__ import annotations

from app.trust import confidence, guarantee, model_trials, parity, questions, second_opinions, stress_tests
from app.web.i18n import later as N_
from app.web.menus import Menu, NavigationEntry

blueprints = (
    guarantee.pages, confidence.pages, second_opinions.pages, questions.pages, stress_tests.pages,
    model_trials.pages, parity.pages,
)  # fmt: skip
navigation = (
    NavigationEntry(
        Menu.ASSIGNMENT, 32, "guarantee.show", N_("Trust"), "trust.see", leads_to=(Menu.TRUST,),
    ),
    NavigationEntry(
        Menu.TRUST, 10, "guarantee.show", N_("Release"), "trust.see", below=("guarantee", "sample_marking"),
    ),
    NavigationEntry(
        Menu.TRUST, 20, "confidence.show", N_("Confidence"), "trust.see", below=("confidence",),
    ),
    NavigationEntry(
        Menu.TRUST, 30, "second_opinions.show", N_("Second opinions"), "trust.see",
        below=("second_opinions",),
    ),
    NavigationEntry(
        Menu.TRUST, 60, "stress_tests.show", N_("Stress test"), "trust.see", below=("stress_tests",),
    ),
    NavigationEntry(Menu.TRUST, 40, "questions.listing", N_("Questions"), "trust.see", below=("questions",)),
    NavigationEntry(
        Menu.TRUST, 50, "model_trials.listing", N_("New model"), "trust.see", below=("model_trials",),
    ),
    NavigationEntry(Menu.TRUST, 70, "parity.show", N_("Machines"), "trust.see", below=("parity",)),
)  # fmt: skip
