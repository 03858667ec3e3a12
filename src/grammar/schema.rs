//! What a JSON schema is checked for before the parser sees it: the shapes of its keywords, its references, its size and its depth. The
//! parser's own compiler is recursive and trusts numbers that it should not.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{MAX_GRAMMAR_BYTES, check_bytes, check_levels, error};
use crate::error::{GrammarFault, Result};

/// Deepest nesting of values; that of texts is bounded by the JSON parser, too.
const MAX_DEPTH: usize = 128;
/// Most subschemas, counted once for each way of references that leads to them.
const MAX_SUBSCHEMAS: usize = 20_000;
/// Most alternatives of a `oneOf`, each pair of which must be told apart.
const MAX_ONE_OF: usize = 1000;
/// Most patterns of property names, likewise.
const MAX_NAME_PATTERNS: usize = 32;
/// Largest value of `minLength` and `maxLength`.
const MAX_LENGTH: u64 = i32::MAX as u64;
/// Largest magnitude of a bound of numbers, and the smallest other than 0.
const BOUNDS: [f64; 2] = [9e18, 1e-15];
/// Largest common multiple of all `multipleOf`, in units of their last decimal.
const MAX_MULTIPLE: u64 = 10_000;
/// Most decimals of `multipleOf`.
const MAX_DECIMALS: u32 = 4;

const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

/// Keywords that would be ignored or misread, so that answers could be invalid.
const UNSUPPORTED: [&str; 18] = [
    "not",
    "if",
    "then",
    "else",
    "contains",
    "minContains",
    "maxContains",
    "propertyNames",
    "uniqueItems",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$dynamicRef",
    "$dynamicAnchor",
    "$recursiveRef",
    "$recursiveAnchor",
];

/// Checks a schema; gives it as an object.
pub(super) fn checked(schema: &Value) -> Result<Value> {
    check_size(schema)?;
    check(schema)?;
    match schema {
        Value::Bool(true) => Ok(Value::Object(Map::new())),
        Value::Bool(false) => Err(error(GrammarFault::Unsatisfiable, "the schema is false: it allows nothing")),
        _ => Ok(schema.clone()),
    }
}

/// Checks the shape of a schema and of all that it leads to.
pub(super) fn check(schema: &Value) -> Result<()> {
    Walk::default().run(schema)
}

/// Bounds bytes and depth.
fn check_size(schema: &Value) -> Result<()> {
    let (mut todo, mut bytes) = (vec![(schema, 1)], 0);
    while let Some((value, depth)) = todo.pop() {
        bytes += 1;
        if depth > MAX_DEPTH {
            let reason = format!("values are nested deeper than {MAX_DEPTH} levels");
            return Err(error(GrammarFault::TooComplex, reason));
        }
        match value {
            Value::String(text) => bytes += text.len(),
            Value::Array(items) => todo.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(pairs) => {
                bytes += pairs.keys().map(String::len).sum::<usize>();
                todo.extend(pairs.values().map(|value| (value, depth + 1)));
            }
            _ => {}
        }
        check_bytes(bytes.min(MAX_GRAMMAR_BYTES + 1))?;
    }
    Ok(())
}

/// A subschema and where it stands.
struct Place<'a> {
    value: &'a Value,
    path: String,
    level: usize,
}

/// A walk over all subschemas that a schema leads to.
#[derive(Default)]
struct Walk<'a> {
    todo: Vec<Place<'a>>,
    /// References found, by where they lead, and those not walked yet.
    seen: BTreeSet<&'a str>,
    pending: Vec<&'a str>,
    n_subschemas: usize,
    n_patterns: usize,
    /// Common multiple of all `multipleOf`, in units of 10^-4.
    multiple: u64,
}

impl<'a> Walk<'a> {
    fn run(mut self, root: &'a Value) -> Result<()> {
        let mut levels = 0;
        let mut start = Some((root, "#"));
        while let Some((value, path)) = start {
            levels += self.walk(root, value, path)?;
            check_levels(levels)?;
            start = match self.pending.pop() {
                Some(reference) => Some((resolve(root, reference)?, reference)),
                None => None,
            };
        }
        Ok(())
    }

