//! The library inside a browser: wasm with SIMD128 gives the bits that native code gives, and JavaScript gets errors it can tell apart.
#![cfg(target_arch = "wasm32")]

mod wasm_answers;

use blueshift::engine::{BackendChoice, Engine, LoadOptions};
use blueshift::gguf::Source;
use blueshift::gpu::{Gpu, selftest};
use blueshift::micro::MicroModel;
use blueshift::plan::KvType;
use blueshift::quant::QuantType;
use blueshift::tokenizer::Decoder;
use blueshift::web::Model;
use js_sys::{Array, Function, Reflect, Uint8Array};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_test::{wasm_bindgen_test, wasm_bindgen_test_configure};
use web_sys::Blob;

wasm_bindgen_test_configure!(run_in_browser);

const _: () = assert!(cfg!(target_feature = "simd128"), "compile with -C target-feature=+simd128");

#[wasm_bindgen_test]
async fn the_cpu_backend_gives_the_known_answers() {
    for (kind, known) in wasm_answers::ANSWERS {
        let found = wasm_answers::answer(kind).await.expect("the micro models run");
        assert_eq!(found, known, "{kind:?}: found {found:#x}, expected {known:#x}");
    }
}

#[wasm_bindgen_test]
async fn the_browsers_gpu_passes_the_self_test() {
    let gpu = gpu().await;
    let kinds = [QuantType::Q4_1, QuantType::Q4_K];
    let report = selftest::run(&gpu, &kinds, true, KvType::Q8_0).await.expect("the device computes rightly");
    assert!(report.exact, "{:?} has other bits on {}", report.first_difference, gpu.adapter().name);
}

/// The browser's adapter; the first requests can fail while its GPU process starts.
async fn gpu() -> Gpu {
    for _ in 0..20 {
        if let Ok(gpu) = Gpu::open(None).await {
            return gpu;
        }
        let wait = Function::new_with_args("resolve", "setTimeout(resolve, 250)");
        let pause = js_sys::Promise::new(&mut |resolve, _| drop(wait.call1(&JsValue::NULL, &resolve)));
        wasm_bindgen_futures::JsFuture::from(pause).await.expect("a timer does not fail");
    }
    Gpu::open(None).await.expect("the browser offers a WebGPU adapter")
}

#[wasm_bindgen_test]
async fn characters_arrive_whole() {
    let source = Source::memory("micro", MicroModel::llama(QuantType::F32).bytes());
    let options = LoadOptions { backend: BackendChoice::Cpu, n_ctx: Some(64), ..LoadOptions::default() };
    let engine = Engine::load(source, options).await.expect("the micro model loads");
    let text = "the end: é € 🦀 and";
    let tokenizer = engine.tokenizer();
    let ids = tokenizer.encode(text, true);
    assert_eq!(tokenizer.decode(&ids), text);
    let mut decoder = Decoder::new();
    let pieces: Vec<String> = ids.iter().map(|id| decoder.push(tokenizer, *id)).collect();
    assert!(pieces.iter().all(|piece| !piece.contains(char::REPLACEMENT_CHARACTER)), "{pieces:?}");
    assert_eq!(pieces.concat() + &decoder.finish(), text);
}

fn blob(bytes: &[u8]) -> Blob {
    Blob::new_with_u8_array_sequence(&Array::of1(&Uint8Array::from(bytes))).expect("a blob of bytes")
}

async fn load(bytes: &[u8], options: &str) -> Result<Model, JsValue> {
    Model::from_blob(blob(bytes), options.into(), Function::new_no_args("")).await
}

/// Options as the package writes them: a greedy answer of at most `max_tokens`.
fn request(max_tokens: u32) -> String {
    format!(
        r#"{{"maxTokens":{max_tokens},"temperature":0,"seed":1,"topK":0,"topP":1,"minP":0,"repeatPenalty":1,
        "frequencyPenalty":0,"presencePenalty":0,"penaltyWindow":64,"logitBias":[],"suppress":[],"stop":[],
        "typicalP":1,"stopIds":[],"logprobs":null,"burst":null,"inFlight":null}}"#
    )
}

#[wasm_bindgen_test]
async fn a_blob_loads_and_generates_as_json() {
    let bytes = MicroModel::llama(QuantType::Q4_0).bytes();
    let mut model = load(&bytes, r#"{"backend":"cpu","contextLength":64}"#).await.expect("the micro model loads");
    assert!(model.info().contains(r#""backend":"cpu""#), "{}", model.info());
    let mut generation = model.start(r#"{"text":"the"}"#, &request(3)).expect("a valid request");
    while model.next(&mut generation).await.expect("decodes").is_some() {}
    let finish = generation.finish().expect("it has ended");
    assert!(finish.contains("stopReason") && finish.contains("decodeMs"), "{finish}");
}

#[wasm_bindgen_test]
async fn errors_carry_their_code() {
    let options = r#"{"backend":"cpu","contextLength":64}"#;
    let not_gguf = load(b"this is no model, only a sentence", options).await.err();
    let bytes = MicroModel::llama(QuantType::Q4_0).bytes();
    let cut = load(&bytes[..bytes.len() / 2], options).await.err();
    let bad_json = load(&bytes, "{").await.err();
    let mut model = load(&bytes, options).await.expect("the micro model loads");
    let none = model.start(r#"{"text":"the"}"#, &request(0)).err();
    let long = format!(r#"{{"text":"{}"}}"#, "z".repeat(100));
    let long = model.start(&long, &request(1)).err();
    let cases = [
        (not_gguf, "NotGguf"),
        (cut, "Malformed"),
        (bad_json, "BadOption"),
        (none, "BadOption"),
        (long, "ContextFull"),
    ];
    for (error, code) in cases {
        let error = error.unwrap_or_else(|| panic!("{code} was expected, nothing was refused"));
        let text = |key: &str| Reflect::get(&error, &key.into()).ok().and_then(|v| v.as_string()).unwrap_or_default();
        assert!(error.is_instance_of::<js_sys::Error>(), "{code}");
        assert_eq!((text("name").as_str(), text("code").as_str()), ("BlueshiftError", code), "{}", text("message"));
        assert!(!text("message").is_empty(), "{code}");
    }
}
