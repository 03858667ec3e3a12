"""Writes tests/data/llama/*: what llama.cpp answers to the prompts below, for tests/oracle.rs.

Needs the packages xllamacpp (llama.cpp in process) and gguf. Usage: python tools/golden_llama.py FOLDER_OF_MODELS [STEM...]

Real models: STEM.json holds the prompts' ids and, for every greedy step, the likeliest candidates. STEM.bin holds, for
every prompt, log-probabilities after its last token from two runs: the file as it is (llama.cpp rounds activations to
int8), and the same weights written out as f32, where it rounds nothing. The ids are the `N_TOP` likeliest of the second
run, then `N_SPREAD` spread evenly over the vocabulary. Layout, little endian, for each prompt in turn: the ids (u32), as
many values of the first run (f32), as many of the second.

Micro models (STEM `micro`): `cargo test --test oracle -- --ignored` writes them to the temporary folder first. micro.json
names them and holds the greedy steps of the first run, micro.bin holds two rows of log-probabilities (f32) for each, one
of each run.
"""

import json
import pathlib
import sys
import tempfile
import urllib.request

import gguf
import numpy as np
import xllamacpp

OUT = pathlib.Path(__file__).parent.parent / "tests" / "data" / "llama"
N_GREEDY = 64
N_CANDIDATES = 4
N_MICRO_GREEDY = 8
N_TOP = 256
N_SPREAD = 1024
N_CTX = 1024

LIGHTHOUSE = """The lamp at Carrow Head had been lit by hand for so long that nobody in the village could name the first keeper. \
Ines Marrow was the ninth, or perhaps the tenth, and she had come to the rock with one trunk, a mended coat and a \
barometer that had belonged to her grandfather. She kept three books. In the first she wrote the weather, four times a \
day, in a hand so small that visitors took it for a pattern. In the second she wrote the ships: their rigging, their \
colours, the hour at which they rounded the shoal. The third book had no title. On its first page she had drawn the \
lens, ring by ring, as a child might draw the inside of a tree, and beneath it she had put down a question: what does \
the light do when nobody is looking?

It was not an idle question. The lamp burned rape oil in winter and something cheaper in summer, and each spring the \
Board sent an inspector who measured the wicks and frowned. He had a theory that a lighthouse wasted nine tenths of what \
it burned. Most nights, he said, no vessel passed within sight of it; on those nights the oil might as well be poured \
into the sea. Ines heard him out and gave him tea. Then she took him up the hundred and twelve steps, opened the door \
to the gallery, and let him stand there in the wind until his eyes had grown used to the dark.

At first he saw the beam alone, turning. Then he saw what the beam touched. There were the moths, thousands of them, \
streaming in from the land like slow snow. There were the geese that steered by it, a long wavering line, and under \
them the herring boats from the far side of the bay, which carried no lamps of their own because they had never needed \
any. There was the window of the schoolmaster, who could not sleep, and who set his clock by the flash. And a long way \
out, so low that he took it for a star, there was another light, answering.

"Who is that?" the inspector asked.

"I don't know," said Ines. "It began the winter before last. When I am late, it is late. When I trimmed the wick badly, \
in March, it went dim for a week. I used to think that it was a reflection, some trick of the cold air over the water, \
and I wrote that down. But in May I was ill, and the lamp stayed dark for two nights, and on the second of them the \
light out there came on by itself and burned until morning. So now I think that somebody is keeping a book, as I do."

The inspector went home on the Friday boat. In his report he wrote that the lamp at Carrow Head was in good order, that \
the keeper was diligent, and that no saving could be recommended. He did not mention the geese. But in the margin, \
where the Board's clerks would hardly look, he copied her question, and under it he set down the only answer that he"""

BREAD = """A loaf of bread is a small machine made of bubbles. Flour holds two proteins that do little while they are dry. \
Wet them, and they find each other: they link end to end and side to side until the dough is crossed by a net that can \
be stretched without tearing. Into this net the yeast breathes. A yeast cell eats sugar and gives off carbon dioxide, \
and the gas, having nowhere to go, pushes the net apart into thousands of rooms. The baker's work is to make a net \
that is strong enough to hold the rooms and soft enough to let them grow.

Time can do most of this. A dough that is left alone for twelve hours will develop as fully as one that is kneaded for \
twelve minutes, because the proteins drift, meet and bond without help. Kneading only hurries them. Salt slows the \
yeast and tightens the net; that is why a dough made without it rises fast, spreads flat and tastes of nothing. Warmth \
hurries everything, the useful and the harmful alike. A cool dough ferments slowly, and the bacteria that live beside \
the yeast get their turn: they make acids, which give the crumb its flavour and keep the loaf from moulding.

Water is the part that beginners get wrong. A recipe may say seven hundred grams to a kilogram of flour, but flour is \
not one substance. It drinks more when it is milled from hard wheat, more when it holds the bran, less when it has \
stood in a damp shop all summer. The dough itself is the better gauge. It should stick to the hand and let go again. \
If it stands up like clay there is too little water in it, and the bubbles will be small and all alike; if it runs \
like batter there is too much, and the net will break before the oven can set it.

In the oven four things happen, one after another. First the gas expands and the loaf springs up, within the first ten \
minutes, while its skin is still soft; steam helps here, because a dry skin hardens too early. Next, at about sixty \
degrees, the yeast dies. Then the starch takes up the water that the protein held and swells into a gel, the walls of \
the rooms grow stiff, and the loaf can no longer change its shape. Last, when the surface is dry and far hotter than \
boiling water, sugars and proteins react and the crust turns brown. These stages cannot be swapped, and none of them \
can be left out. A baker who opens the door during the first sees the loaf sink. One who takes it out before the last \
has something that is bread by every measure except the one that matters, which is"""

