//! `blueshift run`: one prompt, one answer.

use std::io::Write;

use crate::chat::Message;
use crate::engine::policy::RingSize;
use crate::engine::{Engine, Finish, GenerateOptions, Policy};
use crate::grammar::Grammar;
use crate::sample::{Logprobs, Sampling};
use anyhow::{Context, Result};
use clap::Args as ClapArgs;
use serde_json::json;

use super::open::{ModelArgs, load};

/// How tokens are drawn.
#[derive(ClapArgs)]
pub(crate) struct SamplingArgs {
    /// Temperature; below 0.01 the likeliest token is taken.
    #[arg(long = "temp", default_value_t = 0.0, allow_negative_numbers = true)]
    temperature: f32,
    /// Likeliest tokens kept; 0 keeps all.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    top_k: u32,
    /// Probability mass kept; 1 keeps all.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    top_p: f32,
    /// Least probability kept, relative to the largest; 0 keeps all.
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    min_p: f32,
    /// Probability mass kept of the tokens whose surprise is nearest to the expected one; 1 keeps all.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    typical_p: f32,
    /// Divides positive and multiplies negative logits of recent tokens; 1 changes nothing.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    repeat_penalty: f32,
    /// Subtracted from a logit for each time its token is among the recent ones.
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    frequency_penalty: f32,
    /// Subtracted from the logits of recent tokens.
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    presence_penalty: f32,
    /// How many tokens, prompt included, are recent.
    #[arg(long, default_value_t = 64, allow_negative_numbers = true)]
    penalty_window: usize,
    /// A token id and what is added to its logit, as ID=VALUE; -inf bans the token. May be given several times.
    #[arg(long, value_name = "ID=VALUE", value_parser = logit_bias)]
    logit_bias: Vec<(u32, f32)>,
    /// Text that ends the answer; may be given several times.
    #[arg(long)]
    stop: Vec<String>,
    /// A token id that ends the answer; may be given several times.
    #[arg(long, value_name = "ID", allow_negative_numbers = true)]
    stop_id: Vec<u32>,
    #[command(flatten)]
    grammar: GrammarArgs,
    #[command(flatten)]
    pub(crate) flow: FlowArgs,
}

/// What the answer has to look like.
#[derive(ClapArgs)]
#[group(multiple = false)]
struct GrammarArgs {
    /// A file with a JSON schema, or the schema itself, that the answer is valid under.
    #[arg(long, value_name = "FILE|JSON")]
    json_schema: Option<String>,
    /// The answer is a JSON object.
    #[arg(long)]
    json_object: bool,
    /// A regular expression that matches the whole answer.
    #[arg(long, value_name = "REGEX")]
    regex: Option<String>,
    /// A file with a Lark grammar of the answer.
    #[arg(long, value_name = "FILE")]
    lark: Option<String>,
}

impl GrammarArgs {
    fn grammar(&self) -> Result<Option<Grammar>> {
        let read = |path: &str| std::fs::read_to_string(path).with_context(|| path.to_string());
        Ok(if let Some(schema) = &self.json_schema {
            let text = if schema.trim_start().starts_with('{') { schema.clone() } else { read(schema)? };
            Some(Grammar::json_schema(&text)?)
        } else if self.json_object {
            Some(Grammar::JsonObject)
        } else if let Some(regex) = &self.regex {
            Some(Grammar::Regex(regex.clone()))
        } else {
            self.lark.as_deref().map(read).transpose()?.map(Grammar::Lark)
        })
    }
}

/// What the draws begin with.
#[derive(ClapArgs)]
pub(crate) struct SeedArg {
    /// Seed of the draws.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) seed: u64,
}

/// Steps a submit and submits in flight. Both adapt where neither is given.
#[derive(ClapArgs, Clone, Copy)]
pub(crate) struct FlowArgs {
    /// Tokens a submit draws, 1 to 64.
    #[arg(long, value_parser = burst, allow_negative_numbers = true)]
    pub(crate) burst: Option<usize>,
    /// Submits in flight, 1 to 4; 1 waits for each.
    #[arg(long, value_parser = in_flight, allow_negative_numbers = true)]
    pub(crate) in_flight: Option<usize>,
}

impl FlowArgs {
    pub(crate) fn policy(self) -> Policy {
        Policy::of_flow(self.burst, self.in_flight)
    }
}

fn burst(text: &str) -> Result<usize, String> {
    from_one(text, RingSize::default().steps)
}

fn in_flight(text: &str) -> Result<usize, String> {
    from_one(text, RingSize::default().slots)
}

/// Reads a number from 1 to `most`.
fn from_one(text: &str, most: usize) -> Result<usize, String> {
    text.parse().ok().filter(|n| (1..=most).contains(n)).ok_or_else(|| format!("expected 1 to {most}"))
}

/// Reads `ID=VALUE`.
fn logit_bias(text: &str) -> Result<(u32, f32), String> {
    let (id, value) = text.split_once('=').ok_or("expected ID=VALUE")?;
    let id = id.parse().map_err(|e| format!("token id {id:?}: {e}"))?;
    let value = value.parse().map_err(|e| format!("value {value:?}: {e}"))?;
    Ok((id, value))
}

