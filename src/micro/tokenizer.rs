//! A small byte-level BPE vocabulary and a chat template.

use super::writer::Writer;

/// Merges, each a pair of tokens; `Ġ` stands for a space.
const MERGES: [&str; 12] = ["t h", "th e", "i n", "a n", "e r", "Ġ t", "Ġ a", "o n", "Ġt he", "r e", "an d", "Ġa nd"];
const N_BYTES: usize = 256;
const N_SPECIAL: usize = 2;
/// Fewest tokens: the bytes, the merges, `<|bos|>` and `<|eos|>`.
pub(super) const MIN_VOCAB: usize = N_BYTES + MERGES.len() + N_SPECIAL;

/// GGUF's codes of token types.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const UNUSED: i32 = 5;

const CHAT_TEMPLATE: &str = "{% for message in messages %}{{ '<|bos|>' + message['role'] + '\\n' + \
     message['content'] + '<|eos|>' + '\\n' }}{% endfor %}\
     {% if add_generation_prompt %}{{ '<|bos|>assistant\\n' }}{% endif %}";

/// Adds a vocabulary of `n` tokens: bytes 0 to 255, merged tokens, unused fillers, `<|bos|>`, `<|eos|>`.
pub(super) fn add_tokenizer(w: &mut Writer, n: usize) {
    let n_fillers = n.saturating_sub(MIN_VOCAB);
    let mut tokens = byte_tokens();
    tokens.extend(MERGES.iter().map(|m| m.replace(' ', "")));
    let mut types = vec![NORMAL; tokens.len()];
    tokens.extend((0..n_fillers).map(|i| format!("<|unused_{i}|>")));
    types.resize(tokens.len(), UNUSED);
    let bos = tokens.len() as u32;
    tokens.extend(["<|bos|>".to_string(), "<|eos|>".to_string()]);
    types.resize(tokens.len(), CONTROL);

    w.str("tokenizer.ggml.model", "gpt2");
    w.str("tokenizer.ggml.pre", "gpt-2");
    w.strings("tokenizer.ggml.tokens", &tokens);
    w.i32s("tokenizer.ggml.token_type", &types);
    w.strings("tokenizer.ggml.merges", &MERGES);
    w.u32("tokenizer.ggml.bos_token_id", bos);
    w.u32("tokenizer.ggml.eos_token_id", bos + 1);
    w.bool("tokenizer.ggml.add_bos_token", false);
    w.str("tokenizer.chat_template", CHAT_TEMPLATE);
}

/// GPT-2's printable character of each byte: the byte itself where Latin-1 has a visible one, else U+0100 and on.
fn byte_tokens() -> Vec<String> {
    let mut next_free = 0x100;
    let mut printable = |byte: u32| match byte {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => byte,
        _ => {
            next_free += 1;
            next_free - 1
        }
    };
    (0..N_BYTES as u32).filter_map(|b| char::from_u32(printable(b))).map(String::from).collect()
}
