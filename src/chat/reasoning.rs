//! Spans of reasoning in answers: how a model marks what it thinks before it answers.

/// The marks of reasoning. Harmony's channels are no such marks: its format of calls has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReasoningFormat {
    /// `<think>` and `</think>`: Qwen, DeepSeek, SmolLM3 and many others.
    Think,
    /// `[THINK]` and `[/THINK]`: Mistral.
    MistralThink,
    /// `<|channel>thought` and `<channel|>`: Gemma 4.
    Gemma4Thought,
}

impl ReasoningFormat {
    const ALL: [Self; 3] = [Self::Think, Self::MistralThink, Self::Gemma4Thought];

    /// The format whose marks a template has; where it has none, the one whose opening mark is a token.
    pub fn detect(template: &str, is_token: impl Fn(&str) -> bool) -> Option<Self> {
        let in_template = Self::ALL.into_iter().find(|format| template.contains(format.close()));
        in_template.or_else(|| Self::ALL.into_iter().find(|format| is_token(format.open()) && is_token(format.close())))
    }

    /// Begins a span.
    pub fn open(self) -> &'static str {
        match self {
            Self::Think => "<think>",
            Self::MistralThink => "[THINK]",
            Self::Gemma4Thought => "<|channel>thought",
        }
    }

    /// Ends a span.
    pub fn close(self) -> &'static str {
        match self {
            Self::Think => "</think>",
            Self::MistralThink => "[/THINK]",
            Self::Gemma4Thought => "<channel|>",
        }
    }

    /// Tokens that the marks are made of, where the vocabulary has them.
    pub(super) fn tokens(self) -> [&'static str; 2] {
        match self {
            Self::Gemma4Thought => ["<|channel>", self.close()],
            _ => [self.open(), self.close()],
        }
    }

    /// Whether a prompt has opened a span that the answer goes on with.
    pub fn is_open_after(self, prompt: &str) -> bool {
        prompt.trim_end().ends_with(self.open())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_by_template_and_by_tokens() {
        let cases = [
            ("… split('</think>') …", &[][..], Some(ReasoningFormat::Think)),
            ("'[THINK]' + text + '[/THINK]'", &["<think>", "</think>"], Some(ReasoningFormat::MistralThink)),
            ("split('<channel|>')", &[], Some(ReasoningFormat::Gemma4Thought)),
            ("plain", &["<think>", "</think>"], Some(ReasoningFormat::Think)),
            ("plain", &["<think>"], None),
        ];
        for (template, tokens, expected) in cases {
            assert_eq!(ReasoningFormat::detect(template, |text| tokens.contains(&text)), expected, "{template}");
        }
    }

    #[test]
    fn a_prompt_that_opened_a_span() {
        let cases =
            [("<|im_start|>assistant\n<think>\n", true), ("<think>\n\n</think>\n\n", false), ("<think> of me", false)];
        for (prompt, open) in cases {
            assert_eq!(ReasoningFormat::Think.is_open_after(prompt), open, "{prompt:?}");
        }
    }
}
