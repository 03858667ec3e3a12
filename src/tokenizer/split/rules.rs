//! The alternations at the heart of the pre-tokenizers, as functions: each gives the length in characters of the match
//! at `at`, 0 for none. Where an alternation is ordered, so are the functions' lines.

use super::chars::{Char, Class};
use super::sets::{letter, newline, number, space};

/// What may follow a run of symbols and still belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tail {
    Nothing,
    Newlines,
    NewlinesAndSlashes,
}

/// How letters group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Letters {
    /// A run of letters.
    Plain,
    /// A run of letters and combining marks.
    Marked,
    /// Upper case, then lower case: `camelCase` is two words. Letters outside ASCII count as both.
    Cased,
    /// Like `Cased`, with an English contraction at the end.
    CasedContracted,
}

/// The family of Llama 3, Qwen and GPT-4.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words {
    /// English contractions (`'ll`) are words of their own.
    pub contractions: bool,
    pub letters: Letters,
    /// Most digits of a group.
    pub digits: usize,
    pub tail: Tail,
}

impl Words {
    pub(super) fn len(&self, text: &[Char], at: usize) -> usize {
        let steps = [
            if self.contractions { contraction(text, at, true) } else { 0 },
            self.word(text, at),
            run(text, at, self.digits, number),
            self.symbols(text, at),
        ];
        steps.into_iter().find(|len| *len > 0).unwrap_or_else(|| white_space(text, at))
    }

    /// Letters behind at most one character that is neither letter, number nor newline.
    fn word(&self, text: &[Char], at: usize) -> usize {
        let here = self.letters(text, at);
        if here > 0 {
            return here;
        }
        let prefix = text.get(at).is_some_and(|c| !number(*c) && !c.is_newline());
        match self.letters(text, at + 1) {
            n if prefix && n > 0 => n + 1,
            _ => 0,
        }
    }

    fn letters(&self, text: &[Char], at: usize) -> usize {
        match self.letters {
            Letters::Plain => run(text, at, usize::MAX, letter),
            Letters::Marked => run(text, at, usize::MAX, |c| matches!(c.class(), Class::Letter | Class::Mark)),
            Letters::Cased => cased(text, at),
            Letters::CasedContracted => match cased(text, at) {
                0 => 0,
                n => n + contraction(text, at + n, true),
            },
        }
    }

    /// Neither white space, letters nor numbers, behind at most one blank, with the tail.
    fn symbols(&self, text: &[Char], at: usize) -> usize {
        let marks_are_letters = self.letters == Letters::Marked;
        let blank = usize::from(text.get(at).is_some_and(|c| c.is(' ')));
        let n = run(text, at + blank, usize::MAX, |c| match c.class() {
            Class::Space | Class::Letter | Class::Number => false,
            Class::Mark => !marks_are_letters,
            _ => true,
        });
        if n == 0 {
            return 0;
        }
        let end = at + blank + n;
        blank
            + n
            + match self.tail {
                Tail::Nothing => 0,
                Tail::Newlines => run(text, end, usize::MAX, newline),
                Tail::NewlinesAndSlashes => run(text, end, usize::MAX, |c| newline(c) || c.is('/')),
            }
    }
}

/// GPT-2's words: contractions, then letters, numbers or symbols behind at most one blank, then white space.
pub(super) fn gpt2(text: &[Char], at: usize) -> usize {
    let short = contraction(text, at, false);
    if short > 0 {
        return short;
    }
    let blank = usize::from(text.get(at).is_some_and(|c| c.is(' ')));
    let group = |c: Char| match c.class() {
        Class::Letter => 1,
        Class::Number => 2,
        Class::Space => 0,
        _ => 3,
    };
    match text.get(at + blank).map_or(0, |c| group(*c)) {
        0 => trailing_space(text, at),
        wanted => blank + run(text, at + blank, usize::MAX, |c| group(c) == wanted),
    }
}

/// DeepSeek 3's last step: a sign with ASCII letters, marked letters, punctuation and symbols, white space.
pub(super) fn deepseek3(text: &[Char], at: usize) -> usize {
    let Some(first) = text.get(at) else { return 0 };
    let sign = matches!(first.class(), Class::Punctuation | Class::Symbol);
    if sign && first.code() < 0x80 {
        let n = run(text, at + 1, usize::MAX, |c| c.ascii_lower().is_ascii_lowercase());
        if n > 0 {
            return n + 1;
        }
    }
    let marked = |at| run(text, at, usize::MAX, |c| matches!(c.class(), Class::Letter | Class::Mark));
    match (marked(at), marked(at + 1)) {
        (0, 0) => {}
        (0, n) if !sign && !first.is_newline() => return n + 1,
        (n, _) if n > 0 => return n,
        _ => {}
    }
    let blank = usize::from(first.is(' '));
    let n = run(text, at + blank, usize::MAX, |c| matches!(c.class(), Class::Punctuation | Class::Symbol));
    if n > 0 {
        return blank + n + run(text, at + blank + n, usize::MAX, newline);
    }
    white_space(text, at)
}

/// Up to `most` characters of a set.
pub(super) fn run(text: &[Char], at: usize, most: usize, set: impl Fn(Char) -> bool) -> usize {
    text.iter().skip(at).take(most).take_while(|c| set(**c)).count()
}

/// `'s 't 'm 'd 're 've 'll`.
fn contraction(text: &[Char], at: usize, any_case: bool) -> usize {
    let byte = |i: usize| match text.get(at + i) {
        Some(c) if any_case => c.ascii_lower(),
        Some(c) => u8::try_from(c.code()).unwrap_or(0),
        None => 0,
    };
    match (byte(0), byte(1), byte(2)) {
        (b'\'', b's' | b't' | b'm' | b'd', _) => 2,
        (b'\'', b'r', b'e') | (b'\'', b'v', b'e') | (b'\'', b'l', b'l') => 3,
        _ => 0,
    }
}

/// Any upper case, then at least one lower case; else at least one upper case. Letters outside ASCII are both.
fn cased(text: &[Char], at: usize) -> usize {
    let is_lower = |c: Char| letter(c) && !(0x41..=0x5a).contains(&c.code());
    let is_upper = |c: Char| letter(c) && !(0x61..=0x7a).contains(&c.code());
    let upper = run(text, at, usize::MAX, is_upper);
    let lower = run(text, at + upper, usize::MAX, is_lower);
    if lower > 0 || upper == 0 {
        return upper + lower;
    }
    // No lower case follows: give letters back until one is left that counts as lower case.
    let last_both = text[at..at + upper].iter().rposition(|c| is_lower(*c));
    last_both.map_or(upper, |i| i + 1)
}

/// White space up to its last newline; else as `trailing_space`.
fn white_space(text: &[Char], at: usize) -> usize {
    let n = run(text, at, usize::MAX, space);
    let last_newline = text.iter().skip(at).take(n).rposition(|c| c.is_newline());
    last_newline.map_or_else(|| trailing_space(text, at), |i| i + 1)
}

/// White space; all but its last character where a word follows.
fn trailing_space(text: &[Char], at: usize) -> usize {
    let n = run(text, at, usize::MAX, space);
    let at_end = at + n == text.len();
    if n > 1 && !at_end { n - 1 } else { n }
}
