//! The shaders keep the rules of docs/numerics.md, and the scanner finds planted violations of each.

#[path = "shader_rules/scanner.rs"]
mod scanner;

use std::{
    fs,
    path::{Path, PathBuf},
};

use scanner::{Rule, check};

/// What every module must bring for exact.wgsl.
const PROLOGUE: &str = "struct Params { zero: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> data: array<f32>;
";

const EXACT: &str = include_str!("../shaders/shared/exact.wgsl");
const PHILOX: &str = include_str!("../shaders/shared/philox.wgsl");

/// Built-ins that no shader calls, not even for integers.
const FORBIDDEN: [&str; 27] = [
    "fma",
    "sqrt",
    "inverseSqrt",
    "exp",
    "exp2",
    "log",
    "log2",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
    "asin",
    "acos",
    "atan",
    "atan2",
    "pow",
    "dot",
    "length",
    "distance",
    "normalize",
    "mix",
    "smoothstep",
    "fract",
    "pack2x16float",
    "quantizeToF16",
];

fn shaders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder of shaders").map(|e| e.expect("an entry").path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => shaders(&path),
            false => vec![path],
        })
        .filter(|path| path.extension().is_some_and(|e| e == "wgsl"))
        .collect()
}

/// Calls of forbidden built-ins in the text without its comments, as `line: name`.
fn forbidden_calls(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (i, line) in source.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        let words = code.split('(').map(|before| before.trim_end());
        for word in words.take(code.matches('(').count()) {
            let name = word.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default();
            if FORBIDDEN.contains(&name) {
                found.push(format!("{}: {name}", i + 1));
            }
        }
    }
    found
}

#[test]
fn no_shader_calls_a_forbidden_builtin() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("shaders");
    for path in shaders(&root) {
        let source = fs::read_to_string(&path).expect("a readable shader");
        assert_eq!(forbidden_calls(&source), Vec::<String>::new(), "{}", path.display());
    }
    assert_eq!(forbidden_calls("let y = exact_exp(x) + exp (x); // sqrt(x)\nlog2(x)"), ["1: exp", "2: log2"]);
}