impl SamplingArgs {
    /// The engine's options for up to `max_tokens`, drawn with `seed`.
    pub(crate) fn options(&self, max_tokens: usize, seed: u64) -> Result<GenerateOptions> {
        let sampling = Sampling {
            temperature: self.temperature,
            seed,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            typical_p: self.typical_p,
            repeat_penalty: self.repeat_penalty,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            penalty_window: self.penalty_window,
            biases: self.logit_bias.clone(),
        };
        Ok(GenerateOptions {
            max_tokens,
            sampling,
            stop: self.stop.clone(),
            stop_ids: self.stop_id.clone(),
            grammar: self.grammar.grammar()?,
            policy: Some(self.flow.policy()),
            ..Default::default()
        })
    }
}

/// How prompts are answered.
#[derive(ClapArgs)]
pub(crate) struct AnswerArgs {
    /// Most tokens drawn a prompt.
    #[arg(short, default_value_t = 256, allow_negative_numbers = true)]
    n: usize,
    /// Take texts as they are, without the chat template.
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
}

impl AnswerArgs {
    /// The engine's options, drawn with `seed`.
    pub(crate) fn options(&self, seed: u64) -> Result<GenerateOptions> {
        self.sampling.options(self.n, seed)
    }

    /// A prompt's token ids: as it is, or as a user's message.
    pub(crate) fn prompt_ids(&self, engine: &Engine, prompt: String) -> Result<Vec<u32>> {
        match self.raw {
            true => Ok(engine.raw_prompt(&prompt)),
            false => engine
                .chat_prompt(&[Message::new("user", prompt)])
                .context("use --raw for models without a chat template"),
        }
    }
}

#[derive(ClapArgs)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// The prompt.
    #[arg(short, long, required_unless_present = "file", conflicts_with = "file")]
    prompt: Option<String>,
    /// A file that holds the prompt.
    #[arg(short, long)]
    file: Option<std::path::PathBuf>,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    seed: SeedArg,
    /// Give each token's log-probability, and those of this many likeliest tokens, in the JSON.
    #[arg(long, value_name = "TOP", num_args = 0..=1, default_missing_value = "0", requires = "json", allow_negative_numbers = true)]
    logprobs: Option<usize>,
    /// Generate the answer again to tell where its time goes, by operation.
    #[arg(long)]
    profile: bool,
    /// Print one JSON object instead of the text.
    #[arg(long)]
    json: bool,
}

/// An answer as a whole.
pub(crate) struct Answer {
    pub(crate) ids: Vec<u32>,
    pub(crate) text: String,
    pub(crate) logprobs: Vec<Logprobs>,
    pub(crate) finish: Finish,
}

/// Generates to the end; `show` sees the text as it comes.
pub(crate) fn answer(
    engine: &mut Engine,
    prompt: &[u32],
    options: GenerateOptions,
    mut show: impl FnMut(&str) -> Result<()>,
) -> Result<Answer> {
    let mut generation = engine.start(prompt, options)?;
    let (mut ids, mut text, mut logprobs) = (Vec::new(), String::new(), Vec::new());
    while let Some(piece) = pollster::block_on(engine.next(&mut generation))? {
        ids.extend(piece.ids);
        text.push_str(&piece.text);
        logprobs.extend(piece.logprobs);
        show(&piece.text)?;
    }
    let finish = generation.finish().context("the generation has no end")?.clone();
    if let Some(draw) = &finish.invalid_draw {
        eprintln!("blueshift: the device drew an id that cannot be ({draw:?}); the rest was drawn on the host");
    }
    Ok(Answer { ids, text, logprobs, finish })
}

/// Writes text to the terminal at once.
pub(crate) fn print_now(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

pub(crate) fn main(args: Args) -> Result<()> {
    let prompt = match (&args.prompt, &args.file) {
        (Some(prompt), _) => prompt.clone(),
        (None, Some(path)) => std::fs::read_to_string(path).with_context(|| path.display().to_string())?,
        (None, None) => unreachable!("clap asks for one of them"),
    };
    let mut engine = load(&args.model)?;
    let prompt_ids = args.answer.prompt_ids(&engine, prompt)?;
    let options = GenerateOptions { logprobs: args.logprobs, ..args.answer.options(args.seed.seed)? };
    let quiet = args.json;
    let show = |text: &str| if quiet { Ok(()) } else { print_now(text) };
    let answer = answer(&mut engine, &prompt_ids, options.clone(), show)?;
    let profile = match args.profile {
        true => {
            let again = GenerateOptions { max_tokens: answer.ids.len(), ..options };
            Some(pollster::block_on(engine.profile_answer(&prompt_ids, again))?)
        }
        false => None,
    };
    if args.json {
        let info = engine.info();
        let mut result = json!({
            "prompt_ids": prompt_ids,
            "ids": answer.ids,
            "text": answer.text,
            "stop_reason": answer.finish.stop_reason,
            "backend": info.backend,
            "adapter": info.adapter,
            "exact": info.exact,
            "timings": answer.finish.timings,
            "stats": answer.finish.stats,
        });
        if args.logprobs.is_some() {
            let of = |l: &Logprobs| json!({ "logprob": l.chosen, "top": l.top });
            result["logprobs"] = answer.logprobs.iter().map(of).collect();
        }
        if let Some(profile) = &profile {
            result["profile"] = serde_json::to_value(profile)?;
        }
        println!("{result}");
    } else {
        println!();
        if let Some(profile) = &profile {
            eprint!("\n{profile}");
        }
    }
    Ok(())
}
