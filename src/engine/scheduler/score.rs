//! Numbers for ranking texts.

/// What [`rerank_prompt`] asks for where the caller has nothing more specific.
pub const RERANK_INSTRUCTION: &str = "Given a web search query, retrieve relevant passages that answer the query";

/// The text of the question whether `document` is what `query` looks for, in the form that Qwen3-Reranker was trained with. The answer is the
/// next token, `yes` or `no`: see [`yes_probability`].
pub fn rerank_prompt(instruction: &str, query: &str, document: &str) -> String {
    format!(
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. \
         Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: {instruction}\n\
         <Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
}

/// The probability of token `yes` where only `yes` and `no` may come: `1 / (1 + e^(logit_no - logit_yes))`, in f64. 0 where either id is outside
/// the vocabulary or has a logit that is NaN.
pub fn yes_probability(logits: &[f32], yes: u32, no: u32) -> f32 {
    let logit = |id: u32| logits.get(id as usize).map_or(f64::NAN, |logit| f64::from(*logit));
    let probability = 1.0 / (1.0 + libm::exp(logit(no) - logit(yes)));
    if probability.is_nan() { 0.0 } else { probability as f32 }
}

/// The cosine of the angle between two vectors, `a·b / (|a| |b|)`, summed in ascending order in f64. 0 where either is zero or their lengths differ.
pub fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let lengths = libm::sqrt(dot(a, a)) * libm::sqrt(dot(b, b));
    if a.len() != b.len() || lengths == 0.0 { 0.0 } else { (dot(a, b) / lengths) as f32 }
}

/// Divides each vector of `width` values by its Euclidean length, summed in ascending order in f64. Zeros stay.
pub(super) fn normalise(values: &mut [f32], width: usize) {
    for vector in values.chunks_exact_mut(width.max(1)) {
        let length = libm::sqrt(vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum());
        if length > 0.0 {
            vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_of_yes() {
        let cases = [
            ([0.0, 0.0], 0.5),
            ([1.0, 0.0], 0.731_058_6),
            ([-1.0, 0.0], 0.268_941_43),
            ([f32::NEG_INFINITY, 0.0], 0.0),
            ([3e38, -3e38], 1.0),
            ([f32::NAN, 0.0], 0.0),
        ];
        for (logits, wanted) in cases {
            assert_eq!(yes_probability(&logits, 0, 1), wanted, "{logits:?}");
        }
        assert_eq!(yes_probability(&[1.0], 0, 1), 0.0);
    }

    #[test]
    fn cosines() {
        assert_eq!(cosine(&[3.0, 4.0], &[6.0, 8.0]), 1.0);
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 2.0]), 0.0);
        assert_eq!(cosine(&[1.0, 0.0], &[-2.0, 0.0]), -1.0);
        assert_eq!(cosine(&[0.0, 0.0], &[1.0, 1.0]), 0.0);
        assert_eq!(cosine(&[1.0], &[1.0, 1.0]), 0.0);
    }

    #[test]
    fn vectors_of_length_one() {
        let mut values = [3.0, 4.0, 0.0, 0.0, 0.0, -2.0];
        normalise(&mut values, 2);
        assert_eq!(values, [0.6, 0.8, 0.0, 0.0, 0.0, -1.0]);
    }
}
