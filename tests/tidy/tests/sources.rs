// SPDX-License-Identifier: GPL-2.0

//! Rules for every file.

use std::collections::BTreeMap;
use zbd_tidy::{none, read, sources, Source};

/// Most lines of a file, unless `long-files.txt` says otherwise.
const LINES_MAX: usize = 800;
const LONG_FILES: &str = "tests/tidy/long-files.txt";

fn name(source: &Source) -> &str {
    source.path.rsplit('/').next().unwrap_or("")
}

/// Whether a file is source code, rather than text or a table.
fn is_source(source: &Source) -> bool {
    let suffixes = [".rs", ".c", ".h", ".sh", ".py"];
    suffixes.iter().any(|suffix| source.path.ends_with(suffix))
        || matches!(name(source), "Makefile" | "Kbuild" | "Kconfig")
        || source.text.starts_with("#!")
}

#[test]
fn every_source_file_names_its_licence() {
    let wrong = sources().into_iter().filter(|source| {
        let head: Vec<&str> = source.text.lines().take(2).collect();
        is_source(source)
            && !head
                .iter()
                .any(|line| line.contains("SPDX-License-Identifier: GPL-2.0"))
    });
    let wrong: Vec<String> = wrong.map(|source| source.path).collect();
    none("no SPDX line among the first two", &wrong);
}

#[test]
fn no_line_ends_in_white_space() {
    let mut wrong = Vec::new();
    for source in sources() {
        for (at, line) in source.text.lines().enumerate() {
            if line != line.trim_end() {
                wrong.push(format!("{}:{}", source.path, at + 1));
            }
        }
        if !source.text.is_empty() && !source.text.ends_with('\n') {
            wrong.push(format!("{}: no newline at the end", source.path));
        }
    }
    none("white space", &wrong);
}

#[test]
fn no_path_of_somebodys_machine() {
    // Put together here, so that this file does not match itself.
    let homes = [
        ["/ho", "me/"].concat(),
        ["/Us", "ers/"].concat(),
        ["/ro", "ot/."].concat(),
        ["/wo", "rk/"].concat(),
    ];
    let mut wrong = Vec::new();
    for source in sources() {
        for (at, line) in source.text.lines().enumerate() {
            if homes.iter().any(|home| line.contains(home)) {
                wrong.push(format!("{}:{}: {}", source.path, at + 1, line.trim()));
            }
        }
    }
    none("paths that exist on one machine only", &wrong);
}

#[test]
fn files_are_short() {
    let listed = read(LONG_FILES);
    let mut allowed = BTreeMap::new();
    for line in listed
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
    {
        let (path, lines) = line.rsplit_once(' ').expect("PATH LINES");
        allowed.insert(path.to_string(), lines.parse::<usize>().expect("a number"));
    }
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| is_source(source)) {
        let lines = source.text.lines().count();
        match allowed.remove(&source.path) {
            None if lines > LINES_MAX => {
                wrong.push(format!(
                    "{}: {lines} lines, {LINES_MAX} are allowed",
                    source.path
                ));
            }
            Some(limit) if lines > limit => {
                wrong.push(format!(
                    "{}: grew from {limit} to {lines} lines",
                    source.path
                ));
            }
            Some(limit) if lines < limit => {
                wrong.push(format!(
                    "{}: shrank from {limit} to {lines} lines: lower the limit in {LONG_FILES}",
                    source.path
                ));
            }
            _ => {}
        }
    }
    wrong.extend(
        allowed
            .keys()
            .map(|path| format!("{path}: listed, but not there")),
    );
    none("file length", &wrong);
}
