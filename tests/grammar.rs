//! Constrained output: whatever a model's logits are, what is drawn under the masks fits the grammar.
#![cfg(feature = "grammar")]

mod grammar_vocab;
mod schemas;

use blueshift::grammar::{Constraint, Grammar, GrammarEnv};
use blueshift::sample::{Sampling, draw};
use blueshift::tokenizer::Tokenizer;
use blueshift::{Error, GrammarFault};
use grammar_vocab::{PADDING, RandomModel};
use schemas::{cases, fault};
use serde_json::json;

/// Most tokens of an answer.
const MAX_TOKENS: u32 = 400;
/// Random models for each schema and way of sampling.
const N_MODELS: usize = 5;

fn env(tokenizer: &Tokenizer) -> GrammarEnv {
    GrammarEnv::new(tokenizer.clone(), tokenizer.n_vocab() + PADDING).expect("the vocabulary fits")
}

fn allows(mask: &[u32], id: u32) -> bool {
    mask[id as usize / 32] >> (id % 32) & 1 == 1
}

/// Ids, the end token left out, and whether the answer has ended.
struct Answer {
    ids: Vec<u32>,
    is_complete: bool,
}

/// An answer of `next`, which gives logits by step, drawn under masks.
fn constrained(
    tokenizer: &Tokenizer,
    mut constraint: Constraint,
    sampling: &Sampling,
    mut next: impl FnMut(u32, &[u32]) -> Vec<f32>,
    max_tokens: u32,
) -> blueshift::Result<Answer> {
    let mut ids = Vec::new();
    for step in 0..max_tokens {
        let logits = next(step, &ids);
        let id = draw(&logits, sampling, step, &ids, Some(constraint.mask()?)).expect("a mask is never empty");
        constraint.accept(id)?;
        if tokenizer.is_eog(id) {
            assert!(constraint.is_finished());
            return Ok(Answer { ids, is_complete: true });
        }
        ids.push(id);
    }
    Ok(Answer { ids, is_complete: false })
}

fn text(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|id| tokenizer.token_bytes(*id)).copied().collect()
}

fn samplings() -> Vec<Sampling> {
    let filtered = Sampling { top_k: 40, top_p: 0.9, min_p: 0.01, typical_p: 0.95, ..Sampling::new(1.0, 5) };
    let penal =
        Sampling { repeat_penalty: 1.3, frequency_penalty: 0.2, biases: vec![(34, 5.0)], ..Sampling::new(1.0, 6) };
    vec![Sampling::GREEDY, Sampling::new(1.0, 1), Sampling::new(2.0, 2), filtered, penal]
}

