//! The command line as programs use it: JSON out, errors in words, exit codes.

mod common;

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use blueshift::micro::MicroModel;
use blueshift::quant::QuantType;
use serde_json::Value;

/// A micro model in a file of its own.
fn model_file(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.gguf"));
    std::fs::write(&path, MicroModel::llama3(QuantType::Q4_0).bytes()).unwrap();
    path
}

fn blueshift(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_blueshift")).args(args).output().unwrap()
}

fn succeeded(args: &[&str]) -> String {
    let out = blueshift(args);
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn debug_compares_operations() {
    if !common::has_adapter() {
        return;
    }
    let path = model_file("debug");
    let debug = ["debug", path.to_str().unwrap(), "-p", "Hello", "--raw", "--from", "2"];
    let text = succeeded(&debug);
    assert!(text.ends_with("no difference: every bit is equal\n") && text.contains("layer 1 "), "{text}");
    let report: Value = serde_json::from_str(&succeeded(&[&debug[..], &["--json"]].concat())).unwrap();
    assert!(report["difference"].is_null());
    let (ids, phases) = (report["ids"].as_array().unwrap(), report["phases"].as_array().unwrap());
    let traced: u64 = phases.iter().map(|phase| phase["rows"].as_u64().unwrap()).sum();
    assert_eq!(traced + report["untraced"].as_u64().unwrap(), ids.len() as u64);
    assert_eq!(phases.last().unwrap()["kind"], "decode");
    assert_eq!(phases[0]["layers"].as_array().unwrap().len(), 3);
}

#[test]
fn logits_depend_on_the_type_of_the_cache() {
    let path = model_file("kv");
    let logits = |kv: &[&str]| {
        let out = path.with_extension(format!("{}.logits", kv.len()));
        let ids =
            ["logits", path.to_str().unwrap(), "--ids", "1,2,3", "--backend", "cpu", "--out", out.to_str().unwrap()];
        succeeded(&[&ids[..], kv].concat());
        std::fs::read(out).unwrap()
    };
    let (plain, q8_0) = (logits(&[]), logits(&["--kv", "q8_0"]));
    assert_eq!(plain, logits(&["--kv=f16"]));
    assert!(plain.len() == q8_0.len() && plain != q8_0);
    let out = blueshift(&["run", path.to_str().unwrap(), "-p", "Hello", "--kv", "q4"]);
    assert!(!out.status.success() && String::from_utf8_lossy(&out.stderr).contains("q8_0"));
}

#[test]
fn run_prints_one_json_object() {
    let path = model_file("run");
    let run = |extra: &[&str]| -> Value {
        let mut args =
            vec!["run", path.to_str().unwrap(), "-p", "Hello", "--raw", "-n", "12", "--backend", "cpu", "--json"];
        args.extend(extra);
        serde_json::from_str(&succeeded(&args)).unwrap()
    };
    let answer = run(&[]);
    for key in ["prompt_ids", "ids", "text", "stop_reason", "backend", "adapter", "exact", "timings"] {
        assert!(answer.get(key).is_some(), "{key} is missing");
    }
    let n_ids = answer["ids"].as_array().unwrap().len();
    assert!(n_ids == 12 || answer["stop_reason"] == "eos", "{n_ids} ids, {}", answer["stop_reason"]);
    assert_eq!(answer["backend"], "cpu");
    assert_eq!(answer["exact"], true);
    for burst in ["1", "16"] {
        assert_eq!(run(&["--burst", burst])["ids"], answer["ids"], "burst {burst}");
    }
    let drawn = run(&["--temp", "1.5", "--seed", "3"]);
    assert_eq!(run(&["--temp", "1.5", "--seed", "3", "--burst", "5"])["ids"], drawn["ids"]);
    assert_ne!(run(&["--temp", "1.5", "--seed", "4"])["ids"], drawn["ids"]);
    let narrow = ["--temp", "1.5", "--seed", "3", "--top-k", "1", "--top-p", "0.9", "--min-p", "0.1"];
    assert_eq!(run(&narrow)["ids"], answer["ids"], "one candidate is greedy");
    let first = answer["ids"][0].to_string();
    let banned = run(&["--logit-bias", &format!("{first}=-inf"), "--repeat-penalty", "1.2"]);
    assert!(!banned["ids"].as_array().unwrap().contains(&answer["ids"][0]));
    let penalised = run(&["--frequency-penalty", "2", "--presence-penalty", "2", "--penalty-window", "16"]);
    assert!(penalised["ids"].is_array());
}

/// An answer of `run` as JSON.
fn run_json(path: &str, extra: &[&str]) -> Value {
    let args = ["run", path, "-p", "Hello", "-n", "12", "--backend", "cpu", "--json"];
    serde_json::from_str(&succeeded(&[&args[..], extra].concat())).unwrap()
}

fn ids(answer: &Value) -> Vec<u64> {
    answer["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
}

#[test]
fn options_out_of_range_are_refused_by_name_and_range() {
    let path = model_file("ranges");
    // The status is 2 where the value has no meaning at all, 1 where the engine refuses it.
    let cases: [(&[&str], i32, &[&str]); 37] = [
        (&["--temp", "-0.5"], 1, &["temperature", "0 to 100"]),
        (&["--temp", "100.5"], 1, &["temperature", "0 to 100"]),
        (&["--temp", "nan"], 1, &["temperature", "0 to 100"]),
        (&["--temp", "hot"], 2, &["--temp", "hot"]),
        (&["--seed", "-1"], 2, &["--seed", "-1"]),
        (&["--seed", "18446744073709551616"], 2, &["--seed", "18446744073709551616"]),
        (&["--top-k", "-1"], 2, &["--top-k", "-1"]),
        (&["--top-p", "0"], 1, &["top-p", "above 0, at most 1"]),
        (&["--top-p", "1.5"], 1, &["top-p", "above 0, at most 1"]),
        (&["--min-p", "-0.1"], 1, &["min-p", "0 to 1"]),
        (&["--min-p", "1.1"], 1, &["min-p", "0 to 1"]),
        (&["--typical-p", "0"], 1, &["typical-p", "above 0, at most 1"]),
        (&["--typical-p", "-1"], 1, &["typical-p", "above 0, at most 1"]),
        (&["--typical-p", "inf"], 1, &["typical-p", "above 0, at most 1"]),
        (&["--repeat-penalty", "0"], 1, &["repeat penalty", "0.01 to 100"]),
        (&["--repeat-penalty", "101"], 1, &["repeat penalty", "0.01 to 100"]),
        (&["--frequency-penalty", "-101"], 1, &["frequency penalty", "-100 to 100"]),
        (&["--presence-penalty", "101"], 1, &["presence penalty", "-100 to 100"]),
        (&["--penalty-window", "4097"], 1, &["penalty window", "at most 4096"]),
        (&["--penalty-window", "-1"], 2, &["--penalty-window", "-1"]),
        (&["--logit-bias", "1=1001"], 1, &["logit bias", "-1000 to 1000"]),
        (&["--logit-bias", "1=inf"], 1, &["logit bias", "-1000 to 1000"]),
        (&["--logit-bias", "1"], 2, &["--logit-bias", "ID=VALUE"]),
        (&["--logit-bias", "99999=1"], 1, &["token id 99999", "the vocabulary of"]),
        (&["--logit-bias", "1=1", "--logit-bias", "1=2"], 1, &["logit bias", "each token once"]),
        (&["--stop", ""], 1, &["stop", "non-empty"]),
        (&["--stop-id", "99999"], 1, &["token id 99999", "the vocabulary of"]),
        (&["--stop-id", "-1"], 2, &["--stop-id", "-1"]),
        (&["--logprobs", "21", "--json"], 1, &["top logprobs", "0 to 20"]),
        (&["--logprobs", "-1", "--json"], 2, &["--logprobs", "-1"]),
        (&["--logprobs"], 2, &["--json"]),
        (&["--burst", "0"], 2, &["--burst", "1 to 64"]),
        (&["--burst", "65"], 2, &["--burst", "1 to 64"]),
        (&["--in-flight", "0"], 2, &["--in-flight", "1 to 4"]),
        (&["--in-flight", "5"], 2, &["--in-flight", "1 to 4"]),
        (&["-n", "0"], 1, &["max tokens", "at least 1"]),
        (&["--temprature", "1"], 2, &["--temprature", "--temp"]),
    ];
    for (options, status, expected) in cases {
        let args = ["run", path.to_str().unwrap(), "-p", "a", "--raw", "--backend", "cpu"];
        let out = blueshift(&[&args[..], options].concat());
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(status), "{options:?}: {said}");
        assert!(expected.iter().all(|part| said.contains(part)), "{options:?}: {said}");
        assert!(out.stdout.is_empty(), "{options:?}");
    }
}

#[test]
fn sampling_options_do_what_they_say() {
    let path = model_file("sampling");
    let run = |extra: &[&str]| ids(&run_json(path.to_str().unwrap(), &[&["--raw"], extra].concat()));
    let greedy = run(&[]);
    let hot = ["--temp", "3", "--seed", "5"];
    let drawn = run(&hot);
    assert_ne!(drawn, greedy);
    let changes: [&[&str]; 9] = [
        &["--seed", "6"],
        &["--temp", "0.5"],
        &["--top-k", "2"],
        &["--top-p", "0.05"],
        &["--min-p", "0.9"],
        &["--typical-p", "0.05"],
        &["--repeat-penalty", "0.01"],
        &["--frequency-penalty", "-90"],
        &["--presence-penalty", "-90"],
    ];
    for options in changes {
        let kept: Vec<_> = hot.chunks(2).filter(|pair| pair[0] != options[0]).flatten().copied().collect();
        assert_ne!(run(&[&kept[..], options].concat()), drawn, "{options:?}");
    }
    let neutral: [&[&str]; 9] = [
        &["--top-k", "0"],
        &["--top-p", "1"],
        &["--min-p", "0"],
        &["--typical-p", "1"],
        &["--repeat-penalty", "1"],
        &["--frequency-penalty", "0"],
        &["--presence-penalty", "0"],
        &["--penalty-window", "7"],
        &["--burst", "3", "--in-flight", "1"],
    ];
    for options in neutral {
        assert_eq!(run(&[&hot[..], options].concat()), drawn, "{options:?}");
    }
    let repelled = ["--presence-penalty", "100"];
    assert_eq!(run(&[&repelled[..], &["--penalty-window", "0"]].concat()), greedy, "nothing is recent");
    let mut distinct = run(&[&repelled[..], &["--penalty-window", "4096"]].concat());
    let n = distinct.len();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), n, "a token came twice although recent ones are far below the others");
    let forced = run(&["--logit-bias", "7=1000", "--logit-bias", "8=-inf"]);
    assert_eq!(forced, [7; 12]);
}

