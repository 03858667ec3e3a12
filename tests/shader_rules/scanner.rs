//! Finds what docs/numerics.md forbids in a WGSL module, on naga's intermediate form.
//!
//! A value carries marks from where it is made to where it is used, through variables, vectors, `select`, bitcasts and
//! calls: whether it is a product a compiler could fuse into a sum, or a sum or product with a constant that a compiler
//! could regroup with a further one. Integer operations (so `guard`) and memory stop them.

use std::collections::HashMap;

use naga::{
    BinaryOperator, Block, Expression, Function, Handle, Literal, MathFunction, Module, ScalarKind, Span, Statement,
    TypeInner,
    valid::{Capabilities, FunctionInfo, ModuleInfo, ValidationFlags, Validator},
};

/// What a value is, as a set of bits.
type Marks = u8;
/// An inexact product of floats.
const PRODUCT: Marks = 1;
/// A sum with a constant.
const SHIFTED: Marks = 2;
/// A product with a constant that is no power of two.
const SCALED: Marks = 4;
/// A constant that is not zero, overrides included.
const CONST: Marks = 8;

/// A broken rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// naga does not accept the module.
    Invalid,
    /// `/` or `%` on floats.
    Division,
    /// A built-in outside the contract.
    Builtin,
    /// An atomic or a subgroup reduction on floats.
    Reduction,
    /// A float type other than f32.
    FloatWidth,
    /// A product feeds a sum, neither guarded nor marked exact.
    Fusion,
    /// A sum or product with a constant feeds another one unguarded.
    Regrouping,
}

/// Where a rule is broken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    /// Line of the source, from 1.
    pub(crate) line: u32,
    /// The rule.
    pub(crate) rule: Rule,
    /// What was found.
    pub(crate) what: String,
}

/// Everything in `source`, a whole module, that breaks a rule.
pub(crate) fn check(source: &str) -> Vec<Violation> {
    let invalid = |line, what| vec![Violation { line, rule: Rule::Invalid, what }];
    let module = match naga::front::wgsl::parse_str(source) {
        Ok(module) => module,
        Err(e) => return invalid(e.location(source).map_or(0, |l| l.line_number), e.emit_to_string(source)),
    };
    let info = match Validator::new(ValidationFlags::all(), Capabilities::all()).validate(&module) {
        Ok(info) => info,
        Err(e) => return invalid(e.location(source).map_or(0, |l| l.line_number), e.emit_to_string(source)),
    };
    let mut scanner =
        Scanner { module: &module, info: &info, source, exact: exact_lines(source), known: HashMap::new() };
    let mut found = scanner.float_widths();
    for (handle, function) in module.functions.iter() {
        found.extend(scanner.function(handle, &vec![0; function.arguments.len()]).1);
    }
    for (i, entry) in module.entry_points.iter().enumerate() {
        let marks = vec![0; entry.function.arguments.len()];
        found.extend(Walk::new(&mut scanner, &entry.function, info.get_entry_point(i), marks).finish().1);
    }
    found.sort();
    found.dedup();
    found
}

/// Which lines (from 1) an `exact:` comment covers: its own, or where it stands alone the statement that follows.
fn exact_lines(source: &str) -> Vec<bool> {
    let mut covered = vec![false];
    let mut pending = false;
    for line in source.lines() {
        let (code, comment) = line.split_once("//").unwrap_or((line, ""));
        let code = code.trim();
        let marked = comment.contains("exact:");
        covered.push(marked || (pending && !code.is_empty()));
        pending = match code {
            "" => pending || marked,
            _ => pending && !code.ends_with([';', '{', '}']),
        };
    }
    covered
}

/// A function's marks of its result, and what breaks a rule inside.
type Outcome = (Marks, Vec<Violation>);

struct Scanner<'a> {
    module: &'a Module,
    info: &'a ModuleInfo,
    source: &'a str,
    exact: Vec<bool>,
    /// By function and marks of its arguments.
    known: HashMap<(Handle<Function>, Vec<Marks>), Outcome>,
}

impl Scanner<'_> {
    fn float_widths(&self) -> Vec<Violation> {
        let wrong = |inner: &TypeInner| inner.scalar().is_some_and(|s| s.kind == ScalarKind::Float && s.width != 4);
        let types = self.module.types.iter().filter(|(_, t)| wrong(&t.inner));
        types
            .map(|(handle, t)| Violation {
                line: self.line(self.module.types.get_span(handle)),
                rule: Rule::FloatWidth,
                what: format!("{:?}", t.inner),
            })
            .collect()
    }

    fn function(&mut self, handle: Handle<Function>, marks: &[Marks]) -> Outcome {
        let key = (handle, marks.to_vec());
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let (module, info) = (self.module, self.info);
        let found = Walk::new(self, &module.functions[handle], &info[handle], marks.to_vec()).finish();
        self.known.insert(key, found.clone());
        found
    }

    /// The line a span starts on, 0 where it is unknown.
    fn line(&self, span: Span) -> u32 {
        if span.is_defined() { span.location(self.source).line_number } else { 0 }
    }

    fn is_exact(&self, line: u32) -> bool {
        self.exact.get(line as usize).copied().unwrap_or(false)
    }
}

