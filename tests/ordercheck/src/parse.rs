//! One line to one event. Everything a line can have wrong by itself is refused here.

use std::fmt;

use serde_json::{Map, Value};

use crate::event::{Applied, Committed, Event, Group, Owner, Parting, Place, Sent, Verdict};

/// A history that cannot be judged, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The line, from 1.
    pub line: u64,
    /// The column, from 1, where the fault has one.
    pub column: Option<usize>,
    /// What is wrong.
    pub why: String,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.line)?;
        if let Some(column) = self.column {
            write!(f, ", column {column}")?;
        }
        write!(f, ": {}", self.why)
    }
}

impl std::error::Error for Malformed {}

/// Reads one line: its ticket and its event. `line` is only for the error.
///
/// # Errors
/// When the line is not one well-formed event.
pub fn parse(line: u64, text: &str) -> Result<(i64, Event), Malformed> {
    let value: Value = serde_json::from_str(text).map_err(|error| Malformed {
        line,
        column: Some(error.column()),
        why: format!("bad json: {}", reason(&error)),
    })?;
    let Value::Object(map) = value else {
        return Err(Malformed { line, column: Some(1), why: "not a json object".into() });
    };
    let mut fields = Fields(map);
    let read = fields.int("t").and_then(|ticket| Ok((ticket, fields.event()?)));
    read.map_err(|(field, why)| Malformed { line, column: column(text, field), why })
}

/// The message of a JSON error without the place, which is always line 1 here.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().map_or_else(|| text.clone(), str::to_owned)
}

/// Where the field's name stands. A missing field has no column.
fn column(text: &str, field: &str) -> Option<usize> {
    let quoted = format!("\"{field}\"");
    text.match_indices(&quoted)
        .find(|(at, _)| text[at + quoted.len()..].trim_start().starts_with(':'))
        .map(|(at, _)| at + 1)
}

