//! Geometry of the heads of a layer.

/// The attention geometry of one layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Heads {
    /// Query heads.
    pub n_heads: usize,
    /// Key/value heads; divides `n_heads`.
    pub n_kv_heads: usize,
    /// Values a head, a multiple of 8.
    pub head_dim: usize,
    /// Keys further back than this are hidden; `None` shows all.
    pub window: Option<usize>,
    /// Whether each query head is followed by its gate, `head_dim` values whose sigmoid multiplies the head's result.
    pub gated: bool,
}

impl Heads {
    /// Values from one query head to the next.
    pub fn query_stride(self) -> usize {
        if self.gated { 2 * self.head_dim } else { self.head_dim }
    }

    /// Where the keys of a row begin: after the queries and their gates.
    pub fn first_key(self) -> usize {
        self.n_heads * self.query_stride()
    }

    /// Values a row: queries (and gates), keys, values.
    pub fn row_width(self) -> usize {
        self.first_key() + 2 * self.n_kv_heads * self.head_dim
    }
}

/// Which key head a value head of a delta net reads, and how the rows of its projections lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadOrder {
    /// Value head `j` reads key head `j mod n_key_heads`; all betas come before all alphas (qwen35 files).
    Tiled,
    /// Value head `j` reads key head `j / (n_value_heads / n_key_heads)`; each key head has its betas, then its alphas (qwen3next files).
    Grouped,
}

/// The geometry of one gated delta net layer. Yang et al., Gated Delta Networks (2024).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeltaHeads {
    /// Heads of queries and of keys; divides `n_value_heads`.
    pub n_key_heads: usize,
    /// Heads of values, each with a state.
    pub n_value_heads: usize,
    /// Values of any head, a multiple of 32 up to 256: a state has `size` columns of `size` values.
    pub size: usize,
    /// Width of the convolution.
    pub kernel: usize,
    /// How heads are ordered.
    pub order: HeadOrder,
}

impl DeltaHeads {
    /// Channels of the convolution: queries, keys, values.
    pub fn n_channels(self) -> usize {
        2 * self.n_key_heads * self.size + self.values_width()
    }

    /// Values of all value heads.
    pub fn values_width(self) -> usize {
        self.n_value_heads * self.size
    }

    /// Values a row of the layer's projections: channels, gates of the output, betas and alphas.
    pub fn mixed_width(self) -> usize {
        self.n_channels() + self.values_width() + 2 * self.n_value_heads
    }

    /// Values a prepared row: channels, betas, decays.
    pub fn prepared_width(self) -> usize {
        self.n_channels() + 2 * self.n_value_heads
    }

    /// The key head that a value head reads.
    pub fn key_head(self, value_head: usize) -> usize {
        match self.order {
            HeadOrder::Tiled => value_head % self.n_key_heads,
            HeadOrder::Grouped => value_head / (self.n_value_heads / self.n_key_heads),
        }
    }

    /// Where beta and alpha of a value head lie among the `2 n_value_heads` of a row.
    pub fn gates_at(self, value_head: usize) -> [usize; 2] {
        match self.order {
            HeadOrder::Tiled => [value_head, self.n_value_heads + value_head],
            HeadOrder::Grouped => {
                let a_key = self.n_value_heads / self.n_key_heads;
                let beta = value_head + value_head / a_key * a_key;
                [beta, beta + a_key]
            }
        }
    }

    /// What queries of unit length are multiplied by: `size^-0.5`.
    pub fn query_scale(self) -> f32 {
        libm::pow(self.size as f64, -0.5) as f32
    }

    /// f32 values of the states, `[n_value_heads, size, size]`: a column of a state is contiguous.
    pub fn states_len(self) -> usize {
        self.n_value_heads * self.size * self.size
    }

    /// f32 values of the ring of the convolution's last inputs, `[kernel - 1, n_channels]`: position `p` is row `p mod (kernel - 1)`.
    pub fn ring_len(self) -> usize {
        (self.kernel - 1) * self.n_channels()
    }
}