#[test]
fn logprobs_are_those_of_the_drawn_tokens() {
    let path = model_file("logprobs");
    let path = path.to_str().unwrap();
    let hot = ["--temp", "2", "--seed", "1", "--typical-p", "0.9"];
    for sampling in [&[][..], &hot] {
        let plain = run_json(path, sampling);
        assert!(plain.get("logprobs").is_none());
        let listed = run_json(path, &[sampling, &["--logprobs", "3"]].concat());
        let bare = run_json(path, &[sampling, &["--logprobs"]].concat());
        let drawn = ids(&plain);
        assert_eq!([ids(&listed), ids(&bare)], [drawn.clone(), drawn.clone()], "{sampling:?}");
        let entries = |answer: &Value| answer["logprobs"].as_array().unwrap().clone();
        assert_eq!((entries(&listed).len(), entries(&bare).len()), (drawn.len(), drawn.len()));
        for ((id, entry), bare) in drawn.iter().zip(entries(&listed)).zip(entries(&bare)) {
            assert_eq!(bare["top"], serde_json::json!([]));
            assert_eq!(bare["logprob"], entry["logprob"]);
            let top: Vec<(u64, f64)> = serde_json::from_value(entry["top"].clone()).unwrap();
            let own = entry["logprob"].as_f64().unwrap();
            assert_eq!(top.len(), 3);
            assert!(top.is_sorted_by(|a, b| a.1 >= b.1), "{entry}");
            let mass: f64 = top.iter().map(|(_, logprob)| logprob.exp()).sum();
            assert!(mass > 0.0 && mass <= 1.0 + 1e-6, "{entry}");
            assert!(own <= top[0].1);
            if sampling.is_empty() {
                assert_eq!((*id, own), top[0], "the likeliest is taken");
            }
        }
    }
}