#[test]
fn every_assembled_shader_keeps_the_rules() {
    let sources = blueshift::gpu::shader_sources();
    assert!(sources.len() > 50);
    let broken: Vec<_> = sources
        .iter()
        .map(|(name, source)| (name, check(source)))
        .filter(|(_, violations)| !violations.is_empty())
        .collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn shared_functions_keep_the_rules() {
    let found = check(&format!("{PROLOGUE}{EXACT}{PHILOX}"));
    assert!(found.is_empty(), "{found:#?}");
}

/// The rules that a `main` with this body breaks; `x` and `y` are floats from memory, `i` an integer.
fn rules_of(body: &str) -> Vec<Rule> {
    let source = format!(
        "{PROLOGUE}{EXACT}
const THIRD: f32 = 0.3333333;
override WIDTH: f32 = 3.0;
fn twice(v: f32, w: f32) -> f32 {{ return v * w; }}
fn plus_one(v: f32) -> f32 {{ return v + 1.0; }}
fn sum(v: f32, w: f32) -> f32 {{ return v + w; }}
@compute @workgroup_size(1) fn main() {{
    let x = data[0];
    let y = data[1];
    let i = u32(data[2]);
    {body}
}}"
    );
    let mut rules: Vec<_> = check(&source).into_iter().map(|v| v.rule).collect();
    rules.dedup();
    rules
}

#[test]
fn planted_violations_are_found() {
    let cases = [
        (Rule::Invalid, "data[0] = nothing;"),
        (Rule::Division, "data[0] = x / y;"),
        (Rule::Division, "data[0] = x % y;"),
        (Rule::Division, "data[0] /= y;"),
        (Rule::Builtin, "data[0] = fma(x, y, x);"),
        (Rule::Builtin, "data[0] = sqrt(x);"),
        (Rule::Builtin, "data[0] = exp2(x);"),
        (Rule::Builtin, "data[0] = tanh(x);"),
        (Rule::Builtin, "data[0] = floor(x);"),
        (Rule::Builtin, "data[0] = dot(vec2<f32>(x, y), vec2<f32>(y, x));"),
        (Rule::Builtin, "data[0] = length(vec2<f32>(x, y));"),
        (Rule::Builtin, "data[0] = bitcast<f32>(pack2x16float(vec2<f32>(x, y)));"),
        (Rule::Builtin, "data[0] = unpack4x8snorm(i).x;"),
        (Rule::Builtin, "data[0] = (mat2x2<f32>(x, y, x, y) * vec2<f32>(x, y)).x;"),
        (Rule::Reduction, "data[0] = subgroupAdd(x);"),
        (Rule::Reduction, "data[0] = subgroupMax(x);"),
        (Rule::Fusion, "data[0] = x * y + x;"),
        (Rule::Fusion, "data[0] = x - x * y;"),
        (Rule::Fusion, "data[0] += x * y;"),
        (Rule::Fusion, "let p = x * y; data[0] = p + x;"),
        (Rule::Fusion, "var p = x * y; data[0] = p + x;"),
        (Rule::Fusion, "var s = x; for (var j = 0u; j < i; j++) { s += x * data[j]; } data[0] = s;"),
        (Rule::Fusion, "let v = vec2<f32>(x, y); let s = v * v; data[0] = s.x + s.y;"),
        (Rule::Fusion, "data[0] = -(x * y) + x;"),
        (Rule::Fusion, "data[0] = abs(x * y) + x;"),
        (Rule::Fusion, "data[0] = 0.5 * (x * y) + x;"),
        (Rule::Fusion, "data[0] = select(x * y, x, x < y) + x;"),
        (Rule::Fusion, "data[0] = bitcast<f32>(bitcast<u32>(x * y)) + x;"),
        (Rule::Fusion, "data[0] = twice(x, y) + x;"),
        (Rule::Fusion, "data[0] = sum(x * y, x);"),
        (Rule::Fusion, "// exact: not this line\nlet p = x;\ndata[0] = x * y + x;"),
        (Rule::Regrouping, "data[0] = (x + 1.0) + y;"),
        (Rule::Regrouping, "data[0] = (x + 1.0) - 1.0;"),
        (Rule::Regrouping, "data[0] = y - (THIRD - x);"),
        (Rule::Regrouping, "data[0] = (x + WIDTH) + y;"),
        (Rule::Regrouping, "data[0] = plus_one(x) + y;"),
        (Rule::Regrouping, "data[0] = x * (y * THIRD);"),
        (Rule::Regrouping, "let p = vec2<f32>(x, y) * THIRD; data[0] = p.x * p.y;"),
    ];
    for (rule, body) in cases {
        assert_eq!(rules_of(body), [rule], "{body}");
    }
}

#[test]
fn other_float_widths_are_found() {
    let source = "enable f16;\n@group(0) @binding(0) var<storage, read_write> data: array<vec2<f16>>;";
    let rules: Vec<_> = check(source).into_iter().map(|v| v.rule).collect();
    assert!(!rules.is_empty() && rules.iter().all(|&r| r == Rule::FloatWidth), "{rules:?}");
}

#[test]
fn what_is_allowed_passes() {
    let cases = [
        "data[0] = guard(x * y) + x;",
        "data[0] = (x * y) * x;",
        "data[0] = guard(guard(x * y) + 1.0) + x;",
        "data[0] = 0.5 * x + y;",
        "data[0] = x * y + x; // exact: factors of 12 bits",
        "// exact: factors of 12 bits\ndata[0] = x * y + x;",
        "// exact: factors of 12 bits\nlet p = x * y;\ndata[0] = p + x;",
        "// exact: factors of 12 bits\ndata[0] = sum(\n    x * y,\n    x);",
        "data[0] = round(x * y) + x;",
        "data[0] = (x + 0.0) + y;",
        "data[0] = round_sig(x * y, 12u) + x;",
        "data[0] = f32(i * 3u + 1u);",
        "data[i / 3u] = f32(i % 7u);",
        "data[0] = max(abs(x), y) * exact_recip(y);",
        "let q = unpack2x16float(i); data[0] = q.x;",
        "data[0] = f32(dot4I8Packed(i, i));",
    ];
    for body in cases {
        assert_eq!(rules_of(body), [], "{body}");
    }
}

/// `const NAME: f32 = value;` lines of either language.
fn constants(text: &str) -> Vec<(String, f32)> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("const "));
    lines
        .filter_map(|line| line.split_once(": f32 = "))
        .map(|(name, value)| {
            let value = value.trim_end_matches(';').replace('_', "");
            (name.to_string(), value.parse().expect("a decimal"))
        })
        .collect()
}

#[test]
fn constants_are_the_same_in_both_languages() {
    let rust = constants(include_str!("../src/numerics/exact.rs"));
    let wgsl = constants(EXACT);
    assert!(rust.len() > 40, "only {} constants found", rust.len());
    assert_eq!(rust, wgsl);
    // a module keeps f32 constants, so this is what the front end makes of the decimals
    let module = naga::front::wgsl::parse_str(&format!("{PROLOGUE}{EXACT}")).expect("a valid module");
    for (_, constant) in module.constants.iter() {
        let naga::Expression::Literal(naga::Literal::F32(value)) = module.global_expressions[constant.init] else {
            continue;
        };
        let name = constant.name.as_deref().unwrap_or_default();
        let twin = rust.iter().find(|(n, _)| n == name).map(|(_, x)| x.to_bits());
        assert_eq!(twin, Some(value.to_bits()), "{name}");
    }
}
