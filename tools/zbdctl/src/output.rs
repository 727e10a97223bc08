// SPDX-License-Identifier: GPL-2.0

//! Standard output, as text or as JSON.

use crate::failure::{Failure, Kind, Result};
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, BufWriter, StdoutLock, Write};

/// Where results go.
pub struct Output {
    json: bool,
    stdout: BufWriter<StdoutLock<'static>>,
}

impl Output {
    pub fn new(json: bool) -> Output {
        Output {
            json,
            stdout: BufWriter::new(io::stdout().lock()),
        }
    }

    /// Prints a record: as a line of JSON, or as text unless that is empty.
    pub fn record(&mut self, record: &impl Serialize, text: impl FnOnce() -> String) -> Result {
        if self.json {
            let line = serde_json::to_string(record)
                .map_err(|error| Failure::new(Kind::Failed, format!("JSON: {error}")))?;
            return self.line(line);
        }
        let text = text();
        if text.is_empty() {
            return Ok(());
        }
        self.line(text)
    }

    fn line(&mut self, line: impl Display) -> Result {
        writeln!(self.stdout, "{line}").map_err(|error| Failure::io("standard output", &error))
    }

    /// Makes everything visible now.
    pub fn finish(&mut self) -> Result {
        self.stdout
            .flush()
            .map_err(|error| Failure::io("standard output", &error))
    }

    /// Something that people should know, but that does not stop the command.
    pub fn warn(&self, message: impl Display) {
        eprintln!("zbdctl: warning: {message}");
    }

    /// Says why the command failed.
    pub fn failure(&mut self, failure: &Failure) {
        // What was printed before stands before the reason.
        let _ = self.stdout.flush();
        if failure.kind == Kind::Pipe {
            return;
        }
        if self.json {
            let line = serde_json::json!({ "error": failure });
            eprintln!("{line}");
        } else {
            eprintln!("zbdctl: {failure}");
        }
    }
}

/// Aligned columns.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let head: Vec<String> = head.iter().map(|cell| cell.to_string()).collect();
    let lines = std::iter::once(&head).chain(rows).map(|row| {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn tables_are_aligned() {
        let rows = [
            vec!["zbd0".into(), "x".into()],
            vec!["zbd10".into(), String::new()],
        ];
        assert_eq!(table(&["NAME", "Y"], &rows), "NAME   Y\nzbd0   x\nzbd10");
    }
}
