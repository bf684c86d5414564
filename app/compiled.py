"""Templates compiled once for each language: the texts that need nothing stand in them as they are shown."""

from __future__ import annotations

from collections.abc import MutableMapping
from gettext import NullTranslations
from typing import Any

from flask import Flask
from flask.templating import Environment
from jinja2 import Template, nodes
from jinja2.visitor import NodeTransformer

from app.language import ENGLISH, catalogue_of, current

SAYS = ("_", "gettext")
"""How a template asks for a text."""


class Compiled(Environment):
    """Gives each request the templates of its reader's language."""

    catalogue: NullTranslations | None = None
    """Of the one language whose templates this is; nothing: of all."""

    def __init__(self, app: Flask, **options: Any) -> None:
        super().__init__(app, **options)
        self._each: dict[str, Compiled] = {}

    def get_template(
        self, name: str | Template, parent: str | None = None, globals: MutableMapping[str, Any] | None = None
    ) -> Template:
        """The template as it was compiled for this language."""
        if self.catalogue is None:
            return self._of(current()).get_template(name, parent, globals)
        return super().get_template(name, parent, globals)

    def _of(self, language: str) -> Compiled:
        found = self._each.get(language)
        if found is None:
            found = self.overlay()
            found.catalogue = catalogue_of(language)
            if language != ENGLISH:
                found.bytecode_cache = None  # which does not know of languages
            found = self._each.setdefault(language, found)
        return found

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        read = super()._parse(source, name, filename)
        if self.catalogue is not None:
            Texts(self.catalogue).visit(read)
        return read


class Texts(NodeTransformer):
    """Puts a text itself where a template asks for it with nothing to fill in."""

    def __init__(self, catalogue: NullTranslations) -> None:
        self._catalogue = catalogue

    def visit_Call(self, node: nodes.Call) -> nodes.Node:
        """`_("Home")` becomes what is shown; everything else stays."""
        self.generic_visit(node)
        asked = isinstance(node.node, nodes.Name) and node.node.name in SAYS
        if not asked or len(node.args) != 1 or node.kwargs or node.dyn_args or node.dyn_kwargs:
            return node
        text = node.args[0].value if isinstance(node.args[0], nodes.Const) else None
        if not isinstance(text, str):
            return node
        return nodes.TemplateData(self._catalogue.gettext(text) % {}, lineno=node.lineno)
