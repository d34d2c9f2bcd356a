//! What one line of a history says, once it is known to be well formed.

/// The bytes that name a group; a string and its bytes in hex are the same group.
pub type Group = Vec<u8>;

/// A record, as seen by one subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The subscription (`s`).
    pub sub: String,
    /// The partition (`p`).
    pub partition: i64,
    /// The offset (`o`).
    pub offset: i64,
    /// The group (`g`).
    pub group: Group,
}

/// A member under one epoch of its ownership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The member (`m`).
    pub member: String,
    /// The epoch (`ep`).
    pub epoch: i64,
}

/// How a send went, as far as the producer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Acknowledged.
    Ok,
    /// Refused.
    Fail,
    /// Neither is known.
    Unknown,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The record is done.
    Ok,
    /// It may be tried again; the word is the one of the history.
    NotOk(&'static str),
}

/// What a sink did with an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It took place.
    Applied,
    /// It had taken place already.
    Duplicate,
    /// Its epoch was too old.
    Fenced,
}

/// How a commit went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// Durable.
    Ok,
    /// Not taken.
    Refused,
    /// Neither is known.
    Unknown,
}

/// A way to be terminal that is not a good end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parting {
    /// `skip`.
    Skip,
    /// `dead`.
    Dead,
    /// `park`, scope `record`.
    ParkRecord,
    /// `park`, scope `group`.
    ParkGroup,
}

/// One event of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of the format, spelled out")]
pub enum Event {
    /// A producer's view of one send.
    Send { group: Group, seq: i64, result: Sent },
    /// The log holds a record.
    Stored { partition: i64, offset: i64, group: Group, seq: Option<i64> },
    /// A member owns a partition.
    Own { sub: String, partition: i64, owner: Owner },
    /// A member gives a partition up.
    Drop { sub: String, partition: i64, owner: Owner, drained: bool },
    /// A turn starts.
    Begin { place: Place, attempt: i64, owner: Owner },
    /// A turn ends.
    End { place: Place, attempt: i64, owner: Owner, verdict: Verdict },
    /// A sink's answer.
    Effect { place: Place, seq: Option<i64>, owner: Owner, result: Applied },
    /// The record is terminal without a good end.
    Part { place: Place, parting: Parting },
    /// A dead or parked record is put back.
    Redrive { place: Place },
    /// Progress: the next offset, and what is finished above it.
    Commit {
        sub: String,
        partition: i64,
        next: i64,
        done: Vec<(i64, i64)>,
        owner: Owner,
        result: Committed,
    },
    /// Progress is moved on purpose.
    Reset { sub: String, partition: i64, offset: i64 },
    /// The group is written to a partition from now on.
    Route { group: Group, partition: i64, epoch: i64 },
    /// What was stored before a routing epoch is terminal.
    Barrier { group: Group, epoch: i64 },
    /// A member is gone.
    Crash { member: String },
    /// A member stands still.
    Pause { member: String },
    /// A member goes on.
    Resume { member: String },
    /// The log begins at an offset.
    Trim { partition: i64, offset: i64 },
    /// The run is over.
    Finish,
}