#[test]
fn stop_ids_and_stop_strings_end_an_answer() {
    let path = model_file("stops");
    let run = |extra: &[&str]| run_json(path.to_str().unwrap(), &[&["--raw"], extra].concat());
    let whole = run(&[]);
    let drawn = ids(&whole);
    let last = drawn[4];
    let first_met = drawn.iter().position(|id| *id == last).unwrap();
    for flow in [&[][..], &["--burst", "12"]] {
        let stopped = run(&[&["--stop-id", "3", "--stop-id", &last.to_string()], flow].concat());
        assert_eq!(stopped["stop_reason"], "stop_id");
        assert_eq!(ids(&stopped), drawn[..=first_met]);
        let text = whole["text"].as_str().unwrap();
        let (at, _) = text.char_indices().nth(text.chars().count() / 2).unwrap();
        let end = &text[at..];
        let cut = run(&[&["--stop", "nowhere in it", "--stop", end], flow].concat());
        assert_eq!(cut["stop_reason"], "stop_string");
        assert_eq!(cut["text"].as_str().unwrap(), &text[..text.find(end).unwrap()]);
    }
}

#[test]
fn a_chat_takes_the_same_options_as_a_run() {
    let path = model_file("chat");
    let path = path.to_str().unwrap();
    let chat = |options: &[&str]| {
        let args = ["chat", path, "-n", "12", "--backend", "cpu"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_blueshift"));
        command.args(args).args(options).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"Hello\n/quit\n").unwrap();
        let out = child.wait_with_output().unwrap();
        [out.stdout, out.stderr].map(|bytes| String::from_utf8(bytes).unwrap())
    };
    let all = "--temp 1.5 --seed 3 --top-k 200 --top-p 0.9 --min-p 0.001 --typical-p 0.9 --repeat-penalty 1.1 \
               --frequency-penalty 0.5 --presence-penalty 0.5 --penalty-window 9 --logit-bias 9=2 --stop zz --stop-id 4 \
               --burst 2 --in-flight 2";
    for options in ["", all] {
        let options: Vec<_> = options.split_whitespace().collect();
        let [shown, said] = chat(&options);
        assert_eq!(said, "", "{options:?}");
        assert_eq!(shown, format!("{}\n", run_json(path, &options)["text"].as_str().unwrap()), "{options:?}");
    }
    let [_, said] = chat(&["--typical-p", "2"]);
    assert!(said.contains("typical-p is 2, expected a number above 0, at most 1"), "{said}");
}

