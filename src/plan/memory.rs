//! Assigns buffers by liveness: a buffer is reused as soon as its last reader has run.

use super::op::{BufferId, Op, Shape};
use super::Plan;

impl Op {
    /// Buffers read or written, the written one last.
    pub fn buffers_mut(&mut self) -> Vec<&mut BufferId> {
        match self {
            Op::Embed { out, .. } => vec![out],
            Op::RmsNorm { x, out, .. } | Op::MatMul { x, out, .. } => vec![x, out],
            Op::RopeAppend { qkv, .. } => vec![qkv],
            Op::Attention { qkv, out, .. } => vec![qkv, out],
            Op::GatedActivation { gate_up, out, .. } => vec![gate_up, out],
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

    let shapes = std::mem::take(&mut plan.buffers);
    let mut slots: Vec<(Shape, usize)> = Vec::new();
    let mut slot_of: Vec<Option<usize>> = vec![None; shapes.len()];
    for (at, op) in all_ops(&mut plan).enumerate() {
        for id in op.buffers_mut() {
            let value = id.0 as usize;
            let slot = *slot_of[value].get_or_insert_with(|| take_slot(&mut slots, shapes[value], last_use[value], at));
            *id = BufferId(slot as u32);
        }
    }
    plan.hidden = BufferId(slot_of[plan.hidden.0 as usize].expect("the body writes it") as u32);
    plan.logits = BufferId(slot_of[plan.logits.0 as usize].expect("the head writes it") as u32);
    plan.buffers = slots.into_iter().map(|(shape, _)| shape).collect();
    plan
}

fn all_ops(plan: &mut Plan) -> impl Iterator<Item = &mut Op> {
    plan.body.iter_mut().chain(&mut plan.head).chain(&mut plan.sample)
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
