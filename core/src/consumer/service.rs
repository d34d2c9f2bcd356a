//! A tower service as the handler.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;
use tower_service::Service;

use super::{BoxError, Consumer, ConsumerBuilder, Summary};
use crate::Error;
use crate::executor::Turn;

impl Consumer {
    /// As [`run`](Self::run), with a tower [`Service`] as the handler: each turn gets a clone of it,
    /// waits until that is ready, and calls it. What it answers is thrown away; its error is judged
    /// as a handler's would be.
    ///
    /// Layers that keep state in clones' shared part (limits, timeouts, load shedding) work as they
    /// do elsewhere. A layer that retries inside the service is a second way to do what
    /// [`retry`](ConsumerBuilder::retry) does, and one that does not see a shutdown.
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn run_service<S>(self, service: S) -> Result<Summary, Error>
    where
        S: Service<Turn> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError> + Send + 'static,
    {
        self.run(move |turn| ServiceTurn::Waiting(service.clone(), Some(turn))).await
    }
}

impl ConsumerBuilder {
    /// Builds and runs; see [`Consumer::run_service`].
    ///
    /// # Cancel safety
    /// As [`Consumer::run_service`].
    ///
    /// # Errors
    /// As [`build`](Self::build) and [`Consumer::run_service`].
    pub async fn run_service<S>(self, service: S) -> Result<Summary, Error>
    where
        S: Service<Turn> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError> + Send + 'static,
    {
        self.build()?.run_service(service).await
    }
}

/// One turn through a service: ready first, then called.
#[pin_project(project = Step)]
enum ServiceTurn<S: Service<Turn>> {
    Waiting(S, Option<Turn>),
    Called(#[pin] S::Future),
}

impl<S: Service<Turn>> Future for ServiceTurn<S> {
    type Output = Result<(), S::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let called = match self.as_mut().project() {
                Step::Called(future) => return future.poll(cx).map_ok(drop),
                Step::Waiting(service, turn) => {
                    ready!(service.poll_ready(cx))?;
                    let turn = turn.take().expect("it is called once, and this is then replaced");
                    service.call(turn)
                }
            };
            self.set(Self::Called(called));
        }
    }
}
