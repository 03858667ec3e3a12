//! Who runs the model: one sequence with the engine for itself, or many that share its steps.

use crate::engine::{Engine, Scheduler, SchedulerOptions};
use crate::error::{Error, Result};

/// The engine, in the hands of whoever was asked last.
pub(super) struct Runner(Option<Hands>);

enum Hands {
    Alone(Box<Engine>),
    Together(Box<Scheduler>),
}

impl Runner {
    pub(super) fn new(engine: Engine) -> Self {
        Self(Some(Hands::Alone(Box::new(engine))))
    }

    /// The engine, to look at.
    pub(super) fn peek(&self) -> Result<&Engine> {
        match &self.0 {
            Some(Hands::Alone(engine)) => Ok(engine),
            Some(Hands::Together(scheduler)) => Ok(scheduler.engine()),
            None => Err(lost()),
        }
    }

    /// The scheduler, where many sequences ran last.
    pub(super) fn peek_scheduler(&self) -> Option<&Scheduler> {
        match &self.0 {
            Some(Hands::Together(scheduler)) => Some(scheduler),
            _ => None,
        }
    }

    /// The engine for one sequence. Where many ran last, the cache is forgotten and what is under way ends.
    pub(super) fn alone(&mut self) -> Result<&mut Engine> {
        if let Some(Hands::Together(scheduler)) = self.0.take_if(|hands| matches!(hands, Hands::Together(_))) {
            self.0 = Some(Hands::Alone(Box::new(scheduler.into_engine()?)));
        }
        match &mut self.0 {
            Some(Hands::Alone(engine)) => Ok(engine),
            _ => Err(lost()),
        }
    }

    /// The scheduler for many sequences. Where one ran last, the cache is forgotten and what is under way ends.
    pub(super) fn together(&mut self) -> Result<&mut Scheduler> {
        if let Some(Hands::Alone(engine)) = self.0.take_if(|hands| matches!(hands, Hands::Alone(_))) {
            // The page is the only one that asks: it may wait for as many as it likes.
            let options = SchedulerOptions { max_waiting: usize::MAX, ..SchedulerOptions::default() };
            self.0 = Some(Hands::Together(Box::new(Scheduler::new(*engine, options)?)));
        }
        match &mut self.0 {
            Some(Hands::Together(scheduler)) => Ok(scheduler),
            _ => Err(lost()),
        }
    }
}

/// Only a device that fails while the engine changes hands comes to this.
fn lost() -> Error {
    Error::Device { reason: "it failed before, and the model with it".into() }
}
