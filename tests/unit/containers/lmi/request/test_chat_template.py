"""Chat templates: the same text as transformers renders, and templates that misbehave."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.containers.lmi.tiny import SPECIAL, TEMPLATE, byte_tokenizer, write_tokenizer
from transformers import PreTrainedTokenizerFast

from hostelry.base.clock import ManualClock
from hostelry.containers.lmi.refusal import Refusal
from hostelry.containers.lmi.request.chat_fields import ChatFields
from hostelry.containers.lmi.request.chat_template import ChatTemplate, load_chat_template
from hostelry.containers.lmi.request.template_process import LIMITS, render_apart

CLOCK = ManualClock()
USER = {"role": "user", "content": "¿Qué tal?"}
SYSTEM = {"role": "system", "content": "Be <b>brief</b> & clear."}
ASSISTANT = {"role": "assistant", "content": "bien"}

LLAMA_LIKE = """{{- bos_token }}
{%- for message in messages %}
    {%- if message.role not in ['user', 'assistant', 'system'] %}
        {{- raise_exception('unknown role ' + message.role) }}
    {%- endif %}
    {{- '<|start|>' + message.role + '<|sep|>' + message.content | trim + '<|end|>' }}
    {%- if loop.index > 8 %}{% break %}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant<|sep|>' }}
{%- endif %}
"""
BLOCKS = """{% for m in messages %}
  {% if m.role == 'assistant' %}
    {% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}
  {% else %}
    [{{ m | tojson }}]
  {% endif %}
{% endfor %}"""


def oracle(**tokens: str) -> Any:
    """The byte tokenizer in transformers, which is untyped."""
    made: Any = PreTrainedTokenizerFast
    return made(tokenizer_object=byte_tokenizer(), **tokens)


@cases(
    "template",
    case("the demo model's", TEMPLATE),
    case("one with trimmed blocks and a break", LLAMA_LIKE),
    case("one with generation blocks and JSON", BLOCKS),
)
@cases(
    "messages", case("one question", [USER]), case("a dialogue", [SYSTEM, USER, ASSISTANT, USER])
)
@pytest.mark.parametrize("prompted", [True, False])
def test_text_is_the_one_transformers_renders(
    template: str, messages: Sequence[dict[str, str]], prompted: bool
) -> None:
    tokens = {"bos_token": SPECIAL[1], "eos_token": SPECIAL[2]}
    expected = oracle(**tokens).apply_chat_template(
        list(messages),
        chat_template=template,
        tokenize=False,
        add_generation_prompt=prompted,
    )
    ours = ChatTemplate(template, tokens, CLOCK)
    assert ours.render(messages, ChatFields(add_generation_prompt=prompted)) == expected


def test_the_date_is_the_clocks() -> None:
    template = ChatTemplate("{{ strftime_now('%Y') }}", {}, ManualClock(0.0))
    assert template.render([USER]) in ("1969", "1970")


@cases(
    "source, message",
    case("objects", "{{ raise_exception('no system role') }}", "no system role"),
    case("reads what is not there", "{{ messages[5].content }}", "no element 5"),
    case("divides by zero", "{{ 1 // 0 }}", "zero"),
    case("adds a number to a text", "{{ 'a' + 1 }}", "str"),
    case("reaches for Python's insides", "{{ ''.__class__.__mro__ }}", "unsafe"),
    case("counts for ever", "{% for i in range(10**9) %}{% endfor %}", "range"),
    case("changes its input", "{{ messages.append(1) }}", "unsafe"),
)
def test_a_template_that_misbehaves_is_the_requests_error(source: str, message: str) -> None:
    with pytest.raises(Refusal, match=message):
        ChatTemplate(source, {}, CLOCK).render([USER])


def test_an_invalid_template_fails_the_start() -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        ChatTemplate("{% for %}", {}, CLOCK)


def test_where_a_template_comes_from(tmp_path: Path) -> None:
    assert load_chat_template(tmp_path, None, CLOCK) is None
    write_tokenizer(tmp_path)
    assert "helpful" in text(load_chat_template(tmp_path, None, CLOCK))
    (tmp_path / "chat_template.jinja").write_text("from the file {{ bos_token }}")
    assert text(load_chat_template(tmp_path, None, CLOCK)) == "from the file <|im_start|>"
    assert text(load_chat_template(tmp_path, "inline {{ eos_token }}", CLOCK)) == (
        "inline <|im_end|>"
    )
    (tmp_path / "other.jinja").write_text("other")
    assert text(load_chat_template(tmp_path, "other.jinja", CLOCK)) == "other"
    with pytest.raises(ValueError, match="neither a file inside"):
        load_chat_template(tmp_path, "missing.jinja", CLOCK)


@pytest.mark.parametrize("outside", ["{root}/secret", "../secret", "link", "/opt/ml/model/link"])
def test_a_template_outside_the_model_folder_is_not_read(outside: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of another")
    model = tmp_path / "model"
    model.mkdir()
    (model / "link").symlink_to("../secret")
    with pytest.raises(ValueError, match="neither a file inside"):
        load_chat_template(model, outside.format(root=tmp_path), CLOCK)


def test_a_template_lies_beside_the_properties_or_in_the_model(tmp_path: Path) -> None:
    for name in ("properties", "model"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.jinja").write_text(name)
    folders = tmp_path / "model", tmp_path / "properties"
    for name in ("properties", "model"):
        found = load_chat_template(folders[0], f"/opt/ml/model/{name}.jinja", CLOCK, folders[1])
        assert text(found) == name


def test_of_several_templates_the_default_is_used(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(
        '{"bos_token": {"content": "<s>"}, "chat_template": '
        '[{"name": "tool_use", "template": "no"}, '
        '{"name": "default", "template": "{{bos_token}}"}]}'
    )
    assert text(load_chat_template(tmp_path, None, CLOCK)) == "<s>"


def text(template: Any) -> str:
    rendered = template.render([USER])
    assert isinstance(rendered, str)
    return rendered


RAG = "{{ documents }}{{ thinking }}{{ bos_token }}{{ messages[0].content | trim }}"


def test_documents_and_variables_are_those_of_transformers() -> None:
    documents = [{"title": "a", "text": "b"}]
    variables: dict[str, Any] = {"thinking": False, "bos_token": "<own>"}
    expected = oracle(bos_token=SPECIAL[1]).apply_chat_template(
        [USER], chat_template=RAG, tokenize=False, documents=documents, **variables
    )
    ours = ChatTemplate(RAG, {"bos_token": SPECIAL[1]}, CLOCK)
    fields = ChatFields(documents=documents, variables=variables, add_generation_prompt=False)
    assert ours.render([USER], fields) == expected


@cases(
    "content",
    case("a beginning", "so it"),
    case("one that ends with spaces", "so it \n"),
    case("the text of an earlier message", "¿Qué tal?"),
)
@cases(
    "template", case("a template that keeps spaces", TEMPLATE), case("one that trims", LLAMA_LIKE)
)
def test_a_final_message_is_continued_as_in_transformers(template: str, content: str) -> None:
    messages = [USER, {"role": "assistant", "content": content}]
    tokens = {"bos_token": SPECIAL[1], "eos_token": SPECIAL[2]}
    expected = oracle(**tokens).apply_chat_template(
        messages, chat_template=template, tokenize=False, continue_final_message=True
    )
    fields = ChatFields(add_generation_prompt=False, continue_final_message=True)
    assert ChatTemplate(template, tokens, CLOCK).render(messages, fields) == expected
    assert "HOSTELRY" not in messages[-1]["content"]


def test_a_template_without_the_final_message_cannot_continue_it() -> None:
    fields = ChatFields(add_generation_prompt=False, continue_final_message=True)
    with pytest.raises(Refusal, match="leaves out the last message"):
        ChatTemplate("always", {}, CLOCK).render([USER], fields)


YEAR_CLOCK = ManualClock(86_400.0 * 365)
QUICK = replace(LIMITS, render_s=0.5)
PATIENT = replace(LIMITS, render_s=60.0)
DOUBLED = "{% set n = namespace(s='xxxxxxxx') %}{% for i in range(64) %}{% set n.s = n.s ~ n.s %}"


def test_a_template_of_a_request_sees_the_variables_and_the_time() -> None:
    text = render_apart("{{ a.b }} {{ strftime_now('%Y') }}", {"a": {"b": "x"}}, YEAR_CLOCK)
    assert text in ("x 1970", "x 1971")


@cases(
    "template, message",
    case(
        "loops without end",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "more than",
    ),
    case("a text that doubles", DOUBLED + "{% endfor %}{{ n.s }}", "memory"),
    case("a long text at once", "{{ 'x' * 999999999999 }}", "memory"),
    case("more text than is read", "{{ 'x' * 9999999 }}", "writes more than"),
    case("a wide number", "{{ '%999999999d' % 1 }}", "memory"),
    case("a number without end", "{{ 9 ** (9 ** 9) }}", "more than"),
    case("no template", "{% for %}", "expression"),
    case("one that refuses", "{{ raise_exception('not so') }}", "not so"),
    case("Python's own attributes", "{{ ''.__class__.__mro__ }}", "unsafe"),
    case("attributes of a namespace", "{{ namespace(__class__=1) }}", "underscore"),
    case("a file", "{% include '/etc/passwd' %}", "no loader"),
)
def test_a_hostile_template_of_a_request(template: str, message: str) -> None:
    limits = QUICK if message == "more than" else PATIENT  # whose own limit is met, however slowly
    with pytest.raises(Refusal, match=message) as refused:
        render_apart(template, {}, YEAR_CLOCK, limits)
    assert refused.value.param == "chat_template"
    assert render_apart("{{ 1 }}", {}, YEAR_CLOCK) == "1"
