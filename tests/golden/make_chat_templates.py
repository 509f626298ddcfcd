#!/usr/bin/env python3
"""Makes chat_templates.json: templates of our own, with the text that transformers renders from them.

    make_chat_templates.py        (made with transformers 5.2, jinja2 3.1)

SNIPPETS are short templates that use one construct each. TEMPLATES are chat templates in the style of published ones; they
render the conversations of chat_conversations.py. If transformers refuses a rendering, the file has null.
"""
import json
import pathlib

from transformers.utils.chat_template_utils import _compile_jinja_template

from chat_conversations import CONVERSATIONS

HERE = pathlib.Path(__file__).resolve().parent
MARKS = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}
VARIABLES = {
    "n": 7, "x": 2.5, "yes": True, "no": False, "nothing": None, "empty": "", "word": "hello World", "text": "  a b\tc \n",
    "list": [3, 1, 2], "words": ["pear", "Apple", "fig"], "nested": [[1, [2, 3]], {"a": [None, True]}],
    "dict": {"b": 1, "a": {"c": "d"}, "items": 5}, "rows": [{"k": "x", "v": 2}, {"k": "y", "v": 1}, {"k": "x", "v": None}],
    "uni": "naïve ßtraße 日本語 👍", "quotes": "it's \"so\"\\ \n", "lines": "one\ntwo\n\nthree",
}

