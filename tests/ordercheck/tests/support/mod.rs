//! Histories in shorthand: `begin o=1 g=a m=m1 ep=1` is one event, tickets are the line numbers.

/// One line of shorthand as a line of a history.
pub(crate) fn json(ticket: usize, shorthand: &str) -> String {
    let mut words = shorthand.split_whitespace();
    let mut line = format!("{{\"t\":{ticket},\"e\":\"{}\"", words.next().expect("an event"));
    for word in words {
        let (name, value) = word.split_once('=').expect("name=value");
        let plain = value.parse::<i64>().is_ok() || value.starts_with(['[', '{']);
        let quote = if plain && name != "g" || value.starts_with('{') { "" } else { "\"" };
        line += &format!(",\"{name}\":{quote}{value}{quote}");
    }
    line + "}"
}

/// The lines of a shorthand history; blank lines and indentation are for the reader.
pub(crate) fn lines(history: &str) -> Vec<String> {
    let events = history.lines().map(str::trim).filter(|line| !line.is_empty());
    events.enumerate().map(|(at, event)| json(at + 1, event)).collect()
}
