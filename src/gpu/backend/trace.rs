//! Single operations of the last feed, and what they wrote.

use super::GpuBackend;
use crate::engine::backend::Readback;
use crate::error::Result;
use crate::gpu::ops::{Space, Spread, max_units};
use crate::gpu::recorder::{Step, visible_units};
use crate::gpu::words::read_words;
use crate::plan::{BufferId, Heads, List};

/// What attention left for its merge: a row's units, first row first.
pub(crate) struct Partials {
    /// The row of each unit.
    pub(crate) rows: Vec<usize>,
    /// `[units, n_heads, 2 + head_dim]`: maximum, sum, weighted values.
    pub(crate) words: Vec<u32>,
    /// Chunks of a unit.
    pub(crate) chunks_per_unit: usize,
}

impl GpuBackend {
    /// Steps, where each operation's end, and the buffers of their instance. The head always is the decode instance's.
    fn traced(&self, list: List) -> (&[Step], &[usize], &Space, usize) {
        let single = self.decode.instance(1);
        match list {
            List::Body if self.fed_rows > 1 => {
                let p = &self.prefill;
                (&p.body, &p.ends, &p.space, self.fed_rows)
            }
            List::Body => (&single.body, &single.body_ends, &self.decode.space, 1),
            List::Head | List::Sample => (&single.head, &single.head_ends, &self.decode.space, 1),
        }
    }

    /// Runs operation `at` of the body, as the last `feed` did, or of the head, as the last `head` did, in a submit of its own.
    pub(crate) fn trace_op(&self, list: List, at: usize) -> Result<()> {
        let (steps, ends, _, rows) = self.traced(list);
        let first = at.checked_sub(1).map_or(0, |before| ends[before]);
        let mut commands = self.commands();
        let positions: Vec<usize> = (self.fed_position..).take(rows).collect();
        commands.record(&steps[first..ends[at]], &positions);
        commands.submit();
        self.gpu.check()
    }

    /// What a buffer holds, every row: f32 bits, or int8 words and then scales and sums.
    pub(crate) async fn trace_words(&self, list: List, id: BufferId) -> Result<Vec<u32>> {
        let (_, _, space, rows) = self.traced(list);
        match &space.buffers[id.0 as usize] {
            Some(buffer) => buffer.words(&self.gpu, Readback::Trace, rows).await,
            None => Ok(Vec::new()),
        }
    }

    /// The bytes of the fed sequence's page `page`, its keys and then its values, as [`KvShape`](crate::plan::KvShape) says.
    pub(crate) async fn trace_page(&self, layer: usize, page: usize) -> Result<Vec<u8>> {
        self.layer_page(Readback::Trace, layer, self.sequence.tables.of(self.fed_slot)[page]).await
    }

    /// The partial results of the attention that ran last.
    pub(crate) async fn trace_partials(&self, heads: Heads) -> Result<Partials> {
        let (_, _, space, rows) = self.traced(List::Body);
        let chunks_per_unit = if rows == 1 { Spread::SINGLE } else { Spread::chunk(1) }.chunks_per_unit;
        let room = max_units(heads.window, chunks_per_unit, self.sequence.capacity.n_ctx);
        let unit_words = heads.n_heads * (heads.head_dim + 2);
        let n = rows * room * unit_words;
        let all = read_words(&self.gpu, Readback::Trace, &space.partials, 0, n).await?;
        let mut partials = Partials { rows: Vec::new(), words: Vec::new(), chunks_per_unit };
        for (row, units) in all.chunks_exact(room * unit_words).enumerate() {
            let seen = visible_units(self.fed_position + row, heads.window.unwrap_or(0), chunks_per_unit);
            partials.rows.extend(std::iter::repeat_n(row, seen));
            partials.words.extend(&units[..seen * unit_words]);
        }
        Ok(partials)
    }

    /// The candidates the last draw chose from: order key and token id of each workgroup's best.
    pub(crate) async fn trace_candidates(&self) -> Result<Vec<(u32, u32)>> {
        let n = self.plan.n_vocab.div_ceil(crate::gpu::sampler::LOGITS_A_GROUP);
        let words = read_words(&self.gpu, Readback::Trace, &self.sequence.candidates, 0, 2 * n).await?;
        Ok(words.as_chunks::<2>().0.iter().map(|[key, id]| (*key, *id)).collect())
    }
}