    /// Walks the subschemas of one; gives the number of levels.
    fn walk(&mut self, root: &'a Value, value: &'a Value, path: &str) -> Result<usize> {
        self.todo.push(Place { value, path: path.into(), level: 1 });
        let mut levels = 0;
        while let Some(place) = self.todo.pop() {
            levels = levels.max(place.level);
            self.n_subschemas += 1;
            if self.n_subschemas > MAX_SUBSCHEMAS {
                return Err(error(GrammarFault::TooComplex, format!("more than {MAX_SUBSCHEMAS} subschemas")));
            }
            match place.value {
                Value::Bool(_) => {}
                Value::Object(pairs) => {
                    for (key, value) in pairs {
                        let at = Place { value, path: format!("{}/{key}", place.path), level: place.level };
                        self.keyword(root, key, at)?;
                    }
                }
                _ => return Err(expected(&place, "an object or a boolean")),
            }
        }
        Ok(levels)
    }

    /// Checks the value of a keyword.
    fn keyword(&mut self, root: &'a Value, key: &str, at: Place<'a>) -> Result<()> {
        match key {
            "$ref" => self.reference(root, &at),
            "properties" => self.map_of_schemas(&at),
            "patternProperties" => {
                self.n_patterns += at.value.as_object().map_or(0, Map::len);
                limit(&at, self.n_patterns, MAX_NAME_PATTERNS, "patterns")?;
                self.map_of_schemas(&at)
            }
            "oneOf" => {
                limit(&at, at.value.as_array().map_or(0, Vec::len), MAX_ONE_OF, "alternatives")?;
                self.list_of_schemas(&at)
            }
            "allOf" | "anyOf" | "prefixItems" => self.list_of_schemas(&at),
            "items" if at.value.is_array() => self.list_of_schemas(&at),
            "items" | "additionalItems" | "additionalProperties" => {
                self.todo.push(Place { level: at.level + 1, ..at });
                Ok(())
            }
            "multipleOf" => self.multiple_of(&at),
            _ if UNSUPPORTED.contains(&key) => {
                Err(error(GrammarFault::Unsupported, format!("{}: the keyword {key}", at.path)))
            }
            _ => check_simple(key, &at),
        }
    }

    fn map_of_schemas(&mut self, at: &Place<'a>) -> Result<()> {
        let pairs = at.value.as_object().ok_or_else(|| expected(at, "an object"))?;
        let place = |(key, value)| Place { value, path: format!("{}/{key}", at.path), level: at.level + 1 };
        self.todo.extend(pairs.iter().map(place));
        Ok(())
    }

    fn list_of_schemas(&mut self, at: &Place<'a>) -> Result<()> {
        let items = at.value.as_array().ok_or_else(|| expected(at, "an array"))?;
        let place = |(i, value)| Place { value, path: format!("{}/{i}", at.path), level: at.level + 1 };
        self.todo.extend(items.iter().enumerate().map(place));
        Ok(())
    }

    /// Notes where a reference leads.
    fn reference(&mut self, root: &'a Value, at: &Place<'a>) -> Result<()> {
        let target = at.value.as_str().ok_or_else(|| expected(at, "a string"))?;
        resolve(root, target)?;
        if self.seen.insert(target) {
            self.pending.push(target);
        }
        Ok(())
    }

