"""The test platform's few pages."""

_HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>A learning platform to try with</title>
<style>body{font:16px system-ui;max-width:70rem;margin:2rem auto;padding:0 1rem}
iframe{width:100%;height:45rem;border:1px solid #888}td,th{padding:.2rem .8rem;text-align:left}</style>
<p><a href="/">{{ world.title }}</a> · <a href="/gradebook">Gradebook</a></p>"""

HOME = (
    _HEAD
    + """<h1>{{ world.title }}</h1>
<p>A learning platform to try with. Choose who you are and what you open; Grader appears in a frame.</p>
{% for person in world.people.values() %}<h2>{{ person.name }} ({{ person.role }})</h2><ul>
{% for link in world.links.values() %}
<li><a href="{{ url_for('opened', person=person.id, link=link.id) }}">{{ link.title }}</a></li>{% endfor %}
{% if person.role == "Instructor" %}
<li><a href="{{ url_for('opened', person=person.id) }}">Place a new link …</a></li>{% endif %}
</ul>{% endfor %}</html>"""
)

OPEN = _HEAD + """<iframe name="tool" title="Grader" src="{{ start }}"></iframe></html>"""

PLACED = (
    _HEAD
    + """<p>Placed. These links are in the course now:</p><ul>
{% for link in world.links.values() %}<li>{{ link.title }}</li>{% endfor %}</ul></html>"""
)

GRADEBOOK = (
    _HEAD
    + """<h1>Gradebook</h1><table>
<tr><th>Person</th>{% for item in world.items.values() %}
<th>{{ item.label }} ({{ "%g"|format(item.most) }})</th>{% endfor %}</tr>
{% for person in world.people.values() if person.role == "Learner" %}<tr><th>{{ person.name }}</th>
{% for item in world.items.values() %}{% set score = item.scores.get(person.id) %}
<td data-cell="{{ person.id }}-{{ item.id }}">
{%- if score %}{{ "%g"|format(score.scoreGiven / score.scoreMaximum * item.most) }}
<small>{{ score.comment }}</small>{% else %}–{% endif %}</td>{% endfor %}</tr>{% endfor %}</table>
{% if not world.items %}
<p>No column yet: Grader makes one with the first released grade, or when a link is placed.</p>{% endif %}
</html>"""
)

POST = """<!doctype html><meta charset="utf-8"><title>To the tool</title>
<form method="post" action="{{ url }}" id="f">{% for name, value in fields.items() %}
<input type="hidden" name="{{ name }}" value="{{ value }}">{% endfor %}<button>Go on</button></form>
<script>document.getElementById("f").submit()</script>"""
