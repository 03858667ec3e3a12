"""Writes tests/data/chat/golden.json: conversations as jinja2 renders them, set up as transformers sets it up.

Needs the packages jinja2 and gguf. Usage: python tools/golden_chat.py MODEL.gguf [TEMPLATE.jinja ...]
The model's own template is rendered with the templates beside the output. Further templates on the command line are
rendered instead and the result goes to standard output.
"""

import datetime
import json
import pathlib
import sys

import gguf
import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

DATA = pathlib.Path(__file__).parent.parent / "tests" / "data" / "chat"
NOW = 1_767_225_599  # 2025-12-31 23:59:59

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather at a place: <now> & \"soon\", it's é",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string"}, "days": {"type": "integer", "default": 3, "tags": []}},
            "required": ["place"],
            "extra": {"empty": {}, "ratio": 1.5, "tiny": 1e-07, "none": None, "yes": True},
        },
    },
}


def call(name: str, **arguments) -> dict:
    return {"id": "abcdefghi", "type": "function", "function": {"name": name, "arguments": arguments}}


CONVERSATIONS = {
    "hello": [{"role": "user", "content": "Hello"}],
    "system": [{"role": "system", "content": " Be brief. \n"}, {"role": "user", "content": "Hi <there> & 'you'\n"}],
    "turns": [
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nTwo."},
        {"role": "user", "content": "  Trei: ăîșț 你好 👍🏽  "},
        {"role": "assistant", "content": "Four", "reasoning_content": "count on"},
        {"role": "user", "content": ""},
    ],
    "tools": [
        {"role": "system", "content": "Use tools."},
        {"role": "user", "content": "Weather in Oslo?"},
        {"role": "assistant", "content": "", "tool_calls": [call("get_weather", place="Oslo", days=2)]},
        {"role": "tool", "content": '{"degrees": -3}', "name": "get_weather", "tool_call_id": "abcdefghi"},
        {"role": "assistant", "content": "Minus three."},
    ],
    "out_of_turn": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
}


class Generation(jinja2.ext.Extension):
    """`{% generation %}` prints what it holds."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def environment() -> jinja2.Environment:
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = lambda form: datetime.datetime.fromtimestamp(NOW, datetime.UTC).strftime(form)
    return made


def cases(name: str, source: str, bos: str, eos: str):
    template = environment().from_string(source)
    for conversation, messages in CONVERSATIONS.items():
        for prompt, tools, variables in [
            (True, [], {}),
            (False, [WEATHER] if conversation == "tools" else [], {"enable_thinking": False}),
            (True, [WEATHER], {"enable_thinking": False}),
        ]:
            case = {
                "template": name,
                "conversation": conversation,
                "add_generation_prompt": prompt,
                "tools": tools,
                "variables": variables,
                "bos": bos,
                "eos": eos,
            }
            try:
                case["rendered"] = template.render(
                    messages=messages,
                    add_generation_prompt=prompt,
                    tools=tools or None,
                    documents=None,
                    bos_token=bos,
                    eos_token=eos,
                    **variables,
                )
            except Exception as error:
                case["error"] = str(error)
            yield case


def model_template(path: str) -> tuple[str, str, str]:
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"]
    bos, eos = (tokens.contents(fields[f"tokenizer.ggml.{end}_token_id"].contents()) for end in ("bos", "eos"))
    return fields["tokenizer.chat_template"].contents(), bos, eos


def main() -> None:
    model, *others = sys.argv[1:]
    out = []
    if others:
        templates = [pathlib.Path(path) for path in others]
    else:
        templates = sorted(DATA.glob("*.jinja"))
        out += cases(pathlib.Path(model).name, *model_template(model))
    for path in templates:
        out += cases(path.name, path.read_text(), "<s>", "</s>")
    lines = ",\n".join(json.dumps(case) for case in out)
    text = f'{{"now": {NOW}, "conversations": {json.dumps(CONVERSATIONS)}, "cases": [\n{lines}\n]}}\n'
    if others:
        print(text)
    else:
        (DATA / "golden.json").write_text(text)


main()