/// Answers of random models to all schemas.
fn check_schemas(tokenizer: &Tokenizer, samplings: &[Sampling]) {
    let env = env(tokenizer);
    let (mut n, mut n_complete, mut wrong) = (0, 0, Vec::new());
    for (i, case) in cases().into_iter().enumerate() {
        let start = env.constraint(&Grammar::JsonSchema(case.schema.clone()));
        let start = start.unwrap_or_else(|e| panic!("{}: {e}", case.name));
        for (j, sampling) in samplings.iter().cycle().take(samplings.len() * N_MODELS).enumerate() {
            let model = RandomModel::new(tokenizer, (1000 * i + j) as u64);
            let logits = |step, _: &[u32]| model.logits(step);
            let answer = constrained(tokenizer, start.clone(), sampling, logits, MAX_TOKENS);
            let answer = answer.unwrap_or_else(|e| panic!("{}, {sampling:?}: {e}", case.name));
            n += 1;
            if answer.is_complete {
                n_complete += 1;
                let reason = fault(&case.schema, &text(tokenizer, &answer.ids));
                wrong.extend(reason.map(|reason| format!("{}, T {}: {reason}", case.name, sampling.temperature)));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {n}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(n_complete * 10 > n * 8, "only {n_complete} of {n} answers ended");
}

#[test]
fn answers_are_valid_under_their_schema() {
    check_schemas(&grammar_vocab::byte_level(), &samplings());
}

#[test]
fn answers_of_a_sentence_piece_vocabulary_are_valid() {
    check_schemas(&grammar_vocab::sentence_piece(), &samplings()[1..3]);
}

/// The same without masks is invalid, so the checks above can fail.
#[test]
fn without_a_mask_answers_are_invalid() {
    let tokenizer = grammar_vocab::byte_level();
    let (mut n, mut n_valid) = (0, 0);
    for (i, case) in cases().into_iter().enumerate().skip(2) {
        let model = RandomModel::new(&tokenizer, i as u64);
        let mut ids = Vec::new();
        for step in 0..MAX_TOKENS {
            let id = draw(&model.logits(step), &Sampling::new(1.0, 1), step, &ids, None).expect("a token");
            if tokenizer.is_eog(id) {
                break;
            }
            ids.push(id);
        }
        n += 1;
        n_valid += usize::from(fault(&case.schema, &text(&tokenizer, &ids)).is_none());
    }
    assert!(n_valid * 20 < n, "{n_valid} of {n} are valid");
}

#[test]
fn forced_tokens_are_those_that_would_be_drawn() {
    let tokenizer = grammar_vocab::byte_level();
    let env = env(&tokenizer);
    let mut n_forced = 0;
    for (i, case) in cases().into_iter().enumerate() {
        let start = env.constraint(&Grammar::JsonSchema(case.schema)).expect("a schema");
        let model = RandomModel::new(&tokenizer, i as u64);
        let sampling = Sampling::new(1.0, 3);
        let drawn =
            constrained(&tokenizer, start.clone(), &sampling, |step, _| model.logits(step), 60).expect("an answer");
        let (mut constraint, mut ids) = (start, Vec::new());
        while ids.len() < drawn.ids.len() {
            let forced = constraint.forced();
            n_forced += forced.len();
            for id in &forced {
                let mask = constraint.mask().expect("a mask");
                assert!(allows(mask, *id) && mask.iter().map(|w| w.count_ones()).sum::<u32>() == 1, "{}", case.name);
                constraint.accept(*id).expect("a forced token");
                ids.push(*id);
            }
            if forced.is_empty() {
                let step = ids.len() as u32;
                let id = draw(&model.logits(step), &sampling, step, &ids, Some(constraint.mask().expect("a mask")));
                constraint.accept(id.expect("a token")).expect("a drawn token");
                ids.extend(id);
            }
        }
        assert_eq!(ids[..drawn.ids.len()], drawn.ids, "{}", case.name);
    }
    assert!(n_forced > 300, "{n_forced}");
}

/// A token is in the mask exactly where it is accepted, special tokens never, end tokens where the text is complete.
#[test]
fn masks_and_acceptance_agree() {
    let tokenizer = grammar_vocab::byte_level();
    let env = env(&tokenizer);
    let n_rows = (tokenizer.n_vocab() + PADDING) as u32;
    for (i, case) in cases().into_iter().enumerate().step_by(7) {
        let mut constraint = env.constraint(&Grammar::JsonSchema(case.schema.clone())).expect("a schema");
        let model = RandomModel::new(&tokenizer, i as u64);
        let mut ids = Vec::new();
        for step in 0..30 {
            let is_forced = !constraint.forced().is_empty();
            let mask = constraint.mask().expect("a mask").to_vec();
            assert_eq!(mask.len(), n_rows.div_ceil(32) as usize);
            assert!((n_rows..mask.len() as u32 * 32).all(|id| !allows(&mask, id)));
            let is_complete = constraint.is_complete();
            for id in 0..n_rows {
                let accepted = constraint.clone().accept(id);
                assert!(accepted.is_ok() || !allows(&mask, id), "{}: {id}", case.name);
                assert!(is_forced || accepted.is_err() || allows(&mask, id), "{}: {id}", case.name);
                if let Err(e) = accepted {
                    assert!(matches!(e, Error::Grammar { fault: GrammarFault::TokenNotAllowed, .. }), "{e}");
                }
                assert!(!tokenizer.is_eog(id) || allows(&mask, id) == is_complete, "{}: {id}", case.name);
                let is_text = (id as usize) < tokenizer.n_vocab() && !tokenizer.is_control(id);
                assert!(is_text || tokenizer.is_eog(id) || !allows(&mask, id), "{}: {id}", case.name);
            }
            if is_complete {
                assert!(fault(&case.schema, &text(&tokenizer, &ids)).is_none(), "{}", case.name);
            }
            let id = draw(&model.logits(step), &Sampling::new(1.0, 4), step, &ids, Some(&mask)).expect("a token");
            constraint.accept(id).expect("a token in the mask");
            if tokenizer.is_eog(id) {
                break;
            }
            ids.push(id);
        }
    }
}

/// Runs a constraint over a text cut in a given way; whether it is complete then.
fn takes(env: &GrammarEnv, tokenizer: &Tokenizer, grammar: &Grammar, pieces: &[&[u8]]) -> blueshift::Result<bool> {
    let mut constraint = env.constraint(grammar)?;
    for piece in pieces {
        let id = (0..tokenizer.n_vocab() as u32)
            .find(|id| tokenizer.token_bytes(*id) == *piece && !tokenizer.is_control(*id));
        constraint.accept(id.unwrap_or_else(|| panic!("no token {piece:?}")))?;
    }
    Ok(constraint.is_complete())
}

#[test]
fn tokens_with_several_parts_or_parts_of_characters() {
    let any = || Grammar::JsonSchema(json!({}));
    let short = || Grammar::JsonSchema(json!({ "type": "string", "maxLength": 1 }));
    let euro = || Grammar::JsonSchema(json!({ "const": "€" }));
    /// A grammar, the tokens, whether they are a whole answer; `None` where they are no beginning of one.
    type Case = (Grammar, &'static [&'static [u8]], Option<bool>);
    let cases: [Case; 14] = [
        (any(), &[b"{\"a\":1}"], Some(true)),
        (any(), &[b"[1,2,", b"{\"", b"a", b"\":", b"[[", b"]", b"],[", b"]}"], None),
        (any(), &[b"[[", b"],[", b"]", b"]"], Some(true)),
        (any(), &[b"[1,2,", b"{\"a\":1}", b"]"], Some(true)),
        (any(), &[b"[", b"{\"name\":\"", b"\"},{\"", b"a", b"\":", b"null", b"}"], Some(false)),
        (any(), &[b"{\"name\":\"", b"\"},{\""], None),
        (any(), &[b"\"", b"\xe6\x97", b"\xa5", b"\""], Some(true)),
        (any(), &[b"\"", b"\xf0", b"\x9f", b"\x98", b"\x80", b"\""], Some(true)),
        (any(), &[b"\"", b"\xf0\x9f\x98", b"\""], None),
        (any(), &[b"\"", b"\x80"], None),
        (any(), &[b"\"", b"\xff"], None),
        (short(), &[b"\"", b"\xe2", b"\x82\xac\""], None),
        (short(), &[b"\"", b"\xe2\x82", b"\xac", b"\""], Some(true)),
        (euro(), &[b"\"", b"\xe2\x82\xac", b"\""], Some(true)),
    ];
    let tokenizer = grammar_vocab::byte_level();
    let env = env(&tokenizer);
    for (grammar, pieces, wanted) in cases {
        let has_all =
            pieces.iter().all(|piece| (0..tokenizer.n_vocab() as u32).any(|id| tokenizer.token_bytes(id) == *piece));
        if has_all {
            assert_eq!(takes(&env, &tokenizer, &grammar, pieces).ok(), wanted, "{pieces:?}");
        } else {
            assert!(pieces.contains(&&b"\x82\xac\""[..]), "{pieces:?}");
        }
    }
    // A SentencePiece vocabulary spells what it has no token for with byte tokens.
    let tokenizer = grammar_vocab::sentence_piece();
    let env = self::env(&tokenizer);
    for pieces in [&[&b"\""[..], b"\xe2", b"\x82", b"\xac", b"\""][..], &[b"\"", "é".as_bytes(), b"\""]] {
        let takes = takes(&env, &tokenizer, &Grammar::JsonSchema(json!({ "type": "string", "maxLength": 1 })), pieces);
        assert!(takes.expect("a string"), "{pieces:?}");
    }
    let forced = env.constraint(&Grammar::JsonSchema(json!({ "const": "hello 中" }))).expect("a schema").forced();
    assert_eq!(text(&tokenizer, &forced), "\"hello 中\"".as_bytes());
}

#[test]
fn regular_expressions_and_lark() {
    let tokenizer = grammar_vocab::byte_level();
    let env = env(&tokenizer);
    let regex = |text: &str| Grammar::Regex(text.into());
    let lark = |text: &str| Grammar::Lark(text.into());
    let list = "start: item (\",\" item)*\nitem: NAME | \"(\" start \")\"\nNAME: /[a-c]+/\n";
    let cases: [(Grammar, &str, Option<bool>); 18] = [
        (regex("[ab]+c?"), "abba", Some(true)),
        (regex("[ab]+c?"), "abcc", None),
        (regex("(?i)true|false"), "TrUe", Some(true)),
        (regex("é{2}/\\\\"), "éé/\\", Some(true)),
        (regex(""), "", Some(true)),
        (regex(""), "a", None),
        (regex("a\nb"), "a\nb", Some(true)),
        (lark(list), "a,(b,(c)),abc", Some(true)),
        (lark(list), "a,(b,(c)", Some(false)),
        (lark(list), "a)", None),
        (lark("start: \"x\" %json { \"type\": \"array\", \"items\": { \"const\": 1 } }"), "x[1,1]", Some(true)),
        (Grammar::JsonObject, "{\"a\": [1, \"b\"]}", Some(true)),
        (lark("start: a \"y\"\na[suffix=\"x\"]: /[a-x]*/"), "abxy", Some(true)),
        (lark("start: a \"y\"\na[suffix=\"x\"]: /[a-x]*/"), "abxx", None),
        (lark("start: \"a\" <|bos|> \"b\""), "a", Some(false)),
        (Grammar::JsonObject, "[", None),
        (Grammar::JsonObject, "{\n  \"a\": 1\n}", Some(true)),
        (Grammar::JsonObject, "{\n\n", None),
    ];
    for (grammar, text, wanted) in cases {
        let mut constraint = env.constraint(&grammar).expect("a grammar");
        let mut ids = tokenizer.encode(text, false).into_iter();
        let taken = ids.try_for_each(|id| constraint.accept(id));
        assert_eq!(taken.is_ok().then(|| constraint.is_complete()), wanted, "{grammar:?}: {text}");
    }
}

#[test]
fn a_clone_goes_its_own_way() {
    let tokenizer = grammar_vocab::byte_level();
    let schema = json!({ "type": "object", "properties": { "a": { "enum": ["x", "y"] } }, "required": ["a"], "additionalProperties": false });
    let start = env(&tokenizer).constraint(&Grammar::JsonSchema(schema.clone())).expect("a schema");
    let answers: Vec<Vec<u8>> = (0..16)
        .map(|seed| {
            let model = RandomModel::new(&tokenizer, seed);
            let logits = |step, _: &[u32]| model.logits(step);
            let answer =
                constrained(&tokenizer, start.clone(), &Sampling::GREEDY, logits, MAX_TOKENS).expect("an answer");
            assert!(answer.is_complete);
            text(&tokenizer, &answer.ids)
        })
        .collect();
    assert!(answers.iter().all(|answer| fault(&schema, answer).is_none()));
    let has = |part: &[u8]| answers.iter().any(|a| a.windows(part.len()).any(|w| w == part));
    assert!(has(b"\"x\"") && has(b"\"y\""));
    fn can_be_shared<T: Send + Sync>(_: &T) {}
    can_be_shared(&env(&tokenizer));
    fn can_be_sent<T: Send>(_: T) {}
    can_be_sent(start);
}
