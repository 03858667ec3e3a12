//! The command line as programs use it: JSON out, errors in words, exit codes.

mod common;

use std::path::PathBuf;
use std::process::{Command, Output};

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
