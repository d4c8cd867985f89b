# ruff: noqa: E501
"""Chat templates with tools in the styles of four families, and the tests' small tokenizer with their tokens."""

from functools import cache
from typing import Any, NamedTuple

from transformers import AutoTokenizer

from seal.system.paths import HOME

_CHATML = """\
{%- macro turn(role, text) %}{{ '<|im_start|>' + role + '\\n' + text + '<|im_end|>\\n' }}{% endmacro %}
{%- set system = messages[0].content if messages[0].role == 'system' else 'You are helpful.' %}
{%- if tools %}{% set listed %}HEAD{% endset %}{{- turn('system', system + '\\n\\n' + listed) }}
{%- else %}{{- turn('system', system) }}{% endif %}
{%- set last = namespace(user=-1) %}
{%- for message in messages %}{% if message.role == 'user' %}{% set last.user = loop.index0 %}{% endif %}{% endfor %}
{%- for message in messages %}
{%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}{{- turn(message.role, message.content) }}
{%- elif message.role == 'assistant' %}
{%- set content = message.content or '' %}
{%- if DROPS and '</think>' in content and loop.index0 < last.user %}
{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}
{{- '<|im_start|>assistant\\n' + content }}
{%- for call in message.tool_calls or [] %}
{%- if not loop.first or content %}{{- '\\n' }}{% endif %}
{%- set call = call.function %}CALL{% endfor %}
{{- '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{% endif %}
{{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{% endif %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""

_JSON_HEAD = "<tools>{% for tool in tools %}{{ '\\n' + tool | tojson }}{% endfor %}\n</tools>"
_JSON_CALL = """\
{{- '<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}{{- call.arguments | tojson }}{{- '}\\n</tool_call>' }}"""
_TAGGED_HEAD = """\
<tools>{% for tool in tools %}{{ '\\n<function>\\n<name>' + tool.function.name + '</name>\\n<description>'
 + tool.function.description + '</description>' }}
{%- for name, child in tool.function.parameters.properties | items %}
{{- '\\n<parameter><name>' + name + '</name><type>' + child.type + '</type></parameter>' }}{% endfor %}
{{- '\\n</function>' }}{% endfor %}
</tools>"""
_TAGGED_CALL = """\
{{- '<tool_call>\\n<function=' + call.name + '>\\n' }}
{%- for name, value in call.arguments | items %}
{%- set value = value if value is string else value | string if value is boolean or value is number else value | tojson %}
{{- '<parameter=' + name + '>\\n' + value + '\\n</parameter>\\n' }}{% endfor %}
{{- '</function>\\n</tool_call>' }}"""
_GLM = """\
{{- '<|system|>\\n' }}{% for tool in tools or [] %}{{- tool | tojson + '\\n' }}{% endfor %}
{%- for message in messages %}
{%- if message.role in ['system', 'user'] %}{{- '<|' + message.role + '|>\\n' + message.content }}
{%- elif message.role == 'assistant' %}{{- '<|assistant|>\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}{% set call = call.function %}
{{- '\\n<tool_call>' + call.name }}
{%- for name, value in call.arguments | items %}
{{- '\\n<arg_key>' + name + '</arg_key>\\n<arg_value>' + (value if value is string else value | tojson) + '</arg_value>' }}
{%- endfor %}{{- '\\n</tool_call>' }}{% endfor %}
{%- elif message.role == 'tool' %}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|observation|>' }}{% endif %}
{{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
{%- endif %}{% endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>\\n' }}{% endif %}"""
_HARMONY = """\
{{- '<|start|>system<|message|>You are helpful.<|end|>' }}
{%- if tools %}{{- '<|start|>developer<|message|>' }}{% for tool in tools %}{{- tool | tojson + '\\n' }}{% endfor %}{{- '<|end|>' }}
{%- endif %}
{%- set last = namespace(name='') %}
{%- for message in messages %}
{%- if message.role == 'user' %}{{- '<|start|>user<|message|>' + message.content + '<|end|>' }}
{%- elif message.role == 'system' %}{{- '<|start|>developer<|message|>' + message.content + '<|end|>' }}
{%- elif message.role == 'assistant' and message.tool_calls %}
{%- set call = message.tool_calls[0].function %}{% set last.name = call.name %}
{{- '<|start|>assistant to=functions.' + call.name + '<|channel|>commentary json<|message|>' }}
{{- call.arguments | tojson + '<|call|>' }}
{%- elif message.role == 'assistant' %}
{%- if '<|channel|>' in message.content %}{{- raise_exception('channels in the content') }}{% endif %}
{{- '<|start|>assistant<|channel|>final<|message|>' + message.content + '<|end|>' }}
{%- elif message.role == 'tool' %}
{%- if not last.name %}{{- raise_exception('no call before a tool') }}{% endif %}
{{- '<|start|>functions.' + last.name + ' to=assistant<|channel|>commentary<|message|>' + message.content | tojson + '<|end|>' }}
{%- endif %}{% endfor %}
{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{% endif %}"""

_GEMMA = """\
{%- macro written(value) %}{% if value is string %}{{- '<|"|>' + value + '<|"|>' }}
{%- elif value is mapping %}{{- '{' }}{% for name, one in value | dictsort %}{{- name + ':' + written(one) + (',' if not loop.last else '') }}{% endfor %}{{- '}' }}
{%- elif value is sequence %}{{- '[' }}{% for one in value %}{{- written(one) + (',' if not loop.last else '') }}{% endfor %}{{- ']' }}
{%- else %}{{- value | tojson }}{% endif %}{% endmacro %}
{{- '<|turn>system\\n' }}{% if messages[0].role == 'system' %}{{- messages[0].content }}{% endif %}
{%- for tool in tools or [] %}{{- '<|tool>' + tool | tojson + '<tool|>' }}{% endfor %}{{- '<turn|>\\n' }}
{%- set here = namespace(turn='', answered=false) %}
{%- for message in messages %}
{%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}{% set here.turn = message.role %}
{{- '<|turn>' + message.role + '\\n' + message.content + '<turn|>\\n' }}
{%- elif message.role == 'assistant' %}
{%- if here.turn != 'model' %}{{- '<|turn>model\\n' }}{% endif %}{% set here.turn = 'model' %}{% set here.answered = false %}
{%- for call in message.tool_calls or [] %}{{- '<|tool_call>call:' + call.function.name + written(call.function.arguments) + '<tool_call|>' }}{% endfor %}
{%- for later in messages[loop.index:] %}{% if message.tool_calls and later.role == 'tool' and later.tool_call_id in message.tool_calls | map(attribute='id') %}{% set here.answered = true %}
{{- '<|tool_response>response:' + later.name + '{value:' + written(later.content) + '}<tool_response|>' }}{% endif %}{% endfor %}
{{- message.content or '' }}
{%- if message.tool_calls and not here.answered %}{{- '<|tool_response>' }}
{%- elif message.content or not message.tool_calls %}{{- '<turn|>\\n' }}{% endif %}
{%- endif %}{% endfor %}
{%- if add_generation_prompt and here.turn != 'model' %}{{- '<|turn>model\\n' }}{% endif %}"""


def _chatml(head: str, call: str, drops: bool = False) -> str:
    return _CHATML.replace("HEAD", head).replace("CALL", call).replace("DROPS", str(drops).lower())


class Family(NamedTuple):
    """parser: verl's name of its format. model_type: of its config.json. tokens: special ones, the first ends a message."""

    template: str
    parser: str
    model_type: str = "qwen2"
    tokens: tuple[str, ...] = ()


FAMILIES = {
    "hermes": Family(_chatml(_JSON_HEAD, _JSON_CALL), "hermes"),
    "thinking": Family(_chatml(_JSON_HEAD, _JSON_CALL, drops=True), "hermes", "qwen3"),
    "coder": Family(_chatml(_TAGGED_HEAD, _TAGGED_CALL), "qwen3_coder", "qwen3_moe"),
    "glm": Family(_GLM, "glm", "glm4_moe", ("<|user|>", "<|observation|>", "<|system|>", "<|assistant|>")),
    "gemma": Family(
        _GEMMA,
        "gemma4",
        "gemma4",
        ("<turn|>", "<|turn>", "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", '<|"|>'),
    ),
    "harmony": Family(
        _HARMONY,
        "gpt-oss",
        "gpt_oss",
        ("<|return|>", "<|call|>", "<|start|>", "<|end|>", "<|channel|>", "<|message|>", "<|constrain|>"),
    ),
}


@cache
def family_tokenizer(name: str) -> Any:
    """The quickstart's tokenizer with a family's template and special tokens."""
    family, tokenizer = FAMILIES[name], AutoTokenizer.from_pretrained(HOME / "data" / "quickstart_policy")
    tokenizer.chat_template = family.template
    if family.tokens:
        tokenizer.add_special_tokens({"additional_special_tokens": list(family.tokens)})
        tokenizer.eos_token = family.tokens[0]
    return tokenizer