    fn multiple_of(&mut self, at: &Place<'a>) -> Result<()> {
        let value = at.value.as_f64().filter(|v| *v > 0.0).ok_or_else(|| expected(at, "a number above 0"))?;
        let decimals = (0..=MAX_DECIMALS).find(|n| (value * 10f64.powi(*n as i32)).fract() == 0.0);
        let units = value * 10f64.powi(MAX_DECIMALS as i32);
        let in_range = units <= (MAX_MULTIPLE * 10u64.pow(MAX_DECIMALS)) as f64;
        let refused = || {
            let most = format!(
                "at most {MAX_DECIMALS} decimals, a common multiple of all of at most {MAX_MULTIPLE} units of the last"
            );
            error(GrammarFault::TooComplex, format!("{}: {value}: expected {most}", at.path))
        };
        let decimals = decimals.filter(|_| in_range).ok_or_else(refused)?;
        // A step of 1 counts as well: digits before the decimal point are weighed in the same units.
        let one = 10u64.pow(decimals);
        let multiple = [(value * one as f64) as u64, one].into_iter().fold(self.multiple.max(1), lcm);
        self.multiple = multiple;
        if multiple > MAX_MULTIPLE { Err(refused()) } else { Ok(()) }
    }
}

fn lcm(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x).saturating_mul(b)
}

/// Checks a keyword that holds no schema.
fn check_simple(key: &str, at: &Place<'_>) -> Result<()> {
    match key {
        "pattern" | "format" if !at.value.is_string() => Err(expected(at, "a string")),
        "enum" if !at.value.is_array() => Err(expected(at, "an array")),
        "required" if !is_strings(at.value) => Err(expected(at, "an array of strings")),
        "type" => check_types(at),
        "exclusiveMinimum" | "exclusiveMaximum" if at.value.is_boolean() => Ok(()),
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => check_bound(at),
        "minLength" | "maxLength" => {
            let length = at.value.as_u64().ok_or_else(|| expected(at, "an integer, 0 or more"))?;
            limit(at, length as usize, MAX_LENGTH as usize, "characters")
        }
        "minItems" | "maxItems" | "minProperties" | "maxProperties" if at.value.as_u64().is_none() => {
            Err(expected(at, "an integer, 0 or more"))
        }
        _ => Ok(()),
    }
}

fn is_strings(value: &Value) -> bool {
    value.as_array().is_some_and(|items| items.iter().all(Value::is_string))
}

fn check_types(at: &Place<'_>) -> Result<()> {
    let is_type = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
    let fits = match at.value {
        Value::Array(types) => !types.is_empty() && types.iter().all(is_type),
        value => is_type(value),
    };
    if fits { Ok(()) } else { Err(expected(at, &format!("one or several of {}", TYPES.join(", ")))) }
}

fn check_bound(at: &Place<'_>) -> Result<()> {
    let bound = at.value.as_f64().ok_or_else(|| expected(at, "a number"))?.abs();
    let [most, least] = BOUNDS;
    if bound > most || (bound < least && bound != 0.0) {
        let reason = format!("{}: {}: expected a magnitude of {least:e} to {most:e}, or 0", at.path, at.value);
        return Err(error(GrammarFault::Unsupported, reason));
    }
    Ok(())
}

/// The subschema that a reference leads to: the document, or a place in it.
fn resolve<'a>(root: &'a Value, reference: &str) -> Result<&'a Value> {
    let unresolved = |why: &str| error(GrammarFault::UnresolvedRef, format!("{reference:?}: {why}"));
    if matches!(reference, "#" | "#/") {
        return Ok(root);
    }
    let path = reference.strip_prefix("#/");
    let path = path.ok_or_else(|| unresolved("expected # or #/..., a place in the same document"))?;
    path.split('/').try_fold(root, |value, step| {
        let next = match value {
            Value::Array(items) => step.parse().ok().and_then(|i: usize| items.get(i)),
            value => value.get(step),
        };
        next.ok_or_else(|| unresolved(&format!("there is no {step:?}")))
    })
}

fn limit(at: &Place<'_>, found: usize, most: usize, what: &str) -> Result<()> {
    if found > most {
        return Err(error(GrammarFault::TooComplex, format!("{}: {found} {what}, expected at most {most}", at.path)));
    }
    Ok(())
}

fn expected(at: &Place<'_>, what: &str) -> crate::Error {
    let found: String = at.value.to_string().chars().take(60).collect();
    error(GrammarFault::InvalidSchema, format!("{}: {found}: expected {what}", at.path))
}
