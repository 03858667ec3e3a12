"""Writes tests/data/tokenizer/*.json: token ids of the real models' tokenizers as llama.cpp gives them.

Needs the package xllamacpp (llama.cpp in process). Usage: python tools/golden_tokens.py FOLDER_OF_MODELS
"""

import json
import pathlib
import random
import sys
import urllib.request

import xllamacpp

OUT = pathlib.Path(__file__).parent.parent / "tests" / "data" / "tokenizer"
MODELS = {
    "smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf",
    "gemma3": "gemma-3-270m-q4_k_m.gguf",
}

TEXTS = [
    "",
    " ",
    "  ",
    "\n",
    "\n\n\n",
    "\t\t x",
    "\r\n\r\n a",
    "Hello",
    " Hello",
    "  Hello",
    "Hello world",
    "Hello, world! How's it going? We'll see; they've I'd you're I'm 'tis IT'S",
    "The capital of France is",
    "a" * 300,
    " " * 100 + "x",
    "=" * 77 + "\n" + "-" * 77,
    "3.14159 1234567890 1,000,000 0x7fff 12 345 6",
    "١٢٣ ²³ ½ Ⅷ 二〇二六",
    "def f(x):\n    if x > 0:\n        return {'a': [1, 2], \"b\": x**2}\n\n\tpass  # done\n",
    "for (int i = 0; i < n; ++i) { a[i] += b[i] * c->d; }  // ok\r\n",
    "<html><body class=\"x\">&nbsp;</body></html>",
    "https://example.org/a/b?c=d&e=%20#f  user@example.org",
    "$E = mc^2$, \\frac{a}{b} \\alpha ∑_{i=0}^{∞} ∀x∈ℝ",
    "camelCase snake_case SCREAMING_CASE kebab-case XMLHttpRequest",
    "你好，世界！今天天气很好。",
    "東京は日本の首都です。カタカナ ひらがな",
    "안녕하세요 세계",
    "Привет, мир! Ёлка",
    "مرحبا بالعالم، كيف حالك؟",
    "שלום עולם",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    "Ελληνικά ñandú Straße ŒUVRE ǅ ﬁ",
    "e\u0301 n\u0303 a\u0308\u0323 Z\u0351\u036b\u0343\u036a",
    "👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇫🇷 😀😀😀 ☃️",
    "\u200b\u200d\ufeff\u00ad\u2060 zero\u00a0width\u3000space\u2028line\u0085next",
    "\x00\x01\x02\x1b[31mred\x7f\x80",
    "\ufffd\ufffe\U0010ffff\U000e0001 \U00030000",
    "▁ ▁▁ a▁b",
    "<0x0A><0xFF>",
    "Ġ Ċ âĢ",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "<|endoftext|><|endoftext|> x <|im_end",
    "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n<eos>",
    "<s></s><unk><pad> [INST] <|eot_id|>",
    "<unused0> <unused99><mask> <td></td>",
    "x <|im_end|> y<|im_start|>  z",
    "\n\n<start_of_turn>\n\n\n\n",
    "Trailing space ",
    "Trailing newline\n",
    "a\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\nb",
    "tab\there \t \t both",
    "!!!???... --- *** ___ ~~~ ```py\n```",
    "“quotes” ‘single’ — dash – en … «guillemets»",
    "I've 'S 'Ll y'all'd've rock'n'roll ''re",
]


def random_texts() -> list[str]:
    """Random bytes read as UTF-8, and random mixtures of scripts."""
    rng = random.Random(42)
    out = []
    for n in (8, 32, 64, 128):
        out.append(bytes(rng.randrange(256) for _ in range(n)).decode("utf-8", "replace"))
    pools = ["abc ABC 019 '\n\t.,-<|>", "éßçλжשع中あ한", "\u0300\u200d\ufe0f 👍🏽\u3000\u00a0"]
    for _ in range(24):
        out.append("".join(rng.choice(rng.choice(pools)) for _ in range(40)))
    return out


class Oracle:
    def __init__(self, path: pathlib.Path):
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx = 256
        params.warmup = False
        params.n_parallel = 1
        params.cpuparams.n_threads = 1
        self.server = xllamacpp.Server(params)

    def ids(self, text: str, special: bool) -> list[int]:
        body = {"content": text, "add_special": special, "parse_special": special}
        request = urllib.request.Request(
            self.server.listening_address + "/tokenize",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as reply:
            return json.load(reply)["tokens"]


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    for stem, name in MODELS.items():
        oracle = Oracle(folder / name)
        cases = [
            {"text": text, "plain": oracle.ids(text, False), "prompt": oracle.ids(text, True)}
            for text in TEXTS + random_texts()
        ]
        lines = ",\n".join(json.dumps(case, ensure_ascii=True) for case in cases)
        (OUT / f"{stem}.json").write_text(f'{{"model": "{name}", "cases": [\n{lines}\n]}}\n')


main()
