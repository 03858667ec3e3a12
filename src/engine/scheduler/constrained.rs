//! Steps with rows under a grammar: the pass over the weights, then the draws, so that masks are computed while the device works.

use super::Scheduler;
use super::decode::rows;
use super::request::EventKind;
use super::sequence::Task;
use crate::engine::any_backend::InFlight;
use crate::engine::backend::{Backend, Burst, First, Row};
use crate::error::Result;

impl Scheduler {
    /// One step of the slots in `drawing`, at least one of which is under a grammar. Slots whose grammar fails are taken from `drawing`; their
    /// sequences end with the error. Nothing is submitted where none is left.
    pub(super) async fn submit_masked(&mut self, drawing: &mut Vec<usize>) -> Result<Option<InFlight>> {
        let Scheduler { slots, engine, .. } = self;
        engine.backend.forward(&rows(slots, drawing, |_, row| row)).await?;
        let mut masks = Vec::new();
        for slot in std::mem::take(drawing) {
            let running = self.slots[slot].as_mut().expect("it draws");
            let Task::Answer(answering) = &mut running.sequence.task else { unreachable!("it draws") };
            match answering.constraint.as_mut().map(|constraint| constraint.mask()).transpose() {
                Ok(mask) => {
                    masks.push(mask.map(<[u32]>::to_vec));
                    drawing.push(slot);
                }
                Err(error) => {
                    self.tell(slot, EventKind::Failed(error));
                    self.leave(slot);
                }
            }
        }
        if drawing.is_empty() {
            return Ok(None);
        }
        let Scheduler { slots, engine, .. } = self;
        let rows = rows(slots, drawing, |running, row| Row {
            first: First::FromLogits,
            position: running.position() + 1,
            ..row
        });
        let rows: Vec<_> =
            rows.into_iter().zip(&masks).map(|(row, mask)| Row { mask: mask.as_deref(), ..row }).collect();
        Ok(Some(engine.backend.submit_burst(Burst { rows: &rows, steps: 1 }).await?))
    }
}
