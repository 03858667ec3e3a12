//! Grammars that are refused, and vocabularies at their ends.

use serde_json::{Map, json};

use super::env::MAX_TOKEN_BYTES as MAX_TOKEN;
use super::*;
use crate::gguf::{Source, open};
use crate::micro::MicroModel;
use crate::micro::writer::Writer;
use crate::quant::QuantType;
use crate::tokenizer::Tokenizer;

fn env() -> GrammarEnv {
    let source = Source::memory("micro", MicroModel::llama(QuantType::F32).bytes());
    let file = pollster::block_on(open(source)).expect("the micro model is valid");
    let tokenizer = Tokenizer::from_metadata(&file.header.metadata).expect("a tokenizer");
    let n_vocab = tokenizer.n_vocab();
    GrammarEnv::new(tokenizer, n_vocab).expect("the vocabulary fits")
}

/// The fault and the reason that a grammar is refused with.
fn refusal(env: &GrammarEnv, grammar: Result<Grammar>) -> (GrammarFault, String) {
    match grammar.and_then(|grammar| env.constraint(&grammar)) {
        Err(Error::Grammar { fault, reason }) => (fault, reason),
        Err(other) => panic!("{other}"),
        Ok(constraint) => panic!("it is taken: {constraint:?}"),
    }
}

