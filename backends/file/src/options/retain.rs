//! What a log keeps, and how many files it holds open.

use std::time::Duration;

use super::OpenOptions;

impl OpenOptions {
    /// The newest segments that have this many bytes on disk together are kept, and the active one;
    /// older ones are removed. Off unless told: everything is kept. With
    /// [`retain_for`](Self::retain_for) too, a segment goes when either asks for it.
    ///
    /// Only whole segments go, by themselves, in the background, and never one with a record that a
    /// subscription of this log's own progress store has not finished
    /// (but see [`trim_unfinished`](Self::trim_unfinished)). Where such a record keeps an old
    /// segment, newer ones that every subscription has finished go all the same and leave a gap in
    /// the offsets, up to 1,024 of them. Progress that is kept in another store is not seen.
    ///
    /// ```
    /// # use procession_core::*;
    /// # use procession_file::FileLog;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # futures::executor::block_on(async {
    /// let log = FileLog::open(folder.path().join("permits"))
    ///     .segment_bytes(64 << 10).record_bytes_max(4 << 10)
    ///     .retain_bytes(256 << 10)
    ///     .await?;
    /// for i in 0..400 {
    ///     log.producer().send(Record::new(format!("case-{}", i % 7), vec![7; 2000])).await?;
    /// }
    /// let trimmed = log.trim().await?; // what is not gone by itself yet
    /// assert!(trimmed.earliest.iter().any(|earliest| *earliest > Offset::ZERO));
    /// assert!(trimmed.pinned_by.is_empty(), "no subscription keeps anything");
    /// # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// # Durability
    /// That a segment is removed is durable before its file goes.
    pub const fn retain_bytes(mut self, bytes: u64) -> Self {
        self.rules.bytes = Some(bytes);
        self
    }

    /// Segments whose records are all older than this, by the log's own time, are removed. Off
    /// unless told: everything is kept. As [`retain_bytes`](Self::retain_bytes) in all else; the
    /// active segment stays however old it is.
    ///
    /// A wall clock that jumps ahead makes everything old at once.
    pub const fn retain_for(mut self, age: Duration) -> Self {
        self.rules.age = Some(age);
        self
    }

    /// Whether retention also removes records that a subscription has not finished; false unless
    /// told otherwise. Such a subscription then fails with
    /// [`Trimmed`](procession_core::ErrorKind::Trimmed) when it reads on.
    pub const fn trim_unfinished(mut self, also: bool) -> Self {
        self.rules.unfinished = also;
        self
    }

    /// A subscription that had no live member in this process and made no claim or commit for this
    /// long, by the wall clock, is forgotten: it keeps no segment any more, and begins anew if it
    /// comes back. Its epoch stays as a floor. Off unless told: subscriptions stay for ever.
    ///
    /// It may take an eighth longer. Names are reported by [`FileLog::trim`](crate::FileLog::trim).
    /// Live members are those of [`FileLog::subscribe`](crate::FileLog::subscribe); of others only
    /// claims and commits are seen.
    pub const fn expire_subscriptions_after(mut self, time: Duration) -> Self {
        self.rules.expire = Some(time);
        self
    }

    /// How many segment files are open for reading at the most, 64 unless told otherwise, at least
    /// 4. Beyond it the one that was not read for the longest is closed. A log has some six other
    /// files open: the lock, two of progress, the active segment, and one or two for a moment.
    pub const fn open_files_max(mut self, files: usize) -> Self {
        self.open_files_max = files;
        self
    }
}