/// One function under given marks of its arguments.
struct Walk<'s, 'a> {
    scanner: &'s mut Scanner<'a>,
    function: &'s Function,
    info: &'s FunctionInfo,
    arguments: Vec<Marks>,
    /// By expression.
    marks: Vec<Marks>,
    /// By local variable: all that is ever stored in it.
    locals: Vec<Marks>,
    returned: Marks,
    found: Vec<Violation>,
}

impl<'s, 'a: 's> Walk<'s, 'a> {
    fn new(
        scanner: &'s mut Scanner<'a>,
        function: &'s Function,
        info: &'s FunctionInfo,
        arguments: Vec<Marks>,
    ) -> Self {
        let marks = vec![0; function.expressions.len()];
        let locals = vec![0; function.local_variables.len()];
        Self { scanner, function, info, arguments, marks, locals, returned: 0, found: Vec::new() }
    }

    /// Passes over the function until nothing changes: a variable's marks may reach expressions before its store.
    fn finish(mut self) -> Outcome {
        loop {
            let before = (self.marks.clone(), self.locals.clone(), self.returned);
            self.found.clear();
            for (handle, expression) in self.function.expressions.iter() {
                let marks = self.expression(handle, expression);
                self.marks[handle.index()] |= marks;
            }
            self.block(&self.function.body);
            if before == (self.marks.clone(), self.locals.clone(), self.returned) {
                self.found.sort();
                self.found.dedup();
                return (self.returned, self.found);
            }
        }
    }

    fn report(&mut self, line: u32, rule: Rule, what: impl Into<String>) {
        self.found.push(Violation { line, rule, what: what.into() });
    }

    fn line_of(&self, handle: Handle<Expression>) -> u32 {
        self.scanner.line(self.function.expressions.get_span(handle))
    }

    fn of(&self, handle: Handle<Expression>) -> Marks {
        self.marks[handle.index()]
    }

    fn inner(&self, handle: Handle<Expression>) -> &TypeInner {
        self.info[handle].ty.inner_with(&self.scanner.module.types)
    }

    fn is_float(&self, handle: Handle<Expression>) -> bool {
        self.inner(handle).scalar_kind() == Some(ScalarKind::Float)
    }

    /// The variable a pointer leads into.
    fn local(&self, pointer: Handle<Expression>) -> Option<usize> {
        match self.function.expressions[pointer] {
            Expression::LocalVariable(variable) => Some(variable.index()),
            Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => self.local(base),
            _ => None,
        }
    }

    /// The value of a constant, where it is one number.
    fn value(&self, handle: Handle<Expression>) -> Option<f32> {
        let module = self.scanner.module;
        match self.function.expressions[handle] {
            Expression::Literal(Literal::F32(x)) => Some(x),
            Expression::ZeroValue(_) => Some(0.0),
            Expression::Splat { value, .. } => self.value(value),
            Expression::Constant(constant) => match module.global_expressions[module.constants[constant].init] {
                Expression::Literal(Literal::F32(x)) => Some(x),
                _ => None,
            },
            _ => None,
        }
    }

    fn expression(&mut self, handle: Handle<Expression>, expression: &Expression) -> Marks {
        match *expression {
            // regrouping a zero changes nothing
            Expression::Literal(_) | Expression::Constant(_) if self.value(handle) == Some(0.0) => 0,
            Expression::Literal(_) | Expression::Constant(_) | Expression::Override(_) => CONST,
            Expression::FunctionArgument(i) => self.arguments[i as usize],
            Expression::Load { pointer } => self.local(pointer).map_or(0, |i| self.locals[i]),
            Expression::Access { base, .. }
            | Expression::AccessIndex { base, .. }
            | Expression::Splat { value: base, .. }
            | Expression::Swizzle { vector: base, .. }
            | Expression::Unary { expr: base, .. }
            | Expression::As { expr: base, convert: None, .. } => self.of(base),
            Expression::Compose { ref components, .. } => {
                let all = components.iter().fold(0, |marks, &c| marks | self.of(c));
                let constant = components.iter().all(|&c| self.of(c) & CONST != 0);
                if constant { all } else { all & !CONST }
            }
            Expression::Select { accept, reject, .. } => (self.of(accept) | self.of(reject)) & !CONST,
            Expression::Binary { op, left, right } if self.is_float(left) => self.binary(handle, op, left, right),
            Expression::Math { fun, arg, .. } => self.math(handle, fun, arg),
            // set by the call
            Expression::CallResult(_) => self.of(handle),
            _ => 0,
        }
    }

    fn math(&mut self, handle: Handle<Expression>, fun: MathFunction, arg: Handle<Expression>) -> Marks {
        use MathFunction as M;
        let allowed = matches!(fun, M::Abs | M::Min | M::Max | M::Clamp | M::Round | M::Unpack2x16float);
        if !allowed && (self.is_float(handle) || self.is_float(arg)) {
            self.report(self.line_of(handle), Rule::Builtin, format!("{fun:?}"));
        }
        if fun == M::Abs { self.of(arg) } else { 0 }
    }

    fn binary(
        &mut self,
        handle: Handle<Expression>,
        op: BinaryOperator,
        left: Handle<Expression>,
        right: Handle<Expression>,
    ) -> Marks {
        let line = self.line_of(handle);
        let matrix = [left, right].into_iter().any(|h| matches!(self.inner(h), TypeInner::Matrix { .. }));
        match op {
            BinaryOperator::Multiply if matrix => {
                self.report(line, Rule::Builtin, "product of a matrix");
                0
            }
            BinaryOperator::Multiply => self.product(line, left, right),
            BinaryOperator::Add | BinaryOperator::Subtract => self.sum(line, left, right),
            BinaryOperator::Divide | BinaryOperator::Modulo => {
                self.report(line, Rule::Division, format!("{op:?}"));
                0
            }
            _ => 0,
        }
    }

    /// A power of two scales exactly, so such a product is as its other factor.
    fn product(&mut self, line: u32, left: Handle<Expression>, right: Handle<Expression>) -> Marks {
        let (a, b) = (self.of(left), self.of(right));
        if a & b & CONST != 0 {
            return CONST;
        }
        let is_power = |x: f32| x.is_normal() && x.to_bits() & 0x007f_ffff == 0;
        for (constant, other) in [(left, b), (right, a)] {
            if self.value(constant).is_some_and(is_power) {
                return other;
            }
        }
        if self.scanner.is_exact(line) {
            return 0;
        }
        if (a | b) & SCALED != 0 {
            self.report(line, Rule::Regrouping, "a product with a constant feeds a product");
        }
        PRODUCT | if (a | b) & CONST != 0 { SCALED } else { 0 }
    }

    fn sum(&mut self, line: u32, left: Handle<Expression>, right: Handle<Expression>) -> Marks {
        let (a, b) = (self.of(left), self.of(right));
        if a & b & CONST != 0 {
            return CONST;
        }
        for (constant, other) in [(left, b), (right, a)] {
            if self.value(constant) == Some(0.0) {
                return other;
            }
        }
        if !self.scanner.is_exact(line) {
            if (a | b) & PRODUCT != 0 {
                self.report(line, Rule::Fusion, "a product feeds a sum");
            }
            if (a | b) & SHIFTED != 0 {
                self.report(line, Rule::Regrouping, "a sum with a constant feeds a sum");
            }
        }
        if (a | b) & CONST != 0 { SHIFTED } else { 0 }
    }

    fn block(&mut self, block: &'s Block) {
        for (statement, span) in block.span_iter() {
            self.statement(statement, *span);
        }
    }

    fn statement(&mut self, statement: &'s Statement, span: Span) {
        let line = self.scanner.line(span);
        match statement {
            Statement::Block(inner) => self.block(inner),
            Statement::If { accept, reject, .. } => {
                self.block(accept);
                self.block(reject);
            }
            Statement::Switch { cases, .. } => cases.iter().for_each(|case| self.block(&case.body)),
            Statement::Loop { body, continuing, .. } => {
                self.block(body);
                self.block(continuing);
            }
            Statement::Store { pointer, value } => {
                if let Some(i) = self.local(*pointer) {
                    self.locals[i] |= self.of(*value) & !CONST;
                }
            }
            Statement::Return { value: Some(value) } => self.returned |= self.of(*value),
            Statement::Call { function, arguments, result } => self.call(line, *function, arguments, *result),
            Statement::Atomic { value, .. } if self.is_float(*value) => {
                self.report(line, Rule::Reduction, "an atomic on floats");
            }
            Statement::SubgroupCollectiveOperation { op, argument, .. } if self.is_float(*argument) => {
                self.report(line, Rule::Reduction, format!("a subgroup's {op:?} on floats"));
            }
            _ => {}
        }
    }

    /// What the callee does with marked arguments is reported at the call.
    fn call(
        &mut self,
        line: u32,
        callee: Handle<Function>,
        arguments: &[Handle<Expression>],
        result: Option<Handle<Expression>>,
    ) {
        let mut marks: Vec<Marks> = arguments.iter().map(|&a| self.of(a)).collect();
        if self.scanner.is_exact(line) {
            marks.iter_mut().for_each(|m| *m &= CONST);
        }
        let plain = self.scanner.function(callee, &vec![0; marks.len()]).1;
        let (returned, inside) = self.scanner.function(callee, &marks);
        let name = self.scanner.module.functions[callee].name.clone().unwrap_or_default();
        for violation in inside.into_iter().filter(|v| !plain.contains(v)) {
            self.report(line, violation.rule, format!("{} in {name}, line {}", violation.what, violation.line));
        }
        if let Some(result) = result {
            self.marks[result.index()] |= returned;
        }
    }
}
