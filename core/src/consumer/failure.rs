//! How a handler says what kind of failure it met.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

/// Any error a handler may return.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// What kind of failure it is: decides whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// May pass: the turn runs again after a back-off, up to the bound of attempts.
    Transient,
    /// Will fail again whatever happens: the policy decides at once.
    Permanent,
    /// The record itself cannot be read: the policy decides at once.
    Corrupt,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Transient => "transient",
            Self::Permanent => "permanent",
            Self::Corrupt => "corrupt",
        })
    }
}

/// An error with its class, and the delay after which to try again.
///
/// A handler may return any error; that counts as [`Class::Transient`]. Returning a `Failure`
/// says more. It is looked for in the returned error and its chain of sources; for errors of your
/// own types, [`classify`](super::ConsumerBuilder::classify) decides instead.
///
/// With `anyhow`, let the handler return `Failure` and put the `anyhow::Error` inside
/// (`Failure::permanent(error)`): the other way round, `anyhow` hides the type of what it carries.
///
/// ```
/// use procession_core::{Class, Failure};
/// use std::time::Duration;
///
/// async fn handler(payload: &str) -> Result<(), Failure> {
///     let _amount: u64 = payload.parse().map_err(Failure::corrupt)?;
///     Err(Failure::transient("the bank is closed").retry_after(Duration::from_secs(60)))
/// }
/// # assert_eq!(futures::executor::block_on(handler("x")).unwrap_err().class(), Class::Corrupt);
/// # assert_eq!(futures::executor::block_on(handler("1")).unwrap_err().class(), Class::Transient);
/// ```
pub struct Failure {
    class: Class,
    error: BoxError,
    after: Option<Duration>,
    done: u32,
}

impl Failure {
    /// May pass: try again.
    pub fn transient(error: impl Into<BoxError>) -> Self {
        Self::new(Class::Transient, error.into())
    }

    /// Will fail again whatever happens.
    pub fn permanent(error: impl Into<BoxError>) -> Self {
        Self::new(Class::Permanent, error.into())
    }

    /// The record cannot be read.
    pub fn corrupt(error: impl Into<BoxError>) -> Self {
        Self::new(Class::Corrupt, error.into())
    }

    fn new(class: Class, error: BoxError) -> Self {
        Self { class, error, after: None, done: 0 }
    }

    /// The first `records` of the turn are done; it is the next one that failed. For turns of
    /// [several records](super::ConsumerBuilder::batch): what is done never runs again, the rest
    /// stays at the head of its group, in order. Without this, none is done.
    ///
    /// A count that covers the whole turn is cut to all but the last record: a failure never
    /// finishes the record that failed.
    #[must_use]
    pub const fn after_first(mut self, records: u32) -> Self {
        self.done = records;
        self
    }

    /// How many leading records of the turn are done.
    #[must_use]
    pub const fn records_done(&self) -> u32 {
        self.done
    }

    /// Try again after this delay, in place of the back-off. Counts as an attempt like any other;
    /// no effect on a permanent or corrupt failure.
    #[must_use]
    pub const fn retry_after(mut self, delay: Duration) -> Self {
        self.after = Some(delay);
        self
    }

    /// The class.
    #[must_use]
    pub const fn class(&self) -> Class {
        self.class
    }

    /// The delay that [`retry_after`](Self::retry_after) asked for; `None` leaves it to the back-off.
    #[must_use]
    pub const fn delay(&self) -> Option<Duration> {
        self.after
    }

    /// The error inside.
    #[must_use]
    pub fn into_inner(self) -> BoxError {
        self.error
    }

    /// This error as one of that class; a delay and a count that it carries stay.
    pub(crate) fn as_class(class: Class, error: BoxError) -> Self {
        Self { class, ..Self::of(error, None) }
    }

    /// What a panic becomes: transient, its message kept.
    pub(crate) fn panic(payload: &(dyn Any + Send)) -> Self {
        Self::transient(format!("the handler panicked: {}", panic_message(payload)))
    }

    /// What a handler's error is: itself if it is one, else what `classify` says of it.
    pub(crate) fn of(error: BoxError, classify: Option<&Classify>) -> Self {
        match error.downcast::<Self>() {
            Ok(failure) => *failure,
            Err(error) => {
                let mut cause = error.source();
                while let Some(inner) = cause {
                    if let Some(found) = inner.downcast_ref::<Self>() {
                        let (class, after, done) = (found.class, found.after, found.done);
                        return Self { class, error, after, done };
                    }
                    cause = inner.source();
                }
                let class = classify.map_or(Class::Transient, |classify| classify(&*error));
                Self::new(class, error)
            }
        }
    }
}

/// What a panic said.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no message)")
}

/// A user's judgement of the errors of their own types.
pub(crate) type Classify = dyn Fn(&(dyn StdError + 'static)) -> Class + Send + Sync;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failure", self.class)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}: {:?}", self.error)
    }
}

impl StdError for Failure {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Context(Failure);

    impl fmt::Display for Context {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("while booking")
        }
    }

    impl StdError for Context {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn a_failure_is_found_inside_the_error_that_carries_it() {
        let inner = Failure::permanent("closed").retry_after(Duration::from_secs(1));
        let found = Failure::of(Context(inner).into(), Some(&|_| Class::Transient));
        assert_eq!(
            (found.class(), found.delay()),
            (Class::Permanent, Some(Duration::from_secs(1)))
        );
        assert_eq!(found.into_inner().to_string(), "while booking");
    }
}