CODE_PYTHON = '''import heapq


def shortest_paths(graph: dict[str, list[tuple[str, float]]], start: str) -> dict[str, float]:
    """Length of the shortest path from `start` to every node that can be reached."""
    best = {start: 0.0}
    queue = [(0.0, start)]
    while queue:
        length, node = heapq.heappop(queue)
        if length > best[node]:
            continue
        for neighbour, weight in graph[node]:
'''

CODE_RUST = """/// Splits a line into fields; quotes protect commas.
fn split_fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            _ =>"""

UNICODE = (
    "English: Good morning! ☀️\nFrançais : Bonjour, où êtes-vous allés hier ?\n日本語: おはようございます。今日は寒いですね。\n"
    "中文：早上好，你吃饭了吗？\nالعربية: صباح الخير، كيف حالك؟\nРусский: Доброе утро 👋🏽 👨‍👩‍👧\nDeutsch:"
)

CHATML = (
    "<|im_start|>system\nYou are a careful assistant. Answer in one sentence.<|im_end|>\n"
    "<|im_start|>user\nWhich is heavier, a litre of water or a litre of oil?<|im_end|>\n"
    "<|im_start|>assistant\nA litre of water is heavier, because water is denser than oil.<|im_end|>\n"
    "<|im_start|>user\nThen why does ice float?<|im_end|>\n<|im_start|>assistant\n"
)

PROMPTS = {
    "smollm2": {
        "short": "The capital of France is",
        "one-token": "Once",
        "lighthouse": LIGHTHOUSE,
        "bread": BREAD,
        "python": CODE_PYTHON,
        "rust": CODE_RUST,
        "unicode": UNICODE,
        "chatml": CHATML,
    },
    "gemma3": {
        "short": "The capital of France is",
        # Longer than the sliding window of 512.
        "lighthouse": LIGHTHOUSE,
        "python": CODE_PYTHON,
        "unicode": UNICODE,
    },
}
MICRO_IDS = [(37 * i + 11) % 256 for i in range(40)]
FILES = {"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf", "gemma3": "gemma-3-270m-q4_k_m.gguf"}