#[test]
fn logits_are_raw_floats_and_do_not_depend_on_chunks() {
    let path = model_file("logits");
    let out = path.with_extension("f32");
    let logits = |chunk: &str, all: bool| {
        let mut args =
            vec!["logits", path.to_str().unwrap(), "--ids", "1,2,3,4,5", "--backend", "cpu", "--chunk", chunk];
        args.extend(["--out", out.to_str().unwrap()]);
        args.extend(all.then_some("--all"));
        succeeded(&args);
        std::fs::read(&out).unwrap()
    };
    let all = logits("0", true);
    assert_eq!(all.len() % (5 * 4), 0);
    let row = all.len() / 5;
    assert_eq!(logits("2", true), all);
    assert_eq!(logits("1", false), all[4 * row..]);
}

#[test]
fn both_backends_write_the_same_logits() {
    if !common::has_adapter() {
        return;
    }
    let path = model_file("backends");
    let logits = |backend: &str| {
        let out = path.with_extension(backend);
        let args = ["logits", path.to_str().unwrap(), "--ids", "9,8,7,6", "--all", "--backend", backend, "--out"];
        succeeded(&[&args[..], &[out.to_str().unwrap()]].concat());
        std::fs::read(&out).unwrap()
    };
    assert_eq!(logits("cpu"), logits("wgpu"));
}

