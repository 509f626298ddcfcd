#!/usr/bin/env python3
"""Makes chat.json: conversations in the form of transformers' chat templates, and the ids of Hugging Face tokenizers.

    make_chat_golden.py        (made with transformers 4.51.3, tokenizers 0.21.4)

The templates are written here like those in model folders. The expressions that write a turn are the same; other parts (tools,
checks) are left out. The tokenizers are spm/tokenizer.json and models/tiny/tokenizer.json, with the marks of
the templates as added special tokens.
"""
import json
import pathlib

from tokenizers import AddedToken, Tokenizer
from transformers.utils.chat_template_utils import _compile_jinja_template

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
MARKS = ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|im_start|>", "<|im_end|>", "<start_of_turn>",
         "<end_of_turn>"]
DATE = "21 Nov 2026"

LLAMA31 = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{#- The system message goes first. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
QWEN = """{%- if messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nYou are a model, isn\\'t it? You are a helpful assistant.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant") %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
MISTRAL_HEAD = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
"""
MISTRAL_TAIL = """    {%- endif %}
{%- endfor %}
"""


def mistral(where, opening, closing, answer):
    return (MISTRAL_HEAD + '        {%- if loop.' + where + ' and system_message is defined %}\n'
            '            {{- "' + opening + '" + system_message + "\\n\\n" + message["content"] + "' + closing + '" }}\n'
            '        {%- else %}\n            {{- "' + opening + '" + message["content"] + "' + closing + '" }}\n        {%- endif %}\n'
            '    {%- elif message["role"] == "assistant" %}\n        {{- ' + answer + '}}\n' + MISTRAL_TAIL)


TEMPLATES = {
    "llama2": "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}"
              "{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
              "{% if loop.index0 == 0 and system_message != false %}"
              "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}"
              "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
              "{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
    "llama3": "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + "
              "'<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}"
              "{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    "llama3.1": LLAMA31,
    "llama3.2": LLAMA31.replace('{%- set date_string = "26 Jul 2024" %}',
                                '{%- if strftime_now is defined %}{%- set date_string = strftime_now("%d %b %Y") %}'
                                '{%- else %}{%- set date_string = "26 Jul 2024" %}{%- endif %}'),
    # Written as tools for fine-tuning do: the month has another spelling, and nothing is trimmed.
    "llama3.1, July": LLAMA31.replace("26 Jul 2024", "26 July 2024").replace("|trim", "").replace(" | trim", ""),
    "llama3.1, default": LLAMA31.replace('"26 Jul 2024"', "'1 December 2025'").replace('system_message = ""', 'system_message = "You tell tales, don\'t you?"'),
    "chatml": CHATML,
    "chatml, default": "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
                       "{{ '<|im_start|>system\nYou are a helpful AI assistant named Keel<|im_end|>\n' }}{% endif %}" + CHATML[len("{% for message in messages %}"):],
    "chatml, qwen": QWEN,
    "chatml, bos": "{{bos_token}}" + CHATML,
    "mistral-v1": mistral("first", " [INST] ", " [/INST]", '" " + message["content"] + eos_token'),
    "mistral-v3": mistral("last", "[INST] ", "[/INST]", '" " + message["content"]|trim + eos_token'),
    "mistral-tekken": mistral("last", "[INST]", "[/INST]", 'message["content"] + eos_token'),
    "mistral": "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
               "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token + ' ' }}{% endif %}{% endfor %}",
    "zephyr": "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + eos_token }}\n"
              "{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n"
              "{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n"
              "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
    "gemma": "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}"
             "{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}"
             "{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}",
    "gemma, third": """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else "") }}
    {{ message['content'] | trim }}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\n'}}
{%- endif -%}
""".replace("    {{ message", "    {{- message").replace("    {{ '<end", "    {{- '<end"),
}
KNOWN = {"llama2", "llama3", "llama3.1", "llama3.2", "mistral-v1", "mistral-v3", "mistral-tekken", "mistral", "zephyr", "gemma", "chatml"}


def chat(*contents, system=None):
    out = [] if system is None else [{"role": "system", "content": system}]
    return out + [{"role": ("user", "assistant")[i % 2], "content": c} for i, c in enumerate(contents)]


CONVERSATIONS = {
    "one": chat("Who are you?"),
    "system": chat("Tell me of the old king.", system="You tell tales.\nShort ones."),
    "turns": chat("Hello", "Hi there", "And the wolf's name?", "It is Grey.", "Thanks, 日本語 too? 👍🏽", system="Be kind."),
    "spaces": chat("  two lines\n\n  of text \n", "\n Yes:\n\n- one\n- two  ", "\t1 + 1 = ?"),
    "ended": chat("Bye", "Farewell."),
}
# Some families write the system prompt again before the last question, or have no system prompt.
# Keel differs from them.
LEFT_OUT = {("mistral-v3", "turns"), ("mistral-tekken", "turns"), ("mistral", "turns"), ("mistral", "system"), ("gemma", "turns"),
            ("gemma", "system")}


def tokenizer(path, bos, eos):
    t = Tokenizer.from_file(str(path))
    t.add_special_tokens([AddedToken(m, normalized=False, special=True) for m in MARKS])
    return t, bos, eos


def main():
    readers = {"spm": tokenizer(HERE / "spm/tokenizer.json", "<s>", "</s>"),
               "bytes": tokenizer(ROOT / "models/tiny/tokenizer.json", "<|begin_of_text|>", "<|end_of_text|>")}
    out = {"marks": MARKS, "date": DATE, "conversations": CONVERSATIONS, "templates": {}}
    for label, jinja in TEMPLATES.items():
        compiled = _compile_jinja_template(jinja)
        cases = {}
        for name, messages in CONVERSATIONS.items():
            if (label, name) in LEFT_OUT:
                continue
            cases[name] = {}
            for kind, (reader, bos, eos) in readers.items():
                date = {"date_string": DATE} if label == "llama3.2" else {}
                text = compiled.render(messages=messages, bos_token=bos, eos_token=eos,
                                       add_generation_prompt=messages[-1]["role"] == "user", **date)
                cases[name][kind] = reader.encode(text, add_special_tokens=False).ids
                if kind == "spm":
                    cases[name]["text"] = text
        out["templates"][label] = {"jinja": jinja, "name": label.split(",")[0], "cases": cases}
        assert out["templates"][label]["name"] in KNOWN
    (HERE / "chat.json").write_text(json.dumps(out, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


if __name__ == "__main__":
    main()
