//! Producers that have a name: how they enlist, and how one is forgotten.

use std::future::poll_fn;
use std::sync::Arc;

use procession_core::{Enlisted, Epoch, Error, ErrorKind, PartitionId, ProducerId, Version};

use crate::format::batch::BATCH_HEADER;
use crate::format::producers::ProducerEntry;
use crate::front::{Front, Ready, State};
use crate::log::FileLog;
use crate::producers::{Change, Judged, NAME_BYTES_MAX, NoRoom};
use crate::round::Round;
use crate::shared::Shared;

impl FileLog {
    /// Forgets the producer of this name: its numbers, and what it stored. If it enlists again it
    /// is new, and what it sends again is stored again. For a log that has reached its bound of
    /// [known producers](Self::producer_names). True if there was one.
    ///
    /// # Durability
    /// Synced when this returns.
    ///
    /// # Errors
    /// [`Full`](ErrorKind::Full) without room on the disk; what closes the log.
    pub async fn forget_producer(&self, name: &str) -> Result<bool, Error> {
        let operation =
            format!("forget producer \"{name}\" of log \"{}\"", self.shared().info.name);
        let forget = |front: &mut Front| Ok(front.producers.forget(name));
        Ok(self.shared().change(&operation, forget).await?.is_some())
    }

    /// The names of the producers that the log knows, in order: at most 1,000 (segments of less
    /// than 4 MiB hold fewer). Beyond that, enlisting another is refused as
    /// [`Full`](ErrorKind::Full) until one is [forgotten](Self::forget_producer). Of each the last
    /// 1,024 records are remembered with their receipts, in at most 40 MB for all; after a reopen
    /// perhaps fewer: what a sixteenth of a segment can hold.
    #[must_use]
    pub fn producer_names(&self) -> Vec<String> {
        self.shared().front().producers.names()
    }
}

impl Shared {
    pub(crate) async fn enlist(&self, name: &str) -> Result<Enlisted, Error> {
        let operation = format!("enlist producer \"{name}\" in log \"{}\"", self.info.name);
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            let hint = format!("a name has 1 to {NAME_BYTES_MAX} bytes");
            return Err(Error::new(ErrorKind::Config, operation).with_hint(hint));
        }
        let enlist = |front: &mut Front| match front.producers.enlist(name) {
            Ok(change) => Ok(Some(change)),
            Err(NoRoom::Producers(most)) => {
                let hint = format!(
                    "the log knows {most} producers, which is its bound; forget one that will not \
                     come back (`FileLog::forget_producer`)"
                );
                Err(Error::new(ErrorKind::Full, operation.clone()).with_hint(hint))
            }
            Err(NoRoom::Epochs) => Err(Error::new(ErrorKind::Exhausted, operation.clone())
                .with_hint("its epochs are used up; take another name")),
        };
        let entry = self.change(&operation, enlist).await?;
        let enlisted = entry.and_then(|entry| {
            let epoch = Epoch::new(entry.epoch.into())?;
            Some(Enlisted::new(ProducerId::new(entry.number.into()), epoch, entry.next))
        });
        enlisted.ok_or_else(|| Error::new(ErrorKind::Exhausted, operation))
    }

    /// Why a numbered record is not stored.
    pub(crate) fn objection(&self, judged: &Judged, ready: &Ready) -> Error {
        let (kind, hint) = match judged {
            Judged::Old => (
                ErrorKind::Repeated,
                "its producer stored this number already, too long ago for its receipt to be \
                 remembered; take it as stored"
                    .to_owned(),
            ),
            Judged::Other => (
                ErrorKind::Mismatch,
                "its producer stored another record under this number; two programs use one name, \
                 or numbers were given twice"
                    .to_owned(),
            ),
            Judged::Gap(next) => (
                ErrorKind::NotYetWritten,
                format!("the numbers of its producer go on at {next}; send what is missing first"),
            ),
            Judged::Fenced(epoch) => (
                ErrorKind::Fenced,
                format!(
                    "a newer producer of this name has enlisted (epoch {epoch}); this one ends"
                ),
            ),
            Judged::Unknown | Judged::Next(_) | Judged::Repeat(_) | Judged::Under(..) => (
                ErrorKind::NotFound,
                "the log knows no such producer in this epoch: it was forgotten, or never enlisted"
                    .to_owned(),
            ),
        };
        let id = PartitionId { partition: ready.partition, ..PartitionId::default() };
        let error = Error::new(kind, format!("append to log \"{}\"", self.info.name));
        let error = error.in_partition(id).with_hint(hint);
        match ready.record.key() {
            Some(key) => error.in_group(key.clone()),
            None => error,
        }
    }

    /// Writes a change of the table of producers and waits until it is durable.
    async fn change(
        &self,
        operation: &str,
        make: impl Fn(&mut Front) -> Result<Option<(Change, ProducerEntry)>, Error>,
    ) -> Result<Option<ProducerEntry>, Error> {
        loop {
            let seen = Version(self.tail().version);
            match self.try_change(operation, &make)? {
                Queued::Nothing => return Ok(None),
                Queued::In(round, at, entry) => {
                    self.bell.ring();
                    poll_fn(|cx| round.settled(at, cx)).await?;
                    return Ok(Some(entry));
                }
                // Two whole rounds wait: there is room once one of them is synced.
                Queued::NoRoom => {
                    poll_fn(|cx| self.poll_changed(seen, cx)).await?;
                }
            }
        }
    }

    fn try_change(
        &self,
        operation: &str,
        make: impl Fn(&mut Front) -> Result<Option<(Change, ProducerEntry)>, Error>,
    ) -> Result<Queued, Error> {
        let mut front = self.front();
        match &front.state {
            State::Open => {}
            State::Closing => return Err(Error::new(ErrorKind::Closed, operation.to_owned())),
            State::Dead(error) => return Err(error.clone()),
        }
        // More than any single entry takes.
        if !front.room(2 * BATCH_HEADER + 2 * NAME_BYTES_MAX) {
            return Ok(Queued::NoRoom);
        }
        let Some((change, entry)) = make(&mut front)? else { return Ok(Queued::Nothing) };
        let (round, at) = front.push_table(entry.clone(), change, || self.clock.wall());
        Ok(Queued::In(round, at, entry))
    }
}

enum Queued {
    /// There is nothing to change.
    Nothing,
    In(Arc<Round>, u32, ProducerEntry),
    NoRoom,
}