SNIPPETS = [
    # printing
    "{{ n }} {{ x }} {{ yes }} {{ no }} {{ nothing }} [{{ empty }}] {{ word }} [{{ missing }}]",
    "{{ list }} {{ words }} {{ nested }} {{ dict }} {{ (1, 'a') }} {{ (1,) }} {{ () }} {{ [] }} {{ {} }}",
    "{{ quotes }} {{ [quotes] }} {{ ['a\\'b'] }} {{ [uni] }} {{ ['\\x07\\u00e9\\n'] }}",
    "{{ 1.0 }} {{ 1e16 }} {{ 1e15 }} {{ 1.5e-5 }} {{ 0.0001 }} {{ 0.1 + 0.2 }} {{ 1e300 * 10 }} {{ -0.0 }} {{ 100000.0 }}",
    "{{ 'a' 'b' \"c\" }} {{ 'tab\\there' }} {{ '\\x41\\u00e9\\101\\q' }}",
    # arithmetic
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}",
    "{{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ -n }} {{ +n }} {{ 2 ** 3 ** 2 }} {{ yes + yes }} {{ 1_000 }}",
    "{{ 'ab' * 3 }} {{ 2 * 'x' }} {{ [1] * 2 }} {{ [1] + [2] }} {{ (1,) + (2,) }} {{ 'a' + 'b' ~ 1 ~ none ~ [2] }} {{ 'a' * -1 }}",
    "{{ '%s and %d and %.2f and %r and %%' % ('x', 3, 1.005, 'q') }} {{ '%s' % 5 }} {{ '%x' % 255 }}",
    "{{ '{}-{}'.format(1, 'a') }} {{ '{a}{{}}'.format(a=2) }}",
    # logic
    "{{ 1 and 2 }} {{ 0 or 'x' }} {{ not 1 }} {{ not not 'a' }} {{ none or false }} {{ '' and 1 }} {{ yes and not no }}",
    "{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 'a' != 'b' }} {{ none == none }}",
    "{{ 1 in list }} {{ 9 not in list }} {{ 'ell' in word }} {{ 'a' in dict }} {{ 'z' in dict }} {{ 1 in (1, 2) }} {{ 'x' in missing }} {{ not 1 in list }}",
    "{{ 'a' if yes else 'b' }} {{ 'a' if no }}| {{ 1 if no else 2 if no else 3 }} {{ ('a' if no) is defined }}",
    # access
    "{{ dict.b }} {{ dict['a']['c'] }} {{ dict.a.c }} {{ dict['items'] }} {{ dict.missing is defined }} {{ list[0] }} {{ list[-1] }} {{ list[9] is undefined }}",
    "{{ word[0] }} {{ word[-1] }} {{ word[1:4] }} {{ word[::-1] }} {{ word[::2] }} {{ word[-3:] }} {{ word[:-3] }} {{ word[99:] }}| {{ uni[6:8] }} {{ uni[-1] }}",
    "{{ list[1:] }} {{ list[:-1] }} {{ list[::-1] }} {{ list[5:1:-2] }} {{ (1, 2, 3)[1:] }} {{ list[-99:99] }} {{ list[2:0] }}",
    "{{ rows.0.k }} {{ rows[1].v }} {{ nothing.a is defined }} {{ n.a is defined }} {{ word.a is defined }}",
    # loops
    "{% for i in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {{ i }};{% endfor %}",
    "{% for i in list %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {{ loop.cycle('a', 'b') }} {% endfor %}",
    "{% for i in [] %}x{% else %}none{% endfor %} {% for i in list if i > 1 %}{{ i }}/{{ loop.length }} {% else %}no{% endfor %}{% for i in list if i > 9 %}x{% else %}no{% endfor %}",
    "{% for k, v in dict.items() %}{{ k }}={{ v }} {% endfor %}{% for k in dict %}{{ k }} {% endfor %}{% for c in 'äb' %}[{{ c }}]{% endfor %}{% for k, v in dict|items %}{{ k }}{% endfor %}",
    "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i > 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% set a = 1 %}{% for i in list %}{% set a = a + i %}{{ a }} {% endfor %}{{ a }}",
    "{% set ns = namespace(a=1, b='x') %}{% for i in list %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }}",
    "{% for a in [1, 2] %}{% for b in 'xy' %}{{ loop.index }}{{ b }}{{ loop.depth }} {% endfor %}{{ loop.index }} {% endfor %}",
    "{% for i in range(3) %}{{ i }}{% endfor %} {{ range(2, 8, 3)|list }} {{ range(5, 0, -2)|list }} {% for (a, b) in [(1, 2), [3, 4]] %}{{ a }}{{ b }}{% endfor %}",
    "{% for i in missing %}x{% else %}empty{% endfor %}{% if missing %}a{% elif nothing %}b{% else %}c{% endif %}",
    "{% for i in [1, 2] %}{% if loop.first %}{% set z = 5 %}{% endif %}{{ z }}|{% endfor %}",
    # set, macros, blocks
    "{% set a, b = 1, 'x' %}{{ a }}{{ b }}{% set c %}block {{ a }}{% endset %}{{ c }}{% set d | upper | trim %} low {% endset %}{{ d }}",
    "{% macro m(a, b='B', c=none) %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 2) }} {{ m(1, c=3) }} {{ m(b=1, a=2) }} {{ m() }}",
    "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro v(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ v(1, 2, 3, z=4) }}",
    "{% macro b(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call b('x') %}inner {{ n }}{% endcall %}",
    "{% macro l(items) %}{% for i in items %}{{ caller(i) }}{% endfor %}{% endmacro %}{% call(i) l([1, 2]) %}({{ i }}){% endcall %}",
    "{% macro m() %}{{ later }}{% endmacro %}{% set later = 'L' %}{{ m() }} {% set t = m() %}{{ t|length }}",
    "{% filter upper %}abc {{ word }}{% endfilter %} {% filter replace('a', 'b')|trim %} aa {% endfilter %}",
    "{% with a = 1, b = 2 %}{{ a + b }}{% set n = 9 %}{{ n }}{% endwith %}{{ n }} {% generation %}inside {{ n }}{% endgeneration %}",
    "{% if n == 7 and (x > 2 or no) %}yes{% endif %}{% if not yes %}a{% elif n < 3 %}b{% elif n > 3 %}c{% else %}d{% endif %}",
    "{% raw %}{{ not {% run %} }}{% endraw %}{# a comment #}{{ '{{' }}",
    "{% set j = joiner(', ') %}{% for i in list %}{{ j() }}{{ i }}{% endfor %}{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}",
    "{{ {'a': 1, 2: 'b', none: true}[2] }} {{ {'a': 1}.get('b') }} {{ {'a': 1}.get('b', 3) }} {{ {'a': 1}.keys()|list }} {{ {'a': 1}.values()|list }}",
    # white space
    "a\n  {% if yes %}\n  b\n  {% endif %}\nc\n", "a\n  {%- if yes -%}\n  b\n  {%- endif -%}\nc", "a  {{- n -}}  b {{ n }} \n c",
    "  {# c #}\n  x\n\t{%+ if yes %}y{% endif +%}\nz\n\n", "{% for i in list %}\n{{ i }}\n{% endfor %}\n", "a {% if yes %} b {% endif %} c\r\nd\re",
    "x\n\n   {%- set a = 1 %}\n\n{{ a }}\n   {#- gone -#}\n y", "{% if yes -%}   \n  z{%- endif %}\n",
    "a\n  {% raw -%}  \n{{ r }}\n  {%- endraw %}\n  b", "{{ '}}' }}{{ {'a': {'b': 1}}.a.b }}{{ {'a':1}}}",
    # string methods
    "[{{ text.strip() }}][{{ text.lstrip() }}][{{ text.rstrip() }}][{{ 'xxaxx'.strip('x') }}][{{ 'abcab'.lstrip('ba') }}][{{ 'a.b'.rstrip('.b') }}]",
    "{{ 'a,b,,c'.split(',') }} {{ text.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a b  c d'.split(none, 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ 'a b c'.rsplit(none, 1) }} {{ ''.split(',') }} {{ ''.split() }}",
    "{{ 'a--b'.replace('-', '+') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'abc'.replace('', '.') }} {{ 'äb'.replace('', '-', 2) }}",
    "{{ word.startswith('he') }} {{ word.endswith('d') }} {{ word.startswith(('x', 'h')) }} {{ word.upper() }} {{ word.lower() }} {{ word.title() }} {{ word.capitalize() }}",
    "{{ uni.upper() }} {{ uni.title() }} {{ uni.capitalize() }} {{ \"they're bill's\".title() }} {{ \"they're (bill's) x-y\"|title }}",
    "{{ ','.join(['a', 'b']) }} {{ word.find('o') }} {{ word.find('z') }} {{ word.rfind('o') }} {{ word.count('l') }} {{ word.index('W') }} {{ uni.find('日') }} {{ word.find('o', 5) }}",
    "{{ lines.splitlines() }} {{ 'a\\r\\nb\\n'.splitlines(true) }} {{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('x') }}",
    "{{ '12'.isdigit() }} {{ 'a1'.isalnum() }} {{ 'ab'.isalpha() }} {{ ' '.isspace() }} {{ 'AB'.isupper() }} {{ 'ab1'.islower() }} {{ ''.isdigit() }} {{ 'prefix'.removeprefix('pre') }} {{ 'suffix'.removesuffix('fix') }}",
    # filters
    "[{{ text|trim }}] {{ 'xax'|trim('x') }} {{ list|length }} {{ uni|length }} {{ dict|count }} {{ list|join(', ') }} {{ list|join }} {{ rows|join('-', attribute='k') }} {{ [1, none, 'a']|join('.') }}",
    "{{ missing|default('d') }} {{ nothing|default('d') }} {{ empty|default('d', true) }} {{ missing|d }}| {{ missing|default }}| {{ no|default('x', boolean=true) }}",
    "{{ list|first }} {{ list|last }} {{ 'abc'|first }} {{ 'abc'|last }} {{ []|first is defined }} {{ word|upper }} {{ word|lower }} {{ word|capitalize }} {{ word|title }} {{ word|replace('l', 'L', 1) }}",
    "{{ rows|selectattr('k', 'equalto', 'x')|list|length }} {{ rows|selectattr('v')|map(attribute='v')|list }} {{ rows|rejectattr('v', 'none')|map(attribute='k')|join }} {{ rows|rejectattr('v')|list|length }}",
    "{{ words|map('upper')|list }} {{ [1, 2, 3, 4]|select('odd')|list }} {{ [1, 2, 3, 4]|reject('divisibleby', 2)|list }} {{ [0, 1, '']|select|list }} {{ words|map('replace', 'p', 'b')|join(' ') }} {{ rows|map(attribute='z', default='q')|list }}",
    "{{ none|selectattr('a')|list }} {{ none|map('upper')|list }} {{ [[1, 2], [3]]|map('first')|list }} {{ words|select('in', ['fig'])|list }} {{ rows|map(attribute='k')|unique|list }}",
    "{{ list|sort }} {{ words|sort }} {{ words|sort(case_sensitive=true) }} {{ list|sort(reverse=true) }} {{ rows|sort(attribute='k')|map(attribute='k')|list }} {{ list|reverse|list }} {{ 'abc'|reverse }}",
    "{{ dict|dictsort }} {{ {'B': 1, 'a': 2}|dictsort }} {{ {'x': 2, 'y': 1}|dictsort(by='value') }} {{ {'x': 2, 'y': 1}|dictsort(reverse=true) }} {{ dict|items|list }} {{ 'ab'|list }} {{ dict|list }}",
    "{{ '12'|int }} {{ 'x'|int }} {{ 'x'|int(3) }} {{ 2.9|int }} {{ ' 4 '|int }} {{ '2.7'|int }} {{ 'ff'|int(base=16) }} {{ '1.5'|float }} {{ 'x'|float }} {{ 3|float }} {{ n|string ~ 1 }} {{ nothing|string }}",
    "{{ -3|abs }} {{ (-3)|abs }} {{ -2.5|abs }} {{ 2.567|round(2) }} {{ 2.5|round }} {{ 3.5|round }} {{ 2.1|round(method='ceil') }} {{ 2.9|round(0, 'floor') }} {{ 5|round }} {{ [1, 2]|sum }} {{ rows[:2]|sum(attribute='v') }} {{ [1]|sum(start=5) }}",
    "{{ list|min }} {{ list|max }} {{ words|min }} {{ rows[:2]|max(attribute='v') }} {{ list|batch(2)|list }} {{ list|batch(2, 0)|list }} {{ [1, 1, 2]|unique|list }} {{ ['a', 'A']|unique|list }}",
    "{{ lines|indent }}|{{ lines|indent(2, true) }}|{{ lines|indent(2, blank=true) }}|{{ lines|indent('> ', first=true) }}|{{ word|safe }} {{ '%s-%s'|format('a', 2) }} {{ dict|attr('b') is defined }}",
    "{{ nested|tojson }} {{ dict|tojson }} {{ quotes|tojson }} {{ uni|tojson }} {{ uni|tojson(ensure_ascii=true) }} {{ 1.0|tojson }} {{ nothing|tojson }} {{ (1, 2)|tojson }} {{ '</a>&\\u2028'|tojson }}",
    "{{ nested|tojson(indent=2) }}\n{{ dict|tojson(indent=4) }}\n{{ []|tojson(indent=2) }}{{ {}|tojson(indent=1) }} {{ dict|tojson(separators=(',', ':')) }} {{ dict|tojson(sort_keys=true) }} {{ dict|tojson(indent='\\t') }} {{ {1: 2, none: 3, true: 4}|tojson }}",
    "{{ 'a<'|safe + '<&>' + quotes }} {{ '<' + '<'|safe }} {{ '<' ~ '<'|safe ~ '&' }} {{ ('<'|safe + 'b')|length }}",
    # tests
    "{{ n is defined }} {{ missing is not defined }} {{ nothing is none }} {{ word is string }} {{ dict is mapping }} {{ list is sequence }} {{ dict is sequence }} {{ word is iterable }} {{ n is number }} {{ yes is number }} {{ n is integer }} {{ x is float }} {{ yes is boolean }} {{ yes is integer }}",
    "{{ yes is true }} {{ no is false }} {{ 1 is true }} {{ n is eq 7 }} {{ n is equalto(7) }} {{ n is in [7] }} {{ n is odd }} {{ n is even }} {{ 9 is divisibleby 3 }} {{ n is gt 3 }} {{ n is lt(3) }} {{ n is ne 7 }} {{ n is sameas 7 }} {{ 'A' is upper }} {{ 'a' is lower }} {{ range is callable }}",
    "{{ n is defined and word is not none }} {{ 'a' ~ n is string }} {{ missing is none }} {{ missing is iterable }} {{ missing is sequence }} {{ n is ge 7 }} {{ n is le 7 }} {{ (1, 2) is sequence }} {{ n is iterable }}",
    # values with special rules
    "{{ dict.items is callable }} {{ dict.keys()|list }} {{ dict.get('b') }} {{ list.index(1) }} {{ list.count(3) }} {{ [1, [2]] == [1, [2]] }} {{ {'a': 1} == {'a': 1.0} }} {{ (1, 2) == [1, 2] }}",
    "{{ rows|selectattr('k')|list|length > 0 }} {{ true if rows|selectattr('q') else false }} {{ 'x' if (rows|selectattr('q')|list) else 'y' }} {{ missing|length }} {{ missing|list }} {{ missing|join }}| {{ missing ~ 'a' }} {{ missing == missing2 }}",
    "{{ strftime_now('%%') }} {{ strftime_now is defined }} {{ raise_exception is defined }} {{ loop is defined }} {{ namespace is defined }}",
    # refused
    "{{ raise_exception('no') }}", "{{ missing.a }}", "{{ missing + 1 }}", "{{ 1 + 'a' }}", "{{ 'a' + 1 }}", "{{ 1 // 0 }}", "{{ list.append(1) }}", "{{ dict.update({}) }}",
    "{{ range(1000000) }}", "{{ none|length }}", "{{ missing() }}", "{{ 1 < 'a' }}", "{{ [1, 'a']|sort }}", "{{ missing|tojson }}", "{{ n.foo.bar }}", "{{ word|nope }}", "{{ word is nope }}",
    "{% nope %}", "{{ 1 +", "{% if %}{% endif %}", "{% for %}", "{{ (1 }}", "{{ 'a }}", "{# x", "{% endif %}", "{% if a %}", "{% set 1 = 2 %}", "{% break %}", "{{ f(a=1, 2) }}", "{{ }}", "{% set a.b = 1 %}", "{{ none.x.y }}",
    "{% for a, b in [1] %}{% endfor %}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(z=2) }}", "{{ words|join(attribut='k') }}", "{{ 'abc'.split('') }}", "{{ [1][1:'a'] }}",
]