/// The field at fault and what is wrong with it.
type Fault = (&'static str, String);

struct Fields(Map<String, Value>);

impl Fields {
    fn event(&mut self) -> Result<Event, Fault> {
        Ok(match self.text("e")?.as_str() {
            "send" => Event::Send {
                group: self.group()?,
                seq: self.int("seq")?,
                result: match self.text("res")?.as_str() {
                    "ok" => Sent::Ok,
                    "fail" => Sent::Fail,
                    "unknown" => Sent::Unknown,
                    other => return Err(unlisted("res", other)),
                },
            },
            "stored" => Event::Stored {
                partition: self.partition()?,
                offset: self.int("o")?,
                group: self.group()?,
                seq: self.maybe_int("seq")?,
            },
            "own" => {
                Event::Own { sub: self.sub()?, partition: self.partition()?, owner: self.owner()? }
            }
            "drop" => Event::Drop {
                sub: self.sub()?,
                partition: self.partition()?,
                owner: self.owner()?,
                drained: match self.text("how")?.as_str() {
                    "drained" => true,
                    "lost" => false,
                    other => return Err(unlisted("how", other)),
                },
            },
            "begin" => Event::Begin {
                place: self.place()?,
                attempt: self.attempt()?,
                owner: self.owner()?,
            },
            "end" => Event::End {
                place: self.place()?,
                attempt: self.attempt()?,
                owner: self.owner()?,
                verdict: self.verdict()?,
            },
            "effect" => Event::Effect {
                place: self.place()?,
                seq: self.maybe_int("seq")?,
                owner: self.owner()?,
                result: match self.text("res")?.as_str() {
                    "applied" => Applied::Applied,
                    "duplicate" => Applied::Duplicate,
                    "fenced" => Applied::Fenced,
                    other => return Err(unlisted("res", other)),
                },
            },
            "skip" => self.parting(Parting::Skip)?,
            "dead" => self.parting(Parting::Dead)?,
            "park" => {
                let parting = match self.maybe_text("scope")?.as_deref() {
                    None | Some("record") => Parting::ParkRecord,
                    Some("group") => Parting::ParkGroup,
                    Some(other) => return Err(unlisted("scope", other)),
                };
                self.parting(parting)?
            }
            "redrive" => Event::Redrive { place: self.place()? },
            "commit" => self.commit()?,
            "reset" => Event::Reset {
                sub: self.sub()?,
                partition: self.partition()?,
                offset: self.int("o")?,
            },
            "route" => Event::Route {
                group: self.group()?,
                partition: self.partition()?,
                epoch: self.int("re")?,
            },
            "barrier" => Event::Barrier { group: self.group()?, epoch: self.int("re")? },
            "crash" => Event::Crash { member: self.text("m")? },
            "pause" => Event::Pause { member: self.text("m")? },
            "resume" => Event::Resume { member: self.text("m")? },
            "trim" => Event::Trim { partition: self.partition()?, offset: self.int("o")? },
            "finish" => Event::Finish,
            other => return Err(("e", format!("unknown event {other:?}"))),
        })
    }

    fn parting(&mut self, parting: Parting) -> Result<Event, Fault> {
        self.text("why")?;
        Ok(Event::Part { place: self.place()?, parting })
    }

    fn commit(&mut self) -> Result<Event, Fault> {
        let next = self.int("o")?;
        Ok(Event::Commit {
            sub: self.sub()?,
            partition: self.partition()?,
            next,
            done: self.done(next)?,
            owner: self.owner()?,
            result: match self.text("res")?.as_str() {
                "ok" => Committed::Ok,
                "refused" => Committed::Refused,
                "unknown" => Committed::Unknown,
                other => return Err(unlisted("res", other)),
            },
        })
    }

    /// The finished ranges: ascending, none empty, a gap between, not below `next`.
    fn done(&mut self, next: i64) -> Result<Vec<(i64, i64)>, Fault> {
        let Value::Array(items) = self.need("done")? else {
            return Err(("done", "done is not an array of ranges".into()));
        };
        let mut done: Vec<(i64, i64)> = Vec::with_capacity(items.len());
        for item in &items {
            let pair = match item.as_array().map(Vec::as_slice) {
                Some([from, to]) => from.as_i64().zip(to.as_i64()),
                _ => None,
            };
            let Some((from, to)) = pair else {
                return Err(("done", format!("{item} is not a range of two integers")));
            };
            let why = if from >= to {
                "is empty"
            } else if from < next {
                "lies below the next offset"
            } else if done.last().is_some_and(|last| from <= last.1) {
                "leaves no gap after the range before it"
            } else {
                done.push((from, to));
                continue;
            };
            return Err(("done", format!("the range {item} {why}")));
        }
        Ok(done)
    }

    fn verdict(&mut self) -> Result<Verdict, Fault> {
        const NOT_OK: [&str; 6] =
            ["transient", "permanent", "panic", "timeout", "cancelled", "released"];
        let verdict = self.text("v")?;
        if verdict == "ok" {
            return Ok(Verdict::Ok);
        }
        let known = NOT_OK.into_iter().find(|word| *word == verdict);
        known.map(Verdict::NotOk).ok_or_else(|| unlisted("v", &verdict))
    }

    fn place(&mut self) -> Result<Place, Fault> {
        Ok(Place {
            sub: self.sub()?,
            partition: self.partition()?,
            offset: self.int("o")?,
            group: self.group()?,
        })
    }

    fn owner(&mut self) -> Result<Owner, Fault> {
        Ok(Owner { member: self.text("m")?, epoch: self.int("ep")? })
    }

    fn group(&mut self) -> Result<Group, Fault> {
        match self.need("g")? {
            Value::String(text) => Ok(text.into_bytes()),
            Value::Object(map) => match map.get("hex") {
                Some(Value::String(digits)) => {
                    hex(digits).ok_or_else(|| ("g", format!("{digits:?} is not bytes in hex")))
                }
                _ => Err(("g", "g is an object without a hex string".into())),
            },
            other => Err(("g", format!("g is {other}, not a string or bytes in hex"))),
        }
    }

    fn sub(&mut self) -> Result<String, Fault> {
        Ok(self.maybe_text("s")?.unwrap_or_else(|| "main".to_owned()))
    }

    fn partition(&mut self) -> Result<i64, Fault> {
        Ok(self.maybe_int("p")?.unwrap_or(0))
    }

    fn attempt(&mut self) -> Result<i64, Fault> {
        Ok(self.maybe_int("a")?.unwrap_or(1))
    }

    fn need(&mut self, field: &'static str) -> Result<Value, Fault> {
        self.0.remove(field).ok_or_else(|| (field, format!("the field {field} is missing")))
    }

    fn text(&mut self, field: &'static str) -> Result<String, Fault> {
        self.maybe_text(field)?.ok_or_else(|| (field, format!("the field {field} is missing")))
    }

    fn int(&mut self, field: &'static str) -> Result<i64, Fault> {
        self.maybe_int(field)?.ok_or_else(|| (field, format!("the field {field} is missing")))
    }

    fn maybe_text(&mut self, field: &'static str) -> Result<Option<String>, Fault> {
        match self.0.remove(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err((field, format!("{field} is {other}, not a string"))),
        }
    }

    fn maybe_int(&mut self, field: &'static str) -> Result<Option<i64>, Fault> {
        let Some(value) = self.0.remove(field) else { return Ok(None) };
        let int = value.as_i64();
        int.map(Some).ok_or_else(|| (field, format!("{field} is {value}, not a 64-bit integer")))
    }
}

fn unlisted(field: &'static str, value: &str) -> Fault {
    (field, format!("{field} is {value:?}, which is not one of its values"))
}

/// The bytes of hex digits of either case, in pairs.
pub fn hex(digits: &str) -> Option<Vec<u8>> {
    let nibbles: Option<Vec<u8>> =
        digits.chars().map(|digit| digit.to_digit(16).map(|nibble| nibble as u8)).collect();
    let nibbles = nibbles?;
    let pairs = nibbles.chunks_exact(2);
    pairs.remainder().is_empty().then(|| pairs.map(|pair| pair[0] << 4 | pair[1]).collect())
}
