"""Writes tests/data/chat/golden.json: conversations as jinja2 renders them, set up as transformers sets it up.

Needs the packages jinja2 and gguf. Usage: python tools/golden_chat.py MODEL.gguf [TEMPLATE.jinja ...]
The model's own template is rendered with the templates beside the output. Further templates on the command line are
rendered instead and the result goes to standard output.

Other usage: python tools/golden_chat.py --tools FOLDER
Writes tests/data/chat/tools.json: conversations with calls, rendered by models' own templates. FOLDER holds them under
llama.cpp's names (its folder models/templates, which is in the source distribution of llama-cpp-python, too).
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


OSLO = {"place": "Oslo \"{é}\" </tool_call>", "days": 2}
CALLS = {
    "one": [
        {"role": "system", "content": "Use tools."},
        {"role": "user", "content": "Weather in Oslo?"},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "They want the weather.",
            "tool_calls": [call("get_weather", **OSLO)],
        },
        {"role": "tool", "content": '{"degrees": -3}', "name": "get_weather", "tool_call_id": "abcdefghi"},
    ],
    "two": [
        {"role": "system", "content": "Use tools."},
        {"role": "user", "content": "Weather in Oslo and Rome?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [call("get_weather", place="Oslo"), {**call("get_weather", place="Rome"), "id": "123456789"}],
        },
        {"role": "tool", "content": "-3", "name": "get_weather", "tool_call_id": "abcdefghi"},
        {"role": "tool", "content": "12", "name": "get_weather", "tool_call_id": "123456789"},
    ],
}
# Templates of models, with the beginning and end of a sequence.
MODELS = {
    "Qwen-Qwen3-0.6B": ("", "<|im_end|>"),
    "Qwen-Qwen2.5-7B-Instruct": ("", "<|im_end|>"),
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": ("<|begin_of_text|>", "<|im_end|>"),
    "meta-llama-Llama-3.1-8B-Instruct": ("<|begin_of_text|>", "<|eot_id|>"),
    "meta-llama-Llama-3.2-3B-Instruct": ("<|begin_of_text|>", "<|eot_id|>"),
    "mistralai-Mistral-Nemo-Instruct-2407": ("<s>", "</s>"),
    "unsloth-mistral-Devstral-Small-2507": ("<s>", "</s>"),
    "Mistral-Small-3.2-24B-Instruct-2506": ("<s>", "</s>"),
    "google-gemma-4-31B-it": ("<bos>", "<turn|>"),
    "openai-gpt-oss-120b": ("<|startoftext|>", "<|return|>"),
    "deepseek-ai-DeepSeek-V3.1": ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
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


def tool_cases(name: str, source: str, bos: str, eos: str):
    """The prompt for the answer that calls, the conversation up to it, and the prompt after the results."""
    template = environment().from_string(source)
    for conversation, messages in CALLS.items():
        # This is where some templates read reasoning.
        as_thinking = "message.thinking" in source
        given = [
            {**m, "thinking": m["reasoning_content"]} if as_thinking and "reasoning_content" in m else m for m in messages
        ]
        case = {"template": name, "conversation": conversation, "bos": bos, "eos": eos}
        at = next(i for i, m in enumerate(messages) if m["role"] == "assistant")
        for part, end, prompt in [("prompt", at, True), ("answered", at + 1, False), ("next", len(given), True)]:
            try:
                case[part] = template.render(
                    messages=given[:end],
                    add_generation_prompt=prompt,
                    tools=[WEATHER],
                    documents=None,
                    bos_token=bos,
                    eos_token=eos,
                    enable_thinking=True,
                )
            except Exception as error:
                case["error"] = str(error)
        yield case


def write_tool_cases(folder: pathlib.Path) -> None:
    out = [
        case
        for name, (bos, eos) in MODELS.items()
        for case in tool_cases(name, (folder / f"{name}.jinja").read_text(), bos, eos)
    ]
    lines = ",\n".join(json.dumps(case) for case in out)
    head = f'"now": {NOW}, "tools": {json.dumps([WEATHER])}, "conversations": {json.dumps(CALLS)}'
    (DATA / "tools.json").write_text(f'{{{head}, "cases": [\n{lines}\n]}}\n')


def main() -> None:
    if sys.argv[1] == "--tools":
        return write_tool_cases(pathlib.Path(sys.argv[2]))
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