#[test]
fn parity_reports_are_equal_but_for_who_answered() {
    if !common::has_adapter() {
        return;
    }
    let path = model_file("parity");
    let prompts = path.with_extension("txt");
    std::fs::write(&prompts, "the thing\n\nanother one, and more of it\n").unwrap();
    let report = |backend: &str| -> Value {
        let args = ["parity", path.to_str().unwrap(), "--tokens", "9", "--backend", backend, "--prompts"];
        serde_json::from_str(&succeeded(&[&args[..], &[prompts.to_str().unwrap()]].concat())).unwrap()
    };
    let (cpu, wgpu) = (report("cpu"), report("wgpu"));
    assert_eq!(cpu["answers"].as_array().unwrap().len(), 2);
    assert_eq!(cpu["answers"][1]["filtered"].as_array().unwrap().len(), 9);
    assert_ne!(cpu["answers"][0]["logits"], cpu["answers"][1]["logits"]);
    assert_eq!((&cpu["backend"], &wgpu["backend"]), (&"cpu".into(), &"wgpu".into()));
    assert_eq!(cpu["answers"], wgpu["answers"]);
}

/// CUDA is another program's: where that is missing, what to do is said.
#[test]
fn cuda_is_handed_over() {
    let path = model_file("cuda");
    // Where no other program lies beside it.
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("alone");
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join("blueshift");
    std::fs::copy(env!("CARGO_BIN_EXE_blueshift"), &program).unwrap();
    let mut command = Command::new(program);
    let out =
        command.args(["run", path.to_str().unwrap(), "-p", "x", "--backend", "cuda"]).env("PATH", "").output().unwrap();
    let error = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && error.contains("blueshift-cuda"), "{error}");
}

#[test]
fn tokenize_and_inspect_describe_the_file() {
    let path = model_file("tokenize");
    let path = path.to_str().unwrap();
    let ids: Vec<u32> = serde_json::from_str(&succeeded(&["tokenize", path, "the thing"])).unwrap();
    assert!(!ids.is_empty());
    let special: Vec<u32> = serde_json::from_str(&succeeded(&["tokenize", path, "a<|eos|>", "--special"])).unwrap();
    let plain: Vec<u32> = serde_json::from_str(&succeeded(&["tokenize", path, "a<|eos|>"])).unwrap();
    assert!(special.len() < plain.len(), "{special:?} {plain:?}");
    let shown = succeeded(&["inspect", path]);
    assert!(shown.contains("general.architecture") && shown.contains("blk.1.ffn_down.weight"), "{shown}");
}

