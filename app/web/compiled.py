"""Templates compiled once for each language: texts stand in them as they are shown, cut where values come."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, MutableMapping
from contextvars import ContextVar
from gettext import NullTranslations
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import markupsafe
from flask import Flask
from flask.templating import Environment
from jinja2 import Template, nodes, pass_eval_context
from jinja2.compiler import CodeGenerator, Frame
from jinja2.environment import TemplateModule
from jinja2.runtime import Context, Macro
from jinja2.visitor import NodeTransformer
from markupsafe import Markup, escape

from app.web.i18n import ENGLISH, catalogue_of, current

SAYS = ("_", "gettext")
"""How a template asks for a text."""
VALUE = re.compile(r"%\((\w+)\)s")
PLAIN = (FunctionType, MethodType, BuiltinFunctionType)
"""What is called as it is, unless it is marked to be given the context."""
ESCAPED: Callable[[str], str] = getattr(markupsafe, "_escape_inner", escape)
"""Escapes a text; without an object around it where that can be had."""
EVALUATED = pass_eval_context(lambda _: None).jinja_pass_arg  # type: ignore[attr-defined]  # put there by it
"""The mark of what is given how texts are escaped."""


class Calls(Context):
    """Calls a function or macro at once, where Jinja looks three times at what it wants to be given."""

    def call(
        self, asked: Any, /, *args: Any, _loop_vars: Any = None, _block_vars: Any = None, **values: Any
    ) -> Any:
        """As Jinja's."""
        if isinstance(asked, PLAIN):
            wants = getattr(asked, "jinja_pass_arg", None)
            if wants is None:
                return asked(*args, **values)
            if wants is EVALUATED:
                return asked(self.eval_ctx, *args, **values)
        if isinstance(asked, Macro):
            return asked(self.eval_ctx, *args, **values)
        return super().call(asked, *args, _loop_vars=_loop_vars, _block_vars=_block_vars, **values)


def shown(value: Any) -> str:
    """What a page says for a value. Pieces are joined at once, so none needs to be marked as safe."""
    kind = type(value)
    if kind is Markup:
        return value  # type: ignore[no-any-return]  # a text that is safe
    return ESCAPED(value) if kind is str else escape(value)


_open: ContextVar[list[Context] | None] = ContextVar("contexts of what is being rendered", default=None)


class Page(Template):
    """A template that lets go of what it was given.

    Macros know the variables they came from, and these know the macros. Without help each page, with all
    that it shows, would stay until the collector of cycles stops everything to look for it.
    """

    def render(self, *args: Any, **values: Any) -> str:
        """As Jinja's."""
        made: list[Context] = []
        before = _open.set(made)
        try:
            return super().render(*args, **values)
        finally:
            _open.reset(before)
            for one in made:
                one.vars.clear()

    def new_context(self, *args: Any, **values: Any) -> Context:
        """As Jinja's."""
        made, known = super().new_context(*args, **values), _open.get()
        if known is not None:
            known.append(made)
        return made

    def _get_default_module(self, ctx: Context | None = None) -> TemplateModule:
        before = _open.set(None)  # it stays, for all who import it
        try:
            return super()._get_default_module(ctx)
        finally:
            _open.reset(before)


class Writer(CodeGenerator):
    """Writes templates that ask `shown`, not Jinja's `escape`, which makes an object of each piece."""

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: Any) -> None:
        if frame.eval_ctx.volatile or not frame.eval_ctx.autoescape or finalize.src is not None:
            super()._output_child_pre(node, frame, finalize)
        else:
            self.write("environment.shown(")


class Compiled(Environment):
    """Gives each request the templates of its reader's language."""

    context_class = Calls
    code_generator_class = Writer
    template_class = Page
    shown = staticmethod(shown)
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

    def make_globals(self, d: MutableMapping[str, Any] | None) -> MutableMapping[str, Any]:
        """Those of the environment itself: each context copies them, which takes long from a chain."""
        return super().make_globals(d) if d else self.globals

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
        text = None if node.kwargs else self._text(node)
        return node if text is None else nodes.TemplateData(text % {}, lineno=node.lineno)

    def visit_Output(self, node: nodes.Output) -> nodes.Node:
        """`{{ _("Hand-in %(number)s", number=n) }}` becomes what `Hand-in {{ n }}` is."""
        self.generic_visit(node)
        node.nodes = [part for one in node.nodes for part in self._parts(one)]
        return node

    def _parts(self, shown: nodes.Expr) -> Iterator[nodes.Expr]:
        text = self._text(shown) if isinstance(shown, nodes.Call) else None
        pieces = VALUE.split(text or "")
        given = {one.key: one.value for one in shown.kwargs} if isinstance(shown, nodes.Call) else {}
        rest = "".join(pieces[::2]).replace("%%", "")
        if text is None or "%" in rest or not given.keys() >= set(pieces[1::2]):
            yield shown  # no text, or one with other signs in it
            return
        for place, piece in enumerate(pieces):
            yield given[piece] if place % 2 else nodes.TemplateData(piece % {}, lineno=shown.lineno)

    def _text(self, node: nodes.Call) -> str | None:
        """The translation that a call asks for; nothing where it is another call, or of something else."""
        asked = isinstance(node.node, nodes.Name) and node.node.name in SAYS
        if not asked or len(node.args) != 1 or node.dyn_args or node.dyn_kwargs:
            return None
        text = node.args[0].value if isinstance(node.args[0], nodes.Const) else None
        return self._catalogue.gettext(text) if isinstance(text, str) else None
