//! The checks of a [`GroupExecutor`], and what they need to make one.

mod driver;
mod handover;
mod hold;
mod model;
mod order;
mod progress;
mod retry;
mod several;
mod walk;
mod window;

use std::fmt;

use procession_core::{Budget, GroupExecutor};

pub use handover::*;
pub use hold::*;
pub use order::*;
pub use progress::*;
pub use retry::*;
pub use several::*;
pub use walk::agrees_with_the_model;
pub use window::*;

/// What a check asks of an executor. A knob it cannot honour is declared on the [`Subject`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExecutorSetup {
    /// The most that may be held: records admitted and not terminal, and their bytes.
    pub budget: Budget,
    /// How many bodies a group may keep; beyond them it keeps offsets, and asks for a load.
    pub bodies_per_group_max: usize,
    /// How many records a turn may have at the most: it has more than one where they wait.
    pub turn_records_max: u32,
    /// Seed of whatever is random inside.
    pub seed: u64,
}

impl Default for ExecutorSetup {
    /// Room for everything that a check admits, no body dropped, one record a turn.
    fn default() -> Self {
        Self {
            budget: Budget::new(100_000, 1 << 30),
            bodies_per_group_max: usize::MAX,
            turn_records_max: 1,
            seed: 1,
        }
    }
}

/// A knob or promise that an executor may lack. What it lacks is printed when a check needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Knob {
    /// [`ExecutorSetup::budget`].
    Budget,
    /// [`ExecutorSetup::bodies_per_group_max`]: it keeps every body.
    BodiesPerGroup,
    /// [`ExecutorSetup::turn_records_max`]: its turns have one record.
    RecordsPerTurn,
    /// That a group never waits for another: several may share a lane.
    LaneOfItsOwn,
}

/// An executor under test, and what it lacks.
///
/// ```
/// # use procession_core::GroupExecutor;
/// # fn f(my_executor: Box<dyn GroupExecutor>) {
/// use procession_conformance::{Knob, Subject};
/// let subject = Subject::new(my_executor).lacks(Knob::BodiesPerGroup).lacks(Knob::LaneOfItsOwn);
/// # }
/// ```
pub struct Subject {
    executor: Box<dyn GroupExecutor>,
    lacks: Vec<Knob>,
}

impl Subject {
    /// An executor that lacks nothing.
    #[must_use]
    pub fn new(executor: impl GroupExecutor + 'static) -> Self {
        Self { executor: Box::new(executor), lacks: Vec::new() }
    }

    /// Declares that it lacks `knob`.
    #[must_use]
    pub fn lacks(mut self, knob: Knob) -> Self {
        self.lacks.push(knob);
        self
    }

    fn has(&self, knob: Knob) -> bool {
        !self.lacks.contains(&knob)
    }
}

impl<E: GroupExecutor + 'static> From<E> for Subject {
    fn from(executor: E) -> Self {
        Self::new(executor)
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("lacks", &self.lacks).finish_non_exhaustive()
    }
}

/// Makes the executors for a check.
pub type Factory<'a> = &'a dyn Fn(ExecutorSetup) -> Subject;

/// Runs one check over a closure that makes executors, or subjects where something is lacking.
pub fn run<S: Into<Subject>>(check: fn(Factory<'_>), make: impl Fn(ExecutorSetup) -> S) {
    check(&|setup| make(setup).into());
}