#[test]
fn errors_are_one_line_and_a_status() {
    let path = model_file("errors");
    let path = path.to_str().unwrap();
    let text = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("text.gguf");
    std::fs::write(&text, "this is no model").unwrap();
    let cases: [(&[&str], &str); 5] = [
        (&["run", text.to_str().unwrap(), "-p", "a"], "GGUF"),
        (&["run", "no/such/file.gguf", "-p", "a"], "no/such/file.gguf"),
        (&["logits", path, "--ids", "99999", "--backend", "cpu", "--out", "/dev/null"], "99999"),
        (&["run", path, "-p", "a", "--raw", "--temp", "-1", "--backend", "cpu"], "0 to 100"),
        (&["run", path, "-p", "a", "--raw", "--ctx", "100000", "--backend", "cpu"], "100000"),
    ];
    for (args, expected) in cases {
        let out = blueshift(args);
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.starts_with("blueshift: ") && said.contains(expected), "{args:?}: {said}");
    }
}

#[test]
fn a_batch_gives_what_each_prompt_gives_alone() {
    let path = model_file("batch");
    let path = path.to_str().unwrap();
    let common = ["--raw", "-n", "12", "--temp", "0.9", "--top-k", "40", "--backend", "cpu", "--json"];
    let (prompts, seeds) = (["Hello", "One two three", "x"], ["5", "7", "18446744073709551615"]);
    let mut args = vec!["batch", path];
    for (prompt, seed) in prompts.iter().zip(seeds) {
        args.extend(["-p", prompt, "--seed", seed]);
    }
    args.extend(common);
    let batch: Value = serde_json::from_str(&succeeded(&args)).unwrap();
    let sequences = batch["sequences"].as_array().unwrap();
    assert_eq!(sequences.len(), 3);
    for ((prompt, seed), sequence) in prompts.iter().zip(seeds).zip(sequences) {
        let run = [&["run", path, "-p", prompt, "--seed", seed][..], &common].concat();
        let alone: Value = serde_json::from_str(&succeeded(&run)).unwrap();
        for key in ["prompt_ids", "ids", "text", "stop_reason"] {
            assert_eq!(sequence[key], alone[key], "{key} of {prompt:?}");
        }
    }
    let text = succeeded(&["batch", path, "-p", "a", "-p", "b", "--raw", "-n", "3", "--backend", "cpu"]);
    assert!(text.contains("--- 1\n") && text.contains("--- 2\n"), "{text}");
    let out = blueshift(&["batch", path, "-p", "a", "-p", "b", "-p", "c", "--seed", "1", "--seed", "2"]);
    assert!(!out.status.success());
    assert!(String::from_utf8_lossy(&out.stderr).contains("2 seeds for 3 prompts"), "{out:?}");
}

#[test]
fn answers_have_the_form_that_was_asked_for() {
    let path = model_file("grammar");
    let base = ["run", path.to_str().unwrap(), "-p", "Hello", "--raw", "-n", "60", "--temp", "1", "--backend", "cpu"];
    let with = |more: &[&str]| succeeded(&[&base[..], more].concat());
    assert!(["red\n", "green\n"].contains(&with(&["--regex", "red|green"]).as_str()));
    let schema = r#"{"type": "object", "properties": {"n": {"enum": [1, 22]}}, "required": ["n"], "additionalProperties": false}"#;
    let answer: Value = serde_json::from_str(&with(&["--json-schema", schema])).unwrap();
    assert!(answer["n"] == 1 || answer["n"] == 22, "{answer}");
    let file = path.with_extension("lark");
    std::fs::write(&file, "start: \"a\" | \"bc\"").unwrap();
    assert!(["a\n", "bc\n"].contains(&with(&["--lark", file.to_str().unwrap()]).as_str()));
    for (option, value, said) in [
        ("--json-schema", "{", "malformed JSON"),
        ("--regex", "(", "bad regular expression"),
        ("--lark", "none", "none"),
    ] {
        let out = blueshift(&[&base[..], &[option, value]].concat());
        assert!(!out.status.success());
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert!(stderr.contains(said), "{option}: {stderr}");
    }
}
