//! `blueshift chat`: a conversation on the terminal.

use std::io::{BufRead, IsTerminal};

use crate::chat::Message;
use crate::engine::Engine;
use anyhow::Result;
use clap::Args as ClapArgs;

use super::open::{ModelArgs, load};
use super::run::{SamplingArgs, SeedArg, answer, print_now};

#[derive(ClapArgs)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Most tokens an answer has.
    #[arg(short, default_value_t = 1024)]
    n: usize,
    /// What the model is told before the conversation.
    #[arg(long)]
    system: Option<String>,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    seed: SeedArg,
}

pub(crate) fn main(args: Args) -> Result<()> {
    let mut engine = load(&args.model)?;
    let beginning: Vec<Message> = args.system.iter().map(|text| Message::new("system", text)).collect();
    let mut messages = beginning.clone();
    let interactive = std::io::stdin().is_terminal();
    if interactive {
        println!(
            "{} on {} ({}). /new starts over, /quit ends.",
            engine.info().name,
            engine.info().backend,
            engine.info().adapter
        );
    }
    let mut lines = std::io::stdin().lock().lines();
    loop {
        if interactive {
            print_now("> ")?;
        }
        let Some(line) = lines.next().transpose()? else { return Ok(()) };
        match line.trim() {
            "" => continue,
            "/quit" => return Ok(()),
            "/new" => messages.clone_from(&beginning),
            text => {
                messages.push(Message::new("user", text));
                match reply(&mut engine, &messages, &args) {
                    Ok(said) => messages.push(Message::new("assistant", said)),
                    Err(error) => {
                        eprintln!("blueshift: {error:#}");
                        messages.pop();
                    }
                }
            }
        }
    }
}

/// Prints the answer as it comes and returns it.
fn reply(engine: &mut Engine, messages: &[Message], args: &Args) -> Result<String> {
    let prompt = engine.chat_prompt(messages)?;
    let said = answer(engine, &prompt, args.sampling.options(args.n, args.seed.seed)?, print_now)?;
    println!();
    Ok(said.text)
}