#[test]
fn refused_schemas_name_the_fault() {
    use GrammarFault::*;
    /// A schema, the fault, what the reason says.
    type Case<'a> = (&'a str, GrammarFault, &'a str);
    let cases: [Case<'_>; 54] = [
        ("", MalformedJson, "line 1 column 0"),
        ("{\"type\": \"string\"", MalformedJson, "line 1 column 17"),
        ("{\n\"type\": string}", MalformedJson, "line 2 column 9"),
        ("{\"a\": 1} x", MalformedJson, "trailing"),
        ("[1]", InvalidSchema, "#: [1]: expected an object or a boolean"),
        ("\"string\"", InvalidSchema, "expected an object or a boolean"),
        (r#"{"type": "strnig"}"#, InvalidSchema, "#/type: \"strnig\": expected one or several of null, boolean"),
        (r#"{"type": []}"#, InvalidSchema, "#/type: []"),
        (r#"{"type": ["string", 1]}"#, InvalidSchema, "#/type"),
        (r#"{"properties": []}"#, InvalidSchema, "#/properties: []: expected an object"),
        (r#"{"properties": {"a": 3}}"#, InvalidSchema, "#/properties/a: 3: expected an object or a boolean"),
        (r#"{"items": "x"}"#, InvalidSchema, "#/items: \"x\""),
        (r#"{"anyOf": {}}"#, InvalidSchema, "#/anyOf: {}: expected an array"),
        (r#"{"enum": 1}"#, InvalidSchema, "#/enum: 1: expected an array"),
        (r#"{"required": "a"}"#, InvalidSchema, "#/required: \"a\": expected an array of strings"),
        (r#"{"minLength": -1}"#, InvalidSchema, "#/minLength: -1"),
        (r#"{"maxItems": 1.5}"#, InvalidSchema, "#/maxItems: 1.5"),
        (r#"{"minimum": "1"}"#, InvalidSchema, "#/minimum: \"1\": expected a number"),
        (r#"{"multipleOf": 0}"#, InvalidSchema, "#/multipleOf: 0: expected a number above 0"),
        (r#"{"pattern": 1}"#, InvalidSchema, "#/pattern: 1: expected a string"),
        // 100 bytes in, a character is cut.
        (r#"{"$ref": ["ééééééééééééééééééééééééééééééééééééééééééééééééééééééééé"]}"#, InvalidSchema, "#/$ref"),
        (r#"{"not": {"type": "string"}}"#, Unsupported, "#/not: the keyword not"),
        (r#"{"properties": {"a": {"uniqueItems": true}}}"#, Unsupported, "#/properties/a/uniqueItems"),
        (r#"{"if": {}, "then": {}, "else": {}}"#, Unsupported, "the keyword"),
        (r#"{"type": "string", "format": "colour"}"#, Unsupported, "Unknown format: colour"),
        (r#"{"oneOf": [{"type": "string"}, {"type": "string", "minLength": 3}]}"#, Unsupported, "oneOf"),
        (r#"{"patternProperties": {"^a": {}, "b$": {}}}"#, Unsupported, "not disjoint"),
        (r#"{"type": "string", "pattern": "(?=a)b"}"#, Unsupported, "look-around"),
        (r#"{"type": "string", "pattern": "(a)\\1"}"#, Unsupported, "backreferences"),
        (r#"{"type": "string", "pattern": "\\bword"}"#, Unsupported, "lookarounds"),
        (r#"{"type": "number", "minimum": 1e300}"#, Unsupported, "#/minimum: 1e+300"),
        (r#"{"type": "number", "minimum": 1e-300}"#, Unsupported, "#/minimum: 1e-300"),
        (r##"{"$ref": "#/$defs/x"}"##, UnresolvedRef, "\"#/$defs/x\": there is no \"$defs\""),
        (r##"{"items": {"$ref": "#/$defs/x/y"}, "$defs": {"x": {}}}"##, UnresolvedRef, "there is no \"y\""),
        (r#"{"$ref": "http://example.com/schema"}"#, UnresolvedRef, "http://example.com/schema"),
        (r##"{"$ref": "#anchor"}"##, UnresolvedRef, "#anchor"),
        (r#"{"type": "string", "pattern": "a("}"#, BadRegex, "unclosed group"),
        (r#"{"type": "string", "pattern": "[z-a]"}"#, BadRegex, "[z-a]"),
        (
            r#"{"type": "integer", "minimum": 5, "maximum": 3}"#,
            Unsatisfiable,
            "minimum (5) is greater than maximum (3)",
        ),
        (r#"{"exclusiveMinimum": 3, "maximum": 3, "type": "number"}"#, Unsatisfiable, "exclusiveMinimum (3)"),
        (r#"{"type": "integer", "minimum": 0.2, "maximum": 0.8}"#, Unsatisfiable, "no integer"),
        (r#"{"type": "string", "minLength": 3, "maxLength": 2}"#, Unsatisfiable, "minLength (3)"),
        (r#"{"type": "array", "minItems": 3, "maxItems": 2}"#, Unsatisfiable, "minItems (3)"),
        (r#"{"type": "object", "minProperties": 2, "maxProperties": 1}"#, Unsatisfiable, "minProperties"),
        ("false", Unsatisfiable, "false"),
        (r#"{"enum": []}"#, Unsatisfiable, "empty"),
        (r#"{"allOf": [{"type": "string"}, {"type": "number"}]}"#, Unsatisfiable, "incompatible types"),
        (r#"{"type": "object", "properties": {"a": false}, "required": ["a"]}"#, Unsatisfiable, "'a'"),
        (r#"{"type": "string", "pattern": "^a$", "minLength": 3}"#, Unsatisfiable, "Regex is empty"),
        // A text that contains itself never ends.
        (r##"{"$ref": "#"}"##, Unsatisfiable, "no token"),
        (r#"{"maxLength": 4294967299}"#, TooComplex, "#/maxLength: 4294967299 characters"),
        (r#"{"multipleOf": 1e9}"#, TooComplex, "#/multipleOf: 1000000000"),
        (r#"{"multipleOf": 1e-9}"#, TooComplex, "decimals"),
        (r#"{"allOf": [{"multipleOf": 9973}, {"multipleOf": 9967}]}"#, TooComplex, "common multiple"),
    ];
    let env = env();
    for (schema, fault, words) in cases {
        let (found, reason) = refusal(&env, Grammar::json_schema(schema));
        assert!(found == fault && reason.contains(words), "{schema}: {found:?}: {reason}, expected {fault:?}: {words}");
        let text = error(found, reason.clone()).to_string();
        assert!(text.starts_with("grammar: ") && text.ends_with(&reason), "{text}");
    }
}

#[test]
fn refused_expressions_and_lark_texts_name_the_fault() {
    use GrammarFault::*;
    let regex = |text: &str| Grammar::Regex(text.into());
    let lark = |text: &str| Grammar::Lark(text.into());
    let cases = [
        (regex("a("), BadRegex, "unclosed group"),
        (regex("[b-a]"), BadRegex, "[b-a]"),
        (regex("a{3,2}"), BadRegex, "repetition"),
        (regex("a\\"), BadRegex, "backslash"),
        (regex("\\p{Foo}"), BadRegex, "Unicode property"),
        (regex("a(?!b)"), Unsupported, "look-around"),
        (regex("[^\\s\\S]"), Unsatisfiable, "no token"),
        (regex("(?-u)\\xff"), BadRegex, "UTF-8"),
        (lark(""), BadLark, "no start rule"),
        (lark("start: \"a\"\nfoo bar\n"), BadLark, "line 2, column 5"),
        (lark("start: \"a\"\n\nb: (\n"), BadLark, "line 3"),
        (lark("start: x y\nx: \"a\""), BadLark, "line 1, column 8: unknown name: \"y\""),
        (lark("start: \"a"), BadLark, "line 1"),
        (lark("start: A\nA: B\nB: A"), BadLark, "circular"),
        (lark("start: /(/"), BadRegex, "line 1, column 8"),
        (lark("start: \"z\"..\"a\""), BadLark, "line 1"),
        (lark("start: <|nothing|>"), BadLark, "unknown special token"),
        (lark("start: a \"y\"\na[stop = \"x\"]: /[a-x]*/"), Unsupported, "stop="),
        (lark("start: x::0x0\nx::_ : \"\" x::set_bit(0) %if bit_clear(0)"), Unsupported, "parameters"),
        (lark("start: @other"), BadLark, "unknown grammar"),
        (lark("start: start \"a\""), Unsatisfiable, "no token"),
        (lark("start: %json { \"type\": \"foo\" }"), InvalidSchema, "#/type"),
        (lark("start: %json { \"multipleOf\": 1000000007 }"), TooComplex, "#/multipleOf"),
        (lark("%llguidance { \"allow_invalid_utf8\": true }\nstart: /a/"), Unsupported, "allow_invalid_utf8"),
    ];
    let env = env();
    for (grammar, fault, words) in cases {
        let (found, reason) = refusal(&env, Ok(grammar.clone()));
        assert!(found == fault && reason.contains(words), "{grammar:?}: {found:?}: {reason}, expected {fault:?}");
    }
}

/// Chains and nests that the compiler would descend into, and sizes it would not finish.
#[test]
fn huge_grammars_are_refused() {
    let chain = |n: usize| {
        let link = |i: usize| (format!("d{i}"), json!({ "items": { "$ref": format!("#/$defs/d{}", (i + 1) % n) } }));
        json!({ "$ref": "#/$defs/d0", "$defs": (0..n).map(link).collect::<Map<_, _>>() })
    };
    let nested = |n: usize| (0..n).fold(json!({}), |inner, _| json!({ "items": inner }));
    let rules = |n: usize| {
        let rule = |i: usize| format!("r{i}: \"a\" (r{} | \"c\")*\n", i + 1);
        format!("start: r0\n{}r{n}: \"b\"\n", (0..n).map(rule).collect::<String>())
    };
    let wide = |n: usize| json!({ "properties": (0..n).map(|i| (i.to_string(), json!({}))).collect::<Map<_, _>>() });
    let cases = [
        Grammar::JsonSchema(chain(5000)),
        Grammar::JsonSchema(nested(200)),
        Grammar::JsonSchema(wide(30_000)),
        Grammar::JsonSchema(json!({ "const": "x".repeat(MAX_GRAMMAR_BYTES) })),
        Grammar::JsonSchema(json!({ "oneOf": vec![json!({ "type": "string" }); 2000] })),
        Grammar::Regex("(".repeat(5000) + &")".repeat(5000)),
        Grammar::Regex("a".repeat(MAX_GRAMMAR_BYTES + 1)),
        Grammar::Lark(rules(5000)),
        Grammar::Lark(format!("start: {}\"a\"{}", "(".repeat(5000), ")".repeat(5000))),
        Grammar::Lark(format!("start: \"a\"{}", " | \"b\"".repeat(40_000))),
    ];
    let env = env();
    for grammar in cases {
        let (fault, reason) = refusal(&env, Ok(grammar.clone()));
        assert!(matches!(fault, GrammarFault::TooComplex | GrammarFault::BadRegex), "{fault:?}: {reason}");
    }
    // As deep as is allowed.
    for grammar in [Grammar::JsonSchema(chain(MAX_LEVELS / 2 - 1)), Grammar::Lark(rules(MAX_LEVELS / 2 - 2))] {
        env.constraint(&grammar).expect("it is within the bounds");
    }
    // What only costs in later steps costs a bounded amount there.
    let mut constraint = env.constraint(&Grammar::Regex("((a{1000}){1000}){1000}".into())).expect("a grammar");
    assert!(constraint.mask().is_ok());
}

#[test]
fn multiples_within_the_bounds_are_taken() {
    let env = env();
    let values =
        [0.0001, 0.001, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.5, 3.0, 7.0, 60.0, 997.0, 9973.0, 10_000.0];
    for a in values {
        env.constraint(&Grammar::JsonSchema(json!({ "type": "number", "multipleOf": a })))
            .unwrap_or_else(|e| panic!("{a}: {e}"));
        for b in values {
            let both = json!({ "allOf": [{ "type": "number", "multipleOf": a }, { "multipleOf": b }] });
            match env.constraint(&Grammar::JsonSchema(both)) {
                Ok(_) | Err(Error::Grammar { fault: GrammarFault::TooComplex, .. }) => {}
                Err(other) => panic!("{a}, {b}: {other}"),
            }
        }
    }
}

/// A byte-level vocabulary with these tokens, of which the last `n_control` are control tokens.
fn vocabulary(tokens: &[String], n_control: usize) -> Tokenizer {
    let types: Vec<i32> = (0..tokens.len()).map(|i| if i + n_control < tokens.len() { 1 } else { 3 }).collect();
    let mut w = Writer::default();
    w.str("tokenizer.ggml.model", "gpt2");
    w.str("tokenizer.ggml.pre", "gpt-2");
    w.strings("tokenizer.ggml.tokens", tokens);
    w.i32s("tokenizer.ggml.token_type", &types);
    w.strings("tokenizer.ggml.merges", &["a b"]);
    let file = pollster::block_on(open(Source::memory("vocabulary", w.header()))).expect("a GGUF file");
    Tokenizer::from_metadata(&file.header.metadata).expect("a tokenizer")
}

/// The ids that may come first.
fn first(env: &GrammarEnv, regex: &str) -> Vec<u32> {
    let mut constraint = env.constraint(&Grammar::Regex(regex.into())).expect("a grammar");
    let mask = constraint.mask().expect("a mask").to_vec();
    (0..mask.len() as u32 * 32).filter(|id| (mask[*id as usize / 32] >> (id % 32)) & 1 == 1).collect()
}

#[test]
fn odd_vocabularies() {
    // No bytes but these, no end: nothing is forced, the text ends by itself.
    let few = vocabulary(&["a", "b", "ab"].map(String::from), 0);
    let env = GrammarEnv::new(few.clone(), 3).expect("a vocabulary");
    assert_eq!(first(&env, "ab"), [0, 2]);
    let mut constraint = env.constraint(&Grammar::Regex("ab".into())).expect("a grammar");
    assert!(constraint.forced().is_empty() && !constraint.is_complete());
    constraint.accept(0).expect("a token");
    constraint.accept(1).expect("a token");
    assert!(constraint.is_finished() && constraint.is_complete() && constraint.forced().is_empty());
    assert_eq!(constraint.mask().expect("a mask"), [0]);
    // Nothing spells the grammar.
    assert_eq!(refusal(&env, Ok(Grammar::Regex("c".into()))).0, GrammarFault::Unsatisfiable);
    // Rows without a token, tokens without a row.
    assert_eq!(first(&GrammarEnv::new(few.clone(), 40).expect("rows"), "ab|a"), [0, 2]);
    assert_eq!(first(&GrammarEnv::new(few.clone(), 2).expect("rows"), "ab|a"), [0]);
    assert!(matches!(GrammarEnv::new(few.clone(), 0), Err(Error::Tokenizer { .. })));
    assert!(matches!(GrammarEnv::new(few, 1 << 24), Err(Error::Tokenizer { .. })));
    // Equal tokens are all allowed. Those that are too long, no UTF-8, or special are not; a special one may be as long as it likes.
    let long = [MAX_TOKEN, MAX_TOKEN + 1, 5000].map(|n| "a".repeat(n));
    let mut tokens: Vec<String> = ["a", "b", "aÿ", "ÿ", "aa", "aa"].map(String::from).to_vec();
    tokens.extend(long);
    tokens.extend(["aaa".into(), "a".repeat(6000)]);
    let env = GrammarEnv::new(vocabulary(&tokens, 2), tokens.len()).expect("a vocabulary");
    assert_eq!(first(&env, "a*b"), [0, 1, 4, 5, 6]);
}

#[test]
fn trie_nodes_are_counted() {
    let words = |texts: &[&str]| texts.iter().map(|t| t.as_bytes().to_vec()).collect::<Vec<_>>();
    let cases = [(&[][..], 1), (&["", "abc"], 4), (&["abc", "abd", "b"], 6), (&["ab", "ab", "a"], 4)];
    for (texts, wanted) in cases {
        assert_eq!(env::n_nodes(&words(texts)), wanted, "{texts:?}");
    }
}
