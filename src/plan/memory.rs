//! Assigns buffers by liveness: a buffer is reused as soon as its last reader has run.

use super::Plan;
use super::op::{BufferId, Op, Shape};

impl Op {
    /// Buffers read or written, the written one last.
    pub fn buffers_mut(&mut self) -> Vec<&mut BufferId> {
        match self {
            Op::Embed { out, .. } => vec![out],
            Op::RmsNorm { x, out, .. } | Op::MatMul { x, out, .. } => vec![x, out],
            Op::RopeAppend { qkv, .. } => vec![qkv],
            Op::Attention { qkv, out, .. } => vec![qkv, out],
            Op::GatedActivation { gate_up, out, .. } => vec![gate_up, out],
            Op::DeltaPrepare { mixed, out, .. } => vec![mixed, out],
            Op::DeltaRule { mixed, prepared, out, .. } => vec![mixed, prepared, out],
            Op::GatedNorm { x, mixed, out, .. } => vec![x, mixed, out],
            Op::Route { logits, out } => vec![logits, out],
            Op::ExpertMatMul { x, route, out, .. } => vec![x, route, out],
            Op::CombineExperts { y, route, out } => vec![y, route, out],
            Op::GatedAdd { y, gate, out } => vec![y, gate, out],
            Op::Sample { logits } => vec![logits],
        }
    }
}

/// Rewrites a plan in which every value has its own buffer so that values whose lives do not overlap share one.
/// Only buffers of the same shape are shared, so any backend's layout of a shape stays valid.
pub(super) fn assign_buffers(mut plan: Plan) -> Plan {
    let mut last_use = vec![0; plan.buffers.len()];
    for (at, op) in all_ops(&mut plan).enumerate() {
        for id in op.buffers_mut() {
            last_use[id.0 as usize] = at;
        }
    }
    // Read back by the host after the plan has run.
    last_use[plan.hidden.0 as usize] = usize::MAX;
    last_use[plan.logits.0 as usize] = usize::MAX;
    last_use[plan.embedding.0 as usize] = usize::MAX;

    let logits = plan.logits.0 as usize;
    let shapes = std::mem::take(&mut plan.buffers);
    let mut slots: Vec<(Shape, usize)> = Vec::new();
    let mut slot_of: Vec<Option<usize>> = vec![None; shapes.len()];
    for (at, op) in all_ops(&mut plan).enumerate() {
        for id in op.buffers_mut() {
            let value = id.0 as usize;
            let slot = *slot_of[value].get_or_insert_with(|| match value == logits {
                // A sequence's logits stay while others compute.
                true => new_slot(&mut slots, shapes[value]),
                false => take_slot(&mut slots, shapes[value], last_use[value], at),
            });
            *id = BufferId(slot as u32);
        }
    }
    plan.hidden = BufferId(slot_of[plan.hidden.0 as usize].expect("the body writes it") as u32);
    plan.logits = BufferId(slot_of[plan.logits.0 as usize].expect("the head writes it") as u32);
    plan.embedding = BufferId(slot_of[plan.embedding.0 as usize].expect("the embedding list writes it") as u32);
    plan.buffers = slots.into_iter().map(|(shape, _)| shape).collect();
    plan
}

fn all_ops(plan: &mut Plan) -> impl Iterator<Item = &mut Op> {
    plan.body.iter_mut().chain(&mut plan.head).chain(&mut plan.sample).chain(&mut plan.embed)
}

/// A slot of `shape` that is free at operation `now`, kept until `last_use`.
fn take_slot(slots: &mut Vec<(Shape, usize)>, shape: Shape, last_use: usize, now: usize) -> usize {
    if let Some(free) = slots.iter().position(|(s, busy_until)| *s == shape && *busy_until < now) {
        slots[free].1 = last_use;
        return free;
    }
    slots.push((shape, last_use));
    slots.len() - 1
}

/// A slot that no other value had or will have.
fn new_slot(slots: &mut Vec<(Shape, usize)>, shape: Shape) -> usize {
    slots.push((shape, usize::MAX));
    slots.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Activation, WeightId};

    /// Two layers of a residual stream, in which every value has its own buffer.
    fn unassigned() -> Plan {
        let (wide, narrow) = (Shape::f32(64), Shape::f32(32));
        let mut plan = Plan {
            body: vec![Op::Embed { weight: WeightId(0), out: BufferId(0), scale: 1.0 }],
            head: Vec::new(),
            sample: Vec::new(),
            embed: Vec::new(),
            buffers: vec![narrow],
            hidden: BufferId(0),
            logits: BufferId(0),
            embedding: BufferId(0),
            ropes: Vec::new(),
            layers: Vec::new(),
            recurrent: Vec::new(),
            layer_starts: Vec::new(),
            weights: Vec::new(),
            n_vocab: 64,
        };
        let mut fresh = |shape| {
            plan.buffers.push(shape);
            BufferId(plan.buffers.len() as u32 - 1)
        };
        let matmul = |x, out, accumulate| Op::MatMul { weight: WeightId(1), x, out, out_offset: 0, accumulate };
        for _ in 0..2 {
            let (h, gate_up, product) = (fresh(narrow), fresh(wide), fresh(narrow));
            plan.body.push(Op::RmsNorm {
                x: BufferId(0),
                weight: WeightId(2),
                out: h,
                accumulate: false,
                eps: 1e-5,
                source: None,
            });
            plan.body.push(matmul(h, gate_up, false));
            plan.body.push(Op::GatedActivation { gate_up, out: product, activation: Activation::Silu });
            plan.body.push(matmul(product, BufferId(0), true));
        }
        let (h, logits) = (fresh(narrow), fresh(wide));
        plan.head.push(Op::RmsNorm {
            x: BufferId(0),
            weight: WeightId(2),
            out: h,
            accumulate: false,
            eps: 1e-5,
            source: None,
        });
        plan.head.push(matmul(h, logits, false));
        plan.sample.push(Op::Sample { logits });
        plan.logits = logits;
        plan.embedding = fresh(narrow);
        let (weight, out) = (WeightId(2), plan.embedding);
        plan.embed.push(Op::RmsNorm { x: BufferId(0), weight, out, accumulate: false, eps: 1e-5, source: None });
        plan
    }

    #[test]
    fn every_reader_finds_the_value_it_would_have_found() {
        let mut before = unassigned();
        let mut after = assign_buffers(before.clone());
        let mut holds = vec![None; after.buffers.len()];
        let ops = all_ops(&mut before).zip(all_ops(&mut after));
        for (value_op, slot_op) in ops {
            let values: Vec<u32> = value_op.buffers_mut().into_iter().map(|id| id.0).collect();
            let slots: Vec<usize> = slot_op.buffers_mut().into_iter().map(|id| id.0 as usize).collect();
            let (reads, write) = (slots.len() - 1, slots[slots.len() - 1]);
            for i in 0..reads {
                assert_eq!(holds[slots[i]], Some(values[i]), "{slot_op:?}");
                assert_ne!(slots[i], write, "{slot_op:?} overwrites what it reads");
            }
            holds[write] = Some(values[values.len() - 1]);
        }
        assert_eq!(holds[after.hidden.0 as usize], Some(0));
        assert_eq!(holds[after.logits.0 as usize], Some(before.logits.0));
    }

    #[test]
    fn layers_share_their_buffers() {
        let (before, after) = (unassigned(), assign_buffers(unassigned()));
        // The stream; h or product or the embedding; gate_up; logits.
        assert_eq!((before.buffers.len(), after.buffers.len()), (10, 4));
    }
}
