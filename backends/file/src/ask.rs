//! What is asked of an open log's reader.

use futures::channel::oneshot;
use procession_core::{Budget, Chunk, Error, ErrorKind, Offset, Position, Want};

use crate::reader::Question;
use crate::shared::Shared;

impl Shared {
    pub(crate) async fn read(&self, wants: &[Want], max: Budget) -> Result<Vec<Chunk>, Error> {
        if wants.is_empty() {
            return Ok(Vec::new());
        }
        let (answer, answered) = oneshot::channel();
        self.reading.ask(Question::Read(wants.to_vec(), max, answer));
        answered.await.unwrap_or_else(|_| Err(self.closed()))
    }

    pub(crate) async fn ends(&self, at: Position) -> Result<Vec<Offset>, Error> {
        let offsets = |list: &[u64]| list.iter().copied().map(Offset::new).collect();
        match at {
            Position::Earliest => Ok(offsets(&self.tail().earliest)),
            Position::End => Ok(offsets(&self.tail().ends)),
            Position::Time(time) => {
                let (answer, answered) = oneshot::channel();
                self.reading.ask(Question::At(time, answer));
                answered.await.unwrap_or_else(|_| Err(self.closed()))
            }
            _ => Err(Error::new(ErrorKind::Unsupported, "look up a position in a file log")),
        }
    }

    fn closed(&self) -> Error {
        Error::new(ErrorKind::Closed, format!("read log \"{}\"", self.info.name))
    }
}