class Oracle:
    """A model in llama.cpp: plain f16 cache, no flash attention, no repacked weights, two threads."""

    def __init__(self, path: pathlib.Path):
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx = N_CTX
        params.n_parallel = 1
        params.n_gpu_layers = 0
        params.warmup = False
        params.cache_prompt = False
        params.no_extra_bufts = True
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.cpuparams.n_threads = 2
        params.cpuparams_batch.n_threads = 2
        self.server = xllamacpp.Server(params)

    def post(self, path: str, body: dict) -> dict:
        data = json.dumps(body).encode()
        request = urllib.request.Request(
            self.server.listening_address + path, data, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as reply:
            return json.load(reply)

    def ids(self, text: str) -> list[int]:
        body = {"content": text, "add_special": True, "parse_special": True}
        return self.post("/tokenize", body)["tokens"]

    def complete(self, ids: list[int], n: int, n_candidates: int, forced: int | None = None) -> dict:
        body = {
            "prompt": ids,
            "n_predict": n,
            "n_probs": n_candidates,
            "temperature": 0,
            "samplers": ["top_k"],
            "top_k": 1,
            "post_sampling_probs": False,
            "cache_prompt": False,
            "return_tokens": True,
            "seed": 1,
            # Biases what is drawn, not the probabilities reported.
            "logit_bias": [] if forced is None else [[forced, 1000.0]],
        }
        return self.post("/completion", body)

    def steps(self, ids: list[int]) -> list[list[tuple[int, float | None]]]:
        """The candidates of the greedy steps after `ids`, best first: ids and log-probabilities.

        The server keeps no probabilities of tokens that end inside a character: such a step has one candidate and no
        log-probability.
        """
        answer = self.complete(ids, N_GREEDY, N_CANDIDATES)
        known = answer["completion_probabilities"]
        steps, at = [], 0
        for token in answer["tokens"]:
            if at < len(known) and known[at]["id"] == token:
                top = known[at]["top_logprobs"]
                assert top[0]["id"] == token, "not greedy"
                steps.append([(t["id"], round(t["logprob"], 5)) for t in top])
                at += 1
            else:
                steps.append([(token, None)])
        assert at == len(known), "probabilities of tokens that are not in the answer"
        return steps

    def row(self, ids: list[int], n_vocab: int, forced: int | None = None) -> np.ndarray:
        """Log-probabilities of the whole vocabulary after `ids`; `forced` is drawn instead of the likeliest token."""
        row = np.full(n_vocab, np.nan, dtype=np.float32)
        for candidate in self.complete(ids, 1, n_vocab, forced)["completion_probabilities"][0]["top_logprobs"]:
            row[candidate["id"]] = candidate["logprob"]
        assert not np.isnan(row).any()
        return row


def write_f32(source: pathlib.Path, out: pathlib.Path) -> None:
    """Copies a model file with all its tensors as f32."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents(), use_temp_file=False)
    skip = {"general.architecture", "general.file_type", "GGUF.version", "GGUF.tensor_count", "GGUF.kv_count"}
    for name, field in reader.fields.items():
        if name not in skip:
            element = field.types[1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], element)
    for tensor in reader.tensors:
        writer.add_tensor_info(tensor.name, tensor.shape[::-1].tolist(), np.dtype(np.float32), int(tensor.n_elements) * 4)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.write_tensor_data(values)
    writer.close()


def chosen_ids(row: np.ndarray) -> np.ndarray:
    top = np.argsort(-row, kind="stable")[:N_TOP]
    spread = np.arange(N_SPREAD, dtype=np.int64) * len(row) // N_SPREAD
    return np.concatenate([top, spread])


def vocabulary(path: pathlib.Path) -> int:
    embedding = next(t for t in gguf.GGUFReader(path).tensors if t.name == "token_embd.weight")
    return int(embedding.shape[1])


def write_golden(stem: str, folder: pathlib.Path) -> None:
    path = folder / FILES[stem]
    n_vocab = vocabulary(path)
    oracle = Oracle(path)
    cases, int8_rows = [], []
    for name, text in PROMPTS[stem].items():
        ids = oracle.ids(text)
        cases.append({"name": name, "text": text, "ids": ids, "steps": oracle.steps(ids)})
        int8_rows.append(oracle.row(ids, n_vocab))
        print(stem, name, len(ids), "ids")
    del oracle

    with tempfile.TemporaryDirectory() as temp, open(OUT / f"{stem}.bin", "wb") as out:
        plain = pathlib.Path(temp) / "f32.gguf"
        write_f32(path, plain)
        oracle = Oracle(plain)
        for case, int8_row in zip(cases, int8_rows):
            exact_row = oracle.row(case["ids"], n_vocab)
            chosen = chosen_ids(exact_row)
            out.write(chosen.astype("<u4").tobytes())
            out.write(int8_row[chosen].astype("<f4").tobytes())
            out.write(exact_row[chosen].astype("<f4").tobytes())

    lines = ",\n".join(json.dumps(case, ensure_ascii=True, separators=(",", ":")) for case in cases)
    head = f'{{"model": "{FILES[stem]}", "n_top": {N_TOP}, "n_spread": {N_SPREAD}, "cases": [\n'
    (OUT / f"{stem}.json").write_text(head + lines + "\n]}\n")


def micro_steps(oracle: Oracle, n_vocab: int) -> tuple[np.ndarray, list[list[tuple[int, float]]]]:
    """The row after the micro prompt, and the greedy steps from there: candidates, best first."""
    letter = 65  # drawn in place of the likeliest token, which may be half a character
    ids, rows, steps = list(MICRO_IDS), [], []
    for _ in range(N_MICRO_GREEDY):
        row = oracle.row(ids, n_vocab, letter)
        top = np.argsort(-row, kind="stable")[:N_CANDIDATES]
        steps.append([(int(id), round(float(row[id]), 5)) for id in top])
        rows.append(row)
        ids.append(int(top[0]))
    return rows[0], steps


def write_micro() -> None:
    models = []
    with tempfile.TemporaryDirectory() as temp, open(OUT / "micro.bin", "wb") as out:
        for path in sorted((pathlib.Path(tempfile.gettempdir()) / "blueshift-micro").glob("*.gguf")):
            plain = pathlib.Path(temp) / path.name
            write_f32(path, plain)
            n_vocab = vocabulary(path)
            row, steps = micro_steps(Oracle(path), n_vocab)
            plain_row, _ = micro_steps(Oracle(plain), n_vocab)
            out.write(row.astype("<f4").tobytes())
            out.write(plain_row.astype("<f4").tobytes())
            models.append({"name": path.stem, "n_vocab": n_vocab, "steps": steps})
    lines = ",\n".join(json.dumps(model, separators=(",", ":")) for model in models)
    (OUT / "micro.json").write_text(f'{{"ids": {json.dumps(MICRO_IDS)}, "models": [\n{lines}\n]}}\n')


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    folder = pathlib.Path(sys.argv[1])
    for stem in sys.argv[2:] or [*FILES, "micro"]:
        if stem == "micro":
            write_micro()
        else:
            write_golden(stem, folder)


main()
