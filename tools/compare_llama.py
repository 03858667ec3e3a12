#!/usr/bin/env python3
"""Decode speed of blueshift's cpu backend and of llama.cpp on the same file, one after the other, on the same threads.

    pip install xllamacpp
    cargo build --release
    python tools/compare_llama.py MODEL.gguf [--threads 2] [--tokens 128] [--reps 5]

llama.cpp's figure is the server's own (timings.predicted_per_second), greedy, prompt cache off; blueshift's is that of `blueshift bench`.
The two take turns, so that a change in the machine's load meets both; medians are printed with their ratio.
"""

import argparse
import json
import statistics
import subprocess
import urllib.request

import xllamacpp


def parse_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--tokens", type=int, default=128)
    p.add_argument("--reps", type=int, default=5)
    p.add_argument("--binary", default="target/release/blueshift")
    return p.parse_args()


def llama_server(args):
    params = xllamacpp.CommonParams()
    params.model.path = args.model
    params.n_ctx = 2048
    params.n_parallel = 1
    params.warmup = True
    params.cpuparams.n_threads = args.threads
    params.cpuparams_batch.n_threads = args.threads
    return xllamacpp.Server(params)


def llama_rate(server, tokens):
    request = {
        "prompt": "The capital of France is",
        "n_predict": tokens,
        "temperature": 0,
        "cache_prompt": False,
        "ignore_eos": True,
    }
    address = server.listening_address + "/completion"
    post = urllib.request.Request(address, json.dumps(request).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(post) as reply:
        return json.load(reply)["timings"]["predicted_per_second"]


def blueshift_rate(args):
    command = [args.binary, "bench", args.model, "--backend", "cpu", "--pp", "8", "--reps", "1", "--json"]
    out = subprocess.run(command + ["--tg", str(args.tokens)], check=True, capture_output=True, text=True).stdout
    return json.loads(out)["decode_tok_s"]


def main():
    args = parse_args()
    server = llama_server(args)
    llama_rate(server, 8)
    ours, theirs = [], []
    for _ in range(args.reps):
        ours.append(blueshift_rate(args))
        theirs.append(llama_rate(server, args.tokens))
    a, b = statistics.median(ours), statistics.median(theirs)
    print(f"blueshift {a:.1f} tok/s, llama.cpp {b:.1f} tok/s, ratio {a / b:.2f}")


if __name__ == "__main__":
    main()