TEMPLATES = {
    "plain": "{{ bos_token }}{% for message in messages %}{{ '<|' + message['role'] + '|>\n' + message['content'] + eos_token + '\n' }}{% endfor %}"
             "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}",
    "tools": """{%- macro show(schema, level=0) -%}
    {%- if schema.type == "object" -%}
        { {%- for name, part in schema.properties.items() %}{{ "" if loop.first else ", " }}{{ name }}{{ "" if name in schema.get("required", []) else "?" }}: {{ show(part, level + 1) }}{%- endfor %} }
    {%- elif schema.enum is defined -%}
        {{ schema.enum | map("tojson") | join(" | ") }}{% if schema.default is defined %} = {{ schema.default | tojson }}{% endif %}
    {%- elif schema.type == "array" -%}
        {{ show(schema["items"], level + 1) }}[]
    {%- else -%}
        {{ schema.type }}
    {%- endif -%}
{%- endmacro -%}
{%- set ns = namespace(system="You answer.", last=-1) -%}
{%- if messages[0].role in ["system", "developer"] -%}
    {%- set ns.system = messages[0].content -%}
    {%- set messages = messages[1:] -%}
{%- endif -%}
{{- "<|system|>\\n" + ns.system | trim + "\\n" -}}
{%- if tools -%}
    {%- for tool in tools | map(attribute="function") %}
{{ tool.name }} ({{ show(tool.parameters) }}): {{ tool.description | tojson(indent=2) }}
{{ tool | tojson(indent=1) }}
    {%- endfor -%}
{%- endif -%}
{%- for message in messages -%}
    {%- if message.role == "user" -%}{%- set ns.last = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
    {%- if message.content is string -%}
        {%- set content = message.content -%}
    {%- else -%}
        {%- set content = message.content | selectattr("type", "equalto", "text") | map(attribute="text") | join("\\n") -%}
    {%- endif -%}
    {%- if message.role == "assistant" -%}
        {%- set reasoning = message.reasoning_content | default("", true) -%}
        {%- if "</think>" in content -%}
            {%- set reasoning = content.split("</think>")[0].split("<think>")[-1].strip("\\n") -%}
            {%- set content = content.split("</think>")[-1].lstrip("\\n") -%}
        {%- endif -%}
        {{- "<|assistant|>\\n" -}}
        {%- generation -%}
        {%- if reasoning and loop.index0 > ns.last -%}{{- "<think>" ~ reasoning ~ "</think>" -}}{%- endif -%}
        {{- content -}}
        {%- for call in message.tool_calls or [] -%}
            {{- "\\n<call>" ~ ({"name": call.function.name, "arguments": call.function.arguments} | tojson) ~ "</call>" -}}
        {%- endfor -%}
        {{- eos_token ~ "\\n" -}}
        {%- endgeneration -%}
    {%- elif message.role == "tool" -%}
        {%- if loop.previtem.role != "tool" -%}{{- "<|user|>" -}}{%- endif -%}
        {{- "\\n<result>" ~ content ~ "</result>" -}}
        {%- if loop.last or loop.nextitem.role != "tool" -%}{{- eos_token ~ "\\n" -}}{%- endif -%}
    {%- elif message.role == "user" -%}
        {{- "<|user|>\\n" ~ content ~ eos_token ~ "\\n" -}}
    {%- else -%}
        {{- raise_exception("the role " ~ message.role ~ " is not supported here") -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- "<|assistant|>\\n" -}}
    {%- if enable_thinking is defined and enable_thinking is false -%}{{- "<think></think>" -}}{%- endif -%}
{%- endif -%}
""",
    "alternating": """{{ bos_token }}
{%- for message in messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Roles must alternate!') }}
    {%- endif %}
    {%- if message['role'] == 'user' %}
        {{- '[INST] ' + message['content'] | trim + ' [/INST]' }}
    {%- else %}
        {{- ' ' + message['content'] | trim + eos_token }}
    {%- endif %}
{%- endfor %}""",
}


def rendered(template, variables):
    try:
        return _compile_jinja_template(template).render(**variables)
    except Exception:
        return None


def main():
    out = {"marks": MARKS, "variables": VARIABLES, "snippets": [[s, rendered(s, VARIABLES)] for s in SNIPPETS],
           "conversations": CONVERSATIONS, "templates": {}}
    for name, template in TEMPLATES.items():
        cases = {}
        for label, request in CONVERSATIONS.items():
            messages = request["messages"]
            cases[label] = rendered(template, {
                "messages": messages, "tools": request.get("tools"), "documents": request.get("documents"),
                "add_generation_prompt": request.get("add_generation_prompt", messages[-1]["role"] != "assistant"),
                **MARKS, **request.get("chat_template_kwargs", {})})
        out["templates"][name] = {"jinja": template, "cases": cases}
    (HERE / "chat_templates.json").write_text(json.dumps(out, ensure_ascii=False, indent=0), encoding="utf-8")


if __name__ == "__main__":
    main()
