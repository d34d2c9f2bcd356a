//! beavers: a FIFO per key, other keys run; bounded by what may be in flight.

use std::sync::Arc;

use anyhow::Result;
use beavers::{
    App, CancellationToken, Delivery, InMemorySink, OrderingKey, Receive, ReceiveError, Source,
    Subscription,
};

use super::{Load, Turns};
use crate::keys;
use crate::report::tokio_runtime;

/// Every record in flight at once: its default of 64 fills with the slow key, and then all wait.
pub(super) fn run(load: &Load) -> Result<Turns> {
    let turns = Arc::new(Turns::default());
    let (slow, fast) = (load.slow, load.fast);
    let shared = Arc::clone(&turns);
    let handle = move |(group, record): (u32, u32)| {
        let turns = Arc::clone(&shared);
        async move {
            let work = if group == 0 { slow } else { fast };
            turns.take(group, record, tokio::time::sleep(work)).await;
            Ok(())
        }
    };
    let source = Records(Box::new(load.records()));
    let sink = InMemorySink::<()>::default();
    let subscription = Subscription::new("slow", source, sink, handle)
        .concurrency(load.concurrency)
        .max_in_flight(load.groups.len());
    // Not `run`: it listens to signals, for which the runtime has no driver.
    let app = App::new().subscription(subscription).run_until(CancellationToken::new());
    tokio_runtime()?.block_on(app)?;
    Ok(turns.taken())
}

/// Its own `IterSource`, with keys.
struct Records(Box<dyn Iterator<Item = (u32, u32)> + Send>);

impl Source for Records {
    type Message = Delivery<(u32, u32)>;

    async fn receive(&mut self) -> Result<Receive<Self::Message>, ReceiveError> {
        Ok(match self.0.next() {
            Some((group, record)) => {
                let key = OrderingKey::new("slow", 0).with_key(keys::name(group).into_bytes());
                Receive::Message(Delivery::untracked((group, record)).with_ordering_key(key))
            }
            None => Receive::End,
        })
    }
}
