//! The one public error type. Every variant says what was wrong and what was expected.

/// The crate's result type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong, from opening a file to decoding a token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // --- sources of bytes
    /// A local file could not be opened or read.
    #[error("{path}: {reason}")]
    Io {
        /// The file's path.
        path: String,
        /// What the operating system said.
        reason: String,
    },
    /// An HTTP request failed.
    #[error("{url}: {reason}")]
    Http {
        /// The address asked.
        url: String,
        /// The status or the transport's message.
        reason: String,
    },
    /// The server answered a range request with the whole file.
    #[error(
        "{url}: the server ignored the Range header (status {status}, expected 206); serve the file with range support or pick it as a local file"
    )]
    RangeIgnored {
        /// The address asked.
        url: String,
        /// The status it answered with.
        status: u16,
    },
    /// A read went past the end of a source.
    #[error("{name}: {len} bytes at offset {offset} are past the end, the file has {size} bytes")]
    OutOfRange {
        /// The source's name.
        name: String,
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// The source's size in bytes.
        size: u64,
    },
    /// The caller cancelled.
    #[error("cancelled")]
    Cancelled,

    // --- GGUF
    /// The file is not a GGUF file, or not one this version reads.
    #[error("{name}: {reason}")]
    NotGguf {
        /// The source's name.
        name: String,
        /// What was found and what was expected.
        reason: String,
    },
    /// A section of the file is damaged.
    #[error("{name}: {section} at byte {offset}: {reason}")]
    Malformed {
        /// The source's name.
        name: String,
        /// Which section: `header`, `metadata`, `tensor table`, `tensor data`, `shards`.
        section: &'static str,
        /// Byte offset in the file.
        offset: u64,
        /// What was found and what was expected.
        reason: String,
    },
    /// A metadata key is missing.
    #[error("metadata: {key} is missing (expected {expected})")]
    MissingKey {
        /// The key.
        key: String,
        /// The type expected.
        expected: &'static str,
    },
    /// A metadata value has the wrong type or an unusable value.
    #[error("metadata: {key} is {found}, expected {expected}")]
    BadValue {
        /// The key.
        key: String,
        /// What the file holds.
        found: String,
        /// What is expected.
        expected: String,
    },
    /// A tensor the architecture needs is not in the file.
    #[error("tensor {tensor} is missing from the file")]
    MissingTensor {
        /// The tensor's name.
        tensor: String,
    },
    /// A tensor has another shape, type or content than the architecture needs.
    #[error("tensor {tensor}: {found}, expected {expected}")]
    BadTensor {
        /// The tensor's name.
        tensor: String,
        /// What the file holds.
        found: String,
        /// What is expected.
        expected: String,
    },

    // --- model
    /// The architecture is not supported.
    #[error("architecture {name:?} is not supported; supported: {supported}")]
    UnsupportedArchitecture {
        /// `general.architecture` of the file.
        name: String,
        /// The supported ones, comma-separated.
        supported: String,
    },
    /// The request does not fit the context.
    #[error("{needed} tokens do not fit the context of {limit} tokens")]
    ContextFull {
        /// Tokens needed.
        needed: usize,
        /// Tokens available.
        limit: usize,
    },
    /// The cache has less room than one sequence may need.
    #[error(
        "a sequence of {tokens} tokens needs {needed} bytes of cache, there are {there}; ask for a shorter context or a larger cache"
    )]
    CacheTooSmall {
        /// Tokens of the longest sequence.
        tokens: usize,
        /// Bytes it needs.
        needed: u64,
        /// Bytes the cache may have.
        there: u64,
    },
    /// Too many sequences wait already.
    #[error(
        "{more} more sequences cannot wait: {waiting} do already, at most {limit} may; try again once some have ended"
    )]
    QueueFull {
        /// Sequences that wait.
        waiting: usize,
        /// Sequences asked for.
        more: usize,
        /// How many may wait.
        limit: usize,
    },
    /// A saved state is damaged, or another model's or version's.
    #[error("saved state: the {what} is {found}, expected {expected}")]
    SavedState {
        /// The part that is wrong.
        what: &'static str,
        /// What the bytes hold.
        found: String,
        /// What is expected.
        expected: String,
    },
    /// The engine's one sequence is not this generation's any more.
    #[error(
        "this generation cannot go on: another one has started, the sequence was changed, or a wait for its tokens was given up"
    )]
    Superseded,
    /// A token id is outside the vocabulary.
    #[error("token id {id} is outside the vocabulary of {n_vocab} tokens")]
    BadToken {
        /// The id.
        id: u32,
        /// Vocabulary size.
        n_vocab: usize,
    },
    /// Nothing is left to draw a token from.
    #[error(
        "no token can be drawn at position {position}: each of the {n_vocab} tokens is suppressed or has a logit that is NaN or -infinity"
    )]
    NoCandidate {
        /// Position of the token that was to be drawn.
        position: usize,
        /// Vocabulary size.
        n_vocab: usize,
    },
    /// An option has a value outside its range.
    #[error("{option} is {found}, expected {expected}")]
    BadOption {
        /// The option's name.
        option: &'static str,
        /// The value given.
        found: String,
        /// The range or the values allowed.
        expected: &'static str,
    },

    /// A hidden state is not finite, or larger than the guard lets pass.
    #[error(
        "{} wrote {} at position {position}; the file's weights or the quantisation overflow, the answer would be gibberish",
        layer.map_or("the embedding".into(), |layer| format!("layer {layer}")),
        if *not_finite { "a value that is not finite" } else { "a value over the guard's limit" }
    )]
    NotFinite {
        /// The layer that wrote it; `None` for the embedding.
        layer: Option<usize>,
        /// Position of its token.
        position: usize,
        /// Whether it is infinite or NaN; else it reached the limit.
        not_finite: bool,
    },

    // --- text
    /// The vocabulary cannot be used.
    #[error("tokenizer: {reason}")]
    Tokenizer {
        /// What was found and what was expected.
        reason: String,
    },
    /// The chat template failed.
    #[error("chat template: {reason}")]
    Template {
        /// The template engine's message with its line.
        reason: String,
    },

    /// A tool's declaration cannot be used.
    #[error("tool {name:?}: {fault}")]
    BadTool {
        /// The tool's name, as far as it has one.
        name: String,
        /// What is wrong with it.
        fault: crate::chat::tools::ToolFault,
    },

    // --- constrained output
    /// A grammar cannot be used, or a token does not fit it.
    #[error("grammar: {fault}: {reason}")]
    Grammar {
        /// What kind of fault it is.
        fault: GrammarFault,
        /// What was found, where, and what was expected.
        reason: String,
    },

    // --- devices
    /// No GPU adapter was found.
    #[error("no GPU: {reason}")]
    NoAdapter {
        /// Why, in the user's terms.
        reason: String,
    },
    /// The device refused an allocation.
    #[error("the device could not allocate {bytes} bytes for {what}: {reason}")]
    OutOfDeviceMemory {
        /// What it was for.
        what: String,
        /// Bytes asked for.
        bytes: u64,
        /// The device's message.
        reason: String,
    },
    /// The device was lost or reported an error.
    #[error("device: {reason}")]
    Device {
        /// The device's message.
        reason: String,
    },
    /// More bursts were submitted than the ring has slots.
    #[error("the next of the ring's {slots} slots is in flight; read or drop the oldest burst first")]
    RingFull {
        /// Slots of the ring.
        slots: usize,
    },
    /// The host read from the device although it was not allowed to.
    #[error("a readback of {purpose} is not among those allowed")]
    UnexpectedReadback {
        /// What was read.
        purpose: String,
    },
    /// The device computes wrongly.
    #[error("self-test: {op} gives {found}, expected {expected}; the device or its driver computes wrongly")]
    SelfTest {
        /// The first operation whose bits differ.
        op: String,
        /// What the device gave.
        found: String,
        /// The known answer.
        expected: String,
    },
}

/// What is wrong with a grammar or a token under it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum GrammarFault {
    /// A text that should be JSON is not.
    #[error("malformed JSON")]
    MalformedJson,
    /// A keyword of a JSON schema has a value that it cannot have.
    #[error("invalid schema")]
    InvalidSchema,
    /// A keyword, a format or a construct that is not supported.
    #[error("not supported")]
    Unsupported,
    /// A `$ref` that leads nowhere, or out of the document.
    #[error("unresolvable $ref")]
    UnresolvedRef,
    /// A regular expression that cannot be parsed.
    #[error("bad regular expression")]
    BadRegex,
    /// A Lark text that cannot be parsed, or whose rules do not fit together.
    #[error("bad Lark grammar")]
    BadLark,
    /// No text, or no token of the vocabulary, fits.
    #[error("unsatisfiable")]
    Unsatisfiable,
    /// More work or memory than a grammar may take.
    #[error("too complex")]
    TooComplex,
    /// A token that does not continue the text.
    #[error("token not allowed")]
    TokenNotAllowed,
    /// The parser has failed in a way that no input should make it fail.
    #[error("internal fault")]
    Internal,
}
