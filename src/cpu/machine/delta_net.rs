//! The operations of gated delta net layers, and the snapshots of what they keep.

use super::{Buffers, Machine, Rows};
use crate::cpu::delta_prepare::DeltaPrepare;
use crate::cpu::delta_rule::delta_rules;
use crate::cpu::gated_norm::gated_norm;
use crate::cpu::recurrent::Recurrent;
use crate::plan::{BufferId, DeltaHeads, Op, WeightId};

impl Machine {
    pub(super) fn delta_prepare(&mut self, op: &Op, buffers: &mut Buffers, rows: Rows<'_>) {
        let &Op::DeltaPrepare { mixed, conv, dt_bias, rate, out, eps, heads, state } = op else { return };
        rows.places.iter().for_each(|place| self.recurrent[state].reserve(place.slot));
        let (weights, pool, layer) = (&self.weights, &self.pool, &self.recurrent[state]);
        let [conv, dt_bias, rate] = [conv, dt_bias, rate].map(|id| weights.vector(id));
        let prepare = DeltaPrepare { heads, conv, dt_bias, rate, eps };
        buffers.produce(out, false, |buffers, out| {
            let mixed = buffers.get(mixed).f32();
            pool.for_chunks(out, heads.prepared_width(), |r, out| {
                let (first, place) = rows.first_of_sequence(r);
                let mixed = &mixed[first * heads.mixed_width()..];
                prepare.row(mixed, r - first, place.position, layer.slot(place.slot), out);
            });
        });
    }

    pub(super) fn delta_rule(
        &mut self,
        mixed: BufferId,
        prepared: BufferId,
        out: BufferId,
        heads: DeltaHeads,
        state: usize,
        buffers: &mut Buffers,
        rows: Rows<'_>,
    ) {
        let (pool, layer) = (&self.pool, &mut self.recurrent[state]);
        buffers.produce(out, false, |buffers, out| {
            let (mixed, prepared) = (buffers.get(mixed).f32(), buffers.get(prepared).f32());
            let mut first = 0;
            for places in rows.places.chunk_by(|a, b| a.slot == b.slot) {
                let part = |width: usize| first * width..(first + places.len()) * width;
                let recurrent = layer.slot_mut(places[0].slot);
                recurrent.begin(&mixed[part(heads.mixed_width())], heads, places[0].position);
                let out = &mut out[part(heads.values_width())];
                delta_rules(&prepared[part(heads.prepared_width())], heads, recurrent, out, pool);
                first += places.len();
            }
        });
    }

    pub(super) fn gated_norm(
        &self,
        x: BufferId,
        mixed: BufferId,
        weight: WeightId,
        out: BufferId,
        eps: f32,
        heads: DeltaHeads,
        buffers: &mut Buffers,
    ) {
        let (weight, pool) = (self.weights.vector(weight), &self.pool);
        buffers.produce(out, false, |buffers, out| {
            let (x, mixed) = (buffers.get(x).f32(), buffers.get(mixed).f32());
            pool.for_chunks(out, heads.size, |i, out| {
                let (row, head) = (i / heads.n_value_heads, i % heads.n_value_heads);
                let gate_at = row * heads.mixed_width() + heads.n_channels() + head * heads.size;
                let (x, gate) = (&x[i * heads.size..][..heads.size], &mixed[gate_at..][..heads.size]);
                gated_norm(x, gate, weight, eps, out);
            });
        });
    }

    pub(in crate::cpu) fn snapshot_bytes(&mut self, snapshot: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for layer in &mut self.recurrent {
            let Recurrent { states, ring } = layer.snapshot_mut(snapshot);
            bytes.extend_from_slice(bytemuck::cast_slice(states));
            bytes.extend_from_slice(bytemuck::cast_slice(ring));
        }
        bytes
    }

    /// Writes what `snapshot_bytes` gave.
    pub(in crate::cpu) fn write_snapshot(&mut self, snapshot: usize, bytes: &[u8]) {
        let mut rest = bytes;
        for layer in &mut self.recurrent {
            let Recurrent { states, ring } = layer.snapshot_mut(snapshot);
            for out in [states, ring] {
                let (here, after) = rest.split_at(size_of_val(&out[..]));
                bytemuck::cast_slice_mut::<f32, u8>(out).copy_from_slice(here);
                rest = after;
            }
        }
    }
}
